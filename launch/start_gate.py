"""Nobody trains before all are there.

Hundreds of centers on a few cores: those that are up would train at once, and take the processor
from those that are still to be started. So each of a host's centers listens and announces itself,
says that it is ready, and waits for the others with its first local step and with looking for
peers; it answers whoever asks meanwhile. Who crashes or is slow is not awaited for long.

Two pipes do it, and no byte is ever written. Every child holds an end of the first one until it is
ready, so its last holder's letting go is the word that all are. The supervisor alone holds an end
of the second one, and lets go of it to begin; if it dies, that begins too.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

LONGEST_S: Final = 15.0
"""How long after the last fork the others may be awaited…"""
LONGEST_PER_CENTER_S: Final = 0.1
"""…and as much longer for each of them."""


class StartGate:
    """One per supervisor, for the first start of all its centers."""

    def __init__(self, centers: int) -> None:
        self._getting_ready, self._not_ready = os.pipe()
        self._beginning, self._shut = os.pipe()
        self._longest_s = LONGEST_S + LONGEST_PER_CENTER_S * centers
        self.due: float | None = None
        """Monotonic time at which it opens in any case; None before all are started, and once it
        is open."""

    def fileno(self) -> int:
        """Readable as soon as all are ready."""
        return self._getting_ready

    def all_started(self) -> None:
        """From now on the children alone are awaited."""
        self._not_ready = _closed(self._not_ready)
        self.due = time.monotonic() + self._longest_s

    def open(self) -> None:
        """All begin, now or as soon as they are ready. May be called again."""
        self.due = None
        self._getting_ready, self._not_ready = (
            _closed(self._getting_ready),
            _closed(self._not_ready),
        )
        self._beginning, self._shut = _closed(self._beginning), _closed(self._shut)

    def keep_childs_side(self) -> None:
        """In a forked child: let go of what is the supervisor's."""
        self._getting_ready, self._shut = _closed(self._getting_ready), _closed(self._shut)

    async def pass_through(self) -> None:
        """In a child: say that it is ready, and wait until all begin."""
        self._not_ready = _closed(self._not_ready)
        if self._beginning < 0:
            return  # it was open when this child was forked
        loop = asyncio.get_running_loop()
        begun = asyncio.Event()
        loop.add_reader(self._beginning, begun.set)
        try:
            await begun.wait()
        finally:
            loop.remove_reader(self._beginning)
            self._beginning = _closed(self._beginning)


def _closed(descriptor: int) -> int:
    if descriptor >= 0:
        os.close(descriptor)
    return -1
