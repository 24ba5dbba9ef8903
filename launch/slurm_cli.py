"""`abps launch slurm`, and what the job that it submits starts on each node."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from launch.muster import GATHER_S

Directory = Annotated[
    Path, typer.Argument(metavar="FEDERATION_DIR", help="on a file system that all nodes see")
]
Interface = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="network interface on which the nodes reach each other, e.g. ib0; default: they reach "
        "each other by host name",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands to ``app``."""
    app.command("slurm")(slurm)
    app.command("slurm-task")(slurm_task)


def slurm(
    directory: Directory,
    nodes: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="default: as many as are needed")
    ] = None,
    centers_per_node: Annotated[
        int | None,
        typer.Option(min=1, metavar="M", help="at most; default: the centers spread evenly"),
    ] = None,
    partition: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    time: Annotated[
        str | None, typer.Option(metavar="LIMIT", help="as Slurm writes it, e.g. 2:00:00")
    ] = None,
    account: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    constraint: Annotated[str | None, typer.Option(metavar="FEATURES")] = None,
    cpus_per_node: Annotated[
        int, typer.Option(min=1, metavar="C", help="for all centers of a node together")
    ] = 1,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="per node, as Slurm writes it, e.g. 4G")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="any other of sbatch, e.g. qos=low; repeatable"),
    ] = None,
    interface: Interface = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="print the script; write and submit nothing")
    ] = False,
) -> None:
    """Submit a federation as a Slurm job.

    Writes federation.sbatch into the directory and hands it to sbatch. Each node gets an equal
    share of the centers. Submitted again, unfinished centers go on after their last round.
    """
    from abps_node.cli.human import count
    from abps_node.sbatch import more_options
    from launch.layout import read_layout
    from launch.local import too_many
    from launch.slurm import Job, nodes_for, render, submit
    from launch.slurm_task import JOBS_FOLDER

    layout = read_layout(directory)
    centers = len(layout.centers)
    job = Job(
        nodes=nodes_for(centers, nodes, centers_per_node),
        cpus_per_node=cpus_per_node,
        partition=partition,
        time=time,
        account=account,
        constraint=constraint,
        memory=memory,
        more=more_options(option or []),
        interface=interface,
    )
    script = render(job, layout)
    share = -(-centers // job.nodes)
    if crowd := too_many(share, cpus_per_node):
        typer.echo(f"on a node {crowd}; more with --nodes or --cpus-per-node", err=True)
    if dry_run:
        typer.echo(script, nl=False)
        return
    number = submit(layout, script)
    logs = directory / JOBS_FOLDER / f"job-{number}*.txt"
    where = f"{count(centers, 'center')} on {count(job.nodes, 'node')}"
    typer.echo(f"Job {number}: {where}, up to {share} each. Output: {logs}")


def slurm_task(
    directory: Directory,
    interface: Interface = None,
    gather: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="how long to wait for the job's other tasks"),
    ] = GATHER_S,
) -> None:
    """Run one task's share of the centers; srun starts this on each node of a job."""
    from launch.template import single_threaded

    single_threaded()  # before anything imports numpy
    from launch.layout import read_layout
    from launch.slurm_task import Task, run_task

    task = Task.here()
    code = run_task(read_layout(directory), task, interface=interface, gather_s=gather)
    raise typer.Exit(code)
