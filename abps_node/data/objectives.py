"""What a center's own objectives need of its table: private inputs, outcomes, groups.

One split of the patients serves all objectives. A row without a value in an objective's column is
left out of that objective and of no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from abps_node.aims import Aims, Objective
from abps_node.data.encode import Encoder
from abps_node.data.features import RawFeatures, read_features
from abps_node.data.split import Rows, SplitRows
from abps_node.data.table import FloatArray, Table, column_problems, other_separator
from abps_node.errors import DataError

NO_GROUP: Final = -1


@dataclass(frozen=True)
class ObjectiveSplit:
    """Rows of one split, in the order of ``Split``."""

    private: NDArray[np.float32]
    """Encoded private features, ``(n, p)``."""
    y: NDArray[np.float32]
    """Outcomes ``(n, S)``: 0/1 or days; NaN where a row has none."""
    groups: NDArray[np.int64]
    """Number of the row's group ``(n, S)``; ``NO_GROUP`` where missing or not asked for."""


@dataclass(frozen=True)
class ObjectiveReport:
    """What ``abps check`` tells of one objective's column."""

    name: str
    column: str
    known: Mapping[str, int]
    """Split to rows with an outcome."""
    positives: Mapping[str, int]
    """Split to rows with outcome 1; rows with more than 0 days for a duration."""
    median: float
    """Of the training split."""


@dataclass(frozen=True)
class ObjectiveData:
    """All that the objectives of one center are learned and measured from."""

    train: ObjectiveSplit
    validation: ObjectiveSplit
    test: ObjectiveSplit
    encoder: Encoder
    """The fitted preprocessing of the private features; of none where there are none."""
    levels: tuple[tuple[str, ...], ...]
    """Names of the groups, per objective; empty where none are compared."""
    reports: tuple[ObjectiveReport, ...]
    constant: tuple[str, ...]
    """Private features with one and the same value in the whole training split."""

    def columns(self, aims: Aims) -> dict[str, NDArray[np.float64]]:
        """All values by the name of what they are, split after split, for a fingerprint."""
        parts = (self.train, self.validation, self.test)
        found = {f"private {n}": part for n, part in enumerate(_joined(p.private for p in parts))}
        y, groups = _joined(p.y for p in parts), _joined(p.groups for p in parts)
        for number, objective in enumerate(aims.objectives):
            found[f"objective {objective.name}"] = y[number]
            if objective.group is not None:
                found[f"group of {objective.name}"] = groups[number]
        return found


def absent_columns(aims: Aims, present: Sequence[str]) -> list[str]:
    """Columns of the aims that a file with these ones lacks or has twice, a line each, with the
    keys that name them; none where the header as a whole cannot be right."""
    if other_separator(present):
        return []
    return [
        f"{text}; named by {', '.join(aims.keys_of(name))} of center.toml"
        for name, text in column_problems(present, aims.columns).items()
    ]


def read_private(aims: Aims, table: Table) -> RawFeatures:
    """The private features as they stand in the table; raises ``DataError``."""
    with _named_by("[[private]]"):
        return read_features(table, aims.private)


def objective_data(aims: Aims, table: Table, rows: SplitRows) -> ObjectiveData:
    """Read and check what the aims name; raises ``DataError``.

    ``rows`` is the split of the contract's preparation, which all objectives share.
    """
    raw = read_private(aims, table)
    encoder = Encoder.fit_features(aims.private, raw, rows.train)
    private = encoder.transform(raw)
    columns, codes, levels, reports = [], [], [], []
    for objective in aims.objectives:
        values = _outcomes(objective, table)
        reports.append(_checked(objective, table.source, values, rows))
        code, names = _groups(objective, table, values, rows)
        columns.append(values)
        codes.append(code)
        levels.append(names)
    y = np.stack(columns, axis=1).astype(np.float32)
    groups = np.stack(codes, axis=1)

    def part(chosen: Rows) -> ObjectiveSplit:
        return ObjectiveSplit(private[chosen], y[chosen], groups[chosen])

    return ObjectiveData(
        part(rows.train),
        part(rows.validation),
        part(rows.test),
        encoder,
        tuple(levels),
        tuple(reports),
        raw.constant(rows.train) if aims.private else (),
    )


def _joined(parts: Iterable[NDArray[Any]]) -> NDArray[np.float64]:
    """Columns over all splits, ``(columns, rows)``."""
    return np.concatenate(list(parts)).astype(np.float64).T


@contextmanager
def _named_by(key: str) -> Iterator[None]:
    """Say which key of center.toml wants a column that cannot be read."""
    try:
        yield
    except DataError as error:
        raise error.with_words(f"; read for {key} of center.toml") from None


def _outcomes(objective: Objective, table: Table) -> FloatArray:
    with _named_by(f"objective[{objective.name}].column"):
        if objective.binary:
            return table.flags(objective.column)
        return table.at_least(objective.column, 0.0, "a number of days, not negative")


def _checked(
    objective: Objective, source: str, values: FloatArray, rows: SplitRows
) -> ObjectiveReport:
    what = f"{source}: column {objective.column!r}, objective[{objective.name}].column"
    parts = {"train": rows.train, "validation": rows.validation, "test": rows.test}
    known = {name: values[part][~np.isnan(values[part])] for name, part in parts.items()}
    for name in ("train", "validation"):
        if known[name].size == 0:
            raise DataError(
                f"{what}: found no value in the {parts[name].size} rows of the {name} split, "
                "allowed: at least one"
            )
    train = known["train"]
    if train.min() == train.max():
        raise DataError(
            f"{what}: found one and the same value in all {train.size} training rows that have "
            "one, allowed: two different ones at least, since there is nothing to learn"
        )
    return ObjectiveReport(
        objective.name,
        objective.column,
        {name: int(part.size) for name, part in known.items()},
        {name: int((part > 0).sum()) for name, part in known.items()},
        float(np.median(train)),
    )


def _groups(
    objective: Objective, table: Table, values: FloatArray, rows: SplitRows
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    if objective.group is None:
        return np.full(table.rows, NO_GROUP, dtype=np.int64), ()
    codes, names = table.categories(objective.group)
    train = codes[rows.train]
    there = sorted({names[code] for code in train[train != NO_GROUP]})
    what = f"{table.source}: column {objective.group!r}, objective[{objective.name}].group"
    if len(there) < 2:
        found = f"one group ({there[0]!r})" if there else "no value"
        raise DataError(
            f"{what}: found {found} in the training rows, allowed: two groups at least, since a "
            "gap is between groups"
        )
    positive = train[values[rows.train] == 1]
    with_events = {names[code] for code in positive[positive != NO_GROUP]}
    if len(with_events) < 2:
        raise DataError(
            f"{what}: found {len(with_events)} of {len(there)} groups with label 1 in "
            f"{objective.column!r} among the training rows, allowed: two at least, since the gap "
            "is between true-positive rates"
        )
    return codes, names
