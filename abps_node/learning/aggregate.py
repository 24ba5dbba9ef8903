"""Means of trunks: the merge of partners and the momentum of ABPS-X (paper section 6.4)."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Final

import numpy as np

from protocol.trunk import Vector

_ROUNDING: Final = 1e-12


def own_weight(weights: Mapping[str, float]) -> float:
    """What is missing to 1. Raises ``ValueError`` unless all weights are positive, this one or 0.

    Uniform weights are 1/(|P| + 1) for everybody, so that this is the plain mean. A newcomer that
    takes its partners' trunks has the own weight 0.
    """
    own = 1.0 - math.fsum(weights.values())
    if abs(own) < _ROUNDING:
        own = 0.0
    if own < 0.0 or not all(weight > 0.0 for weight in weights.values()):
        raise ValueError(f"weights: found {dict(weights)}, allowed: positive, with a sum up to 1")
    return own


def weighted_mean(
    own: Vector,
    trunks: Mapping[str, Vector],
    weights: Mapping[str, float],
    members: Collection[str],
) -> Vector:
    """Mean of the own trunk and those of ``members``, the weights rescaled to sum to 1 over these.

    Summed in double precision and in the order of the peers' names, so that it does not depend on
    who answered first.
    """
    chosen = sorted(members)
    if not chosen:
        return own.copy()
    mine = own_weight(weights)
    total = math.fsum([mine, *(weights[peer] for peer in chosen)])
    mean = own.astype(np.float64) * (mine / total)
    for peer in chosen:
        mean += trunks[peer].astype(np.float64) * (weights[peer] / total)
    return mean.astype(np.float32)


def with_momentum(previous: Vector, mean: Vector, beta: float) -> Vector:
    """β·(previous merged trunk) + (1 − β)·(new mean)."""
    mixed = beta * previous.astype(np.float64) + (1.0 - beta) * mean.astype(np.float64)
    return mixed.astype(np.float32)
