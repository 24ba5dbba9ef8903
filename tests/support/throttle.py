"""A process that gets only a share of the time, whatever it does in it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SLICE_S = 0.01


@contextmanager
def slowed(pid: int, factor: int) -> Iterator[None]:
    """Within the body the process runs for one of ``factor`` slices of time; it may end meanwhile.

    Not only its computing: its event loop, its timers and its answers are late, too.
    """
    over = threading.Event()

    def throttle() -> None:
        with suppress(ProcessLookupError):
            while not over.is_set():
                os.kill(pid, signal.SIGSTOP)
                over.wait((factor - 1) * SLICE_S)
                os.kill(pid, signal.SIGCONT)
                over.wait(SLICE_S)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
