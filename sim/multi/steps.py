"""Local steps: mini-batches, plain optimizers, and the walks that the methods are made of.

Gradients and the Pareto direction are the daemon's; here is only who walks along them, and how far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from abps_node.aims import Normalization
from abps_node.learning.adam import Adam
from abps_node.learning.draws import Bytes, by_layer, dropped_levels, mask
from abps_node.learning.local_step import TrainingDiverged
from abps_node.learning.min_norm import FloatArray
from abps_node.learning.objective_losses import Losses, Rows
from abps_node.learning.objective_net import ObjectiveNet
from abps_node.learning.objective_step import Gradients, gradients, pareto_direction
from protocol.randomness import derive_seed
from sim.multi.base import Settings

Batches = Iterator[tuple[Rows, list[torch.Tensor]]]
"""Rows, and a dropout mask for each layer that drops out."""
Pull = Callable[[torch.Tensor], torch.Tensor]
"""A further gradient at these weights, such as FedProx's."""


class Optimizer(Protocol):
    """Moves weights in place."""

    def update(
        self, weights: torch.Tensor, gradient: torch.Tensor, rate: float, decay: float
    ) -> None:
        """One step."""


class Sgd:
    """w ← w − η g."""

    def update(
        self, weights: torch.Tensor, gradient: torch.Tensor, rate: float, decay: float
    ) -> None:
        """One step; ``decay`` is L2."""
        weights.add_(gradient, alpha=-rate).add_(weights, alpha=-rate * decay)


def optimizer(settings: Settings, size: int) -> Optimizer:
    """A fresh one."""
    return Adam.fresh(size) if settings.optimizer == "adam" else Sgd()


def draws(
    net: ObjectiveNet, rows: int, steps: int, count: int, seed: int, *purpose: str | int
) -> Iterator[tuple[torch.Tensor, Bytes]]:
    """``steps`` times ``count`` of ``rows`` rows, uniformly without replacement, and the bytes of
    all dropout masks, layer by layer (none without dropout).

    Both depend on seed and purpose alone, so that methods meet the same ones.
    """
    order = torch.Generator().manual_seed(derive_seed(seed, *purpose, "batches"))
    bits = np.random.SFC64(derive_seed(seed, *purpose, "dropout"))
    size = count * sum(net.hidden) if dropped_levels(net.dropout) else 0
    for _ in range(steps):
        chosen = torch.randperm(rows, generator=order)[:count]
        raw = np.asarray(bits.random_raw((size + 7) // 8), dtype="<u8")
        yield chosen, raw.view(np.uint8)[:size]


def mini_batches(
    net: ObjectiveNet, rows: Rows, steps: int, size: int | None, seed: int, *purpose: str | int
) -> Batches:
    """``steps`` batches of ``draws``; ``size`` None: all rows."""
    dropped = dropped_levels(net.dropout)
    count = rows.count if size is None else min(size, rows.count)
    for chosen, drawn in draws(net, rows.count, steps, count, seed, *purpose):
        masks = [mask(part, dropped) for part in by_layer(drawn, count, net.hidden)]
        yield (rows if size is None else rows.take(chosen)), masks


@dataclass(frozen=True)
class Walk:
    """Where local steps led."""

    weights: torch.Tensor
    summed: torch.Tensor
    """Σ of the gradients on the way (FedCARE's equation 7), whichever optimizer went it."""
    losses: FloatArray
    """Mean over the batches ``(S,)``."""
    steps: int


def walk(
    net: ObjectiveNet,
    losses: Losses,
    start: torch.Tensor,
    batches: Batches,
    settings: Settings,
    pull: Pull | None = None,
) -> Walk:
    """Follow the plain mean of all objectives' gradients; heads follow their own."""
    weights, moves = start.clone(), optimizer(settings, start.numel())
    summed = torch.zeros_like(start)
    mix = None if len(net.names) == 1 else np.full(len(net.names), 1.0 / len(net.names))
    seen = []
    for batch, masks in batches:
        found = gradients(net, losses, weights, batch, masks, mix)
        gradient = torch.cat([found.trunk[0], found.heads])
        if pull is not None:
            gradient = gradient + pull(weights)
        summed += gradient
        moves.update(weights, gradient, settings.local_rate, 0.0)
        seen.append(found.losses)
    return Walk(finite(weights), summed, mean_of(seen), len(seen))


def pareto_walk(
    net: ObjectiveNet,
    losses: Losses,
    start: torch.Tensor,
    batches: Batches,
    settings: Settings,
    normalization: Normalization,
) -> Walk:
    """Stage 2 (FedCARE's algorithm 2): along Σ μ*_s g_s until it is short or the batches end."""
    weights, moves = start.clone(), optimizer(settings, start.numel())
    seen = []
    for batch, masks in batches:
        found = gradients(net, losses, weights, batch, masks)
        direction, _, _ = pareto_direction(found, normalization)
        if float(direction.square().sum()) <= settings.stationarity:
            break
        moves.update(weights, torch.cat([direction, found.heads]), settings.tuning_rate, 0.0)
        seen.append(found.losses)
    return Walk(finite(weights), torch.zeros(0), mean_of(seen), len(seen))


def server_direction(
    rows: torch.Tensor, losses: FloatArray, normalization: Normalization
) -> tuple[torch.Tensor, FloatArray, FloatArray]:
    """Σ λ*_s Δ_s, λ* and the Gram matrix, from the tasks' aggregated gradients ``(S, size)``."""
    found = Gradients(losses, np.ones(rows.shape[0]), rows, torch.zeros(0))
    return pareto_direction(found, normalization)


def only(rows: Rows, number: int) -> Rows:
    """The same rows with one of their objectives."""
    if rows.y.shape[0] == 1:
        return rows
    return replace(
        rows,
        y=rows.y[number : number + 1],
        weight=rows.weight[number : number + 1],
        known=None if rows.known is None else rows.known[number : number + 1],
        groups=(rows.groups[number],),
    )


def only_loss(losses: Losses, number: int) -> Losses:
    """One of the objectives."""
    return Losses((losses.objectives[number],), (losses.plain[number],))


def mean_of(seen: list[FloatArray]) -> FloatArray:
    """Mean losses over batches; a batch without an outcome does not count; NaN without any."""
    if not seen:
        return np.full(1, np.nan)
    table = np.array(seen)
    counts = np.maximum((~np.isnan(table)).sum(0), 1)
    mean: FloatArray = np.nansum(table, 0) / counts
    return mean


def finite(weights: torch.Tensor) -> torch.Tensor:
    """The weights; ``TrainingDiverged`` if one is not finite."""
    if not bool(weights.isfinite().all()):
        raise TrainingDiverged("local steps: found weights that are not finite; try smaller rates")
    return weights
