"""U of a center with objectives: the mean of what its model reaches in each, on validation.

Binary: AUROC, or 1 − Brier score where the validation rows lack a class. Durations: 1 − MAE / MAE
of the training median, cut to [0, 1], so that 0 is what nobody needs a model for. Higher is better
in all, and all live between 0 and 1, so that they can be averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from abps_node.aims import Aims
from abps_node.data.objectives import ObjectiveData
from abps_node.learning.objective_losses import durations
from abps_node.learning.utility import FloatArray, auroc, negative_brier
from protocol.record import ValidationRecord

Part = Literal["auroc", "brier", "mae-gain"]
MEAN = "mean"
"""Name of the metric where there are several objectives."""


@dataclass(frozen=True)
class ObjectiveUtility:
    """Per objective: metric, weight, validation outcomes, and which rows have one."""

    metrics: tuple[Part, ...]
    weights: FloatArray
    """``(S,)``, sum 1."""
    y: tuple[FloatArray, ...]
    """Outcomes of the rows that have one."""
    known: tuple[NDArray[np.bool_], ...]
    """Which rows those are ``(n,)``."""
    medians: tuple[float, ...]
    """Of the training outcomes; used for durations alone."""

    @classmethod
    def of(cls, aims: Aims, data: ObjectiveData) -> ObjectiveUtility:
        """The utility of these aims on a center's validation split."""
        columns = [np.asarray(column, dtype=np.float64) for column in data.validation.y.T]
        known = tuple(np.logical_not(np.isnan(column)) for column in columns)
        y = tuple(column[rows] for column, rows in zip(columns, known, strict=True))
        metrics: list[Part] = []
        for objective, outcomes in zip(aims.objectives, y, strict=True):
            if not objective.binary:
                metrics.append("mae-gain")
            else:
                metrics.append("brier" if outcomes.min() == outcomes.max() else "auroc")
        weights = np.array([objective.credit_weight for objective in aims.objectives])
        medians = tuple(report.median for report in data.reports)
        return cls(tuple(metrics), weights / weights.sum(), y, known, medians)

    @property
    def metric(self) -> str:
        """What U is here."""
        return self.metrics[0] if len(self.metrics) == 1 else MEAN

    def parts(self, outputs: torch.Tensor) -> FloatArray:
        """What raw outputs ``(S, n)`` reach in each objective ``(S,)``."""
        return np.array([self._part(number, row) for number, row in enumerate(outputs)])

    def mean(self, parts: FloatArray) -> float:
        """U."""
        return float(self.weights @ parts) if len(parts) > 1 else float(parts[0])

    def record(self, value: float) -> ValidationRecord:
        """A measured U, with the events of all binary objectives together."""
        binary = [y for y, metric in zip(self.y, self.metrics, strict=True) if metric != "mae-gain"]
        events = int(sum(y.sum() for y in binary))
        # Of several the rows differ; told are those of the split.
        rows = int(self.known[0].sum() if len(self.known) == 1 else self.known[0].size)
        return ValidationRecord(metric=self.metric, value=value, events=events, rows=rows)

    def _part(self, number: int, outputs: torch.Tensor) -> float:
        y, rows = self.y[number], torch.from_numpy(self.known[number])
        chosen = outputs[rows]
        if self.metrics[number] == "mae-gain":
            return mae_gain(durations(chosen).numpy(), y, self.medians[number])
        logits = chosen.numpy().astype(np.float64)
        measure = auroc if self.metrics[number] == "auroc" else negative_brier
        return measure(logits, y)


def mae_gain(days: FloatArray, y: FloatArray, median: float) -> float:
    """1 − MAE / MAE of always saying ``median``, cut to [0, 1]."""
    error, baseline = float(np.abs(days - y).mean()), float(np.abs(median - y).mean())
    if baseline == 0.0:
        return float(error == 0.0)
    return min(1.0, max(0.0, 1.0 - error / baseline))
