"""Patients with several outcomes, and who sees which feature.

Every feature is one number (continuous or 0/1), as FedCARE counts them: «20 common features» are 20
inputs of the trunk (its section V-A).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from abps_node.errors import ConfigError
from protocol.contract import Feature
from sim.datasets.base import Column

PATIENT: Final = "patient"
"""The column that says whose row it is; all rows of a patient are in one client and one split."""


@dataclass(frozen=True)
class Task:
    """What a client may want to predict, and the features that come with it."""

    name: str
    kind: Literal["bce", "huber-log"]
    column: str
    private: tuple[Feature, ...]
    """Only clients with this task have them; the first are the first to become common."""

    @property
    def binary(self) -> bool:
        """Measured by AUROC; else by the mean absolute error in days."""
        return self.kind == "bce"


@dataclass(frozen=True)
class TaskData:
    """A table with several outcomes."""

    name: str
    title: str
    table: pa.Table
    """Column ``patient``, all features, all outcomes; one row per stay or encounter."""
    common: tuple[Feature, ...]
    """Everybody has them; the last are the first to become private."""
    tasks: tuple[Task, ...]
    notes: tuple[str, ...] = ()

    @property
    def ratio(self) -> float:
        """ρ = d_u/(d_c + d_u), of the task with most private features."""
        most = max(len(task.private) for task in self.tasks)
        return most / (len(self.common) + most)


def features_of(columns: Sequence[Column], names: Sequence[str]) -> tuple[Feature, ...]:
    """These columns' features, in the order of ``names``."""
    known: Mapping[str, Feature] = {column.feature.name: column.feature for column in columns}
    return tuple(known[name] for name in names)


def with_ratio(data: TaskData, rho: float) -> TaskData:
    """The same columns, divided so that ρ comes as near to ``rho`` as whole features allow.

    Below the data's own ρ each task gives its first private features to everybody; above it the
    last common ones are withheld from the trunk and become private at every client. So the columns
    that exist stay the same, and only who may share them changes.
    """
    least = min(len(task.private) for task in data.tasks)
    moves = range(1 - len(data.common), least)
    best = min(moves, key=lambda move: (abs(_moved(data, move).ratio - rho), abs(move)))
    moved = _moved(data, best)
    if abs(moved.ratio - rho) > 0.05:
        raise ConfigError(f"{data.name}: rho: found {rho:g}, nearest possible: {moved.ratio:.2f}")
    return moved


def _moved(data: TaskData, move: int) -> TaskData:
    """``move`` > 0: so many features of each task become common; < 0: common ones private."""
    if move >= 0:
        given = [feature for task in data.tasks for feature in task.private[:move]]
        tasks = tuple(replace(task, private=task.private[move:]) for task in data.tasks)
        return replace(data, common=(*data.common, *given), tasks=tasks)
    kept, withheld = data.common[:move], data.common[move:]
    tasks = tuple(replace(task, private=(*withheld, *task.private)) for task in data.tasks)
    return replace(data, common=kept, tasks=tasks)
