"""Metrics of many models at once: AUROC by ranks, Brier score, log-loss, per segment.

A segment is one model's predictions on one center's rows. AUROC is a count of pairs, exact, ties
counting half; one integer sort serves all segments.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from abps_node.learning.utility import probability
from sim.engine.stack import Floats, Index


def auroc(logits: NDArray[np.float32], y: NDArray[np.float32], start: Index) -> Floats:
    """AUROC of each segment, NaN where a class is missing; shape ``(S,)``.

    ``logits`` and 0/1 labels ``y`` ``(n,)`` lie segment after segment, beginning at ``start``
    ``(S + 1,)``; no segment is empty. Raises ``ValueError`` for logits that are not numbers.
    """
    if np.isnan(logits).any():
        raise ValueError("logits: found NaN, allowed: numbers")
    sizes = np.diff(start)
    segment = np.repeat(np.arange(sizes.size, dtype=np.int64), sizes)
    keys = np.sort((segment << 33) | (_sortable(logits) << 1) | (y > 0))
    positive = keys & 1
    first = start[:-1]
    positives = np.add.reduceat(positive, first)
    negatives = sizes - positives
    # Rows of one run tie: same segment, same logit.
    begins = np.flatnonzero(np.diff(keys >> 1, prepend=-1))
    run = np.repeat(np.arange(begins.size), np.diff(begins, append=keys.size))
    before = np.cumsum(1 - positive) - (1 - positive)
    """Negatives before each row, over all segments."""
    run_before = before[begins]
    run_after = np.append(run_before[1:], (1 - positive).sum())
    twice = run_before[run] + run_after[run] - 2 * np.repeat(before[first], sizes)
    wins = np.add.reduceat(twice * positive, first)
    with np.errstate(invalid="ignore", divide="ignore"):
        values: Floats = wins / positives / (2 * negatives)
    return np.where((positives > 0) & (negatives > 0), values, np.nan)


def negative_brier(logits: NDArray[np.float32], y: NDArray[np.float32], start: Index) -> Floats:
    """1 − mean squared error of the predicted probability, per segment."""
    return 1.0 - _means(np.square(probability(logits.astype(np.float64)) - y), start)


def negative_log_loss(logits: NDArray[np.float32], y: NDArray[np.float32], start: Index) -> Floats:
    """Mean log-likelihood of the labels, at most 0, per segment."""
    wide = logits.astype(np.float64)
    return _means(y * wide - np.logaddexp(0.0, wide), start)


def _means(values: Floats, start: Index) -> Floats:
    means: Floats = np.add.reduceat(values, start[:-1]) / np.diff(start)
    return means


def _sortable(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Numbers of 32 bits in the order of the floats; both zeros become one."""
    bits = (logits + np.float32(0.0)).view(np.uint32)
    mapped = np.where(bits >> 31, ~bits, bits | np.uint32(1 << 31))
    return mapped.astype(np.int64)
