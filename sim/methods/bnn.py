"""BNN+FL: a Gaussian over every weight, whose moments the server averages.

Saile, Thomas, Kaaser, Schulte: «Client-Side Adaptation to Concept Drift in Federated Learning»,
FLTA 2024; the layers are Blundell et al.'s «Weight Uncertainty in Neural Networks», ICML 2015:
w = μ + softplus(ρ)·ε with one ε per optimizer step. The local loss is cross-entropy + KL(q ‖ prior)
over the rows of *all* centers, so that the prior counts once in the federation. The server averages
means and variances by training rows: twice the parameters travel, 2.00× of FedAvg. Prior
N(0, 0.1²), σ = 0.01 at the start. The mean network is what is used.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from abps_node.learning.local_step import Batch, Loss, cross_entropy
from abps_node.learning.model import Mlp
from protocol.randomness import derive_seed
from sim.engine import Engine, Hand, Objective, Stack
from sim.engine.stack import Index
from sim.methods.base import RoundStats, mean_loss, travelled, trunk_bytes, weighted_mean
from sim.methods.fedavg import FedAvg, Star


@dataclass(frozen=True)
class MeanField(Objective):
    """Cross-entropy of sampled weights + KL/rows; parameters are [μ, ρ], ``(2P,)``."""

    model: Mlp
    seeds: tuple[int, ...]
    prior: float
    rows: int
    """Over which the divergence from the prior is spread."""

    def noise(self, center: int, t: int) -> torch.Generator:
        """Draws one ε ``(P,)`` per optimizer step."""
        return torch.Generator().manual_seed(derive_seed(self.seeds[center], t, "posterior"))

    def loss(self, center: int, t: int) -> Loss:
        """See ``Objective.loss``."""
        plain, generator = cross_entropy(self.model), self.noise(center, t)
        size = self.model.size

        def loss(parameters: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            mean, sigma = parameters[:size], functional.softplus(parameters[size:])
            weights = mean + sigma * torch.randn(size, generator=generator)
            ratio = (sigma / self.prior).square() + (mean / self.prior).square()
            divergence = 0.5 * (ratio - 1 - 2 * torch.log(sigma / self.prior)).sum()
            return plain(weights, batch)[0], divergence / self.rows

        return loss

    def hand(self, centers: Index, t: int) -> Hand:
        """See ``Objective.hand``."""
        return MeanFieldHand(self, [self.noise(int(center), t) for center in centers])


class MeanFieldHand(Hand):
    """∂μ = g + μ/(s²·rows); ∂ρ = (g·ε + (σ/s² − 1/σ)/rows)·σ'(ρ), s the prior's deviation."""

    def __init__(self, objective: MeanField, generators: list[torch.Generator]) -> None:
        self._objective = objective
        self._generators = generators
        shape = (len(generators), objective.model.size)
        self._noise, self._sigma = torch.empty(shape), torch.empty(shape)
        self._gradient = torch.empty(shape[0], 2 * shape[1])

    def weights(self, parameters: torch.Tensor) -> torch.Tensor:
        """See ``Hand.weights``."""
        for row, generator in zip(self._noise, self._generators, strict=True):
            torch.randn(row.shape[0], generator=generator, out=row)
        size = self._noise.shape[1]
        torch.ops.aten.softplus.out(parameters[:, size:], out=self._sigma)
        return torch.addcmul(parameters[:, :size], self._sigma, self._noise)

    def at_parameters(self, parameters: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """See ``Hand.at_parameters``."""
        size, rows = self._noise.shape[1], self._objective.rows
        tight = 1.0 / (self._objective.prior**2 * rows)
        of_mean, of_rho = self._gradient[:, :size], self._gradient[:, size:]
        torch.mul(parameters[:, :size], tight, out=of_mean).add_(gradient)
        # In the memory of ε and σ, which the next step draws and computes anew.
        of_sigma = self._noise.mul_(gradient)
        torch.mul(self._sigma, tight, out=of_rho)
        of_sigma.add_(of_rho).sub_(self._sigma.mul_(rows).reciprocal_())
        torch.sigmoid(parameters[:, size:], out=of_rho).mul_(of_sigma)
        return self._gradient


@dataclass(frozen=True)
class BnnFL(FedAvg):
    """FedAvg over a Gaussian for every weight; heads stay private in both moments."""

    prior: float = 0.1
    sigma: float = 0.01

    def init(self, engine: Engine, seed: int) -> Star:
        """See ``Method.init``."""
        mean = engine.start().weights[0]
        rho = torch.full_like(mean, math.log(math.expm1(self.sigma)))
        stack = Stack.start(torch.cat([mean, rho]), len(engine.centers))
        active = np.ones(len(engine.centers), dtype=bool)
        return Star(stack, seed, active, torch.empty(0))

    def round(self, engine: Engine, state: Star, t: int) -> RoundStats:
        """See ``Method.round``."""
        who, size = state.who, engine.model.trunk.size
        losses = engine.train(state.stack, t, who, self.objective(engine, state))
        rows, shares = torch.from_numpy(who), self.shares(engine, state)
        weights = state.stack.weights
        halves = [weights[:, first : first + size] for first in (0, engine.model.size)]
        sent = torch.cat([half.index_select(0, rows) for half in halves], 1)
        sent[:, size:] = functional.softplus(sent[:, size:]).square()
        sent = travelled(sent, engine)
        fresh = travelled(weighted_mean(sent, shares), engine)
        # σ of a variance, and ρ of that.
        fresh[size:] = torch.log(torch.expm1(fresh[size:].sqrt()))
        for half, part in zip(halves, (fresh[:size], fresh[size:]), strict=True):
            half[rows] = part
        moved = 2 * who.size * trunk_bytes(engine, 2 * size)
        return RoundStats(t, mean_loss(losses), moved, np.zeros(losses.size, dtype=np.int64))

    def objective(self, engine: Engine, state: Star) -> Objective:
        """See ``FedAvg.objective``."""
        total = int(engine.sizes.sum())
        return MeanField(engine.model, tuple(engine.seeds), self.prior, total)

    def models(self, engine: Engine, state: Star) -> torch.Tensor:
        """The mean networks."""
        return state.stack.weights[:, : engine.model.size]
