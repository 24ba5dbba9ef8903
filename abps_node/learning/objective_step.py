"""The local step with several objectives (FedCARE in a peer-to-peer world).

Per mini-batch the trunk moves along Σ μ_s g_s, where g_s is the gradient of objective s: with the
weights of least norm («pareto»), so that no objective gets worse to first order, or with fixed ones
(«weighted»). Heads follow the gradient of their own objective. Adam, shuffles and dropout masks are
those of the plain step, which this is, bit for bit, with one objective.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from abps_node.aims import Aims, Normalization
from abps_node.learning.adam import Adam
from abps_node.learning.draws import Draws, by_layer, dropped_levels, mask
from abps_node.learning.local_step import TrainingDiverged
from abps_node.learning.min_norm import FloatArray, min_norm
from abps_node.learning.objective_losses import Losses, Rows
from abps_node.learning.objective_net import ObjectiveNet
from protocol.contract import Training

_CHUNK: Final = 8192
"""Rows whose activations are held at once where all rows are gone through."""


@dataclass(frozen=True)
class Gradients:
    """The gradients of all objectives on some rows."""

    losses: FloatArray
    """``(S,)``; NaN where no row had an outcome."""
    counts: FloatArray
    """Rows with an outcome ``(S,)``."""
    trunk: torch.Tensor
    """∂L_s/∂trunk ``(S, trunk size)``."""
    heads: torch.Tensor
    """Of every head on its own objective, flat."""

    @property
    def there(self) -> list[int]:
        """Objectives of which some row had an outcome."""
        return [number for number, count in enumerate(self.counts) if count]

    def gram(self) -> FloatArray:
        """Inner products of the trunk's gradients, in double precision ``(S, S)``."""
        wide = self.trunk.to(torch.float64)
        product: FloatArray = (wide @ wide.T).numpy()
        return product


@dataclass(frozen=True)
class Standing:
    """Where a model stands between its objectives: on all training rows, in evaluation."""

    losses: FloatArray
    gram: FloatArray
    weights: FloatArray
    """μ* of all rows."""
    stationarity: float
    """‖Σ μ*_s g_s‖²; 0 where no direction improves all objectives."""

    @property
    def norms(self) -> FloatArray:
        """‖g_s‖."""
        return np.sqrt(np.maximum(self.gram.diagonal(), 0.0))

    @property
    def cosines(self) -> FloatArray:
        """Between the gradients of every two objectives ``(S, S)``; 0 beside a zero gradient."""
        scale = np.outer(self.norms, self.norms)
        shares = np.divide(self.gram, scale, out=np.zeros_like(scale), where=scale > 0)
        return np.clip(shares, -1.0, 1.0)


@dataclass(frozen=True)
class StepResult:
    """What a local step with objectives gives."""

    weights: torch.Tensor
    adam: Adam
    losses: FloatArray
    """Mean loss per row with an outcome over the last epoch, dropout on ``(S,)``."""
    mean_weights: FloatArray
    """Mean μ over the mini-batches of the last epoch ``(S,)``."""
    conflicts: float
    """Share of the last epoch's mini-batches in which two gradients had a negative product."""
    epochs: int
    standing: Standing | None
    """After the step; None if nobody asked."""


def gradients(
    net: ObjectiveNet,
    losses: Losses,
    weights: torch.Tensor,
    batch: Rows,
    masks: list[torch.Tensor],
    mix: FloatArray | None = None,
) -> Gradients:
    """Exact gradients of all objectives on one batch, training mode.

    With ``mix`` ``(S,)`` the trunk's are not told apart: ``trunk`` is Σ mix_s g_s, ``(1, size)``.
    """
    parts = net.trunk_parts(weights)
    shared = len(net.shared.dropped)
    representation, cache = net.shared.forward(parts, batch.x, masks[:shared])
    found, counts, upper, heads = _above(
        net, losses, weights, representation, batch, masks[shared:]
    )
    if mix is not None:
        upper = torch.tensordot(torch.from_numpy(mix).to(upper.dtype), upper, 1).unsqueeze(0)
    return Gradients(found, counts, net.shared.backward(parts, cache, upper), heads)


def _above(
    net: ObjectiveNet,
    losses: Losses,
    weights: torch.Tensor,
    representation: torch.Tensor,
    batch: Rows,
    masks: list[torch.Tensor],
) -> tuple[FloatArray, FloatArray, torch.Tensor, torch.Tensor]:
    """Losses, counts, and the gradients of representation ``(S, n, width)`` and heads.

    One pass for all: each objective depends on its own copy of the representation alone.
    """
    inputs = net.inputs(representation, batch.private).contiguous().requires_grad_()
    heads = weights[net.trunk_size :].detach().requires_grad_()
    found, counts = losses.of(net.heads(heads, inputs, masks), batch)
    there = [loss for loss in found if loss is not None]
    values = np.array([math.nan if loss is None else 0.0 for loss in found])
    if not there:
        return values, np.array(counts), torch.zeros_like(inputs), torch.zeros_like(heads)
    total = torch.stack(there)
    upper, lower = torch.autograd.grad(total.sum() if len(there) > 1 else there[0], (inputs, heads))
    values[~np.isnan(values)] = total.detach().numpy()
    return values, np.array(counts), upper[..., : net.shared.width], lower


def pareto_direction(
    found: Gradients, normalization: Normalization
) -> tuple[torch.Tensor, FloatArray, FloatArray]:
    """Σ μ*_s c_s g_s ``(trunk size,)``, μ* ``(S,)``, and the Gram matrix of the gradients.

    c_s is 1, or what makes all gradients as long as their mean («unit») or divides by the loss
    («loss»). Objectives without an outcome in the batch have no say: μ*_s = 0.
    """
    gram, there = found.gram(), found.there
    factors = np.ones(len(found.losses))
    if normalization == "unit":
        norms = np.sqrt(np.maximum(gram.diagonal(), 0.0))
        mean = norms[there].mean() if there else 0.0
        np.divide(mean, norms, out=factors, where=norms > 0)
    elif normalization == "loss":
        mean = float(found.losses[there].mean()) if there else 0.0
        np.divide(mean, found.losses, out=factors, where=found.losses > 0)
    scaled = gram * np.outer(factors, factors)
    weights = np.zeros(len(found.losses))
    if not np.isfinite(scaled).all():
        # A step along it is not finite either, which ends the local step after its epoch.
        weights[there] = 1.0 / max(len(there), 1)
    elif len(there) == len(weights):
        weights = min_norm(scaled).weights
    elif there:
        weights[there] = min_norm(scaled[np.ix_(there, there)]).weights
    return _combined(found.trunk, weights * factors), weights, gram


def _combined(trunk: torch.Tensor, weights: FloatArray) -> torch.Tensor:
    if weights.shape[0] == 1:
        return trunk[0]
    return torch.from_numpy(weights).to(trunk.dtype) @ trunk


def standing(net: ObjectiveNet, losses: Losses, weights: torch.Tensor, rows: Rows) -> Standing:
    """Losses and gradients on all rows at once, without dropout, batch norm held still."""
    parts = net.trunk_parts(weights)
    fixed = net.statistics(weights, rows.x)
    with torch.no_grad():
        pieces = [
            net.shared.forward(parts, rows.x[begin : begin + _CHUNK], (), fixed or None)[0]
            for begin in range(0, rows.count, _CHUNK)
        ]
    values, counts, upper, heads = _above(net, losses, weights, torch.cat(pieces), rows, [])
    trunk = torch.zeros(len(net.names), net.trunk_size, dtype=torch.float64)
    for begin in range(0, rows.count, _CHUNK):
        end = begin + _CHUNK
        _, cache = net.shared.forward(parts, rows.x[begin:end], (), fixed or None)
        trunk += net.shared.backward(parts, cache, upper[:, begin:end])
    gram = Gradients(values, counts, trunk, heads).gram()
    if not np.isfinite(gram).all():
        raise TrainingDiverged("gradients on all rows: found infinite ones, allowed: finite")
    found = min_norm(gram)
    return Standing(values, gram, found.weights, found.norm2)


def objective_step(
    net: ObjectiveNet,
    losses: Losses,
    weights: torch.Tensor,
    adam: Adam,
    rows: Rows,
    training: Training,
    aims: Aims,
    seed: int,
    round: int,
    stand: bool = True,
) -> StepResult:
    """Train on ``rows``; the arguments stay as they are.

    Without ``stand`` nobody asks where the model stands afterwards, which costs one more pass.

    Ends before its last epoch where ``aims.stationarity`` says so. Raises ``TrainingDiverged`` if a
    loss or a weight is no longer finite.
    """
    weights, adam = weights.clone(), adam.clone()
    draws = Draws(seed, round, rows.count, net.hidden, net.dropout)
    epochs = 0
    at: Standing | None = None
    summary = _Summary(len(net.names))
    for _ in range(training.epochs):
        summary = _Summary(len(net.names))
        for batch, masks in _batches(net, rows, training.batch_size, draws):
            direction, heads = _one_batch(net, losses, weights, batch, masks, aims, summary)
            gradient = torch.cat([direction, heads])
            adam.update(weights, gradient, training.learning_rate, training.weight_decay)
        epochs += 1
        _require_finite(summary, weights, training, round)
        if aims.stationarity is not None:
            at = standing(net, losses, weights, rows)
            if at.stationarity <= aims.stationarity:
                break
    if stand and at is None:
        at = standing(net, losses, weights, rows)
    return StepResult(
        weights, adam, summary.losses, summary.mean_weights, summary.conflicts, epochs, at
    )


class _Summary:
    """What one epoch adds up to."""

    def __init__(self, objectives: int) -> None:
        self.total = np.zeros(objectives, dtype=np.float32)
        self.rows = np.zeros(objectives)
        self.weights = np.zeros(objectives)
        self.batches = 0
        self.conflicting = 0

    def add(self, found: Gradients, weights: FloatArray, conflict: bool) -> None:
        """Count one batch."""
        there = found.there
        # In single precision, as the plain step adds up.
        values = found.losses[there].astype(np.float32) * found.counts[there].astype(np.float32)
        self.total[there] += values
        self.rows += found.counts
        self.weights += weights
        self.batches += 1
        self.conflicting += conflict

    @property
    def losses(self) -> FloatArray:
        """Mean loss per row."""
        mean: FloatArray = self.total.astype(np.float64) / np.maximum(self.rows, 1.0)
        return mean

    @property
    def mean_weights(self) -> FloatArray:
        """Mean μ."""
        return self.weights / max(self.batches, 1)

    @property
    def conflicts(self) -> float:
        """Share of batches with a conflict."""
        return self.conflicting / max(self.batches, 1)


def _one_batch(
    net: ObjectiveNet,
    losses: Losses,
    weights: torch.Tensor,
    batch: Rows,
    masks: list[torch.Tensor],
    aims: Aims,
    summary: _Summary,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The trunk's direction and the heads' gradient."""
    if aims.local_step == "pareto" and len(net.names) > 1:
        found = gradients(net, losses, weights, batch, masks)
        direction, used, gram = pareto_direction(found, aims.normalization)
        summary.add(found, used, bool(gram.min() < 0.0))
        return direction, found.heads
    mix = np.array(aims.preferences)
    found = gradients(net, losses, weights, batch, masks, None if len(mix) == 1 else mix)
    summary.add(found, mix, conflict=False)
    return found.trunk[0], found.heads


def _batches(
    net: ObjectiveNet, rows: Rows, size: int, draws: Draws
) -> Iterator[tuple[Rows, list[torch.Tensor]]]:
    """One pass over all rows, shuffled; the last batch may be smaller.

    With batch norm a last batch of one row joins the one before: alone it has no variance.
    """
    order, levels = draws.epoch()
    dropped = dropped_levels(net.dropout)
    masks = [mask(part, dropped) for part in by_layer(levels, rows.count, net.hidden)]
    shuffled = rows.take(order)
    begin = 0
    while begin < rows.count:
        end = min(begin + size, rows.count)
        if net.shared.normalizes and rows.count - end == 1:
            end = rows.count
        yield shuffled.between(begin, end), [part[begin:end] for part in masks]
        begin = end


def _require_finite(
    summary: _Summary, weights: torch.Tensor, training: Training, round: int
) -> None:
    if np.isfinite(summary.losses).all() and bool(weights.isfinite().all()):
        return
    found = ", ".join(f"{loss:g}" for loss in summary.losses)
    raise TrainingDiverged(
        f"local step of round {round}: found losses {found}, allowed: finite weights; "
        f"training.learning_rate is {training.learning_rate:g}, try a smaller one"
    )
