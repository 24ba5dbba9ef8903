"""What a center calls better: its utility U on its own validation split (paper section 4.2).

AUROC here is written out in numpy, held to scikit-learn by a test: it is measured for every
coalition of every round, and scikit-learn is two seconds and 130 MiB that a running daemon can
do without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from protocol.record import ValidationRecord

FloatArray = NDArray[np.float64]
Metric = Literal["auroc", "brier", "logloss"]


@dataclass(frozen=True)
class Utility:
    """A metric, higher is better, and the validation labels ``y`` (float64 ``(n,)``, 0 and 1)."""

    metric: Metric
    y: FloatArray

    @classmethod
    def choose(cls, wanted: Literal["auroc", "logloss"], y: NDArray[np.float32]) -> Utility:
        """The policy's utility, or 1 − Brier where AUROC would need the class that is missing."""
        labels = y.astype(np.float64)
        one_class = labels.min() == labels.max()
        return cls("brier" if wanted == "auroc" and one_class else wanted, labels)

    def measure(self, logits: FloatArray) -> float:
        """U of a model with these validation logits: AUROC, 1 − Brier, or −(mean log-loss)."""
        measure = {"auroc": auroc, "brier": negative_brier, "logloss": negative_log_loss}
        return measure[self.metric](logits, self.y)

    def record(self, value: float) -> ValidationRecord:
        """A measured value with its number of events, as the round's record wants it."""
        return ValidationRecord(
            metric=self.metric, value=value, events=int(self.y.sum()), rows=int(self.y.size)
        )


def auroc(scores: FloatArray, y: FloatArray) -> float:
    """Probability that a positive row outranks a negative one, ties counting half."""
    positives, negatives = scores[y == 1], np.sort(scores[y == 0])
    below = np.searchsorted(negatives, positives, side="left")
    not_above = np.searchsorted(negatives, positives, side="right")
    return float((below + not_above).mean() / (2 * negatives.size))


def negative_brier(logits: FloatArray, y: FloatArray) -> float:
    """1 − mean squared error of the predicted probability."""
    return float(1.0 - np.square(probability(logits) - y).mean())


def negative_log_loss(logits: FloatArray, y: FloatArray) -> float:
    """Mean log-likelihood of the labels, at most 0."""
    return float((y * logits - np.logaddexp(0.0, logits)).mean())


def probability(logits: FloatArray) -> FloatArray:
    """1 / (1 + exp(−logit)), without overflow."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * logits)), dtype=np.float64)
