"""Means of trunks for many centers: every coalition of every merging center as one model."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np
import torch

from abps_node.learning.aggregate import own_weight
from sim.engine.engine import Mix
from sim.engine.stack import Floats


def shares(mix: Mix, coalition: Collection[int]) -> Floats:
    """Weights of [own, *partners] in the mean over a coalition, summing to 1; 0 outside of it."""
    return _shares(mix.weights, tuple(partner in coalition for partner in mix.partners))


@lru_cache(maxsize=4096)
def _shares(weights: tuple[float, ...], inside: tuple[bool, ...]) -> Floats:
    own = own_weight({str(place): weight for place, weight in enumerate(weights)})
    chosen = [weight if member else 0.0 for weight, member in zip(weights, inside, strict=True)]
    return np.array([own, *chosen]) / math.fsum([own, *chosen])


def coalitions(
    weights: torch.Tensor, sent: torch.Tensor, mixes: Sequence[Mix], size: int
) -> torch.Tensor:
    """The models ``(G·K, P)`` of the K coalitions of each of G mixes, own heads on mean trunks.

    All mixes have the same numbers of partners and of coalitions.
    """
    own = weights[torch.tensor([mix.center for mix in mixes])]
    many = len(mixes[0].coalitions)
    if not mixes[0].partners:
        return own.repeat_interleave(many, 0)
    each = np.stack([[shares(mix, part) for part in mix.coalitions] for mix in mixes])
    factors = torch.from_numpy(each).to(torch.float32)
    partners = torch.tensor([mix.partners for mix in mixes])
    models = torch.empty(len(mixes), many, own.shape[1])
    models[:, :, size:] = own[:, None, size:]
    trunks = torch.cat([own[:, None, :size], sent[partners]], 1)
    torch.bmm(factors, trunks, out=models[:, :, :size])
    return models.flatten(0, 1)


def move(weights: torch.Tensor, sent: torch.Tensor, mix: Mix, size: int) -> None:
    """Set one center's trunk to the mean of its own and its partners', if any, in place."""
    if not mix.partners:
        return
    each = shares(mix, mix.partners)
    trunk = weights[mix.center, :size]
    trunk.mul_(float(each[0]))
    for partner, share in zip(mix.partners, each[1:].tolist(), strict=True):
        trunk.add_(sent[partner], alpha=share)
