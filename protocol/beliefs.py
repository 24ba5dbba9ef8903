"""Beta–Bernoulli beliefs over peers' usefulness and their upper confidence bounds.

Paper sections 4.2 (update) and 4.3 (UCB), appendix C.1 (posterior mean).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Belief:
    """Beta(alpha, beta) over the probability that a peer's trunk helps; n counts observations."""

    alpha: float = 1.0
    beta: float = 1.0
    n: int = 0

    @property
    def mean(self) -> float:
        """μ̂ = α / (α + β)."""
        return self.alpha / (self.alpha + self.beta)

    def updated(self, phi_bar: float) -> Belief:
        """The posterior after one fractional observation φ̄ in [0, 1] (appendix C.1)."""
        if not 0.0 <= phi_bar <= 1.0:
            raise ValueError(f"phi_bar: found {phi_bar}, allowed: 0 to 1")
        return Belief(self.alpha + phi_bar, self.beta + 1.0 - phi_bar, self.n + 1)

    def discounted(self, factor: float, before: Belief, prior: Belief) -> Belief:
        """What is left of it for another campaign: ``prior`` and a share of all that was observed.

        ``factor`` in [0, 1] is that share, ``before`` the prior under which it was observed.
        Observations count as whole ones, rounded down, so that doubt never shrinks.
        """
        if not 0.0 <= factor <= 1.0:
            raise ValueError(f"factor: found {factor}, allowed: 0 to 1")
        return Belief(
            prior.alpha + factor * (self.alpha - before.alpha),
            prior.beta + factor * (self.beta - before.beta),
            math.floor(factor * self.n),
        )


def ucb(belief: Belief, t: int, gamma: float) -> float:
    """μ̂ + γ·sqrt(2·ln t / (n + 1)), paper section 4.3; at t = 1 the bonus is 0."""
    return belief.mean + gamma * math.sqrt(2.0 * math.log(t) / (belief.n + 1))


def ucbs(
    means: NDArray[np.float64], counts: NDArray[np.int64], t: int, gamma: float
) -> NDArray[np.float64]:
    """``ucb`` of many beliefs at once, to the last bit the same; shape ``(n,)``."""
    bounds: NDArray[np.float64] = means + gamma * np.sqrt(2.0 * math.log(t) / (counts + 1))
    return bounds
