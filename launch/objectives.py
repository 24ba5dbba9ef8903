"""What became of the objectives of centers that have their own, from their saved test reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType
from rich.table import Table

HEADS = ("center", "objective", "measure", "alone", "federated", "alone + stage 2", "stage 2")
LEGEND = (
    "Objectives of their own, each on the test split, with its 95 % bootstrap interval: AUROC, or "
    "the mean error of a duration in days (less is better), in brackets that of always saying the "
    "training median. Stage 2: after private fine-tuning; beside it the same without partners."
)
Report = Mapping[str, Any]


@dataclass(frozen=True)
class Reached:
    """One figure with its interval; None where it is undefined."""

    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class ObjectiveRow:
    """One objective of one center; None for a model that was not measured."""

    name: str
    kind: str
    baseline: float | None
    """Of a duration: mean error of always saying the training median, in days."""
    alone: Reached | None
    federated: Reached | None
    alone_stage2: Reached | None
    stage2: Reached | None

    @property
    def digits(self) -> int:
        """Decimals that are worth telling."""
        return 2 if self.kind == "huber-log" else 3

    @property
    def measure(self) -> str:
        """What the figures are."""
        if self.kind != "huber-log":
            return "AUROC"
        return "days" if self.baseline is None else f"days ({self.baseline:.2f})"


def rows_of(reports: Mapping[str, Report]) -> tuple[ObjectiveRow, ...]:
    """The objectives of a center from its reports by name; none where it has none of its own."""
    alone = reports.get("alone", {})
    tuned = alone.get("stage2", {})
    models = (alone, reports.get("federated", {}), tuned, reports.get("stage2", {}))
    values = [model.get("objectives", {}) for model in models]
    names = dict.fromkeys(name for model in values for name in model)
    rows = []
    for name in names:
        known = [model[name] for model in values if name in model]
        kind, baseline = known[0]["kind"], known[0].get("mae_of_median")
        rows.append(ObjectiveRow(name, kind, baseline, *(_reached(m.get(name)) for m in values)))
    return tuple(rows)


def answers_label(report: Report) -> bool:
    """Whether the report's own figures are of a model that learned the contract's label."""
    return "objectives" not in report or report.get("brier") is not None


def without_label(centers: str) -> str:
    """Said of centers that learn something else."""
    return f"No objective on the contract's label, so no AUROC of it: {centers}."


def cells(center: str, row: ObjectiveRow, form: str) -> list[str]:
    """A row of a table under ``HEADS``; ``form`` has places for a figure and its interval."""
    figures = (row.alone, row.federated, row.alone_stage2, row.stage2)
    told = [_told(each, row.digits, form) for each in figures]
    return [center, form.format(row.name, row.kind), row.measure, *told]


def as_table(found: Mapping[str, Sequence[ObjectiveRow]]) -> RenderableType:
    """The objectives of all centers, by center."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), collapse_padding=True)
    for head in HEADS:
        style = "bold" if head == "center" else None
        table.add_column(head.replace(" + ", "\n+ "), style=style, overflow="fold")
    for center, rows in found.items():
        for place, row in enumerate(rows):
            table.add_row(*cells(center if place == 0 else "", row, "{}\n{}"))
    return table


def _reached(values: Report | None) -> Reached | None:
    if values is None:
        return None
    key = "mae" if "mae" in values else "auroc"
    return Reached(values[key], values[f"{key}_low"], values[f"{key}_high"])


def _told(found: Reached | None, digits: int, form: str) -> str:
    if found is None:
        return "–"
    if found.value is None:
        return "undefined"
    value = f"{found.value:.{digits}f}"
    return value if found.low is None else form.format(value, f"{found.low:.2f}–{found.high:.2f}")
