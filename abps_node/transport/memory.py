"""What closed connections leave in the heap goes back to the system, where that can be asked for.

libzmq keeps some 50 kB for each connection, between other things in the heap. In a round in which
everybody asks everybody a center of a large federation has a hundred of them, and glibc by itself
gives back only what lies at the end of the heap.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Free pages within the heap are the system's again; half a millisecond."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """That of glibc; None on other systems."""
    if sys.platform != "linux":
        return None
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return trim
