"""The signals that ask a daemon to end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable


def listen_to_signals(loop: asyncio.AbstractEventLoop, heard: Callable[[int], None]) -> None:
    """Have ``heard`` called on the loop with the number of each SIGTERM and SIGINT.

    Also after the loop is gone: a late signal must not kill while the state is closed. asyncio's
    own handlers end with their loop. Who called may restore the former ones.
    """

    def hand_over(number: int, _: object) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(heard, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hand_over)
