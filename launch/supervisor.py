"""One process per host that starts, watches, restarts and ends the daemons of many centers.

Synchronous and single-threaded on purpose: children are forked from it at any time, and only what
holds no loop and no lock can be copied so. It waits for three things at once: output of children,
signals, and the next thing that is due.
"""

from __future__ import annotations

import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol

from abps_node.config import CenterConfig
from abps_node.errors import NodeError
from abps_node.exits import ExitCode
from launch.children import Child, send_signal
from launch.console import CONSOLE_NAME, Console
from launch.restarts import Crashes, RestartPolicy
from launch.start_gate import StartGate

STOP_GRACE_S: Final = 15.0
"""How long children may take to end after SIGTERM; a daemon says goodbye within a few seconds…"""
STOP_GRACE_PER_CENTER_S: Final = 0.2
"""…and a machine that is full of them needs longer for all."""
_STOPPING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class LaunchError(NodeError):
    """The federation cannot be started as it is."""


Start = Callable[[CenterConfig, int, Callable[[], None]], Child]
"""Starts a center whose output goes to the descriptor; a fork calls the last argument first.

Raises ``OSError`` if that is impossible.
"""


class Listener(Protocol):
    """Who hears what happens."""

    period_s: float
    """How often ``look`` wants to be called."""

    def look(self) -> None:
        """Called regularly."""
        ...

    def ended(self, ward: Ward, code: int, restart_s: float | None) -> None:
        """A center ended and is started again in so many seconds, or not."""
        ...

    def stopping(self) -> None:
        """A signal asked to end all."""
        ...


@dataclass
class Ward:
    """One center under supervision."""

    center: CenterConfig
    crashes: Crashes
    child: Child | None = None
    console: Console | None = None
    code: int | None = None
    """How its last process ended."""
    started: float = 0.0
    due: float | None = None
    """When it is started again."""
    starts: int = 0


@dataclass(repr=False)
class Supervisor:
    """Runs ``wards`` until every one has ended for good, or a signal asked to end all.

    No repr: Python's ``signal`` makes one of each handler that it replaces, and that of all wards
    with all that they know costs every child of a large federation seconds.
    """

    centers: Sequence[CenterConfig]
    start: Start
    listener: Listener
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    grace_s: float | None = None
    """After SIGTERM; None: a time that grows with the number of centers."""
    hurry: bool = True
    """Whether a second signal ends the grace: yes from a person, no from Slurm, which repeats."""
    gate: StartGate | None = None
    """What the children wait at, if they do."""

    def __post_init__(self) -> None:
        self.wards = [Ward(center, Crashes(self.policy)) for center in self.centers]
        self.killed: list[str] = []
        self._selector = selectors.DefaultSelector()
        self._signals = 0
        self._wake: tuple[socket.socket, socket.socket] | None = None
        self._next_look = 0.0

    @property
    def stopping(self) -> bool:
        """Whether a signal asked to end all."""
        return self._signals > 0

    def run(self) -> None:
        """Start, watch, end. Every child has been collected when this returns.

        Raises ``LaunchError`` if a center cannot be started at all.
        """
        with self._listening():
            try:
                for ward in self.wards:
                    if not self.stopping:
                        self._start(ward)
                        self._turn(0.0)
                self._await_all()
                while not self.stopping and self._unfinished():
                    self._turn(self._until_due())
            finally:
                self._end_all()
                self.listener.look()

    # Turns of the loop --------------------------------------------------------------------------

    def _unfinished(self) -> bool:
        return any(ward.child is not None or ward.due is not None for ward in self.wards)

    def _until_due(self) -> float:
        due = [ward.due for ward in self.wards if ward.due is not None]
        if self.gate is not None and self.gate.due is not None:
            due.append(self.gate.due)
        return max(0.0, min([self._next_look, *due]) - time.monotonic())

    def _turn(self, wait_s: float) -> None:
        """Wait for output or a signal at most so long, then do what is due."""
        for key, _ in self._selector.select(wait_s):
            if isinstance(key.data, Ward):
                self._drain(key.data)
            elif key.data is self.gate:
                self._open_gate()
            else:
                key.fileobj.recv(4096)  # type: ignore[union-attr]
        self._collect()
        now = time.monotonic()
        for ward in self.wards:
            if ward.due is not None and ward.due <= now and not self.stopping:
                self._start(ward)
        if self.gate is not None and self.gate.due is not None and self.gate.due <= now:
            self._open_gate()
        if now >= self._next_look:
            self.listener.look()
            self._next_look = time.monotonic() + self.listener.period_s

    def _drain(self, ward: Ward) -> None:
        if ward.console is not None and not ward.console.drain():
            self._forget(ward.console)

    def _collect(self) -> None:
        """Take notice of every child that has ended."""
        for ward in self.wards:
            code = None if ward.child is None else ward.child.poll()
            if code is None:
                continue
            ward.child, ward.code = None, code
            self._drain(ward)
            ran_s = time.monotonic() - ward.started
            wait_s = None if self.stopping else ward.crashes.next_start_s(code, ran_s)
            ward.due = None if wait_s is None else time.monotonic() + wait_s
            self.listener.ended(ward, code, wait_s)

    # Starting -----------------------------------------------------------------------------------

    def _start(self, ward: Ward) -> None:
        ward.due, ward.code = None, None
        if ward.console is not None:
            self._forget(ward.console)
        try:
            console = ward.console = Console(ward.center.state_dir / CONSOLE_NAME)
            try:
                self._selector.register(console, selectors.EVENT_READ, ward)
                ward.child = self.start(ward.center, console.writing, self._let_go)
            finally:
                console.close_writing()
        except OSError as error:
            raise LaunchError(f"{ward.center.id}: cannot be started: {error}") from error
        ward.started = time.monotonic()
        ward.starts += 1

    def _let_go(self) -> None:
        """In a forked child: close what is the supervisor's."""
        self._selector.close()
        for ward in self.wards:
            if ward.console is not None:
                ward.console.close()
        for end in self._wake or ():
            end.close()
        if self.gate is not None:
            self.gate.keep_childs_side()

    # The gate -----------------------------------------------------------------------------------

    def _await_all(self) -> None:
        if self.gate is not None:
            self.gate.all_started()
            self._selector.register(self.gate, selectors.EVENT_READ, self.gate)

    def _open_gate(self) -> None:
        if self.gate is None or self.gate.fileno() < 0:
            return
        if self.gate.due is not None:
            self._selector.unregister(self.gate)
        self.gate.open()

    def _forget(self, console: Console) -> None:
        if console.reading >= 0:
            self._selector.unregister(console)
            console.close()

    # Ending -------------------------------------------------------------------------------------

    def _end_all(self) -> None:
        """Ask what still runs to end, wait, and kill what does not."""
        for ward in self.wards:
            ward.due = None
        self._signal_all(signal.SIGTERM)
        self._open_gate()  # after the signal, so that who waits at it does not begin any more
        grace_s = self.grace_s
        if grace_s is None:
            grace_s = STOP_GRACE_S + STOP_GRACE_PER_CENTER_S * len(self.wards)
        deadline = time.monotonic() + grace_s
        while self._running() and (left := deadline - time.monotonic()) > 0:
            if self.hurry and self._signals > 1:
                break
            self._turn(min(left, self.listener.period_s))
        self.killed = [ward.center.id for ward in self._running()]
        self._signal_all(signal.SIGKILL)
        while self._running():
            self._turn(self.listener.period_s)
        for ward in self.wards:
            if ward.console is not None:
                self._drain(ward)
                self._forget(ward.console)
        self._selector.close()

    def _running(self) -> list[Ward]:
        return [ward for ward in self.wards if ward.child is not None]

    def _signal_all(self, number: signal.Signals) -> None:
        for ward in self._running():
            if ward.child is not None:
                send_signal(ward.child, number)

    # Signals ------------------------------------------------------------------------------------

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Signals wake the loop; their former handlers come back at the end."""
        self._wake = woken, waker = socket.socketpair()
        for end in self._wake:
            end.setblocking(False)
        self._selector.register(woken, selectors.EVENT_READ, woken)
        former = {number: signal.getsignal(number) for number in (*_STOPPING, signal.SIGCHLD)}
        former_fd = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in _STOPPING:
            if former[number] is not signal.SIG_IGN:  # nohup stays nohup
                signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(former_fd)
            woken.close()
            waker.close()

    def _on_signal(self, *_: object) -> None:
        self._signals += 1
        if self._signals == 1:
            self.listener.stopping()


def succeeded(wards: Sequence[Ward]) -> bool:
    """Whether every center has finished."""
    return all(ward.code == ExitCode.OK for ward in wards)


def fork_daemon(
    center: CenterConfig,
    output: int,
    let_go: Callable[[], None],
    gate: StartGate | None = None,
) -> Child:
    """``Start`` by a fork of this process, which ``launch.template`` has prepared."""
    from launch.children import fork

    def work() -> int:
        from abps_node.cli.run import run_logged

        begin = None if gate is None else gate.pass_through
        return run_logged(center, console_level="error", begin=begin)

    return fork(work, output, let_go)
