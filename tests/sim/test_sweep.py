"""Sweeps: every cell once, whole files or none, on where it stopped; and tables of results."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from abps_node.errors import ConfigError, NodeError
from sim import results_files
from sim.methods import METHODS
from sim.sweep import Experiment, plan, read_experiment, sweep
from sim.tables import PAPER, control_of, markdown, table, text
from tests.support.center_processes import WAIT_S, wait_until
from tests.support.command_line import abps

EXPERIMENTS = Path(__file__).parents[2] / "sim" / "experiments"
SMALL = """
data = "synthetic"
options = { centers = 4, rows = 40 }
seeds = [1, 2]
methods = ["fedavg", "abps", "random-matching"]
policy = { rounds = 2 }
beliefs = ["abps"]

[[variant]]
name = "abps-live.logloss"
method = "abps-live"
policy = { utility = "logloss" }
"""


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def result(name: str, seed: int, auroc: float | None, **more: Any) -> dict[str, Any]:
    figures = {
        "pooled_auroc": 0.7,
        "pooled_auprc": 0.2,
        "pooled_brier": 0.1,
        "scored_centers": 9,
        "bandwidth_ratio": 1.5,
        "bandwidth_ratio_vs_50": 1.5,
        "rounds_run": 50,
        "mean_partners": 3.0,
        "belief_changed_order": 0.5,
        "isolation": {},
    }
    config = {"data": {"name": "ist", "options": {}}}
    cell = {"name": name, "method": name, "seed": seed, "config": config, "mean_auroc": auroc}
    return {**cell, **figures, **more}


def test_a_sweep_runs_each_cell_once_and_goes_on_where_it_stopped(
    small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    planned = plan(read_experiment(small), out)
    assert len(planned.cells) == 8
    first = sweep(plan(read_experiment(small), out, rows=["fedavg"]), jobs=1)
    assert [each["seed"] for each in first] == [1, 2]
    kept = results_files.file_of(out, "fedavg", 1)
    stamp = kept.stat().st_mtime_ns
    told: list[tuple[str, int, int]] = []
    found = sweep(
        planned, jobs=2, told=lambda one, done, most: told.append((one["name"], done, most))
    )
    assert len(found) == 8
    assert kept.stat().st_mtime_ns == stamp
    assert [done for _, done, _ in told] == [3, 4, 5, 6, 7, 8]
    assert "fedavg" not in {name for name, _, _ in told}
    assert sorted(path.name for path in out.iterdir()) == sorted(
        results_files.file_of(out, cell.row, cell.seed).name for cell in planned.cells
    )
    by_key = {(each["name"], each["seed"]): each for each in found}
    assert "beliefs" in by_key["abps", 1]
    assert "beliefs" not in by_key["abps", 2]
    assert by_key["abps-live.logloss", 1]["config"]["policy"]["utility"] == "logloss"
    assert by_key["abps-live.logloss", 1]["method"] == "abps-live"
    assert sweep(planned, jobs=2) == found


def test_a_process_of_its_own_gives_the_bits_of_this_one(small: Path, tmp_path: Path) -> None:
    from sim.runner import run

    planned = plan(read_experiment(small), tmp_path / "out", rows=["abps"], seeds=[1])
    there = sweep(planned, jobs=1)[0]
    here = json.loads(json.dumps(run(planned.cells[0])))
    assert {**there, "seconds": 0} == {**here, "seconds": 0}


def test_a_result_of_other_settings_is_never_taken_for_these(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(plan(read_experiment(small), out, rows=["fedavg"], seeds=[1]), jobs=1)
    small.write_text(SMALL.replace("rounds = 2", "rounds = 3"))
    with pytest.raises(ConfigError, match=r"fedavg\.seed-1\.json: found a result with another pol"):
        plan(read_experiment(small), out).open_cells()
    other = plan(read_experiment(small), out, options={"rows": 50})
    with pytest.raises(ConfigError, match="with another"):
        other.open_cells()


def test_a_result_of_another_table_of_ones_own_is_never_taken_for_this(tmp_path: Path) -> None:
    own, contract = tmp_path / "own.csv", tmp_path / "contract.toml"
    own.write_text("center,died,age\na,1,2\n")
    contract.write_text("")
    options = {"file": str(own), "contract": str(contract)}
    experiment = Experiment(data="table", options=options, seeds=[1], methods=["fedavg"])
    planned = plan(experiment, tmp_path / "out")
    (cell,) = planned.cells
    there = {**result("fedavg", 1, 0.7), "config": json.loads(json.dumps(cell.config()))}
    results_files.write(results_files.file_of(tmp_path / "out", "fedavg", 1), there)
    assert planned.open_cells() == []
    own.write_text("center,died,age\na,0,2\n\n")
    with pytest.raises(ConfigError, match="found a result with another files; remove it"):
        planned.open_cells()


def test_what_fails_is_named_and_the_rest_is_done(small: Path, tmp_path: Path) -> None:
    # A center of nothing but NaN labels would be refused; one too small leaves nobody.
    small.write_text(SMALL.replace("rows = 40", "rows = 40, min_rows = 99999"))
    with pytest.raises(NodeError, match="fedavg, seed 1: synthetic: none of 4 centers can take"):
        sweep(plan(read_experiment(small), tmp_path / "out", rows=["fedavg"]), jobs=1)


def test_a_file_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "one.json"
    results_files.write(path, {"a": 1})
    with pytest.raises(ValueError, match="not JSON compliant"):
        results_files.write(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert results_files.file_of(tmp_path, "abps+p", 11).name == "abps+p.seed-11.json"

    def cut(descriptor: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", cut)
    with pytest.raises(NodeError, match=r"one\.json: cannot be written: no space"):
        results_files.write(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}


@pytest.mark.parametrize("name", ["table1.toml", "ablation.toml"])
def test_shipped_experiments_can_be_planned_for_any_data_set(name: str, tmp_path: Path) -> None:
    experiment = read_experiment(EXPERIMENTS / name)
    assert experiment.seeds == [11, 22, 33, 44, 55]
    cells = plan(experiment, tmp_path, "synthetic").cells
    assert cells
    assert not experiment.policy  # nothing is tuned for all rows at once


def test_table1_holds_the_papers_rows_each_abps_row_beside_its_control() -> None:
    rows = read_experiment(EXPERIMENTS / "table1.toml").methods
    assert set(PAPER) <= set(rows)
    assert set(rows) <= set(METHODS)
    for row in rows:
        control = control_of(row)
        if control is not None:
            assert rows[rows.index(row) + 1] == control


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds = [1, 2]", "seeds = []"), "seeds: found []"),
        (("seeds = [1, 2]", "seeds = [1, 1]"), "seeds"),
        (('"fedavg", ', '"fedavg", "fedavg", '), "methods: row 'fedavg' stands there twice"),
        (("beliefs", "belief"), "belief: unknown key; nearest known: beliefs"),
        (('["abps"]', '["abps-x"]'), "beliefs: 'abps-x' is no row of this experiment"),
        (('"abps-live.logloss"', '"../x"'), "name: found"),
        (("seeds =", "seeds"), "is not TOML"),
    ],
    ids=lambda value: str(value),
)
def test_a_faulty_experiment_is_named(small: Path, change: tuple[str, str], message: str) -> None:
    small.write_text(SMALL.replace(*change))
    with pytest.raises(ConfigError) as caught:
        read_experiment(small)
    assert str(caught.value).startswith(str(small))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--rows", "fedavgg"], "--rows: found 'fedavgg', allowed: fedavg, abps, "),
        (["--seeds", "1,x"], "--seeds: found '1,x', allowed: numbers"),
        (["--seeds", "1,1"], "--seeds: found '1,1', allowed: numbers, each once"),
        (["--seeds", "1,-1"], "--seeds: found '1,-1', allowed: numbers"),
        (["--data", "isst"], "data set: found 'isst', nearest: ist"),
        (["--row", "7"], "synthetic: row: unknown key"),
    ],
    ids=lambda value: str(value),
)
def test_bad_words_end_a_sweep_before_it_begins(
    small: Path, tmp_path: Path, words: list[str], message: str
) -> None:
    outcome = abps("sim", "sweep", small, "--out", tmp_path / "out", *words)
    assert outcome.err.startswith(f"abps: {message}"), outcome.err
    assert outcome.code == 10


def test_an_unknown_method_or_policy_key_is_found_before_anything_is_read(
    small: Path, tmp_path: Path
) -> None:
    small.write_text(SMALL.replace('"fedavg"', '"fedavgg"'))
    with pytest.raises(ConfigError, match="method: found 'fedavgg', nearest: fedavg"):
        plan(read_experiment(small), tmp_path)
    small.write_text(SMALL.replace("utility", "utilty"))
    with pytest.raises(ConfigError, match=r"abps-live.logloss: policy: utilty: unknown key"):
        plan(read_experiment(small), tmp_path)


def test_a_table_has_mean_deviation_control_and_paper() -> None:
    results = [
        result("random-matching", 1, 0.70),
        result("random-matching", 2, 0.74),
        result("abps", 1, 0.71, isolation={"all-busy": 0.1, "mixed": 0.05}),
        result("abps", 2, 0.73),
        result("local-only", 1, None, belief_changed_order=None),
    ]
    rows = table(results)
    assert [row.name for row in rows] == ["local-only", "abps", "random-matching"]
    ours = rows[1]
    assert ours.auroc is not None and ours.above_control is not None
    assert ours.auroc.mean == pytest.approx(0.72)
    assert ours.auroc.deviation == pytest.approx(0.02 / 2**0.5)
    # Pair by pair: +0.01 and −0.01.
    assert ours.above_control.mean == pytest.approx(0.0)
    assert ours.above_control.deviation == pytest.approx(0.02 / 2**0.5)
    assert ours.rested == pytest.approx(0.075)
    assert (rows[0].auroc, rows[0].above_control, rows[0].belief_changed_order) == (None,) * 3
    shown = "\n".join(text(rows))
    assert "0.720 ± 0.014  0.753 ± 0.015" in shown
    page = "\n".join(markdown(rows))
    assert "| `abps` | 0.720 ± 0.014 | 0.753 ± 0.015 |" in page


def test_the_command_prints_and_keeps_a_summary(tmp_path: Path) -> None:
    whole = {**result("abps", 1, 0.7), "history": {"auroc": []}, "per_center": {}}
    results_files.write(tmp_path / "in" / "one.json", whole)
    kept = tmp_path / "kept.json"
    outcome = abps("sim", "table", tmp_path / "in", "--summary", kept)
    assert outcome.code == 0, outcome.err
    assert "ist, 9 centers scored" in outcome.out
    assert results_files.read([kept]) == [result("abps", 1, 0.7)]
    again = json.loads(abps("sim", "table", kept, "--json").out)
    assert again[0]["auroc"] == {"mean": 0.7, "deviation": None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not JSON"),
        ("[1]", "found no 'name', allowed: results of abps sim"),
        ('{"name": "a"}', "found no 'method'"),
    ],
)
def test_what_is_no_result_is_named(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    outcome = abps("sim", "table", path)
    assert outcome.err.startswith(f"abps: {path}: {message}"), outcome.err
    assert outcome.code == 1


def test_no_results_and_results_twice_are_errors(tmp_path: Path) -> None:
    assert "found no *.json" in abps("sim", "table", tmp_path).err
    for name in ("a", "b"):
        results_files.write(tmp_path / f"{name}.json", result("abps", 1, 0.7))
    assert "abps, seed 1 on ist: found twice" in abps("sim", "table", tmp_path).err


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGKILL, -signal.SIGKILL, ""),
        (signal.SIGINT, 130, "interrupted: 0 of 8 cells have a result; the same command runs"),
    ],
    ids=["killed", "interrupted"],
)
def test_no_worker_outlives_a_sweep_that_is_ended(
    small: Path, tmp_path: Path, number: signal.Signals, code: int, said: str
) -> None:
    with endless_sweep(small, tmp_path) as process:
        (worker,) = workers_of(process.pid)
        process.send_signal(number)
        err = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == code, err
    assert said in err
    wait_until(lambda: not command_of(worker), "the worker's end")


def test_a_worker_that_is_killed_ends_the_sweep_in_words(small: Path, tmp_path: Path) -> None:
    with endless_sweep(small, tmp_path) as process:
        os.kill(int(workers_of(process.pid)[0]), signal.SIGKILL)
        err = process.communicate(timeout=WAIT_S)[1]
    assert process.returncode == 1
    assert err.startswith("abps: a process was killed, perhaps for memory; 0 of 8 cells have"), err


@contextmanager
def endless_sweep(experiment: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A sweep with one worker at work on a cell that takes far longer than the test."""
    experiment.write_text(SMALL.replace("rounds = 2", "rounds = 1000000"))
    words = ["sim", "sweep", str(experiment), "--out", str(folder / "out"), "--jobs", "1"]
    command = [sys.executable, "-m", "abps_node", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_until(lambda: workers_of(process.pid), "a worker at work")
            yield process
        finally:
            process.kill()


def workers_of(parent: int) -> list[str]:
    """Spawned processes that import the simulator already; multiprocessing's own helper is none."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [child for child in children if b"spawn_main" in command_of(child)]


def command_of(process: str) -> bytes:
    """Empty for one that ended, also if nobody has asked for its end yet."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except FileNotFoundError:
        return b""
