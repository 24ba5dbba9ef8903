"""A federation as a Slurm job: the batch script, and its submission."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Final

from abps_node import sbatch
from launch.layout import FederationLayout
from launch.running import note_job
from launch.slurm_task import JOBS_FOLDER, require_discovery
from launch.supervisor import LaunchError

SCRIPT_NAME: Final = "federation.sbatch"
GOODBYE_S: Final = 120
"""So long before the time limit centers are asked to end; Slurm may be a minute early."""

_HEAD: Final = """\
#!/bin/bash
# A federation as a Slurm job. On each node one task starts, watches and restarts that node's share
# of the centers; the share follows from the task's number. Centers find each other through the
# federation directory, which all nodes must see, and listen on ports that the system chooses.
# Submitted again, or requeued, every center goes on after its last committed round.
"""
_FIXED: Final = """\
#SBATCH --ntasks-per-node=1
# A lost node costs its own centers only. With the first node goes the script: the job begins anew.
#SBATCH --no-kill
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --wait-all-nodes=1
# Before the time limit: centers say goodbye to their partners and keep their state.
#SBATCH --signal=TERM@{goodbye}
"""
_BODY: Final = """\
set -euo pipefail
{values}
mkdir -p "$directory/{folder}"
trap : TERM  # srun passes it on; the table comes after the goodbyes
srun --ntasks-per-node=1 --cpus-per-task="${{SLURM_CPUS_PER_TASK:-1}}" \\
  --no-kill --kill-on-bad-exit=0 --wait=0 \\
  --open-mode=append --output="$directory/{folder}/job-%j-task-%t.txt" \\
  {abps} launch slurm-task "$directory"{options} || echo "srun ended with $?" >&2
# Ends with 1 if a center has not finished, whose node was lost for instance.
{abps} launch results "$directory"
"""
_PLAIN_USAGE: Final = """\
#
#     sbatch --nodes=4 federation.sbatch DIR [--interface ib0]
#
# ABPS is the program, if it is not the `abps` on the PATH. Whatever stands here as #SBATCH can be
# said on the command line, too. `abps launch slurm DIR` writes such a script and submits it.
"""
_PLAIN_VALUES: Final = """\
directory=$(realpath "${1:?usage: sbatch [--nodes=N] federation.sbatch DIR}")"""


@dataclass(frozen=True, kw_only=True)
class Job(sbatch.Resources):
    """What a person asks Slurm for."""

    nodes: int
    cpus_per_node: int = 1
    interface: str | None = None
    """Network between the nodes; None: they reach each other by name."""


def nodes_for(centers: int, nodes: int | None, per_node: int | None) -> int:
    """How many nodes to ask for; ``LaunchError`` if the centers do not fit, or nodes stay empty."""
    if nodes is None and per_node is None:
        raise LaunchError("--nodes, --centers-per-node: found none, allowed: one of them, or both")
    if nodes is None or per_node is None:
        nodes = nodes or -(-centers // (per_node or 1))
        per_node = per_node or -(-centers // nodes)
    if nodes * per_node < centers:
        raise LaunchError(
            f"--nodes, --centers-per-node: found {nodes} × {per_node} = {nodes * per_node}, "
            f"allowed: at least {centers}, as many as there are centers"
        )
    if nodes > centers:
        raise LaunchError(
            f"--nodes: found {nodes}, allowed: at most {centers}, as many as there are centers"
        )
    return nodes


def render(job: Job, layout: FederationLayout) -> str:
    """The batch script for this federation and this installation of the program.

    ``LaunchError`` if addresses must be known before the start.
    """
    require_discovery(layout)
    directory = layout.directory.resolve()
    asked = {
        "job-name": sbatch.job_name(layout.contract.name),
        "chdir": str(directory),
        "output": f"{JOBS_FOLDER}/job-%j.txt",
        "nodes": str(job.nodes),
        "cpus-per-task": str(job.cpus_per_node),
    }
    lines = job.lines(asked)
    interface = "" if job.interface is None else f" --interface {shlex.quote(job.interface)}"
    body = _BODY.format(
        values=f"directory={shlex.quote(str(directory))}",
        folder=JOBS_FOLDER,
        abps=sbatch.program(),
        options=interface,
    )
    return f"{_HEAD}\n{lines}{_FIXED.format(goodbye=GOODBYE_S)}\n{body}"


def plain_script() -> str:
    """The script for people who submit by hand; ``launch/federation.sbatch`` is this."""
    lines = "#SBATCH --job-name=abps\n#SBATCH --output=abps-job-%j.txt\n#SBATCH --nodes=1\n"
    body = _BODY.format(
        values=_PLAIN_VALUES, folder=JOBS_FOLDER, abps='"${ABPS:-abps}"', options=' "${@:2}"'
    )
    return f"{_HEAD}{_PLAIN_USAGE}\n{lines}{_FIXED.format(goodbye=GOODBYE_S)}\n{body}"


def submit(layout: FederationLayout, script: str) -> str:
    """Write the script into the federation directory and hand it to Slurm; the job's number.

    ``NodeError`` where there is no sbatch, or it refuses.
    """
    job = sbatch.submit(layout.directory / SCRIPT_NAME, script, layout.directory / JOBS_FOLDER)
    note_job(layout.directory, job)
    return job
