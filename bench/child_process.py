"""Child processes that never outlive the launcher.

Each child leads a process group of its own: a Ctrl-C on the terminal reaches the launcher alone,
which passes it on as one SIGTERM, waits, and kills what is left. If the launcher itself is killed
it can do none of that; on Linux the kernel then kills every child (``PR_SET_PDEATHSIG``). That is
SIGKILL and not SIGTERM because a frozen or stuck child would outlive a signal that it must handle,
and a center's state is whole after a kill at any instant. Elsewhere there is no such signal, and
children of a killed launcher end by themselves after their last round.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1

STOP_GRACE_S: Final = 15.0
"""How long children may take to end after SIGTERM; a daemon says goodbye within a few seconds."""


@dataclass(frozen=True)
class Child:
    """A started process; everything it prints is appended to ``console``."""

    name: str
    process: asyncio.subprocess.Process
    console: Path

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        return self.process.returncode


async def start(name: str, command: Sequence[str], console: Path) -> Child:
    """Start a process; ``OSError`` if it cannot be started."""
    console.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with console.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            env=environment,
            process_group=0,
            preexec_fn=_tie_to(os.getpid()),
        )
    return Child(name, process, console)


async def stop_all(children: Iterable[Child], grace_s: float, hurry: asyncio.Event) -> list[str]:
    """Ask the running children to end, wait, and kill those that do not; returns their names.

    ``hurry`` ends the waiting early. Every child has been collected when this returns.
    """
    running = [child for child in children if child.exit_code is None]
    for child in running:
        _signal(child, signal.SIGTERM)
    ends = {asyncio.ensure_future(child.process.wait()) for child in running}
    impatience = asyncio.ensure_future(hurry.wait())
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_s
    while ends and not hurry.is_set() and (left := deadline - loop.time()) > 0:
        done, _ = await asyncio.wait(
            {*ends, impatience}, timeout=left, return_when=asyncio.FIRST_COMPLETED
        )
        ends -= done
    impatience.cancel()
    killed = [child for child in running if child.exit_code is None]
    for child in killed:
        _signal(child, signal.SIGKILL)
    if ends:
        await asyncio.wait(ends)
    return [child.name for child in killed]


def _signal(child: Child, number: signal.Signals) -> None:
    """Signal the child's whole group, for a child may have children of its own."""
    try:
        os.killpg(child.process.pid, number)
    except ProcessLookupError:
        return  # it ended just now


def _tie_to(launcher: int) -> Callable[[], None] | None:
    """What a child does before it becomes its program: ask to be killed with the launcher."""
    if sys.platform != "linux":
        return None
    # Loaded here, in the launcher: between fork and exec as little as possible may happen.
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def tie() -> None:
        if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != launcher:
            os._exit(1)  # the launcher died before the kernel knew whom to watch

    return tie
