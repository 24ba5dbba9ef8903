"""How good the final model is on the test split, with a bootstrap interval.

Written out in numpy and held to scikit-learn by tests: a report is due once in the life of a
center, and scikit-learn is two seconds, 130 MiB, and in each of many forked centers 3 MiB more.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from abps_node.learning.utility import FloatArray, auroc, negative_log_loss, probability

BOOTSTRAP_RESAMPLES: Final = 1000
_LEVELS: Final = (2.5, 97.5)
_CELLS: Final = 16_384
"""Resamples × rows that are held in memory at once: ten arrays of 128 KiB."""
_NEWTON_STEPS: Final = 100
_HALVINGS: Final = 40
_CONVERGED: Final = 1e-14
"""Newton decrement, squared: what half of it promises to gain of a mean log-likelihood."""


def report(logits: FloatArray, y: FloatArray, seed: int) -> dict[str, Any]:
    """Metrics of predictions ``logits`` ``(n,)`` against 0/1 labels ``y`` ``(n,)``.

    Keys: rows, events, auroc, auroc_low, auroc_high (95 % percentile bootstrap), auprc, brier,
    calibration_slope. None where a metric is undefined.
    """
    both = 0 < y.sum() < y.size
    low, high = bootstrap_auroc(logits, y, seed) if both else (None, None)
    return {
        "rows": int(y.size),
        "events": int(y.sum()),
        "auroc": auroc(logits, y) if both else None,
        "auroc_low": low,
        "auroc_high": high,
        "auprc": average_precision(logits, y) if both else None,
        "brier": brier(logits, y),
        "calibration_slope": calibration_slope(logits, y) if both else None,
    }


def brier(logits: FloatArray, y: FloatArray) -> float:
    """Mean squared error of the predicted probability."""
    return float(np.square(probability(logits) - y).mean())


def average_precision(scores: FloatArray, y: FloatArray) -> float:
    """Precision, averaged over the recall gained at each threshold, from the highest score down.

    Rows of equal score are one threshold. Without positives there is none to average.
    """
    order = np.argsort(-scores, kind="stable")
    ranked, labels = scores[order], y[order]
    thresholds = np.flatnonzero(np.r_[ranked[1:] != ranked[:-1], True])
    hits = np.cumsum(labels)[thresholds]
    gained = np.diff(hits, prepend=0.0) / hits[-1]
    return float((gained * hits / (thresholds + 1)).sum())


def calibration_slope(logits: FloatArray, y: FloatArray) -> float | None:
    """Slope of an unpenalized logistic regression of the outcome on the predicted log-odds.

    1 is ideal, below 1 the predictions are too extreme. None for constant predictions and for
    perfectly separated classes, where no finite slope exists.
    """
    positives, negatives = logits[y == 1], logits[y == 0]
    separated = negatives.max() <= positives.min() or positives.max() <= negatives.min()
    if separated:  # constant predictions are the case in which both hold
        return None
    # Standardized, so that neither large nor tiny log-odds make the equations ill-conditioned.
    scale = float(logits.std())
    design = np.stack([np.ones_like(logits), (logits - logits.mean()) / scale], axis=1)
    return float(_most_likely(design, y)[1]) / scale


def _most_likely(design: FloatArray, y: FloatArray) -> FloatArray:
    """Coefficients of a logistic regression, by Newton's method with halved steps.

    The log-likelihood is concave and, where classes overlap, has one finite maximum.
    """
    coefficients = np.zeros(design.shape[1])
    likelihood = negative_log_loss(design @ coefficients, y)
    for _ in range(_NEWTON_STEPS):
        p = probability(design @ coefficients)
        gradient = design.T @ (y - p) / y.size
        curvature = (design * (p * (1 - p))[:, None]).T @ design / y.size
        step = np.linalg.solve(curvature, gradient)
        if gradient @ step < _CONVERGED:
            break
        for _ in range(_HALVINGS):
            found = negative_log_loss(design @ (coefficients + step), y)
            if found > likelihood:
                break
            step *= 0.5
        else:
            break  # rounding leaves nothing to gain
        coefficients, likelihood = coefficients + step, found
    return coefficients


def bootstrap_auroc(
    scores: FloatArray, y: FloatArray, seed: int, resamples: int = BOOTSTRAP_RESAMPLES
) -> tuple[float, float]:
    """95 % percentile interval of AUROC over resampled rows; ``y`` must hold both classes.

    Resamples that lack a class have no AUROC and are left out.
    """
    order = np.argsort(scores, kind="stable")
    ranked, labels = scores[order], y[order]
    ties = np.flatnonzero(np.r_[True, ranked[1:] != ranked[:-1]])
    rng = np.random.default_rng(seed)
    values: list[FloatArray] = []
    rows = int(y.size)
    chunk = max(1, _CELLS // rows)
    for start in range(0, resamples, chunk):
        size = min(chunk, resamples - start)
        draws = rng.integers(0, rows, (size, rows))
        values.append(_aurocs(_row_counts(draws), labels, ties))
    all_values = np.concatenate(values)
    low, high = np.percentile(all_values[~np.isnan(all_values)], _LEVELS)
    return float(low), float(high)


def _row_counts(draws: NDArray[np.int64]) -> NDArray[np.int64]:
    """How often each row was drawn, ``(resamples, rows)``, from row numbers of the same shape."""
    resamples, rows = draws.shape
    offsets = np.arange(resamples)[:, None] * rows
    counts = np.bincount((draws + offsets).ravel(), minlength=resamples * rows)
    return counts.reshape(resamples, rows)


def _aurocs(counts: NDArray[np.int64], labels: FloatArray, ties: NDArray[np.int64]) -> FloatArray:
    """AUROC of each resample, NaN without both classes.

    ``counts`` and ``labels`` are in ascending order of score, ``ties`` are the first rows of runs
    of equal score: a positive beats all negatives of lower runs and half of those of its own.
    """
    positives = np.add.reduceat(counts * labels, ties, axis=1)
    negatives = np.add.reduceat(counts * (1.0 - labels), ties, axis=1)
    beaten = np.cumsum(negatives, axis=1) - 0.5 * negatives
    pairs = positives.sum(axis=1) * negatives.sum(axis=1)
    wins = (positives * beaten).sum(axis=1)
    return np.where(pairs > 0, wins / np.maximum(pairs, 1.0), np.nan)
