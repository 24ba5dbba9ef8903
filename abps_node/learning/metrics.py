"""How good the final model is on the test split, by scikit-learn, with a bootstrap interval.

Import it only when a report is due: scikit-learn is large.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from abps_node.learning.utility import FloatArray, probability

BOOTSTRAP_RESAMPLES: Final = 1000
_LEVELS: Final = (2.5, 97.5)
_CELLS: Final = 4_000_000
"""Resamples × rows that are held in memory at once."""


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
        "auroc": float(roc_auc_score(y, logits)) if both else None,
        "auroc_low": low,
        "auroc_high": high,
        "auprc": float(average_precision_score(y, logits)) if both else None,
        "brier": float(brier_score_loss(y, probability(logits), pos_label=1)),
        "calibration_slope": calibration_slope(logits, y) if both else None,
    }


def calibration_slope(logits: FloatArray, y: FloatArray) -> float | None:
    """Slope of an unpenalized logistic regression of the outcome on the predicted log-odds.

    1 is ideal, below 1 the predictions are too extreme. None for constant predictions and for
    perfectly separated classes, where no finite slope exists.
    """
    positives, negatives = logits[y == 1], logits[y == 0]
    separated = negatives.max() <= positives.min() or positives.max() <= negatives.min()
    if separated:  # constant predictions are the case in which both hold
        return None
    # Standardized, since the solver stops early on large log-odds and never starts on tiny ones.
    scale = float(logits.std())
    column = ((logits - logits.mean()) / scale).reshape(-1, 1)
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-8, max_iter=200)
    return float(model.fit(column, y).coef_[0, 0]) / scale


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
