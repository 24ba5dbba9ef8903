"""How good the model is on the test split: metrics with intervals, and calibration.

What is told of few patients is not told at all; the limits are those of the contract's card.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from abps_node.learning.metrics import (
    average_precision,
    bootstrap_auroc,
    brier,
    calibration_slope,
)
from abps_node.learning.utility import FloatArray, auroc, probability
from protocol.contract import Card

RESAMPLES: Final = 500
BINS: Final = 10
_LEVELS: Final = (2.5, 97.5)
_Z: Final = 1.96


@dataclass(frozen=True)
class Measure:
    """One metric with its 95 % interval; None where it is undefined."""

    name: str
    value: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class Bin:
    """Patients with similar predictions."""

    rows: int
    predicted: float
    """Mean probability."""
    observed: float
    """Share with the outcome."""
    low: float
    high: float
    """95 % interval of that share (Wilson)."""


def enough(rows: int, events: int, limits: Card) -> bool:
    """Whether so many rows with so many events may be told (as in the card of a center)."""
    return rows >= limits.min_patients and min(events, rows - events) >= limits.min_events


def measure(log_odds: FloatArray, y: FloatArray, seed: int) -> list[Measure]:
    """Metrics of predictions ``(rows,)`` against 0/1 labels, both classes being there.

    AUROC and its interval are those of the center's own test report.
    """
    low, high = bootstrap_auroc(log_odds, y, seed)
    others: dict[str, Callable[[FloatArray, FloatArray], float | None]] = {
        "AUPRC": average_precision,
        "Brier score": brier,
        "calibration slope": calibration_slope,
    }
    samples = list(_resamples(log_odds, y, seed))
    first = Measure("AUROC", auroc(log_odds, y), low, high)
    return [first, *(_bootstrapped(name, of, log_odds, y, samples) for name, of in others.items())]


def _resamples(
    log_odds: FloatArray, y: FloatArray, seed: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    rng = np.random.default_rng(seed)
    for _ in range(RESAMPLES):
        rows = rng.integers(0, y.size, y.size)
        if 0 < y[rows].sum() < y.size:
            yield log_odds[rows], y[rows]


def _bootstrapped(
    name: str,
    of: Callable[[FloatArray, FloatArray], float | None],
    log_odds: FloatArray,
    y: FloatArray,
    samples: list[tuple[FloatArray, FloatArray]],
) -> Measure:
    found = (of(*sample) for sample in samples)
    values = [value for value in found if value is not None]
    low, high = np.percentile(values, _LEVELS) if values else (None, None)
    return Measure(
        name,
        of(log_odds, y),
        None if low is None else float(low),
        None if high is None else float(high),
    )


def calibration(log_odds: FloatArray, y: FloatArray, limits: Card) -> list[Bin]:
    """Bins of similar predictions, ascending, each with enough patients to be told.

    Fewer than ``BINS`` where outcomes are rare; empty where not even one bin has enough.
    """
    order = np.argsort(log_odds, kind="stable")
    likely, labels = probability(log_odds[order]), y[order]
    ends: list[int] = []
    start = 0
    for end in range(1, y.size + 1):
        rows, events = end - start, int(labels[start:end].sum())
        if rows >= y.size / BINS and enough(rows, events, limits):
            ends.append(end)
            start = end
    if ends:
        ends[-1] = int(y.size)  # the rest is too small for a bin of its own
    starts = [0, *ends][: len(ends)]
    return [_bin(likely[a:b], labels[a:b]) for a, b in zip(starts, ends, strict=True)]


def _bin(likely: FloatArray, labels: FloatArray) -> Bin:
    n, share = int(labels.size), float(labels.mean())
    spread = _Z * np.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    middle, scale = share + _Z**2 / (2 * n), 1 + _Z**2 / n
    return Bin(
        n,
        float(likely.mean()),
        share,
        float((middle - spread) / scale),
        float((middle + spread) / scale),
    )
