"""A sweep as a job array: the script, the shares, and what is refused before Slurm is asked."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from abps_node.errors import ConfigError, NodeError
from sim import results_files
from sim.job_array import MOST_TASKS, SCRIPT_NAME, Job, shares
from sim.sweep import plan, read_experiment, sweep
from tests.support.command_line import Outcome, abps

SMALL = """
data = "synthetic"
options = { centers = 4, rows = 40 }
seeds = [1, 2]
methods = ["fedavg", "local-only", "abps"]
policy = { rounds = 2 }
"""
CELLS = {f"{row}:{seed}" for row in ("fedavg", "local-only", "abps") for seed in (1, 2)}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ABPS_DATA_DIR", str(tmp_path / "my data"))
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def array(*words: str | Path) -> Outcome:
    return abps("sim", "sweep", "small.toml", "--out", "out", "--slurm", *words)


def script(*words: str) -> str:
    outcome = array("--dry-run", *words)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out


def options(text: str) -> list[str]:
    return [shlex.split(line)[1] for line in text.splitlines() if line.startswith("#SBATCH ")]


def shares_of(text: str) -> list[list[str]]:
    """The cells of each task, as the shell will read them."""
    inside = re.search(r"^cells=\((.*?)^\)", text, re.DOTALL | re.MULTILINE)
    assert inside is not None
    return [word.split(",") for word in shlex.split(inside[1], comments=True)]


def run_task(text: str, number: int) -> list[str]:
    """The command that a task of this number ends as, with its arguments."""
    line = f"exec {sys.executable} -m abps_node"
    assert line in text
    told = text.replace(line, "printf '%s\\n' \"$ABPS_DATA_DIR\"").encode()
    environment = {"PATH": os.environ["PATH"], "SLURM_ARRAY_TASK_ID": str(number)}
    return (
        subprocess.run(["bash"], input=told, env=environment, capture_output=True, check=True)
        .stdout.decode()
        .splitlines()
    )


def test_a_dry_run_prints_the_script_and_writes_nothing(small: Path) -> None:
    text = script(
        *("--slurm-partition", "long", "--time", "2:00:00", "--account", "icu"),
        *("--constraint", "avx2", "--memory", "4G", "--option", "qos=low"),
        *("--cpus-per-task", "2", "--array-limit", "7"),
    )
    assert [path.name for path in small.parent.iterdir()] == ["small.toml"]
    assert set(options(text)) >= {
        *("--partition=long", "--time=2:00:00", "--account=icu", "--constraint=avx2"),
        *("--mem=4G", "--qos=low", "--cpus-per-task=2", "--array=0-2%7", "--nodes=1"),
        *("--requeue", f"--chdir={small.parent}"),
        f"--output={small.parent}/out/slurm/job-%A-task-%a.txt",
    }
    assert {cell for share in shares_of(text) for cell in share} == CELLS
    assert [len(share) for share in shares_of(text)] == [2, 2, 2]


def test_a_task_runs_its_share_with_the_words_of_the_submission(small: Path) -> None:
    text = script("--seeds", "2,1", "--data", "synthetic", "--partition", "iid", "--spread=0.1")
    task = run_task(text, 3)
    assert task[0] == str(small.parent / "my data")
    assert task[1:] == [
        *("sim", "sweep", "small.toml", "--out", "out", "--partition", "iid", "--spread=0.1"),
        *("--data", "synthetic", "--seeds", "2,1", "--jobs", "1", "--cells", "fedavg:1"),
    ]


def test_only_what_is_missing_is_submitted(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = plan(read_experiment(small), Path("out"), rows=["fedavg"])
    sweep(done, jobs=1)
    rest = CELLS - {"fedavg:1", "fedavg:2"}
    assert {cell for share in shares_of(script()) for cell in share} == rest
    assert array("--rows", "fedavg").out == "All 2 cells have a result: abps sim table out\n"

    program = small.parent / "bin" / "sbatch"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {small.parent}/asked; echo "41;made"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    outcome = array("--cells-per-task", "3")
    assert outcome.out == (
        "Job 41: 4 of 6 cells in 2 tasks, up to 2 each. Output: out/slurm/job-41-task-*.txt\n"
    )
    assert (small.parent / "asked").read_text() == f"--parsable out/{SCRIPT_NAME}\n"
    assert (small.parent / "out" / "slurm").is_dir(), "Slurm does not make it"
    assert shares_of((small.parent / "out" / SCRIPT_NAME).read_text()) == [
        ["local-only:1", "local-only:2"],
        ["abps:1", "abps:2"],
    ]
    assert len(results_files.read([Path("out")])) == 2, "what lies beside is no result"


def test_chosen_cells_and_no_others_are_run(small: Path) -> None:
    outcome = abps("sim", "sweep", small, "--out", "out", "--cells", "abps:2", "--jobs", "1")
    assert outcome.code == 0, outcome.err
    assert [path.name for path in Path("out").iterdir()] == ["abps.seed-2.json"]


@pytest.mark.parametrize(("cells", "cpus"), [(1, 1), (7, 2), (100, 8), (MOST_TASKS + 1, 1)])
def test_shares_are_disjoint_complete_and_even(cells: int, cpus: int) -> None:
    names = [f"row:{number}" for number in range(cells)]
    parts = shares(names, Job(cpus_per_task=cpus))
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(parts) <= MOST_TASKS


def test_an_array_that_Slurm_would_refuse() -> None:
    names = [f"row:{number}" for number in range(3 * MOST_TASKS)]
    with pytest.raises(NodeError, match="--cells-per-task: found 2, allowed: at least 3 here"):
        shares(names, Job(cells_per_task=2))


def test_without_sbatch(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(small.parent))
    outcome = array()
    assert outcome.code == 1
    (line,) = outcome.err.splitlines()
    assert line.startswith("abps: sbatch: not found on the PATH; submit on a login node")
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--slurm", "--jobs", "2"], "--jobs: found 2, allowed: without --slurm only"),
        (["--slurm", "--json"], "--json: found True, allowed: without --slurm only"),
        (["--time", "1:00"], "--time: found '1:00', allowed: with --slurm only"),
        (["--dry-run"], "--dry-run: found True, allowed: with --slurm only"),
        (
            ["--slurm-partition", "x"],
            "--slurm-partition: found 'x', allowed: with --slurm only",
        ),
        (["--cells", "abps:3"], "--cells: found 'abps:3', allowed: ROW:SEED of this sweep, fedavg"),
    ],
    ids=lambda value: str(value),
)
def test_words_that_do_not_fit_together(small: Path, words: list[str], message: str) -> None:
    outcome = abps("sim", "sweep", small, "--out", "out", *words)
    assert outcome.err.startswith(f"abps: {message}"), outcome.err
    assert outcome.code == 10


def test_another_cell_of_the_same_name_is_found_before_the_submission(small: Path) -> None:
    sweep(plan(read_experiment(small), Path("out"), rows=["fedavg"], seeds=[1]), jobs=1)
    small.write_text(SMALL.replace("rounds = 2", "rounds = 3"))
    outcome = array("--dry-run")
    assert "found a result with another policy" in outcome.err
    with pytest.raises(ConfigError):
        plan(read_experiment(small), Path("out")).open_cells()
