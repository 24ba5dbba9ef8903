"""`abps data`: what is written is what the simulator has in memory, and what daemons run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abps_node.config import load_federation
from sim.datasets import DATASETS, load
from sim.datasets.arguments import described, options_model, parsed
from sim.federation import load_federation_directory
from tests.support.command_line import abps

SMALL = ("--centers", "3", "--rows=60", "--spread", "0", "--seed", "5")


def test_list_names_every_data_set_and_where_its_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ABPS_DATA_DIR", raising=False)
    (tmp_path / "ist").mkdir()
    (tmp_path / "ist" / "ist.csv.gz").write_bytes(b"")
    outcome = abps("data", "list", "--data-dir", tmp_path, "--json")
    found = json.loads(outcome.out)
    assert (outcome.code, list(found)) == (0, list(DATASETS))
    assert found["ist"]["found"] == f"found in {tmp_path}/ist"
    assert "patient.csv.gz is in neither of" in found["eicu-demo"]["found"]
    text = abps("data", "list").out
    assert "ist: needs --data-dir or ABPS_DATA_DIR" in text
    assert "examples/rhc" in text


@pytest.mark.parametrize("name", DATASETS)
def test_show_lists_all_options(name: str) -> None:
    outcome = abps("data", "show", name)
    assert outcome.code == 0
    for option, words, _, _ in described(name):
        assert f"  {option:16} {words} (default: " in outcome.out
    assert len(list(described(name))) == len(options_model(name).model_fields)


def test_options_are_read_as_the_data_set_has_them() -> None:
    words = ["--centers", "7", "--alpha=0.1", "--features", "age,sex", "--partition", "iid"]
    assert parsed("rhc", words) == {
        "centers": 7,
        "alpha": 0.1,
        "features": ["age", "sex"],
        "partition": "iid",
    }
    assert parsed("synthetic", ["--rows", "many"]) == {"rows": "many"}


def test_what_is_written_is_what_is_in_memory(tmp_path: Path) -> None:
    directory = tmp_path / "fed"
    outcome = abps("data", "prepare", "synthetic", "--out", directory, *SMALL, "--rounds", "9")
    assert outcome.code == 0, outcome.err
    assert "3 centers, 180 rows" in outcome.out
    assert f"next: abps launch local {directory}" in outcome.out
    files = load_federation_directory(directory)
    options = {"centers": 3, "rows": 60, "spread": 0, "seed": 5}
    memory = load("synthetic", None, options).federation()
    for one, other in zip(files.centers, memory.centers, strict=True):
        assert one.id == other.id
        np.testing.assert_array_equal(one.data.train.x, other.data.train.x)
        np.testing.assert_array_equal(one.data.test.y, other.data.test.y)
        assert one.data.card == other.data.card
        assert one.data.report == other.data.report
    contract = load_federation(directory / "federation.toml").contract
    assert (contract.policy.rounds, contract.pacing.min_peers) == (9, 2)
    record = json.loads((directory / "data.json").read_text())
    assert list(record["centers"]) == [center.id for center in memory.centers]
    assert record["options"] == options
    assert record["contract"] == contract.digest()
    assert record["left_out"] == []


def test_a_draft_of_the_schema_is_a_contract_and_changed_names_are_told(tmp_path: Path) -> None:
    rows = "".join(f"{site},{row % 2},{row}\n" for row in range(60) for site in ("St Ann (2)", "b"))
    own, draft = tmp_path / "own.csv", tmp_path / "draft.toml"
    own.write_text("site,died,age\n" + rows)
    assert abps("schema", "infer", own, "--label", "died", "--out", draft).code == 0
    kept = [line for line in draft.read_text().splitlines() if 'name = "site"' not in line]
    draft.write_text("\n".join(kept).replace("fill in", "years"))
    asked = ("--file", own, "--contract", draft, "--center-column", "site", "--centers", "9")
    outcome = abps("data", "prepare", "table", *asked, "--out", tmp_path / "fed")
    assert outcome.code == 0, outcome.err
    assert "own: 2 centers, 120 rows, 60 positive" in outcome.out
    assert "names that became ids: 'St Ann (2)' is st-ann-2\n" in outcome.out
    assert "9 centers were asked for, the data have 2" in outcome.out


def test_prepare_says_who_was_left_out_and_why(tmp_path: Path) -> None:
    table = pa.table(
        {
            "center": ["big"] * 100 + ["tiny"] * 3 + ["calm"] * 50,
            "died": [row % 2 for row in range(103)] + [0] * 50,
            "age": [float(row) for row in range(100)] + [1.0] * 3 + [None] * 50,
        }
    )
    pq.write_table(table, tmp_path / "own.parquet")
    contract = tmp_path / "contract.toml"
    contract.write_text(
        'name = "mine"\n[data]\nlabel = "died"\n'
        'features = [{ name = "age", kind = "continuous" }]\n[policy]\npreset = "abps-x"\n'
    )
    asked = ("--file", tmp_path / "own.parquet", "--contract", contract)
    outcome = abps("data", "prepare", "table", "--out", tmp_path / "fed", *asked, "--json")
    assert outcome.code == 0, outcome.err
    record = json.loads(outcome.out)
    assert list(record["centers"]) == ["big", "calm"]
    reason = "3 rows gave 2 train, 1 validation, 0 test"
    assert record["left_out"] == [
        {"id": "tiny", "rows": 3, "cause": "empty-split", "reason": reason}
    ]
    assert record["one_class"] == ["calm"]
    assert record["without_values"] == {"age": ["calm"]}
    assert load_federation(tmp_path / "fed" / "federation.toml").contract.policy.preset == "abps-x"

    words = abps("data", "prepare", "table", "--out", tmp_path / "again", *asked).out
    assert f"left out, a split without rows: 1 center with 3 rows (tiny: {reason})" in words
    assert "one class only, utility 1 − Brier: 1 center (calm)" in words
    assert "no value of age, its input is 0: 1 center (calm)" in words


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["synthetik"], 10, "data set: found 'synthetik', nearest: synthetic; allowed: rhc, "),
        (["synthetic", "--rows", "many"], 10, 'synthetic: rows: found "many", allowed: an integ'),
        (["synthetic", "--row", "9"], 10, "synthetic: row: unknown key; nearest known: rows"),
        (["synthetic", "--rows"], 10, "synthetic: --rows: found nothing behind it, allowed: a v"),
        (["synthetic", "more"], 10, "synthetic: found 'more', allowed: --option value"),
        (["rhc", "--seed", "1", "--seed=2"], 10, "rhc: --seed: found twice, allowed: once"),
        (["rhc", "--alpha", "0.1"], 10, "rhc: alpha: found with partition natural, where nothing"),
        (["rhc", "--seed", "3"], 10, "rhc: seed: found with partition natural, where nothing"),
        (["rhc", "--features", "race"], 10, "rhc: features: found 'race', which would leak: "),
        (
            ["synthetic", *SMALL, "--preset", "abs"],
            10,
            'synthetic: policy.preset: found "abs", all',
        ),
        (["synthetic", *SMALL, "--rounds", "0"], 10, "synthetic: policy.rounds: found 0, allowed"),
        (["rhc", "--min-rows", "9999"], 11, "rhc: none of 9 centers can take part; 'arf': 2490 ro"),
        (["ist", "--data-dir", "/nowhere"], 11, "ist: ist.csv.gz is in neither of /nowhere/ist an"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_message_and_writes_nothing(
    tmp_path: Path, words: list[str], code: int, message: str
) -> None:
    outcome = abps("data", "prepare", *words, "--out", tmp_path / "fed")
    assert outcome.err.startswith(f"abps: {message}"), outcome.err
    assert (outcome.code, outcome.out) == (code, "")
    assert not (tmp_path / "fed").exists()


def test_what_is_there_is_not_written_over_nor_read_for(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("")
    outcome = abps("data", "prepare", "ist", "--data-dir", "/nowhere", "--out", tmp_path)
    assert f"abps: {tmp_path}: exists and is not an empty directory" in outcome.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.slow
def test_daemons_run_what_was_prepared(tmp_path: Path) -> None:
    directory = tmp_path / "fed"
    prepared = abps("data", "prepare", "synthetic", "--out", directory, *SMALL, "--rounds", "3")
    assert prepared.code == 0, prepared.err
    command = [sys.executable, "-m", "abps_node", "launch", "local", str(directory), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    centers = json.loads(done.stdout)["centers"]
    assert [center["id"] for center in centers] == ["center-0", "center-1", "center-2"]
    assert all(center["rounds"] == 3 for center in centers)
