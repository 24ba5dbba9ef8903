"""One task of a Slurm job: this node's share of the centers, under one supervisor."""

from __future__ import annotations

import os
import platform
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console

from abps_node.config import CenterConfig
from launch.batch_host import FIRST, outlive_script
from launch.layout import FederationLayout
from launch.local import launch_local
from launch.muster import mustered
from launch.supervisor import LaunchError

JOBS_FOLDER: Final = "slurm"
"""In the federation directory: the script, and what jobs and their tasks print."""
_SIOCGIFADDR: Final = 0x8915
_WIDTH: Final = 120


@dataclass(frozen=True)
class Task:
    """Which task of which job this process is."""

    job: str
    restarts: int
    number: int
    """From 0."""
    tasks: int

    @classmethod
    def here(cls, environment: Mapping[str, str] = os.environ) -> Task:
        """From the variables that srun sets; ``LaunchError`` without them."""
        names = ("SLURM_JOB_ID", "SLURM_PROCID", "SLURM_NTASKS")
        missing = [name for name in names if not environment.get(name)]
        if missing:
            raise LaunchError(
                f"{', '.join(missing)}: not set; srun starts this command, within a job that "
                "`abps launch slurm` submits"
            )
        job, number, tasks = (environment[name] for name in names)
        restarts = environment.get("SLURM_RESTART_COUNT", "0")
        return cls(job, int(restarts), int(number), int(tasks))


def run_task(
    layout: FederationLayout, task: Task, *, interface: str | None = None, gather_s: float
) -> int:
    """Wait for the other tasks, run this one's centers to their end; 0 if all of them finished.

    A task without a center (more tasks than centers) has nothing to do. ``LaunchError`` if this
    node has no address that others can be told, or the centers no means to find each other.
    """
    out = Console(width=_WIDTH)
    require_discovery(layout)
    share = layout.part(task.number + 1, task.tasks)
    if not share.centers:
        out.print(f"task {task.number}: no center is left for it")
        return 0
    host = node_host() if interface is None else address_of(interface)
    start = "" if not task.restarts else f", restart {task.restarts}"
    names = ", ".join(center.id for center in share.centers)
    out.print(f"job {task.job}{start}, task {task.number} on {host}: {names}", highlight=False)
    placed = replace(share, centers=tuple(_placed(c, host, interface) for c in share.centers))
    folder = layout.directory / JOBS_FOLDER / f"start-{task.job}-{task.restarts}"
    tasks = min(task.tasks, len(layout.centers))
    with mustered(folder, str(task.number), tasks, gather_s, out.print):
        code = launch_local(placed, console=out, job=task.job)
    if task.number != int(FIRST):
        outlive_script(task.job, folder, out.print)
    return code


def require_discovery(layout: FederationLayout) -> None:
    """``LaunchError`` if addresses must be known before the start."""
    discovery = layout.centers[0].federation.discovery
    if discovery.kind == "static":
        raise LaunchError(
            f'{layout.federation}: discovery.kind: found "static", allowed: directory or mqtt, '
            "since Slurm decides where a center runs"
        )


def node_host() -> str:
    """The name by which other nodes know this one; ``LaunchError`` if it is known to nobody."""
    name = platform.node()
    try:
        socket.getaddrinfo(name, None)
    except OSError as error:
        raise LaunchError(
            f"{name}: the name of this node leads nowhere ({error.strerror}); "
            "name the network between the nodes instead: --interface ib0"
        ) from error
    return name


def address_of(interface: str) -> str:
    """The IPv4 address of a network interface of this node; ``LaunchError`` if it has none."""
    known = [name for _, name in socket.if_nameindex()]
    where = f"--interface: found {interface!r}, allowed on {platform.node()}: {', '.join(known)}"
    if interface not in known:
        raise LaunchError(where)
    if sys.platform != "linux":
        raise LaunchError("--interface: allowed on Linux only")
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("256s", interface.encode())
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, request)
        except OSError as error:
            raise LaunchError(f"{where}; this one has no IPv4 address") from error
    return socket.inet_ntoa(answer[20:24])


def _placed(center: CenterConfig, host: str, interface: str | None) -> CenterConfig:
    """The center on this node: a free port, and an address that other nodes reach."""
    bind = "tcp://*:0" if interface is None else f"tcp://{host}:0"
    return replace(center, bind=bind, advertise=f"tcp://{host}:0")
