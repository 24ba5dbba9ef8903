"""Centers as processes of their own: started, signaled, awaited, and gone when the test ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from abps_node.config import CenterConfig
from abps_node.errors import StoreError
from abps_node.store.reader import Reader

ROOT = Path(__file__).parents[2]
WAIT_S = 240.0
"""Generous: on a machine with much else to do, a process alone may start for minutes."""
_POLL_S = 0.02


def wait_until(condition: Callable[[], object], what: str, wait_s: float = WAIT_S) -> None:
    """Return as soon as the condition holds; fail with ``what`` after ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"after {wait_s:g} s still not: {what}"
        time.sleep(_POLL_S)


def last_round(center: CenterConfig) -> int:
    """The last committed round; 0 also while there is no state yet, or half of one."""
    try:
        return Reader(center.state_dir).status().last_round
    except StoreError:
        return 0


class CenterProcess:
    """One running center and how it ended."""

    def __init__(self, center: CenterConfig, *oddities: str) -> None:
        """``abps run``, or with ``oddities`` the same through ``tests.support.odd_center``."""
        module = "tests.support.odd_center" if oddities else "abps_node"
        arguments = [] if oddities else ["run"]
        command = [sys.executable, "-m", module, *arguments, str(center.path), *oddities]
        self.center = center
        self.console = center.path.parent / "console.log"
        with self.console.open("ab") as output:
            self._begin = output.tell()
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        return self._process.poll()

    @property
    def reader(self) -> Reader:
        """Its state."""
        return Reader(self.center.state_dir)

    def said(self) -> str:
        """What this start of the center has printed."""
        return self.console.read_bytes()[self._begin :].decode()

    def last_round(self) -> int:
        """The last committed round; 0 also while there is no state yet."""
        return last_round(self.center)

    def wait_for_round(self, number: int, wait_s: float = WAIT_S) -> None:
        """Until this round is committed; fails at once if the process ends before."""
        self._await(lambda: self.last_round() >= number, f"round {number} committed", wait_s)

    def wait_for_event(self, kind: str, peer: str | None = None, wait_s: float = WAIT_S) -> None:
        """Until there is an event of this kind, about this peer if one is given."""

        def there() -> bool:
            try:
                events = self.reader.events(kind=kind)
            except StoreError:
                return False
            return any(peer in (None, event.peer) for event in events)

        self._await(there, f"event {kind} about {peer}", wait_s)

    def _await(self, condition: Callable[[], object], what: str, wait_s: float) -> None:
        wait_until(lambda: condition() or self.exit_code is not None, self._name(what), wait_s)
        assert condition(), (
            f"{self._name(what)}: ended with {self.exit_code}: {self.said()[-2000:]}"
        )

    def _name(self, what: str) -> str:
        return f"{self.center.id}: {what}"

    def send(self, number: signal.Signals) -> None:
        """Signal the process, unless it has ended."""
        self._process.send_signal(number)

    def wait_for_end(self, wait_s: float = WAIT_S) -> int:
        """The exit code."""
        try:
            return self._process.wait(wait_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.center.id} runs on after {wait_s:g} s: {self.said()[-2000:]}"
            ) from None

    def close(self) -> None:
        """Leave nothing behind."""
        if self.exit_code is None:
            self._process.kill()
        self._process.wait()


class CenterProcesses:
    """All processes of one test."""

    def __init__(self) -> None:
        self._started: list[CenterProcess] = []

    def start(self, center: CenterConfig, *oddities: str) -> CenterProcess:
        """Start one center."""
        process = CenterProcess(center, *oddities)
        self._started.append(process)
        return process

    def start_all(self, centers: Sequence[CenterConfig]) -> list[CenterProcess]:
        """Start several."""
        return [self.start(center) for center in centers]

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            process.close()
