"""The local step of paper section 6.3: a few epochs of Adam on binary cross-entropy.

Explicit state in, explicit state out. Shuffles and dropout masks derive from (seed, round, purpose)
and from nothing else, so that an interrupted round, redone from the same state, repeats itself bit
for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from abps_node.errors import NodeError
from abps_node.learning.adam import Adam
from abps_node.learning.draws import Draws, by_layer, dropped_levels, mask
from abps_node.learning.model import Mlp
from protocol.contract import Training


class TrainingDiverged(NodeError):
    """The local step left the finite numbers; the state before it is untouched."""


@dataclass(frozen=True)
class LocalResult:
    """What one local step gives."""

    weights: torch.Tensor
    """Flat parameters, float32 ``(model.size,)``."""
    adam: Adam
    loss: float
    """Mean loss per patient over the last epoch, dropout on."""


@dataclass(frozen=True)
class Batch:
    """The rows of one optimizer step."""

    x: torch.Tensor
    y: torch.Tensor
    masks: list[torch.Tensor]
    """Dropout masks, one per hidden layer; none without dropout."""
    rows: torch.Tensor
    """Numbers of these rows in the training split."""
    step: int
    """Number of this optimizer step in the local step, from 0."""


Loss = Callable[[torch.Tensor, Batch], tuple[torch.Tensor, torch.Tensor | None]]
"""(parameters, batch) to the loss of the data and further terms; the sum is minimized, the loss of
the data reported."""


def cross_entropy(model: Mlp) -> Loss:
    """The loss of the paper: mean binary cross-entropy of the batch."""

    def loss(weights: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, None]:
        logits = model.logits(weights, batch.x, batch.masks)
        return functional.binary_cross_entropy_with_logits(logits, batch.y), None

    return loss


def local_step(
    model: Mlp,
    weights: torch.Tensor,
    adam: Adam,
    x: torch.Tensor,
    y: torch.Tensor,
    training: Training,
    seed: int,
    round: int,
    loss: Loss | None = None,
) -> LocalResult:
    """Train on rows ``x`` ``(n, d)``, ``y`` ``(n,)``; the arguments stay as they are.

    ``loss`` is what the baselines of the simulator put in the place of ``cross_entropy``. Raises
    ``TrainingDiverged`` if loss or weights are no longer finite.
    """
    weights, adam = weights.clone(), adam.clone()
    loss = loss or cross_entropy(model)
    draws = Draws(seed, round, x.shape[0], model.hidden, model.dropout)
    mean, step = math.nan, 0
    for _ in range(training.epochs):
        total = torch.zeros(())
        for batch in _batches(model, x, y, training.batch_size, draws, step):
            leaf = weights.detach().requires_grad_()
            data, rest = loss(leaf, batch)
            (gradient,) = torch.autograd.grad(data if rest is None else data + rest, leaf)
            adam.update(weights, gradient, training.learning_rate, training.weight_decay)
            total += data.detach() * batch.y.shape[0]
            step = batch.step + 1
        mean = float(total) / y.shape[0]
    if not (math.isfinite(mean) and bool(weights.isfinite().all())):
        raise TrainingDiverged(
            f"local step of round {round}: found loss {mean}, allowed: finite weights; "
            f"training.learning_rate is {training.learning_rate:g}, try a smaller one"
        )
    return LocalResult(weights, adam, mean)


def _batches(
    model: Mlp, x: torch.Tensor, y: torch.Tensor, size: int, draws: Draws, step: int
) -> list[Batch]:
    """One pass over all rows, shuffled; the last batch may be smaller."""
    order, levels = draws.epoch()
    dropped = dropped_levels(model.dropout)
    masks = [mask(part, dropped) for part in by_layer(levels, x.shape[0], model.hidden)]
    shuffled = zip(*(torch.split(part, size) for part in (x[order], y[order], order)), strict=True)
    return [
        Batch(
            batch_x,
            batch_y,
            [part[number * size : number * size + size] for part in masks],
            rows,
            step + number,
        )
        for number, (batch_x, batch_y, rows) in enumerate(shuffled)
    ]
