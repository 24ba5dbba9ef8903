"""What became of a data set: a record for machines, a few lines for people. Nothing is silent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any, Final

import numpy as np

from abps_node import __version__
from sim.datasets.base import Dataset
from sim.division import Cause
from sim.federation import Federation

_SHOWN: Final = 6
_CAUSES: Final[dict[Cause, str]] = {
    "not-largest": "not among the largest",
    "few-rows": "too few rows",
    "few-of-a-class": "too few rows of a class",
    "empty-split": "a split without rows",
}


def record(dataset: Dataset, federation: Federation) -> dict[str, Any]:
    """Where the centers come from and what they hold; plain values, fit for JSON."""
    reports = {center.id: center.data.report for center in federation.centers}
    return {
        "data_set": dataset.name,
        "title": dataset.title,
        "version": __version__,
        "options": dict(dataset.options),
        "contract": federation.contract.digest(),
        "roles": {
            "label": dataset.data.label,
            "group": dataset.data.group,
            "date": dataset.data.date,
            "card": list(dataset.data.card.features),
        },
        "notes": list(dataset.notes),
        "centers": {
            center: {
                "rows": report.rows,
                "positives": report.positives,
                "train": report.train.rows,
                "validation": report.validation.rows,
                "test": report.test.rows,
            }
            for center, report in reports.items()
        },
        "left_out": [
            {"id": out.id, "rows": out.rows, "cause": out.cause, "reason": out.reason}
            for out in federation.left_out
        ],
        "one_class": [
            center for center, report in reports.items() if report.positives in (0, report.rows)
        ],
        "without_values": without_values(federation),
    }


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The record in words."""
    rows = np.array([center["rows"] for center in found["centers"].values()])
    positives = sum(center["positives"] for center in found["centers"].values())
    yield (
        f"{found['title']}: {_centers(found['centers'])}, {rows.sum()} rows, {positives} positive "
        f"({positives / rows.sum():.1%}); {rows.min()} to {rows.max()} rows a center, "
        f"median {np.median(rows):g}"
    )
    roles = found["roles"]
    named = [f"{role} {roles[role] or 'none'}" for role in ("label", "group", "date")]
    yield f"columns: {', '.join(named)}, card {len(roles['card'])} prevalences"
    yield from found["notes"]
    for cause, words in _CAUSES.items():
        out = [each for each in found["left_out"] if each["cause"] == cause]
        if out:
            lost = sum(each["rows"] for each in out)
            names = _listed([f"{each['id']}: {each['reason']}" for each in out], "; ")
            if cause == "not-largest":
                names = _listed([each["id"] for each in out])
            yield f"left out, {words}: {_centers(out)} with {lost} rows ({names})"
    if found["one_class"]:
        names = _listed(found["one_class"])
        yield f"one class only, utility 1 − Brier: {_centers(found['one_class'])} ({names})"
    for column, centers in found["without_values"].items():
        yield f"no value of {column}, its input is 0: {_centers(centers)} ({_listed(centers)})"


def without_values(federation: Federation) -> dict[str, list[str]]:
    """Feature to the centers in which no row has a value."""
    found: dict[str, list[str]] = {}
    for center in federation.centers:
        for name, missing in center.data.report.missing.items():
            if missing == center.data.report.rows:
                found.setdefault(name, []).append(center.id)
    return found


def _centers(some: Sized) -> str:
    return "1 center" if len(some) == 1 else f"{len(some)} centers"


def _listed(names: Sequence[str], between: str = ", ") -> str:
    more = len(names) - _SHOWN
    return between.join(names[:_SHOWN]) + (f"{between}and {more} more" if more > 0 else "")
