"""Means of trunks for many centers: every coalition of every merging center as one model."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from functools import lru_cache

import numpy as np
import torch

from abps_node.learning.aggregate import own_weight
from sim.engine.engine import Mix
from sim.engine.network import Workspace
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
    weights: torch.Tensor, sent: torch.Tensor, mixes: Sequence[Mix], size: int, space: Workspace
) -> torch.Tensor:
    """The models ``(G·K, P)`` of the K coalitions of each of G mixes, own heads on mean trunks.

    All mixes have the same numbers of partners and of coalitions. The models are scratch memory.
    """
    many, partners = len(mixes[0].coalitions), len(mixes[0].partners)
    models = space.take("models", (len(mixes), many, weights.shape[1]))
    if not partners:
        models.copy_(weights[torch.tensor([mix.center for mix in mixes])].unsqueeze(1))
        return models.flatten(0, 1)
    each = np.array([[shares(mix, part) for part in mix.coalitions] for mix in mixes])
    trunks = space.take("trunks", (len(mixes), 1 + partners, size))
    for mix, model, trunk in zip(mixes, models.unbind(), trunks.unbind(), strict=True):
        model[:, size:] = weights[mix.center, size:]
        trunk[0] = weights[mix.center, :size]
        for place, partner in enumerate(mix.partners, 1):
            trunk[place] = sent[partner]
    torch.bmm(torch.from_numpy(each).to(torch.float32), trunks, out=models[:, :, :size])
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
