"""The bench against public simulators: our side runs and trains, who is missing is named."""

from __future__ import annotations

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[2] / "bench"
MISSING = [
    name
    for name, module in (("fluke", "fluke"), ("flower", "flwr"))
    if importlib.util.find_spec(module) is None
]
BUSY = """
import time
while time.process_time() < 0.5:
    pass
print(flush=True)
input()
"""


@pytest.mark.slow
def test_our_side_trains_and_who_is_not_installed_is_named() -> None:
    words = ["--only", *MISSING]
    run = subprocess.run(
        [
            sys.executable,
            BENCH / "public_simulators.py",
            "--centers",
            "3",
            "--rounds",
            "20",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    *human, last = run.stdout.splitlines()
    assert any(line.startswith("ours ") for line in human)
    found = json.loads(last)
    assert (found["centers"], found["rounds"], list(found["contestants"])) == (3, 20, ["ours"])
    assert list(found["left_out"]) == MISSING
    for why in found["left_out"].values():
        assert why.startswith("not installed: ")
    ours = found["contestants"]["ours"]
    assert 0 < ours["cpu_seconds_per_round"] < ours["cpu_seconds_whole"]
    assert 0 < ours["seconds_per_round"] < ours["seconds_whole"]
    assert ours["auroc"] > found["auroc_at_start"] + 0.05


def test_a_lap_counts_the_processes_that_a_contestant_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    clock = importlib.import_module("public_work").Clock()
    clock.lap()
    arguments = [sys.executable, "-c", BUSY]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()  # it has been busy, and lives
        clock.lap()
        child.communicate(b"\n")
    (wall, cpu), (later, more) = clock.laps
    assert later - wall > 0
    assert 0.4 < more - cpu < 5
