"""The losses of the objectives, on the raw outputs of their heads.

Mean over the rows of a batch that have an outcome for the objective; rows without one count for
nothing in it. Class weights come from the training split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from abps_node.aims import Aims, Objective
from abps_node.data.objectives import NO_GROUP, ObjectiveData, ObjectiveSplit


@dataclass(frozen=True)
class Rows:
    """Rows to learn from, as tensors; ``take`` and ``split`` give batches of the same kind."""

    x: torch.Tensor
    """Common inputs ``(n, d)``."""
    private: torch.Tensor
    """Private inputs ``(n, p)``."""
    y: torch.Tensor
    """Outcomes ``(S, n)``, durations as log1p; 0 where a row has none."""
    weight: torch.Tensor
    """Of every row in every loss ``(S, n)``; 0 where a row has no outcome."""
    known: torch.Tensor | None
    """1 where a row has an outcome ``(S, n)``; None where all have."""
    groups: tuple[torch.Tensor | None, ...]
    """Per objective ``(n, groups)``: 1 where a row of the group has outcome 1; None for no gap."""

    @property
    def count(self) -> int:
        """Number of rows."""
        return int(self.x.shape[0])

    def take(self, order: torch.Tensor) -> Rows:
        """These rows in this order."""
        return Rows(
            self.x[order],
            self.private[order],
            self.y[:, order],
            self.weight[:, order],
            None if self.known is None else self.known[:, order],
            tuple(None if part is None else part[order] for part in self.groups),
        )

    def between(self, begin: int, end: int) -> Rows:
        """A run of rows, without copying."""
        return Rows(
            self.x[begin:end],
            self.private[begin:end],
            self.y[:, begin:end],
            self.weight[:, begin:end],
            None if self.known is None else self.known[:, begin:end],
            tuple(None if part is None else part[begin:end] for part in self.groups),
        )


@dataclass(frozen=True)
class Losses:
    """The losses of one center."""

    objectives: tuple[Objective, ...]
    plain: tuple[bool, ...]
    """Per objective whether every row counts the same: then the loss is the plain model's."""

    def of(
        self, outputs: torch.Tensor, batch: Rows
    ) -> tuple[list[torch.Tensor | None], list[float]]:
        """Loss of each objective from raw outputs ``(S, n)``, None where no row has an outcome;
        and the number of rows that it is a mean of."""
        counts = (
            [float(outputs.shape[1])] * len(self.objectives)
            if batch.known is None
            else batch.known.sum(1).tolist()
        )
        losses = [
            self._one(number, outputs[number], batch, count) if count else None
            for number, count in enumerate(counts)
        ]
        return losses, counts

    def _one(self, number: int, output: torch.Tensor, batch: Rows, count: float) -> torch.Tensor:
        objective, y = self.objectives[number], batch.y[number]
        if not objective.binary:
            value = functional.huber_loss(
                functional.softplus(output), y, reduction="none", delta=objective.huber_delta
            )
            return (value * batch.weight[number]).sum() / count
        if self.plain[number]:
            loss = functional.binary_cross_entropy_with_logits(output, y)
        else:
            loss = (
                functional.binary_cross_entropy_with_logits(
                    output, y, weight=batch.weight[number], reduction="sum"
                )
                / count
            )
        events = batch.groups[number]
        return loss if events is None else loss + objective.gap_weight * gap(output, events)


def gap(output: torch.Tensor, events: torch.Tensor) -> torch.Tensor:
    """Equal opportunity, differentiable: mean squared difference of the groups' true-positive
    rates over all pairs of groups, with probabilities in the place of decisions.

    ``events`` ``(n, groups)`` marks the rows of outcome 1; groups without any in the batch are left
    out, and fewer than two leave nothing to compare: 0.
    """
    sizes = events.sum(0)
    present = sizes > 0
    rates = (torch.sigmoid(output) @ events)[present] / sizes[present]
    if rates.shape[0] < 2:
        return output.sum() * 0.0
    # The mean over pairs of (a − b)² is twice the unbiased variance.
    return 2.0 * rates.var()


def losses_of(aims: Aims, train: ObjectiveSplit) -> Losses:
    """The losses of these aims; plain ones are known by their training rows."""
    gaps = np.isnan(train.y).sum(axis=0).tolist()
    plain = [
        o.kind in ("bce", "fairness") and o.class_weight == "none" and gaps[number] == 0
        for number, o in enumerate(aims.objectives)
    ]
    return Losses(aims.objectives, tuple(plain))


def rows_of(
    aims: Aims, x: torch.Tensor, split: ObjectiveSplit, data: ObjectiveData, with_private: bool
) -> Rows:
    """One split as tensors; without ``with_private`` zeros stand in for the private features."""
    private = torch.from_numpy(split.private)
    missing = torch.from_numpy(np.isnan(split.y).T.copy())
    y = torch.from_numpy(np.nan_to_num(split.y).T.copy())
    weights = []
    for number, objective in enumerate(aims.objectives):
        if objective.binary:
            weights.append(_class_weights(objective, data.train.y[:, number], y[number]))
        else:
            y[number] = torch.log1p(y[number])
            weights.append(torch.ones_like(y[number]))
    known = (~missing).to(torch.float32)
    return Rows(
        x,
        private if with_private else torch.zeros_like(private),
        y,
        torch.stack(weights) * known,
        known if bool(missing.any()) else None,
        tuple(
            _events(split, number, len(data.levels[number]))
            for number in range(len(aims.objectives))
        ),
    )


def _class_weights(
    objective: Objective, train: np.ndarray[tuple[int], np.dtype[np.float32]], y: torch.Tensor
) -> torch.Tensor:
    """n/(2 n_class) where balanced, times the cost of false negatives for outcome 1."""
    factors = [1.0, 1.0]
    if objective.class_weight == "balanced":
        positives, known = float((train == 1).sum()), float((~np.isnan(train)).sum())
        factors = [known / (2.0 * (known - positives)), known / (2.0 * positives)]
    if objective.kind == "sensitivity":
        factors[1] *= objective.false_negative_cost
    return torch.where(y > 0.5, factors[1], factors[0])


def _events(split: ObjectiveSplit, number: int, groups: int) -> torch.Tensor | None:
    if groups == 0:
        return None
    labels, codes = np.asarray(split.y[:, number]), np.asarray(split.groups[:, number])
    positive = np.logical_and(labels == 1, codes != NO_GROUP).reshape(-1, 1)
    marks = np.equal(codes.reshape(-1, 1), np.arange(groups).reshape(1, -1))
    return torch.from_numpy(np.logical_and(marks, positive).astype(np.float32))


def durations(outputs: torch.Tensor) -> torch.Tensor:
    """Raw outputs of a duration's head as days, float64; at most e^40, which is no stay."""
    return torch.expm1(functional.softplus(outputs.to(torch.float64)).clamp(max=40.0))
