"""The local step of paper section 6.3: a few epochs of Adam on binary cross-entropy.

Explicit state in, explicit state out. Shuffles and dropout masks derive from (seed, round, purpose)
and from nothing else, so that an interrupted round, redone from the same state, repeats itself bit
for bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional

from abps_node.errors import NodeError
from abps_node.learning.adam import Adam
from abps_node.learning.model import Mlp
from protocol.contract import Training
from protocol.randomness import derive_seed


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


def local_step(
    model: Mlp,
    weights: torch.Tensor,
    adam: Adam,
    x: torch.Tensor,
    y: torch.Tensor,
    training: Training,
    seed: int,
    round: int,
) -> LocalResult:
    """Train on rows ``x`` ``(n, d)``, ``y`` ``(n,)``; the arguments stay as they are.

    Raises ``TrainingDiverged`` if loss or weights are no longer finite.
    """
    weights, adam = weights.clone(), adam.clone()
    shuffle = torch.Generator().manual_seed(derive_seed(seed, round, "shuffle"))
    dropout = torch.Generator().manual_seed(derive_seed(seed, round, "dropout"))
    loss = math.nan
    for _ in range(training.epochs):
        order = torch.randperm(x.shape[0], generator=shuffle)
        loss = _epoch(model, weights, adam, x[order], y[order], training, dropout)
    if not (math.isfinite(loss) and bool(weights.isfinite().all())):
        raise TrainingDiverged(
            f"local step of round {round}: found loss {loss}, allowed: finite weights; "
            f"training.learning_rate is {training.learning_rate:g}, try a smaller one"
        )
    return LocalResult(weights, adam, loss)


def _epoch(
    model: Mlp,
    weights: torch.Tensor,
    adam: Adam,
    x: torch.Tensor,
    y: torch.Tensor,
    training: Training,
    dropout: torch.Generator,
) -> float:
    """One pass over rows that are already shuffled; returns the mean loss per row."""
    total = torch.zeros(())
    size = training.batch_size
    for batch_x, batch_y in zip(torch.split(x, size), torch.split(y, size), strict=True):
        leaf = weights.detach().requires_grad_()
        logits = model.logits(leaf, batch_x, dropout)
        loss = functional.binary_cross_entropy_with_logits(logits, batch_y)
        (gradient,) = torch.autograd.grad(loss, leaf)
        adam.update(weights, gradient, training.learning_rate, training.weight_decay)
        total += loss.detach() * batch_y.shape[0]
    return float(total) / y.shape[0]
