"""Whether the process that a state directory names is still there.

A process id alone is not enough: it may belong to a later, unrelated process, to a zombie that its
parent has not yet collected, or to another machine that shares the directory.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Literal

Liveness = Literal["alive", "dead", "elsewhere"]


def this_host() -> str:
    """Name of this machine, as far as the process can see."""
    return platform.node()


def start_mark(pid: int) -> str | None:
    """What tells this process from a later one with the same id; None if gone or not known.

    On Linux the clock tick at which it started (field 22 of ``/proc/PID/stat``).
    """
    fields = _stat_fields(pid)
    return None if fields is None else fields[19]


def liveness(pid: int, mark: str | None, host: str) -> Liveness:
    """Whether the process with this id and start mark runs; unknowable if on another machine."""
    if host != this_host():
        return "elsewhere"
    if Path("/proc/self/stat").exists():
        fields = _stat_fields(pid)
        here = fields is not None and fields[0] not in ("Z", "X") and mark in (None, fields[19])
        return "alive" if here else "dead"
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return "dead"
    except PermissionError:
        return "alive"
    return "alive"


def _stat_fields(pid: int) -> list[str] | None:
    """Fields of ``/proc/PID/stat`` from the state (field 3) on; the name before may hold spaces."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    return text.rpartition(")")[2].split()
