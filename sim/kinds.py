"""The two kinds of experiments: one task for all centers, or clients with tasks of their own.

They share their commands: what differs is how cells are planned and how results are told.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

if TYPE_CHECKING:
    from sim.results_files import Result
    from sim.sweep import Plan


class Tables(Protocol):
    """A module that tells results."""

    def table(self, results: Sequence[Result]) -> Sequence[Any]:
        """Rows, dataclasses; ``NodeError`` for results of the other kind."""

    def text(self, rows: Sequence[Any]) -> Iterator[str]:
        """Aligned columns."""

    def markdown(self, rows: Sequence[Any]) -> Iterator[str]:
        """A table for a page."""

    def told_of(self, result: Result) -> Iterator[str]:
        """One result in words."""


@dataclass(frozen=True)
class Asked:
    """Which cells a person wants of an experiment file."""

    file: Path
    out: Path
    data: str | None = None
    """Another data set than the file's."""
    data_dir: Path | None = None
    seeds: list[int] | None = None
    rows: list[str] | None = None
    options: list[str] = field(default_factory=list)
    """Options of the data set, as words of the command line."""


@dataclass(frozen=True)
class Kind:
    """One of the two."""

    command: str
    """What stands before `run`, `sweep`, `table` and `plot`."""
    module: str
    """Of its ``Tables``, imported when it is used."""
    plan: Callable[[Asked], Plan]

    @property
    def tables(self) -> Tables:
        """How results are told."""
        return cast(Tables, importlib.import_module(self.module))


def _plan(asked: Asked) -> Plan:
    from sim.cli_options import options_of
    from sim.sweep import plan, read_experiment

    experiment = read_experiment(asked.file)
    options = options_of(asked.data or experiment.data, asked.options) if asked.options else {}
    return plan(experiment, asked.out, asked.data, options, asked.data_dir, asked.seeds, asked.rows)


def _plan_tasks(asked: Asked) -> Plan:
    from sim.cli_options import task_options_of
    from sim.multi.sweep import plan, read_experiment

    experiment = read_experiment(asked.file)
    options = task_options_of(asked.data or experiment.data, asked.options)
    return plan(experiment, asked.out, asked.data, options, asked.data_dir, asked.seeds, asked.rows)


ONE_TASK: Final = Kind("sim", "sim.tables", _plan)
TASKS: Final = Kind("sim tasks", "sim.multi.tables", _plan_tasks)
