"""The supervisor: crashes and restarts, forks that end with it, output that is drained.

Children are forked from a process of one thread, so each test runs a small script of its own.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from abps_node.exits import ExitCode
from launch.console import Console
from launch.layout import FederationLayout
from launch.restarts import FINAL, Crashes, RestartPolicy
from launch.supervisor import Supervisor, Ward, fork_daemon
from tests.support.center_processes import wait_until
from tests.support.layouts import small_federation

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0

SCRIPT = """
import os, sys, time, signal
from pathlib import Path
from rich.console import Console
from launch.children import fork
from launch.layout import read_layout
from launch import local
from launch.restarts import RestartPolicy

directory, pipe = Path(sys.argv[1]), Path(sys.argv[2])

def tell(text):
    with open(pipe, "a") as out:
        print(text, file=out, flush=True)

def starts(center):
    with (directory / f"{center.id}.starts").open("a+") as file:
        file.write("x")
        return file.tell()

def work(center):
    %s

local.fork_daemon = lambda center, output, let_go, gate: fork(lambda: work(center), output, let_go)
local.warm_up = lambda contract: None
policy = RestartPolicy(tries=3, first_s=0.01, longest_s=0.02)
console = Console(stderr=True, width=300)
sys.exit(local.launch_local(read_layout(directory), console=console, restarts=policy))
"""


class Run:
    """One supervisor process whose children do ``work``."""

    def __init__(self, layout: FederationLayout, work: str) -> None:
        self.pipe = layout.directory / "pipe"
        os.mkfifo(self.pipe)
        self._reading = os.fdopen(os.open(self.pipe, os.O_RDWR))
        body = work.strip().replace("\n", "\n    ")
        command = [sys.executable, "-c", SCRIPT % body, str(layout.directory), str(self.pipe)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=ROOT)
        self.handles: list[int] = []

    def pids(self, count: int) -> list[int]:
        """Process ids that so many children have told."""
        found = [int(self._reading.readline()) for _ in range(count)]
        self.handles += [os.pidfd_open(pid) for pid in found]
        return found

    def end(self) -> tuple[int, str]:
        """Exit code and what the supervisor said."""
        _, said = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said

    def all_gone(self) -> bool:
        """Whether all children whose ids were told end within the deadline."""
        return all(select.select([handle], [], [], DEADLINE_S)[0] for handle in self.handles)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        for handle in self.handles:
            os.close(handle)
        self._reading.close()


Supervised = Callable[[str], Run]


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    return small_federation(tmp_path / "fed", ["far", "near"])


@pytest.fixture
def supervised(layout: FederationLayout) -> Iterator[Supervised]:
    runs: list[Run] = []

    def start(work: str) -> Run:
        runs.append(Run(layout, work))
        return runs[-1]

    yield start
    for run in runs:
        run.close()


def starts(layout: FederationLayout, center: str) -> int:
    return len((layout.directory / f"{center}.starts").read_text())


def test_a_crash_is_forgiven(supervised: Supervised, layout: FederationLayout) -> None:
    code, said = supervised("return 70 if starts(center) < 3 else 0").end()
    assert code == 0, said
    assert starts(layout, "far") == starts(layout, "near") == 3
    assert "far: exit 70: a bug in the program" in said
    assert "started again in 0.01 s (crash 1 in a row)" in said


def test_a_crash_loop_is_given_up_loudly(supervised: Supervised, layout: FederationLayout) -> None:
    work = """
if center.id == "far":
    starts(center)
    print("the last straw")
    os.kill(os.getpid(), signal.SIGKILL)
return 0
"""
    code, said = supervised(work).end()
    assert code == 1
    assert starts(layout, "far") == 4, "one start and three restarts"
    expected = "far: ended by signal 9 (Killed); its last words: the last straw; given up after 4"
    assert expected in said


@pytest.mark.parametrize("code", sorted(FINAL - {ExitCode.OK}))
def test_what_a_start_would_only_repeat_is_not_restarted(
    supervised: Supervised, layout: FederationLayout, code: int
) -> None:
    result, said = supervised(f"starts(center); return {int(code)}").end()
    assert result == 1
    assert starts(layout, "far") == 1
    assert f"far: exit {int(code)}" in said and "given up" not in said


def test_an_exception_in_a_child_ends_the_child_alone(supervised: Supervised) -> None:
    """It must not return into the supervisor's own code, which would go on twice."""
    code, said = supervised("raise ValueError('in ' + center.id)").end()
    assert code == 1
    assert said.count("far: exit 70") == 4
    assert "its last words: ValueError: in far" in said


def test_no_zombie_is_left_while_others_run(supervised: Supervised) -> None:
    """«far» is collected while «near» still runs: a zombie would stay in the list of children."""
    work = """
if center.id == "near":
    tell(os.getpid())
    time.sleep(600)
return 0
"""
    run = supervised(work)
    (near,) = run.pids(1)
    children = Path(f"/proc/{run.process.pid}/task/{run.process.pid}/children")
    wait_until(lambda: children.read_text().split() == [str(near)], "only «near» is left")


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_sigkill_of_the_supervisor_takes_all_forks(supervised: Supervised) -> None:
    work = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tell(os.getpid())
time.sleep(600)
"""
    run = supervised(work)
    run.pids(2)
    run.process.kill()
    assert run.all_gone()


def test_sigterm_reaches_forks_at_once(supervised: Supervised) -> None:
    """The supervisor's own handlers are not inherited: a fork that sets none dies of SIGTERM."""
    run = supervised("tell(os.getpid()); time.sleep(600)")
    run.pids(2)
    run.process.send_signal(signal.SIGTERM)
    code, said = run.end()
    assert code == 1
    assert "Stopped. The same command goes on where the centers stopped." in said
    assert run.all_gone()


def test_a_talkative_child_is_drained_and_its_file_rotated(
    supervised: Supervised, layout: FederationLayout
) -> None:
    code, _ = supervised("print('x' * 5_000_000); print('the end'); return 0").end()
    assert code == 0
    state = layout.centers[0].state_dir
    assert (state / "console.log").read_text().endswith("the end\n")
    assert (state / "console.log.1").exists()
    assert sum(path.stat().st_size for path in state.glob("console.log*")) < 5_000_000


def test_the_console_keeps_a_bounded_tail(tmp_path: Path) -> None:
    console = Console(tmp_path / "state" / "console.log", limit_bytes=100)
    for number in range(20):
        os.write(console.writing, b"line %02d of the child\n" % number)
        assert console.drain()
    assert console.last_words() == "line 19 of the child"
    console.close_writing()
    assert not console.drain()
    console.close()
    sizes = [path.stat().st_size for path in (tmp_path / "state").iterdir()]
    assert len(sizes) == 2 and max(sizes) <= 100


def test_back_off_doubles_up_to_a_bound_and_forgets_after_a_steady_run() -> None:
    crashes = Crashes(RestartPolicy(tries=4, first_s=1.0, longest_s=5.0, steady_s=60.0))
    assert [crashes.next_start_s(70, 0.1) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, None]
    assert crashes.next_start_s(-9, 61.0) == 1.0
    assert crashes.next_start_s(0, 0.1) is None


class _Nobody:
    """Hears nothing."""

    period_s = 1.0

    def look(self) -> None: ...

    def ended(self, ward: Ward, code: int, restart_s: float | None) -> None: ...

    def stopping(self) -> None: ...


def test_a_supervisor_is_not_spelled_out_with_all_its_centers(layout: FederationLayout) -> None:
    """``signal.signal`` makes a repr of the handler that it replaces, in every child."""
    supervisor = Supervisor(layout.centers, fork_daemon, _Nobody())
    assert layout.centers[0].id not in repr(supervisor._on_signal)
