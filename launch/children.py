"""Child processes that never outlive the supervisor: forked from it, or programs of their own.

Each child leads a process group of its own: a Ctrl-C on the terminal reaches the supervisor alone,
which passes it on as one SIGTERM, waits, and kills what is left. If the supervisor itself is killed
it can do none of that; on Linux the kernel then kills every child (``PR_SET_PDEATHSIG``). That is
SIGKILL and not SIGTERM because a frozen or stuck child would outlive a signal that it must handle,
and a center's state is whole after a kill at any instant. Elsewhere there is no such signal, and
children of a killed supervisor end by themselves after their last round.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn, Protocol

from abps_node.exits import ExitCode

_PR_SET_PDEATHSIG: Final = 1
_OWN_SIGNALS: Final = (
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGCHLD,
)
"""What a supervisor handles and a child must not inherit."""


class Child(Protocol):
    """A started process."""

    pid: int

    def poll(self) -> int | None:
        """Exit code, minus the signal's number if a signal ended it; None while it runs.

        Collects the process, so that no zombie is left.
        """
        ...


class Forked:
    """A copy of this very process that does something else."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """See ``Child``."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == self.pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code


def fork(work: Callable[[], int], output: int, let_go: Callable[[], None]) -> Forked:
    """Run ``work`` in a child and end it with the exit code that ``work`` returns.

    What the child prints goes to the descriptor ``output``. ``let_go`` runs first in the child: it
    closes what belongs to the supervisor alone. Signals wait until the child no longer has the
    supervisor's handlers, so that none gets lost between the two.
    """
    supervisor, tie = os.getpid(), _tie()
    sys.stdout.flush()
    sys.stderr.flush()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _OWN_SIGNALS)
    try:
        pid = os.fork()
        if pid == 0:
            _become_child(work, output, let_go, lambda: tie(supervisor))
        with suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # the child does it too: whoever comes first
        return Forked(pid)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _become_child(
    work: Callable[[], int], output: int, let_go: Callable[[], None], tie: Callable[[], None]
) -> NoReturn:
    """Never returns into the supervisor's code, whatever happens."""
    code: int = ExitCode.INTERNAL
    try:
        tie()
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in _OWN_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2)):
            os.dup2(source, target)
        os.close(nothing)
        let_go()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        code = work()
    except BaseException:  # noqa: BLE001 - the root of this process
        traceback.print_exc()
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def execute(command: Sequence[str], output: int) -> Child:
    """Start another program; ``OSError`` if it cannot be started."""
    supervisor, tie = os.getpid(), _tie()
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        process_group=0,
        preexec_fn=lambda: tie(supervisor),
    )


def send_signal(child: Child, number: signal.Signals) -> None:
    """Signal the child's whole group, for a child may have children of its own."""
    if child.poll() is not None:
        return
    # Between its end and its collection there is no group to signal any more.
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _tie() -> Callable[[int], None]:
    """What a child does first: ask to be killed with the supervisor."""
    if sys.platform != "linux":
        return lambda supervisor: None
    # Loaded here, in the supervisor: after a fork as little as possible may happen.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def tie(supervisor: int) -> None:
        if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != supervisor:
            os._exit(1)  # the supervisor died before the kernel knew whom to watch

    return tie
