"""What Slurm says of a job, asked with its own commands."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SCRIPT: Final = "federation.sbatch"
_LIMIT_S: Final = 60.0
_UNKNOWN: Final = "Invalid job id"


@dataclass(frozen=True)
class Queued:
    """A job in Slurm's queue; all empty for one that is not there any more."""

    state: str = ""
    """PENDING, RUNNING, COMPLETING, …"""
    folder: str = ""
    """In which it was submitted, or asked to run."""
    command: str = ""
    """Its script, and what that was given."""

    def belongs_to(self, directory: Path) -> bool:
        """Whether it runs the centers of this federation directory."""
        whole = str(directory.resolve())
        if self.folder == whole:
            return True
        script, _, arguments = self.command.partition(" ")
        words = arguments.split()
        return Path(script).name == SCRIPT and any(
            (Path(self.folder) / word).resolve() == Path(whole) for word in words
        )


def look(job: str) -> Queued | None:
    """The job; None where Slurm cannot be asked."""
    done = _run("squeue", "--noheader", f"--jobs={job}", "--format=%T|%Z|%o")
    if done is None:
        return None
    if done.returncode != 0:
        return Queued() if _UNKNOWN in done.stderr else None
    state, _, rest = done.stdout.strip().partition("|")
    folder, _, command = rest.partition("|")
    return Queued(state, folder, command)


def cancel(job: str) -> str:
    """Cancel the job; why that was refused, else nothing."""
    done = _run("scancel", job)
    if done is None:
        return "scancel does not answer"
    return "" if done.returncode == 0 else " ".join(done.stderr.split())


def _run(*command: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
