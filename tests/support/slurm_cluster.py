"""A real Slurm on loopback: one slurmctld, and several slurmd that are a node each."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.support.broker import free_port

PROGRAMS: Final = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
_PATH: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_START_S: Final = 20.0

_CONF: Final = """\
ClusterName=made
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket,cred_expire=10
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldPort={port}
SlurmctldTimeout=10
SlurmdTimeout=10
KillWait=10
TreeWidth=65533
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
JobRequeue=1
SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=100000
StateSaveLocation={folder}/ctld
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
{nodes}
PartitionName=fl Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:64
"""


def slurm_missing() -> str | None:
    """Why there can be no cluster here; None if there can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]
    if absent:
        return f"NO SLURM ({', '.join(absent)}): jobs are not tested; `make services` installs it"
    if os.geteuid() != 0:
        return "NOT ROOT: several slurmd on one machine need it; Slurm jobs are not tested"
    return None


def wait_until(condition: Callable[[], bool], limit_s: float, what: str) -> None:
    """Fails with ``what`` if the condition has not come true in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, f"after {limit_s:g} s: {what}"
        time.sleep(0.1)


class Cluster:
    """Nodes n1, n2, …; all files in a folder of its own, everything on loopback."""

    def __init__(self, nodes: int, cpus: int = 4) -> None:
        # Not in pytest's folder, which is private: munge wants its socket reachable by all.
        self.folder = Path(tempfile.mkdtemp(prefix="abps-slurm-"))
        self.folder.chmod(0o755)
        self.nodes = [f"n{number}" for number in range(1, nodes + 1)]
        self._ctld_port = free_port()
        host = platform.node()
        lines = [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()} "
            f"CPUs={cpus} RealMemory=2000 State=UNKNOWN"
            for node in self.nodes
        ]
        self.conf = self.folder / "slurm.conf"
        self.conf.write_text(
            _CONF.format(
                host=host, folder=self.folder, port=self._ctld_port, nodes="\n".join(lines)
            ),
            encoding="utf-8",
        )
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.conf)}

    # Life ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns once all nodes are idle."""
        (self.folder / "ctld").mkdir()
        self._start_munge()
        self._run("slurmctld", "-f", str(self.conf))
        for node in self.nodes:
            self.start_node(node)
        wait_until(lambda: self._idle() == len(self.nodes), _START_S, "not all nodes are idle")

    def stop(self) -> None:
        """End what runs, by pid file, and remove the folder."""
        try:
            for process in self._processes(f"SLURM_CONF={self.conf}"):
                _kill(process)
            for file in [*self.folder.glob("slurmd-*.pid"), self.folder / "slurmctld.pid"]:
                self._end(file)
        finally:
            self._end(self.folder / "munge" / "pid")
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_node(self, node: str) -> None:
        """Start, or start again, the slurmd of a node."""
        (self.folder / f"spool-{node}").mkdir(exist_ok=True)
        self._run("slurmd", "-N", node, "-f", str(self.conf))

    def repair(self) -> None:
        """Start the nodes that were lost; returns once all are idle."""
        for node in self.nodes:
            pid = int((self.folder / f"slurmd-{node}.pid").read_text())
            if not Path(f"/proc/{pid}").exists():
                self.start_node(node)
        wait_until(lambda: self._idle() == len(self.nodes), 2 * _START_S, "not all nodes are idle")

    def cut_power(self, node: str) -> None:
        """Kill slurmd, its slurmstepd and all tasks of a node at once, like a power loss."""
        pids = [int((self.folder / f"slurmd-{node}.pid").read_text())]
        tasks = list(self._processes(f"SLURMD_NODENAME={node}", f"SLURM_CONF={self.conf}"))
        pids += {parent for task in tasks if _name(parent := _parent(task)) == "slurmstepd"}
        # srun has a child that ends the whole step when srun itself is gone: that one first.
        watchers = [task for task in tasks if _name(task) == _name(_parent(task)) == "srun"]
        for pid in [*watchers, *pids, *tasks]:
            _kill(pid)

    # Jobs ---------------------------------------------------------------------------------------

    def sbatch(self, *arguments: str) -> str:
        """Submit; the job's number."""
        return self._run("sbatch", "--parsable", *arguments).strip()

    def job(self, number: str) -> dict[str, str]:
        """What Slurm knows of a job."""
        words = self._run("scontrol", "--oneliner", "show", "job", number).split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def state(self, number: str) -> str:
        """PENDING, RUNNING, COMPLETED, …"""
        return self.job(number)["JobState"]

    def wait(self, number: str, limit_s: float) -> str:
        """The state in which the job has ended."""
        going = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED")
        wait_until(lambda: self.state(number) not in going, limit_s, f"job {number} has not ended")
        return self.state(number)

    def requeue(self, number: str) -> None:
        """Break the job off and let it begin anew."""
        self._run("scontrol", "requeue", number)

    def cancel(self, number: str) -> None:
        """End the job."""
        self._run("scancel", number)

    def cancel_all(self) -> None:
        """End all jobs, and wait until their nodes are free."""
        self._run("scancel", "--state=PENDING", "--user=root")
        self._run("scancel", "--user=root")
        wait_until(lambda: not self._run("squeue", "--noheader"), _START_S, "jobs still run")

    def warn(self, number: str) -> None:
        """What ``--signal=TERM@…`` of sbatch does when the time comes: a signal to the steps."""
        self._run("scancel", "--signal=TERM", number)

    # Inside -------------------------------------------------------------------------------------

    def _start_munge(self) -> None:
        folder = self.folder / "munge"
        folder.mkdir(mode=0o755)
        key = folder / "key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(1024))
        files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log"}
        files["seed-file"] = "seed"
        self._run("munged", *(f"--{option}={folder / name}" for option, name in files.items()))

    def _idle(self) -> int:
        return self._run("sinfo", "--noheader", "--Node", "--format=%t").split().count("idle")

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [program, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.folder,
            check=False,
        )
        assert done.returncode == 0, f"{program} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def _processes(self, *variables: str) -> Iterator[int]:
        """Processes that have all these in their environment."""
        wanted = {variable.encode() for variable in variables}
        for folder in Path("/proc").glob("[0-9]*"):
            if int(folder.name) != os.getpid() and wanted <= _environment(folder):
                yield int(folder.name)

    def _end(self, pid_file: Path) -> None:
        if not pid_file.exists():
            return
        pid = int(pid_file.read_text())
        _kill(pid, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), _START_S, f"{pid_file} still runs")


def _environment(folder: Path) -> set[bytes]:
    try:
        return set((folder / "environ").read_bytes().split(b"\0"))
    except OSError:
        return set()


def _parent(pid: int) -> int:
    return int(_status(pid).get("PPid", "0"))


def _name(pid: int) -> str:
    return _status(pid).get("Name", "")


def _status(pid: int) -> Mapping[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
