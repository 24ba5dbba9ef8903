"""Local steps of many clients at once: one operation for all of them instead of one for each.

Networks of this size are bound by the overhead of operations; abreast, five clients take a third of
the time that they take in turn, thirty a quarter. Draws, losses and arithmetic are those of
``sim.multi.steps``, in another order of additions: a test holds them to each other. Clients march
together if they have the same shape and one objective each; all others go one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch.nn import functional

from abps_node.learning.draws import dropped_levels, mask
from abps_node.learning.objective_losses import Losses, Rows
from abps_node.learning.objective_net import ObjectiveNet
from abps_node.learning.trunks import EPS, FedcareTrunk
from sim.multi.base import Settings
from sim.multi.steps import (
    Pull,
    Walk,
    draws,
    finite,
    mean_of,
    mini_batches,
    optimizer,
    pareto_walk,
    walk,
)

_LAYERS: Final = 2
"""Of the trunk that normalize over rows and drop out."""


@dataclass(frozen=True)
class Way:
    """What one client, or one of its objectives, sets out with."""

    net: ObjectiveNet
    losses: Losses
    rows: Rows
    start: torch.Tensor
    purpose: tuple[str | int, ...]
    """Whose draws they are, beside the seed."""
    pull: Pull | None = None

    def batch(self, size: int | None) -> int:
        """Rows of a mini-batch."""
        return self.rows.count if size is None else min(size, self.rows.count)

    def shape(self, size: int | None) -> Hashable:
        """Ways with the same one can be walked abreast; None: only alone."""
        if len(self.net.names) > 1 or self.batch(size) < 2:
            return None
        return replace(self.net, names=("one",)), self.batch(size)


def walk_all(
    ways: Sequence[Way], settings: Settings, seed: int, size: int | None, steps: int | None = None
) -> list[Walk]:
    """``walk`` for each, ``size`` rows a batch (None: all), τ of them unless ``steps`` says so."""
    count = settings.local_steps if steps is None else steps

    def alone(way: Way) -> Walk:
        drawn = mini_batches(way.net, way.rows, count, size, seed, *way.purpose)
        return walk(way.net, way.losses, way.start, drawn, settings, way.pull)

    def abreast(group: Sequence[Way]) -> list[Walk]:
        return _march(group, settings, seed, size, count, settings.local_rate, -1.0)

    return _grouped(ways, size, alone, abreast)


def tune_all(ways: Sequence[Way], settings: Settings, seed: int) -> list[Walk]:
    """``pareto_walk``, stage 2, for each."""
    size, count = settings.batch_size, settings.tuning_steps

    def alone(way: Way) -> Walk:
        drawn = mini_batches(way.net, way.rows, count, size, seed, *way.purpose)
        kind = settings.normalization
        return pareto_walk(way.net, way.losses, way.start, drawn, settings, kind)

    def abreast(group: Sequence[Way]) -> list[Walk]:
        rate, end = settings.tuning_rate, settings.stationarity
        return _march(group, settings, seed, size, count, rate, end)

    return _grouped(ways, size, alone, abreast)


def _grouped(
    ways: Sequence[Way],
    size: int | None,
    alone: Callable[[Way], Walk],
    abreast: Callable[[Sequence[Way]], list[Walk]],
) -> list[Walk]:
    groups: dict[Hashable, list[int]] = {}
    found: dict[int, Walk] = {}
    for place, way in enumerate(ways):
        shape = way.shape(size)
        if shape is None:
            found[place] = alone(way)
        else:
            groups.setdefault(shape, []).append(place)
    for group in groups.values():
        found.update(zip(group, abreast([ways[place] for place in group]), strict=True))
    return [found[place] for place in range(len(ways))]


def _march(
    ways: Sequence[Way],
    settings: Settings,
    seed: int,
    size: int | None,
    steps: int,
    rate: float,
    end: float,
) -> list[Walk]:
    """All ways step by step; one whose squared gradient of the trunk is ``end`` at most stays."""
    net, trunk = ways[0].net, ways[0].net.trunk_size
    weights = torch.stack([way.start for way in ways])
    moves = optimizer(settings, weights.numel())
    summed = torch.zeros_like(weights)
    goes = np.ones(len(ways), dtype=bool)
    taken = np.zeros(len(ways), dtype=int)
    seen = []
    for batch, masks in _batches(ways, seed, size, steps):
        losses, gradient = _gradients(net, ways, weights, batch, masks)
        for place, way in enumerate(ways):
            if way.pull is not None:
                gradient[place] += way.pull(weights[place])
        if end >= 0.0:
            goes &= (gradient[:, :trunk].square().sum(1) > end).numpy()
            losses[~goes] = np.nan
            if not goes.any():
                break
        before = None if goes.all() else weights.clone()
        moves.update(weights.view(-1), gradient.view(-1), rate, 0.0)
        if before is not None:
            weights[~torch.from_numpy(goes)] = before[~torch.from_numpy(goes)]
        summed += gradient
        taken += goes
        seen.append(losses)
    finite(weights)
    mean = mean_of(seen) if seen else np.full(len(ways), np.nan)
    return [Walk(weights[n], summed[n], mean[n : n + 1], int(taken[n])) for n in range(len(ways))]


def _batches(
    ways: Sequence[Way], seed: int, size: int | None, steps: int
) -> Iterator[tuple[tuple[torch.Tensor, torch.Tensor, Rows], list[torch.Tensor]]]:
    """Inputs ``(K, n, d)`` and ``(K, n, p)``, outcomes as rows of K objectives; and the masks:
    ``(K, width, n)`` in the trunk, ``(K, n, width)`` in the heads."""
    net, count = ways[0].net, ways[0].batch(size)
    x = torch.cat([way.rows.x for way in ways])
    private = torch.cat([way.rows.private for way in ways])
    y = torch.cat([way.rows.y[0] for way in ways])
    weight = torch.cat([way.rows.weight[0] for way in ways])
    known = None
    if any(way.rows.known is not None for way in ways):
        known = torch.cat(
            [torch.ones(w.rows.count) if w.rows.known is None else w.rows.known[0] for w in ways]
        )
    begins = np.cumsum([0, *(way.rows.count for way in ways)])
    each = [draws(net, way.rows.count, steps, count, seed, *way.purpose) for way in ways]
    for drawn in zip(*each, strict=True):
        chosen = [torch.arange(count) if size is None else rows for rows, _ in drawn]
        places = torch.cat([rows + int(b) for rows, b in zip(chosen, begins, strict=False)])
        shape = (len(ways), count)
        batch = Rows(
            x,
            private,
            y[places].view(shape),
            weight[places].view(shape),
            None if known is None else known[places].view(shape),
            (None,) * len(ways),
        )
        masks = _masks(net, np.stack([raw for _, raw in drawn]), count)
        yield (x[places].view(*shape, -1), private[places].view(*shape, -1), batch), masks


def _masks(net: ObjectiveNet, raw: np.ndarray, count: int) -> list[torch.Tensor]:
    found, end = [], 0
    dropped = dropped_levels(net.dropout)
    for layer, width in enumerate(net.hidden if raw.size else ()):
        begin, end = end, end + count * width
        part = raw[:, begin:end].reshape(-1, count, width)
        if layer < _LAYERS:
            part = np.ascontiguousarray(part.transpose(0, 2, 1))
        found.append(mask(part, dropped))
    return found


def _gradients(
    net: ObjectiveNet,
    ways: Sequence[Way],
    weights: torch.Tensor,
    batch: tuple[torch.Tensor, torch.Tensor, Rows],
    masks: list[torch.Tensor],
) -> tuple[np.ndarray, torch.Tensor]:
    """Losses ``(K,)``, NaN where no row had an outcome, and gradients ``(K, size)``.

    Clients side by side are to the losses what the objectives of one center are.
    """
    pieces = torch.split(weights, net.sizes, dim=1)
    parts = [
        piece.detach().view(-1, *shape).requires_grad_()
        for piece, (_, shape) in zip(pieces, net.tensors, strict=True)
    ]
    joint = Losses(
        tuple(way.losses.objectives[0] for way in ways), tuple(way.losses.plain[0] for way in ways)
    )
    x, private, rows = batch
    found, _ = joint.of(_outputs(net, parts, x, private, masks), rows)
    there = [loss for loss in found if loss is not None]
    values = np.array([np.nan if loss is None else float(loss.detach()) for loss in found])
    if not there:
        return values, torch.zeros_like(weights)
    gradients = torch.autograd.grad(torch.stack(there).sum(), parts)
    return values, torch.cat([each.flatten(1) for each in gradients], 1)


def _outputs(
    net: ObjectiveNet,
    parts: Sequence[torch.Tensor],
    x: torch.Tensor,
    private: torch.Tensor,
    masks: list[torch.Tensor],
) -> torch.Tensor:
    """Raw outputs ``(K, n)`` in training mode."""
    if not isinstance(net.shared, FedcareTrunk):
        raise AssertionError("the simulator's clients have FedCARE's trunk")
    first = _block(parts[0:4], x.transpose(1, 2), masks[:1])
    summed = first + _block(parts[4:8], first, masks[1:2])
    weight, bias, scale, shift = parts[8:12]
    linear = torch.baddbmm(bias.unsqueeze(2), weight, summed).transpose(1, 2).contiguous()
    normal = functional.layer_norm(linear, [net.shared.width], eps=EPS)
    shared = torch.addcmul(shift.unsqueeze(1), normal, scale.unsqueeze(1))
    rows = torch.cat([shared, private], 2) if net.private else shared
    heads = parts[12:]
    for layer in range(len(net.head_hidden)):
        rows = torch.relu(_linear(heads[2 * layer : 2 * layer + 2], rows))
        if masks:
            rows = rows * masks[_LAYERS + layer]
    return _linear(heads[-2:], rows).squeeze(2)


def _block(
    parts: Sequence[torch.Tensor], x: torch.Tensor, masks: list[torch.Tensor]
) -> torch.Tensor:
    """Linear, batch norm, ReLU, dropout, on ``(K, width, n)``: so norms run along memory."""
    weight, bias, scale, shift = parts
    linear = torch.baddbmm(bias.unsqueeze(2), weight, x)
    channels = linear.view(1, -1, linear.shape[2])
    normal = functional.batch_norm(
        channels, None, None, scale.reshape(-1), shift.reshape(-1), training=True, eps=EPS
    )
    activated = torch.relu(normal.view_as(linear))
    return activated * masks[0] if masks else activated


def _linear(parts: Sequence[torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    weight, bias = parts
    return torch.baddbmm(bias.unsqueeze(1), rows, weight.transpose(1, 2))
