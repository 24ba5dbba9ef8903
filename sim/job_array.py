"""A sweep as a Slurm job array: one script, in which each task finds its share of the cells."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abps_node import sbatch
from abps_node.errors import NodeError

SCRIPT_NAME: Final = "sweep.sbatch"
OUTPUT_FOLDER: Final = "slurm"
MOST_TASKS: Final = 1000
"""Slurm's own limit of an array, ``MaxArraySize`` 1001, where nobody has changed it."""

_HEAD: Final = """\
#!/bin/bash
# A sweep as a Slurm job array: {cells} cells that had no result yet, in {tasks} tasks. A task whose
# node is lost is requeued. A result comes into being whole or not at all, and what has one is
# not computed again: submitted once more by the same command, only what is missing then runs.
"""
_FIXED: Final = """\
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --requeue
#SBATCH --open-mode=append
"""
_BODY: Final = """\
set -euo pipefail
{exports}cells=(  # of each task, as ROW:SEED
{shares}
)
exec {abps} {words} \\
  --jobs "${{SLURM_CPUS_PER_TASK:-1}}" --cells "${{cells[SLURM_ARRAY_TASK_ID]}}"
"""


@dataclass(frozen=True, kw_only=True)
class Job(sbatch.Resources):
    """What a person asks Slurm for, for each task."""

    cpus_per_task: int = 1
    cells_per_task: int | None = None
    """None: as many as processors, so that they run side by side."""
    array_limit: int | None = None
    """Most tasks at once."""


def shares(cells: Sequence[str], job: Job) -> list[list[str]]:
    """The cells of each task, dealt out like cards: neighbors, often alike in cost, are parted.

    ``NodeError`` if that takes more tasks than an array may have.
    """
    most = job.cells_per_task or max(job.cpus_per_task, -(-len(cells) // MOST_TASKS))
    tasks = -(-len(cells) // most)
    if tasks > MOST_TASKS:
        least = -(-len(cells) // MOST_TASKS)
        raise NodeError(f"--cells-per-task: found {most}, allowed: at least {least} here")
    return [list(cells[task::tasks]) for task in range(tasks)]


def render(
    job: Job,
    cells: Sequence[str],
    out: Path,
    words: Sequence[str],
    directory: Path,
    exports: dict[str, str],
) -> str:
    """The batch script.

    ``cells`` are those to be computed, ``words`` the command behind `abps`, true seen from
    ``directory``; ``exports`` are variables that the tasks need.
    """
    parts = shares(cells, job)
    limit = "" if job.array_limit is None else f"%{job.array_limit}"
    output = str((directory / out / OUTPUT_FOLDER).resolve()).replace("%", "%%")
    asked = {
        "job-name": sbatch.job_name(out.resolve().name),
        "chdir": str(directory),
        "output": f"{output}/job-%A-task-%a.txt",
        "array": f"0-{len(parts) - 1}{limit}",
        "cpus-per-task": str(job.cpus_per_task),
    }
    body = _BODY.format(
        exports="".join(f"export {name}={shlex.quote(text)}\n" for name, text in exports.items()),
        shares="\n".join(f"  {','.join(part)}" for part in parts),
        abps=sbatch.program(),
        words=shlex.join(words),
    )
    head = _HEAD.format(cells=len(cells), tasks=len(parts))
    return f"{head}\n{job.lines(asked)}{_FIXED}\n{body}"


def submit(out: Path, script: str) -> str:
    """Write the script into the directory of the results and submit it; the job's number.

    ``NodeError`` where there is no sbatch, or it refuses.
    """
    return sbatch.submit(out / SCRIPT_NAME, script, out / OUTPUT_FOLDER)
