"""Checks of a center's own objectives: how many rows each has, and what credit is measured in.

What cannot be learned (a column that is missing, constant or negative, one group alone) has been
refused before, while the table was read.
"""

from __future__ import annotations

from collections.abc import Iterator

from abps_node.aims import Aims, Objective
from abps_node.data.objectives import ObjectiveData, ObjectiveReport
from abps_node.preflight.finding import Finding, ok, warning


def check_objectives(aims: Aims, data: ObjectiveData) -> Iterator[Finding]:
    """One line per objective, one for the step, and warnings for what will be undefined."""
    for objective, report in zip(aims.objectives, data.reports, strict=True):
        yield ok("objective", _told(objective, report))
        yield from _one_class(objective, report)
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
