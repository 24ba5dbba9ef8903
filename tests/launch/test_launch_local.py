"""The launcher and its children, which here are a few lines of Python instead of daemons.

Children report through a named pipe, and death is seen through a pid file descriptor: nothing here
waits by the clock.
"""

from __future__ import annotations

import io
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from abps_node.config import CenterConfig
from abps_node.exits import ExitCode
from abps_node.store import Store
from launch.console import last_words
from launch.layout import FederationLayout
from launch.local import CENTERS_PER_CORE, exit_meaning, launch_local, too_many
from launch.restarts import RestartPolicy
from launch.supervisor import LaunchError
from protocol.effects import PhaseChanged
from tests.support.layouts import small_federation
from tests.support.records import Chronicle

DEADLINE_S = 30.0
ONCE = RestartPolicy(tries=0)

# Not in one expression: a signal while the file closes by itself would raise where nobody hears it.
REPORT = """
import os
import re
with open(sys.argv[2], "w") as pipe:
    print(os.getpid(), file=pipe, flush=True)
"""
OBEDIENT = "import signal; signal.signal(15, lambda *_: sys.exit(3))\n"
DEAF = "import signal; signal.signal(15, signal.SIG_IGN)\n"
WAIT = "import time; time.sleep(600)\n"


def child(code: str, pipe: Path | None = None) -> Callable[[CenterConfig], list[str]]:
    """A command for ``launch_local``; ``sys.argv`` is the center's id and the pipe."""
    return lambda center: [sys.executable, "-c", "import sys\n" + code, center.id, str(pipe)]


def launched(
    layout: FederationLayout,
    command: Callable[[CenterConfig], list[str]],
    job: str | None = None,
) -> tuple[int, str]:
    """Exit code, and what a launcher without a terminal said."""
    said = io.StringIO()
    console = Console(file=said, width=200)
    code = launch_local(layout, console=console, command=command, restarts=ONCE, job=job)
    return code, said.getvalue()


def awaits_words_of(layout: FederationLayout, center: str) -> str:
    """Code that waits until this center has printed something."""
    console = layout.directory / "centers" / center / "state" / "console.log"
    return f"""
import time
from pathlib import Path
console = Path({str(console)!r})
while not console.exists() or not console.read_text():
    time.sleep(0.01)
"""


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    return small_federation(tmp_path / "fed", ["near", "far"])


def test_ends_with_0_when_all_centers_have_finished(layout: FederationLayout) -> None:
    code, said = launched(layout, child("print('hello from', sys.argv[1])"))
    assert code == 0
    assert "made: 2 centers, preset abps" in said
    for center in layout.centers:
        assert (center.state_dir / "console.log").read_text() == f"hello from {center.id}\n"


def test_the_console_log_of_an_earlier_launch_stays(layout: FederationLayout) -> None:
    for _ in range(2):
        launched(layout, child("print('hello')"))
    assert (layout.centers[0].state_dir / "console.log").read_text() == "hello\nhello\n"


def test_children_compute_with_one_thread_and_read_no_input(layout: FederationLayout) -> None:
    code = "import os; assert os.environ['OMP_NUM_THREADS'] == '1' and sys.stdin.read() == ''"
    assert launched(layout, child(code))[0] == 0


def test_a_center_that_dies_is_named_and_the_others_go_on(layout: FederationLayout) -> None:
    """«far» ends at once, «near» only when it has seen far's last words."""
    words = '{"level": "error", "text": "column age: found text"}'
    die = f"print({words!r}); sys.exit(11)"
    wait = awaits_words_of(layout, "far") + "print('near has finished')"
    code = f"exec({die!r} if sys.argv[1] == 'far' else {wait!r})"
    result, said = launched(layout, child(code))
    assert result == 1
    expected = f"far: exit 11: {ExitCode.DATA.meaning}; its last words: column age: found text"
    assert expected in said
    near = layout.centers[1].state_dir / "console.log"
    assert near.read_text() == "near has finished\n"
    assert "near: exit" not in said


def test_a_center_that_is_killed_is_named(layout: FederationLayout) -> None:
    result, said = launched(layout, child("import os; os.kill(os.getpid(), 9)"))
    assert result == 1
    assert "near: ended by signal 9 (Killed)" in said


def test_a_command_that_does_not_exist_is_named(layout: FederationLayout) -> None:
    with pytest.raises(LaunchError, match=r"far: cannot be started: .*no-such-program"):
        launched(layout, lambda _: ["/no-such-program"])


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exit 0: finished"),
        (15, "exit 15: a newer copy of this center runs"),
        (99, "exit 99"),
        (-15, "ended by signal 15 (Terminated)"),
        (-34, "ended by signal 34"),
    ],
)
def test_exit_codes_are_explained(code: int, words: str) -> None:
    assert exit_meaning(code).startswith(words)


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        (b"", ""),
        (b"\n \n", ""),
        (b"first\n  last  \n\n", "last"),
        (b'{"text": "in JSON"}\n', "in JSON"),
        (b'{"other": 1}\n', '{"other": 1}'),
        (b"17\n", "17"),
        (b"\xff broken\n", "\ufffd broken"),
        (b"x" * 100_000 + b"\nend\n", "end"),
    ],
)
def test_last_words(tmp_path: Path, printed: bytes, words: str) -> None:
    console = tmp_path / "console.log"
    console.write_bytes(printed)
    assert last_words(console) == words


# What the state directories say before the start ------------------------------------------------


def commit(center: CenterConfig, *, finished: bool, reports: bool, pid: int | None = None) -> None:
    """One round of ``center``, as the daemon would leave it; with ``pid`` as if it still ran."""
    chronicle = Chronicle(center.id, center.federation.contract)
    store = Store.open(center.state_dir, center.id, center.federation.contract)
    store.begin_incarnation()
    store.commit_round(chronicle.with_partners({"peer": 0.05}, finished=finished))
    for name in ("federated", "alone") if reports else ():
        store.save_report(name, {})
    if pid is None:
        store.close()
    else:
        store.set_runtime("tcp://127.0.0.1:5555", pid)


def test_nothing_starts_when_all_have_finished(layout: FederationLayout) -> None:
    for center in layout.centers:
        commit(center, finished=True, reports=True)
    result, said = launched(layout, child("sys.exit(1)"))
    assert (result, said) == (0, "All 2 centers have finished; nothing to start.\n")


@pytest.mark.parametrize(("finished", "reports"), [(False, False), (True, False)])
def test_what_was_broken_off_goes_on(
    layout: FederationLayout, finished: bool, reports: bool
) -> None:
    commit(layout.centers[0], finished=finished, reports=reports)
    result, said = launched(layout, child("print('again')"))
    assert result == 0
    assert "Going on after the last committed rounds (far 1)." in said
    assert (layout.centers[1].state_dir / "console.log").read_text() == "again\n"


def test_a_running_center_is_not_started_twice(layout: FederationLayout) -> None:
    commit(layout.centers[0], finished=False, reports=False, pid=os.getpid())
    with pytest.raises(LaunchError, match=f"far: is running already as process {os.getpid()}"):
        launched(layout, child("sys.exit(1)"))
    assert not (layout.centers[1].state_dir / "console.log").exists()


def test_a_job_that_begins_anew_supersedes_what_lives_of_the_old_one(
    layout: FederationLayout,
) -> None:
    commit(layout.centers[0], finished=False, reports=False, pid=os.getpid())
    code, said = launched(layout, child("print('anew')"), job="7")
    assert code == 0, said
    assert (layout.centers[0].state_dir / "console.log").read_text() == "anew\n"


# Signals: the launcher as a process of its own --------------------------------------------------

LAUNCHER = """
import sys
from pathlib import Path
from launch.layout import read_layout
from launch.local import launch_local
directory, pipe, grace, code = sys.argv[1:]
command = lambda center: [sys.executable, "-c", "import sys\\n" + code, center.id, pipe]
sys.exit(launch_local(read_layout(Path(directory)), command=command, grace_s=float(grace)))
"""


class Launched:
    """A launcher process and its two children, all of them up."""

    def __init__(self, layout: FederationLayout, code: str, grace_s: float) -> None:
        pipe = layout.directory / "pipe"
        os.mkfifo(pipe)
        arguments = [str(layout.directory), str(pipe), str(grace_s), code]
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, *arguments], stderr=subprocess.PIPE, text=True
        )
        self._handles: list[int] = []
        # Open for reading and writing, so that it does not end between the two children.
        with os.fdopen(os.open(pipe, os.O_RDWR)) as lines:
            for _ in layout.centers:
                self._handles.append(os.pidfd_open(int(lines.readline())))

    def end(self, *signals: signal.Signals) -> tuple[int, str]:
        """Send the signals; exit code of the launcher and what it said."""
        *first, last = signals
        for number in first:
            self.process.send_signal(number)
            self._await_line("stopping all centers")
        self.process.send_signal(last)
        _, said = self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode, said

    def children_are_gone(self) -> bool:
        """Whether all children end within the deadline."""
        return all(select.select([handle], [], [], DEADLINE_S)[0] for handle in self._handles)

    def close(self) -> None:
        """Leave nothing behind, whatever the test found."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        for handle in self._handles:
            if not select.select([handle], [], [], 0)[0]:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
            os.close(handle)

    def _await_line(self, text: str) -> None:
        assert self.process.stderr is not None
        assert any(text in line for line in self.process.stderr)


Launch = Callable[[str, float], Launched]


@pytest.fixture
def launch(layout: FederationLayout) -> Iterator[Launch]:
    begun: list[Launched] = []

    def start(code: str, grace_s: float) -> Launched:
        begun.append(Launched(layout, code, grace_s))
        return begun[0]

    yield start
    for each in begun:
        each.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_children_in_order(launch: Launch, number: signal.Signals) -> None:
    run = launch(OBEDIENT + REPORT + WAIT, DEADLINE_S)
    code, said = run.end(number)
    assert code == 1
    assert "Stopped. The same command goes on where the centers stopped." in said
    assert "exit 3" not in said, "that is how a center that is asked to stop should end"
    assert run.children_are_gone()


def test_children_that_do_not_end_are_killed_after_the_grace(launch: Launch) -> None:
    run = launch(DEAF + REPORT + WAIT, 0.2)
    code, said = run.end(signal.SIGTERM)
    assert code == 1
    assert "killed, for they did not end: far, near" in said
    assert run.children_are_gone()


def test_a_second_signal_kills_at_once(launch: Launch) -> None:
    run = launch(DEAF + REPORT + WAIT, 10 * DEADLINE_S)
    code, said = run.end(signal.SIGINT, signal.SIGINT)
    assert code == 1
    assert "killed, for they did not end: far, near" in said
    assert run.children_are_gone()


def test_a_crash_while_stopping_is_told(launch: Launch) -> None:
    crash = "import signal; signal.signal(15, lambda *_: sys.exit(70))\n"
    code, said = launch(crash + REPORT + WAIT, DEADLINE_S).end(signal.SIGTERM)
    assert code == 1
    assert "near: exit 70: a bug in the program" in said


@pytest.mark.skipif(sys.platform != "linux", reason="needs PR_SET_PDEATHSIG")
def test_children_die_with_a_launcher_that_is_killed(launch: Launch) -> None:
    run = launch(DEAF + REPORT + WAIT, DEADLINE_S)
    run.process.kill()
    assert run.children_are_gone()


def test_a_center_that_only_measures_is_shown_so(layout: FederationLayout) -> None:
    """The daemon's state machine has stopped, its process still trains the comparison."""
    center = layout.centers[0]
    with Store.open(center.state_dir, center.id, center.federation.contract) as store:
        store.begin_incarnation()
        chronicle = Chronicle(center.id, center.federation.contract)
        store.commit_round(chronicle.with_partners({"near": 0.05}, finished=True))
        store.phase(PhaseChanged("stopped", 1))
    out = io.StringIO()
    console = Console(file=out, width=120, force_terminal=True)
    wait = awaits_words_of(layout, "near")  # started second: far lives when all are shown
    code = f"exec({wait!r} if sys.argv[1] == 'far' else 'print(1)')"
    launch_local(layout, console=console, command=child(code))
    assert re.search(r"far.*measuring.*1/50.*near.*auroc 0\.700", out.getvalue())


def test_too_many_centers_for_the_cores_are_warned_of() -> None:
    assert too_many(2 * CENTERS_PER_CORE, 2) is None
    warning = too_many(2 * CENTERS_PER_CORE + 1, 2)
    assert warning is not None
    assert "65 centers share 2 cores" in warning


def test_the_warning_is_printed_and_the_centers_run(
    layout: FederationLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("launch.local.usable_cores", lambda: 0)
    code, said = launched(layout, child("pass"))
    assert code == 0
    assert "centers share 0 cores" in said
