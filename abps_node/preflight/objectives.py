"""Checks of a center's own objectives: how many rows each has, and what credit is measured in.

What cannot be learned (a column that is missing, constant or negative, one group alone) has been
refused before, while the table was read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from abps_node.aims import Aims, Objective
from abps_node.data.center import unknown_levels
from abps_node.data.objectives import (
    ObjectiveData,
    ObjectiveReport,
    absent_columns,
    read_private,
)
from abps_node.data.table import read_header, read_table
from abps_node.preflight.features import check_levels, check_missing, listed
from abps_node.preflight.finding import Finding, ok, problem, warning
from abps_node.preflight.values import check_values

_FEW_EVENTS: Final = 5
"""A true-positive rate over fewer rows is chance."""


def check_own_columns(aims: Aims, path: Path) -> list[Finding]:
    """Columns that center.toml names and the table lacks; raises ``DataError``."""
    return [
        problem(
            "data",
            f"{path}: {text}",
            "correct the name in center.toml, or add the column to the export",
        )
        for text in absent_columns(aims, read_header(path))
    ]


def check_objectives(aims: Aims, data: ObjectiveData) -> Iterator[Finding]:
    """One line per objective, one for the step, and warnings for what will be undefined."""
    for objective, report in zip(aims.objectives, data.reports, strict=True):
        yield ok("objective", _told(objective, report))
        yield from _one_class(objective, report)
    yield from _groups(aims, data)
    yield from _weights(aims)
    private = f"{data.train.private.shape[1]} private inputs of {len(aims.private)} features"
    when = "from stage 2 on" if aims.private_features == "stage2" else "in all rounds"
    yield ok("step", f"{aims.local_step}; {private}, {when}" if aims.private else aims.local_step)
    yield ok("credit", _credit(aims))
    if data.constant:
        yield warning(
            "private",
            "one and the same value in all training rows: " + ", ".join(data.constant),
            "check the export of these columns; no head can learn from them",
        )


def check_private(aims: Aims, path: Path) -> Iterator[Finding]:
    """What may be wrong with the private features; raises ``DataError``."""
    if not aims.private:
        return
    table = read_table(path, [feature.name for feature in aims.private])
    raw = read_private(aims, table)
    missing = raw.missing()
    unknown = {name: unknown_levels(found) for name, found in raw.unknown().items()}
    declare = "declare these levels in center.toml"
    yield from check_levels(aims.private, table.rows, missing, unknown, declare)
    yield from check_values(aims.private, raw)
    yield from check_missing(table.rows, missing, "private")


def _groups(aims: Aims, data: ObjectiveData) -> Iterator[Finding]:
    """What the gap of a fairness objective is measured on."""
    for number, objective in enumerate(aims.objectives):
        if objective.group is None:
            continue
        positive = data.train.groups[data.train.y[:, number] == 1, number]
        events = {name: int((positive == n).sum()) for n, name in enumerate(data.levels[number])}
        told = listed([f"{name} {many}" for name, many in events.items()])
        yield ok(
            "objective",
            f"{objective.name}: training rows with label 1 by {objective.group}: {told}",
        )
        few = sum(many < _FEW_EVENTS for many in events.values())
        if few:
            yield warning(
                "objective",
                f"{objective.name}: {few} of {len(events)} groups of {objective.group} have fewer "
                f"than {_FEW_EVENTS} training rows with label 1: their true-positive rate is luck",
                "compare fewer and larger groups, for instance bands of age and not years",
            )


def _weights(aims: Aims) -> Iterator[Finding]:
    """Preferences that count for nothing."""
    idle = [each.name for each in aims.objectives if "weight" in each.model_fields_set]
    if idle and aims.local_step != "weighted":
        yield warning(
            "step",
            f'weight of {listed(idle)}: no preference counts in local_step = "{aims.local_step}"',
            'leave it out, or set local_step = "weighted"; credit_weight is that of the credit',
        )


def _told(objective: Objective, report: ObjectiveReport) -> str:
    known = ", ".join(f"{split} {count}" for split, count in report.known.items())
    if not objective.binary:
        return (
            f"{objective.name} ({objective.kind} of {objective.column}): rows with a value: "
            f"{known}; median {report.median:g} days"
        )
    events = ", ".join(f"{split} {count}" for split, count in report.positives.items())
    return (
        f"{objective.name} ({objective.kind} of {objective.column}): rows with a value: {known}; "
        f"with label 1: {events}"
    )


def _one_class(objective: Objective, report: ObjectiveReport) -> Iterator[Finding]:
    if not objective.binary:
        return
    meaning = {
        "validation": "its part of the credit is 1 − Brier score, not AUROC",
        "test": "its test AUROC will be undefined",
    }
    for split, what in meaning.items():
        if not 0 < report.positives[split] < report.known[split]:
            yield warning(
                "objective",
                f"{objective.name}: {report.known[split]} {split} rows with a value, "
                f"{report.positives[split]} with label 1: one class; {what}",
                "bring more patients, or check the column",
            )


def _credit(aims: Aims) -> str:
    parts = [
        f"{'AUROC' if objective.binary else '1 − MAE / MAE of the median'} of {objective.name}"
        + (f" × {objective.credit_weight:g}" if objective.credit_weight != 1 else "")
        for objective in aims.objectives
    ]
    return f"the mean of {', '.join(parts)}" if len(parts) > 1 else parts[0]
