"""Experiment files of FedCARE's tables: rows × seeds, and an option that is varied.

Cells are run, kept and resumed by ``sim.sweep``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from abps_node.errors import ConfigError
from protocol.contract import Strict
from sim.multi.datasets import entry_of as entry_of_data
from sim.multi.runner import TaskCell, entry_of, options_of, settings_of
from sim.sweep import ROW, Plan, Seeds, read_as, refuse_doubtful


class Row(Strict):
    """A row that is not simply a method by name."""

    name: str = Field(pattern=ROW, description="of the row")
    method: str = Field(description="as `abps sim tasks methods` lists them")
    settings: dict[str, Any] = Field(default_factory=dict, description="keys that differ")


class Vary(Strict):
    """One option of the data, each value in a run of its own: rows become ``name.option-value``."""

    option: str = Field(description="of the federation, such as clients or rho")
    values: list[int | float] = Field(min_length=1, description="each once")


class TaskExperiment(Strict):
    """An experiment file."""

    data: str = Field(description="data set")
    options: dict[str, Any] = Field(default_factory=dict, description="of the federation")
    settings: dict[str, Any] = Field(default_factory=dict, description="of all rows")
    seeds: Seeds = Field(min_length=1, description="each with its own clients and splits")
    methods: list[str] = Field(default_factory=list, description="rows that are methods by name")
    row: list[Row] = Field(default_factory=list, description="further rows")
    vary: Vary | None = Field(default=None, description="an option that is varied")

    @model_validator(mode="after")
    def _rows_are_distinct(self) -> Self:
        refuse_doubtful([row.name for row in self.rows], "row")
        return self

    @property
    def rows(self) -> list[Row]:
        """All of them."""
        return [*(Row(name=method, method=method) for method in self.methods), *self.row]


def read_experiment(path: Path) -> TaskExperiment:
    """Read an experiment file; ``ConfigError`` names the file and the key."""
    return read_as(TaskExperiment, path)


def plan(
    experiment: TaskExperiment,
    out: Path,
    data: str | None = None,
    options: Mapping[str, Any] | None = None,
    data_dir: Path | None = None,
    seeds: Sequence[int] | None = None,
    rows: Sequence[str] | None = None,
) -> Plan:
    """All cells, seed by seed; ``data`` and ``options`` win over the experiment's.

    Raises ``ConfigError`` for an unknown method, data set, row, option or setting.
    """
    name = data or experiment.data
    entry_of_data(name)
    known = [row.name for row in experiment.rows]
    for wanted in rows or ():
        if wanted not in known:
            raise ConfigError(f"--rows: found {wanted!r}, allowed: {', '.join(known)}")
    vary = experiment.vary
    points: list[tuple[str, dict[str, Any]]] = [("", {})]
    if vary is not None:
        points = [(f".{vary.option}-{value:g}", {vary.option: value}) for value in vary.values]
    cells = tuple(
        TaskCell(
            row.method,
            seed,
            name,
            {**experiment.options, **(options or {}), **changed},
            {**experiment.settings, **row.settings},
            row.name + suffix,
            data_dir,
        )
        for seed in seeds or experiment.seeds
        for suffix, changed in points
        for row in experiment.rows
        if not rows or row.name in rows
    )
    for cell in cells:
        entry_of(cell.method)
        settings_of(cell)
        options_of(cell)
    return Plan(cells, out)
