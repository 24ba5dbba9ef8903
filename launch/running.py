"""Who runs a federation, written into its directory: supervisors by process, jobs by number.

::

    DIR/supervisors/HOST-PID.json     a supervisor, removed when it ends by itself
    DIR/supervisors/job-N.json        a job that was submitted, until somebody finds it gone

A record is a hint. Whoever acts on one asks first whether that very process, or that very job, is
still there: process ids and job numbers are used again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from abps_node.store.process import Liveness, liveness, start_mark, this_host
from launch.supervisor import LaunchError

FOLDER: Final = "supervisors"
Record = TypeVar("Record", bound=BaseModel)


class Supervising(BaseModel):
    """A supervisor of centers of this directory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    host: str
    pid: int
    mark: str | None
    """Tells the process from a later one with the same id."""
    job: str | None
    """Number of the Slurm job that it is a task of."""

    def liveness(self) -> Liveness:
        """Whether that very process runs."""
        return liveness(self.pid, self.mark, self.host)


class Submitted(BaseModel):
    """A job of this directory."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: str


@contextmanager
def recorded(directory: Path, job: str | None) -> Iterator[None]:
    """This process supervises centers of ``directory`` while the body runs.

    Records of supervisors that died on this host are removed. ``LaunchError`` if the directory
    cannot be written.
    """
    pid = os.getpid()
    own = Supervising(host=this_host(), pid=pid, mark=start_mark(pid), job=job)
    for path, other in supervisors(directory):
        if other.liveness() == "dead":
            path.unlink(missing_ok=True)
    path = _write(directory, f"{own.host}-{own.pid}", own)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def note_job(directory: Path, job: str) -> None:
    """A job of ``directory`` was submitted."""
    _write(directory, f"job-{job}", Submitted(job=job))


def supervisors(directory: Path) -> list[tuple[Path, Supervising]]:
    """All records of supervisors; a torn one is none."""
    return list(_records(directory, Supervising))


def jobs(directory: Path) -> list[tuple[Path, Submitted]]:
    """All records of submitted jobs."""
    return list(_records(directory, Submitted))


def _records(directory: Path, kind: type[Record]) -> Iterator[tuple[Path, Record]]:
    for path in sorted((directory / FOLDER).glob("*.json")):
        try:
            yield path, kind.model_validate_json(path.read_bytes())
        except (ValidationError, FileNotFoundError):
            continue  # of the other kind, being written, or just removed


def _write(directory: Path, name: str, record: BaseModel) -> Path:
    path = directory / FOLDER / f"{name}.json"
    try:
        path.parent.mkdir(exist_ok=True)
        path.write_text(record.model_dump_json(), encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"{path}: cannot be written: {error.strerror}") from error
    return path
