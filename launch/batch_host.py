"""What the other tasks of a Slurm job do when the node that runs the job's script is lost.

``--no-kill`` lets a job live on without its first node, and with it without its script: nobody
would end it, or run the lost centers. So the others, before they leave, see to it that the script
is still there, and have the job begin anew if it is not.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

FIRST: Final = "0"
"""The sign of the task on the node of the script."""
LIMIT_S: Final = 600.0
"""Slurm takes a node for lost after ``SlurmdTimeout``, 300 s by default."""
POLL_S: Final = 1.0
ASK_S: Final = 10.0
_COMMAND_S: Final = 60.0


def outlive_script(job: str, folder: Path, say: Callable[[str], None]) -> None:
    """Return once the first task has left ``folder``; requeue the job if its script is lost.

    The wait is bounded, since the first task's supervisor may have been killed alone.
    """
    deadline = time.monotonic() + LIMIT_S
    ask = time.monotonic()
    while (folder / FIRST).exists() and (now := time.monotonic()) < deadline:
        if now >= ask:
            ask = now + ASK_S
            if not has_script(job):
                say("the node of the job's script is lost; the job begins anew")
                _slurm("scontrol", "requeue", job)
                return
        time.sleep(POLL_S)


def has_script(job: str) -> bool:
    """Whether the job still has the node of its script; True, too, while Slurm does not answer."""
    answer = _slurm("squeue", "--noheader", f"--jobs={job}", "--format=%B %N")
    host, _, nodes = (answer or "").strip().partition(" ")
    names = _slurm("scontrol", "show", "hostnames", nodes) if nodes else None
    return names is None or host in names.split()


def _slurm(*command: str) -> str | None:
    """What the command prints; None if it cannot be asked or refuses."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_COMMAND_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
