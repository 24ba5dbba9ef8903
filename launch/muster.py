"""The tasks of one job wait for each other, through files in the shared directory.

Nodes may come up minutes apart, because they boot, or read their programs from a slow disk. A
center that starts alone would spend its first rounds without partners.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

GATHER_S: Final = 600.0
"""How long tasks wait for each other unless told otherwise."""
POLL_S: Final = 0.5
SIGN_OF_LIFE_S: Final = 30.0


@contextmanager
def mustered(
    folder: Path, name: str, tasks: int, wait_s: float, say: Callable[[str], None]
) -> Iterator[int]:
    """Sign in as ``name`` and wait until ``tasks`` have, at most ``wait_s``; how many are there.

    ``folder`` belongs to one start of the job; who leaves signs out, the last one removes it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / name
    own.touch()
    try:
        yield _wait(folder, tasks, wait_s, say)
    finally:
        own.unlink(missing_ok=True)
        with suppress(OSError):  # others are still there, or were faster
            folder.rmdir()


def _wait(folder: Path, tasks: int, wait_s: float, say: Callable[[str], None]) -> int:
    deadline = time.monotonic() + wait_s
    next_sign = time.monotonic() + SIGN_OF_LIFE_S
    while (here := len(list(folder.iterdir()))) < tasks:
        now = time.monotonic()
        if now >= deadline:
            say(f"{here} of {tasks} tasks came within {wait_s:g} s; starting without the others")
            break
        if now >= next_sign:
            say(f"waiting for {tasks - here} of {tasks} tasks")
            next_sign = now + SIGN_OF_LIFE_S
        time.sleep(min(POLL_S, deadline - now))
    return here
