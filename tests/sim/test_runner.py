"""One cell: its keys, its figures, its repeatability, and what goes wrong in words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from sim.methods import METHODS
from sim.runner import Cell, run
from sim.sources import Source, federation
from tests.support.command_line import abps

SMALL = {"centers": 6, "rows": 60, "spread": 0.3}
SOURCE = Source.of("synthetic", SMALL)
WORDS = ("--data", "synthetic", "--centers", "6", "--rows", "60", "--spread", "0.3")
KEYS = (
    "method",
    "seed",
    "config",
    "versions",
    "rounds_run",
    "mean_auroc",
    "scored_centers",
    "pooled_auroc",
    "bandwidth_ratio",
    "bandwidth_ratio_vs_50",
    "mean_partners",
    "belief_changed_order",
    "isolation",
    "per_center",
    "seconds",
)


def cell(method: str, **changes: Any) -> Cell:
    policy = {"rounds": 4, **changes.pop("policy", {})}
    return Cell(method, 11, SOURCE, policy=policy, **changes)


def bits(result: dict[str, Any]) -> str:
    return json.dumps({key: result[key] for key in result if key != "seconds"}, allow_nan=False)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_every_key_and_plain_numbers(method: str) -> None:
    result = run(cell(method, policy={"rounds": 2}))
    assert set(KEYS) <= set(result)
    assert json.loads(bits(result)) == {
        key: value for key, value in result.items() if key != "seconds"
    }
    assert result["rounds_run"] == 2
    assert len(result["per_center"]) == 6
    assert 0 <= sum(result["isolation"].values()) <= 1
    chooses = method.startswith(("abps", "random-matching"))
    assert (result["belief_changed_order"] is not None) == chooses


def test_the_same_cell_gives_the_same_bits_whatever_the_number_of_threads() -> None:
    asked = cell("abps-live", beliefs=True)
    first = run(asked)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        again = run(asked)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert bits(first) == bits(again)
    assert bits(run(replace(asked, seed=22))) != bits(first)


def test_a_seed_draws_splits_and_weights_and_methods_share_them() -> None:
    one, same, other = (federation(SOURCE, seed) for seed in (11, 11, 22))
    np.testing.assert_array_equal(one.centers[0].data.test.x, same.centers[0].data.test.x)
    assert one.contract.digest() == same.contract.digest()
    assert one.contract.model.init_seed != other.contract.model.init_seed
    assert one.contract.data.split_seed != other.contract.data.split_seed
    fixed = Source.of("synthetic", {**SMALL, "split_seed": 3})
    assert {federation(fixed, seed).contract.data.split_seed for seed in (1, 2)} == {3}


def test_the_figures_are_those_of_the_rounds() -> None:
    result = run(cell("abps", policy={"kappa": 2, "rounds": 5}))
    assert result["rounds_run"] == 5
    history = result["history"]
    moved = sum(history["bytes"])
    assert result["bytes"] == moved
    size = moved / result["bandwidth_ratio"] / 5 / 6 / 2 / 4
    assert size == pytest.approx(round(size))
    assert result["bandwidth_ratio_vs_50"] == pytest.approx(result["bandwidth_ratio"] / 10)
    assert result["mean_partners"] == pytest.approx(np.mean(history["partners"]))
    exchanges = [each["exchanges"] for each in result["per_center"].values()]
    assert sum(exchanges) == round(result["mean_partners"] * 6 * 5)
    scored = [each["auroc"] for each in result["per_center"].values() if each["auroc"] is not None]
    assert result["mean_auroc"] == pytest.approx(np.mean(scored))
    assert len(scored) == result["scored_centers"]
    assert history["auroc"][-1] == pytest.approx(result["mean_auroc"], abs=1e-6)


def test_a_star_costs_one_and_nobody_rests_there() -> None:
    result = run(cell("fedavg"))
    assert (result["bandwidth_ratio"], result["bandwidth_ratio_vs_50"]) == (1.0, 4 / 50)
    assert (result["isolation"], result["mean_partners"]) == ({}, 0.0)
    alone = run(cell("local-only"))
    assert (alone["bytes"], alone["bandwidth_ratio"]) == (0, 0.0)


def test_rests_are_counted_by_cause() -> None:
    # Nobody is admissible from round 2 on: the bonus is nothing, the threshold out of reach.
    result = run(cell("abps", policy={"tau_acc": 0.99, "gamma": 0.0, "epsilon": 0.0}))
    assert result["isolation"] == {"below-threshold": 1.0}
    assert result["mean_partners"] == 0.0


def test_early_stop_of_the_network_ends_all_and_of_centers_one_by_one() -> None:
    policy = {"rounds": 40, "patience": 1}
    together = run(cell("abps-x", policy=policy))
    assert together["rounds_run"] < 40
    assert set(together["history"]["active"]) == {6}
    assert len({each["best_round"] for each in together["per_center"].values()}) == 1
    single = run(cell("abps-x", policy=policy, early_stop="center"))
    active = single["history"]["active"]
    assert active == sorted(active, reverse=True)
    assert active[-1] < 6
    assert single["config"]["early_stop"] == "center"


def test_a_federation_directory_is_run_as_it_stands(tmp_path: Path) -> None:
    directory = tmp_path / "wards"
    prepared = abps(
        *("data", "prepare", "synthetic", "--out", directory, "--centers", "4", "--rows", "60")
    )
    assert prepared.code == 0, prepared.err
    outcome = abps("sim", "run", "fedavg", "--federation", directory, "--rounds", "2", "--json")
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out.splitlines()[-1])
    assert result["config"]["data"]["name"] == "wards"
    assert result["config"]["model"]["init_seed"] == 1
    assert str(tmp_path) not in outcome.out
    assert result["config"]["data"]["policy_of_directory"] == {"rounds": 50}
    told = abps("sim", "run", "fedavg", "--federation", directory, "--rounds", "1")
    assert "over 4 of 4 centers\n" in told.out or "lack a class" in told.out
    assert "the directory's own policy does not count, the method's does: rounds 50 (here 1)" in (
        told.out
    )
    assert "1 round, " in told.out


def test_json_is_the_last_line_and_the_same_object(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    words = ("sim", "run", "abps", *WORDS, "--rounds", "4", "--json", "--out", file)
    outcome = abps(*words)
    assert outcome.code == 0, outcome.err
    printed = json.loads(outcome.out.splitlines()[-1])
    assert printed == json.loads(file.read_text(encoding="utf-8"))
    assert bits(printed) == bits(run(cell("abps")))
    assert printed["config"]["policy"]["rounds"] == 4


def test_words_tell_what_fell_back_and_who_is_not_scored() -> None:
    words = ("sim", "run", "abps", "--data", "synthetic", "--centers", "5", "--rows", "12")
    outcome = abps(*words, "--rounds", "1", "--seed", "3")
    assert outcome.code == 0, outcome.err
    assert "the others lack a class in their test split" in outcome.out
    assert "one class in validation, credit by 1 − Brier: " in outcome.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["fedavgg", *WORDS], 10, "method: found 'fedavgg', nearest: fedavg"),
        (["fedavg"], 10, "sim run: give either --data NAME or --federation DIR"),
        (["fedavg", "--data", "isst"], 10, "data set: found 'isst', nearest: ist"),
        (["fedavg", *WORDS, "--set", "gama=1"], 10, "fedavg: policy: gama: unknown key; nearest"),
        (["fedavg", *WORDS, "--set", "gamma"], 10, "--set: found 'gamma', allowed: KEY=VALUE"),
        (["abps", *WORDS, "--set", "kappa=0"], 10, "abps: policy: kappa: found 0, allowed: "),
        (["abps", *WORDS, "--early-stop", "all"], 10, "--early-stop: found 'all', allowed: netw"),
        (["abps", *WORDS, "--row", "9"], 10, "synthetic: row: unknown key"),
        (["ist", "--federation", "/nowhere"], 10, "method: found 'ist'"),
        (["abps", "--federation", "/nowhere"], 10, "/nowhere/federation.toml: cannot be read"),
        (["abps", "--data", "ist", "--data-dir", "/nowhere"], 11, "ist: ist.csv.gz is in neither"),
        (["abps", *WORDS, "--out", "/dev/null/x.json"], 1, "/dev/null: cannot be made: File exi"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_message(words: list[str], code: int, message: str) -> None:
    outcome = abps("sim", "run", *words, "--rounds", "1")
    assert outcome.err.startswith(f"abps: {message}"), outcome.err
    assert (outcome.code, outcome.out) == (code, "")


def test_a_column_without_values_and_a_center_too_small_are_named(tmp_path: Path) -> None:
    rows = "".join(f"a,{row % 2},NaN\nb,{row % 2},1\n" for row in range(30))
    (tmp_path / "own.csv").write_text("center,died,age\n" + rows + "c,1,2\nc,0,3\nc,1,4\n")
    (tmp_path / "contract.toml").write_text(
        'name = "mine"\n[data]\nlabel = "died"\n'
        'features = [{ name = "age", kind = "continuous" }]\n'
    )
    words = ("--file", tmp_path / "own.csv", "--contract", tmp_path / "contract.toml")
    outcome = abps("sim", "run", "abps", "--data", "table", *words, "--rounds", "1")
    assert outcome.code == 0, outcome.err
    assert "no value of age, its input is 0: 1 center (a)" in outcome.out
    assert "too small to take part: 1 center (c)" in outcome.out
    assert str(tmp_path) not in outcome.out
