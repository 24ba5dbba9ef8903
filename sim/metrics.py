"""How good the models of all centers are on their test splits.

The headline is the paper's: AUROC of each center on its own test split, averaged over the centers
whose test split holds both classes (section 6.3). Small centers make that noisy, therefore the
pooled figures beside it: all test rows of all centers, each scored by its own center's model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from abps_node.learning.utility import probability
from sim.engine.ranks import auroc
from sim.engine.stack import Floats, Scores


@dataclass(frozen=True)
class Assessment:
    """Test metrics of one set of models; arrays ``(C,)`` in the order of the scores."""

    auroc: Floats
    """NaN where the test split lacks a class."""
    brier: Floats
    rows: np.ndarray
    events: np.ndarray
    pooled_auroc: float | None
    pooled_auprc: float | None
    pooled_brier: float

    @property
    def scored(self) -> int:
        """Centers with both classes in the test split."""
        return int((~np.isnan(self.auroc)).sum())

    @property
    def mean_auroc(self) -> float | None:
        """Over the scored centers."""
        return float(np.nanmean(self.auroc)) if self.scored else None

    def summary(self) -> dict[str, Any]:
        """The figures of a cell."""
        return {
            "mean_auroc": self.mean_auroc,
            "scored_centers": self.scored,
            "pooled_auroc": self.pooled_auroc,
            "pooled_auprc": self.pooled_auprc,
            "pooled_brier": self.pooled_brier,
            "mean_brier": float(self.brier.mean()),
        }


def assess(scores: Scores) -> Assessment:
    """Metrics per center and pooled; AUROC and AUPRC are None without both classes."""
    # Here and not above: a run that ends without a report need not pay for scikit-learn.
    from sklearn.metrics import average_precision_score, roc_auc_score

    errors = np.square(probability(scores.logits.astype(np.float64)) - scores.y)
    both = 0 < scores.y.sum() < scores.y.size
    first = scores.start[:-1]
    sizes = np.diff(scores.start)
    return Assessment(
        auroc=auroc(scores.logits, scores.y, scores.start),
        brier=np.add.reduceat(errors, first) / sizes,
        rows=sizes,
        events=np.add.reduceat(scores.y, first).astype(np.int64),
        pooled_auroc=float(roc_auc_score(scores.y, scores.logits)) if both else None,
        pooled_auprc=float(average_precision_score(scores.y, scores.logits)) if both else None,
        pooled_brier=float(errors.mean()),
    )


def mean_auroc(scores: Scores) -> float | None:
    """The headline alone: cheap enough for every round."""
    values = auroc(scores.logits, scores.y, scores.start)
    return None if np.isnan(values).all() else float(np.nanmean(values))
