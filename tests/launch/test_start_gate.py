"""The start gate: whoever is ready waits for the others, but neither for the dead nor for ever."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.layout import FederationLayout
from tests.support.center_processes import wait_until
from tests.support.layouts import small_federation

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0

SCRIPT = """
import asyncio, os, sys, time
from pathlib import Path
from rich.console import Console
from launch import local, start_gate
from launch.children import fork
from launch.layout import read_layout
from launch.restarts import RestartPolicy

directory = Path(sys.argv[1])
mark = lambda name: (directory / name).touch()
there = lambda name: (directory / name).exists()

def until(name):
    while not there(name):
        time.sleep(0.01)

def work(center, gate):
    %s

local.fork_daemon = lambda center, output, let_go, gate: fork(
    lambda: work(center, gate), output, let_go
)
local.warm_up = lambda contract: None
start_gate.LONGEST_S = %s
policy = RestartPolicy(tries=3, first_s=0.01, longest_s=0.02)
console = Console(stderr=True, width=300)
sys.exit(local.launch_local(read_layout(directory), console=console, restarts=policy))
"""


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    return small_federation(tmp_path / "fed", ["far", "near"])


def command(layout: FederationLayout, work: str, longest_s: float = DEADLINE_S) -> list[str]:
    """A supervisor whose children do ``work``."""
    body = work.strip().replace("\n", "\n    ")
    return [sys.executable, "-c", SCRIPT % (body, longest_s), str(layout.directory)]


def run(layout: FederationLayout, work: str, longest_s: float = DEADLINE_S) -> tuple[int, str]:
    """Its exit code, and what it said."""
    done = subprocess.run(
        command(layout, work, longest_s),
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=DEADLINE_S,
        check=False,
    )
    return done.returncode, done.stderr


def test_nobody_begins_before_the_last_is_ready(layout: FederationLayout) -> None:
    work = """
if center.id == "far":
    until("near-is-ready")
    time.sleep(0.3)
mark(f"{center.id}-is-ready")
asyncio.run(gate.pass_through())
return 0 if there("far-is-ready") and there("near-is-ready") else 13
"""
    code, said = run(layout, work)
    assert code == 0, said


def test_who_crashes_is_not_awaited(layout: FederationLayout) -> None:
    work = """
if center.id == "far":
    return 70
asyncio.run(gate.pass_through())
mark("near-has-begun")
return 0
"""
    code, said = run(layout, work)
    assert code == 1
    assert "far: exit 70" in said
    assert (layout.directory / "near-has-begun").exists(), said


def test_who_is_never_ready_is_not_awaited_for_ever(layout: FederationLayout) -> None:
    work = """
if center.id == "far":
    until("near-has-begun")
    return 0
asyncio.run(gate.pass_through())
mark("near-has-begun")
return 0
"""
    code, said = run(layout, work, longest_s=0.2)
    assert code == 0, said


def test_who_waits_when_all_are_stopped_never_begins(layout: FederationLayout) -> None:
    work = """
mark(f"{center.id}-waits")
if center.id == "far":
    until("never")
asyncio.run(gate.pass_through())
mark("near-has-begun")
return 0
"""
    here = layout.directory
    with subprocess.Popen(
        command(layout, work), stderr=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        try:
            waiting = [here / f"{name}-waits" for name in ("far", "near")]
            wait_until(lambda: all(path.exists() for path in waiting), "both wait")
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert process.returncode == 1, said
    assert "Stopped. The same command goes on" in said
    assert not (here / "near-has-begun").exists(), said
