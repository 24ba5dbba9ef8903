"""A sweep as a job array of a real Slurm: broken off, submitted again, and whole in the end."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sim.job_array import SCRIPT_NAME
from sim.runner import run
from sim.sweep import key_of, plan, read_experiment
from tests.support.command_line import abps
from tests.support.slurm_cluster import Cluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
SMALL = """
data = "synthetic"
options = { centers = 4, rows = 40 }
seeds = [1, 2]
methods = ["fedavg", "abps"]
policy = { rounds = 2 }
"""
CELLS = {"fedavg:1", "abps:1", "fedavg:2", "abps:2"}
ENDED_S = 100.0


def submit(*words: str) -> tuple[str, int]:
    """The job's number, and how many tasks it has."""
    outcome = abps("sim", "sweep", "small.toml", "--out", "out", "--slurm", *words)
    assert (outcome.code, outcome.err) == (0, "")
    told = re.match(r"Job (\d+): \d of 4 cells in (\d) tasks", outcome.out)
    assert told is not None, outcome.out
    return told[1], int(told[2])


def results() -> dict[str, Path]:
    """Results that are there, by ROW:SEED."""
    return {
        path.name.removesuffix(".json").replace(".seed-", ":"): path
        for path in Path("out").glob("*.json")
    }


def printed() -> str:
    return "\n".join(path.read_text() for path in sorted(Path("out").glob("slurm/*.txt")))


def test_an_array_is_broken_off_and_the_same_command_runs_the_rest(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(SMALL)
    job, tasks = submit("--array-limit", "1")
    assert tasks == 4
    wait_until(lambda: bool(results()), ENDED_S, f"no cell is done; {printed()}")
    cluster.cancel_all()
    first = {key: path.stat().st_mtime_ns for key, path in results().items()}
    assert first.keys() < CELLS, "one task at a time: not all can be done"

    job, tasks = submit("--cpus-per-task", "2", "--time", "10")
    script = Path("out", SCRIPT_NAME).read_text()
    assert {key for key in CELLS if key in script} == CELLS - first.keys()
    for task in range(tasks):
        assert cluster.wait(f"{job}_{task}", ENDED_S) == "COMPLETED", printed()
    assert results().keys() == CELLS
    assert {key: results()[key].stat().st_mtime_ns for key in first} == first, "not anew"

    again = abps("sim", "sweep", "small.toml", "--out", "out", "--slurm")
    assert again.out == "All 4 cells have a result: abps sim table out\n"
    cell = plan(read_experiment(Path("small.toml")), Path("out")).cells[-1]
    here = json.loads(json.dumps(run(cell)))
    there = json.loads(results()[key_of(cell)].read_text())
    assert {**there, "seconds": 0} == {**here, "seconds": 0}, "the bits of this machine"
