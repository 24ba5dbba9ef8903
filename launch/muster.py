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
_ALL: Final = "all"
"""Left by whoever has seen everybody, for those who look after the first has gone again."""


@contextmanager
def mustered(
    folder: Path, name: str, tasks: int, wait_s: float, say: Callable[[str], None]
) -> Iterator[int]:
    """Sign in as ``name`` and wait until ``tasks`` have, at most ``wait_s``; how many are there.

    ``folder`` belongs to one start of the job; who leaves signs out, the last one removes it.
    """
    own = folder / name
    _sign_in(own)
    try:
        yield _wait(folder, tasks, wait_s, say)
    finally:
        own.unlink(missing_ok=True)
        with suppress(OSError):  # others are still there, or were faster
            if _names(folder) <= {_ALL}:
                (folder / _ALL).unlink(missing_ok=True)
                folder.rmdir()


def _sign_in(own: Path) -> None:
    while not own.exists():
        own.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # all others have just ended and cleared up
            own.touch()


def _wait(folder: Path, tasks: int, wait_s: float, say: Callable[[str], None]) -> int:
    deadline = time.monotonic() + wait_s
    next_sign = time.monotonic() + SIGN_OF_LIFE_S
    while (here := len(names := _names(folder))) < tasks and _ALL not in names:
        now = time.monotonic()
        if now >= deadline:
            say(f"{here} of {tasks} tasks came within {wait_s:g} s; starting without the others")
            return here
        if now >= next_sign:
            say(f"waiting for {tasks - here} of {tasks} tasks")
            next_sign = now + SIGN_OF_LIFE_S
        time.sleep(min(POLL_S, deadline - now))
    (folder / _ALL).touch()
    return tasks


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}
