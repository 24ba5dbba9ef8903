"""FedDyn: a linear and a proximal term that align local optima with the global stationary point.

Acar, Zhao, Matas Navarro, Mattina, Whatmough, Saligrama: «Federated Learning Based on Dynamic
Regularization», ICLR 2021, algorithm 1: center k minimizes L_k(w) − ⟨g_k, w⟩ + α/2·‖w − θ‖², then
g_k ← g_k − α·(w_k − θ); the server h ← h − α·(1/m)·Σ(w_k − θ), θ ← mean(w_k) − h/α, means being
uniform. α = 0.01, of the values that they try {0.1, 0.01, 0.001}.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from abps_node.learning.local_step import Batch, Loss
from sim.engine import Engine, Hand, Objective
from sim.engine.stack import Index
from sim.methods.base import weighted_mean
from sim.methods.fedavg import FedAvg, Star
from sim.methods.fedprox import Proximal, ProximalHand


@dataclass(frozen=True)
class Dynamic(Proximal):
    """The proximal loss, minus ⟨g_k, trunk⟩."""

    linear: torch.Tensor
    """g_k of each center, ``(C, trunk size)``."""

    def loss(self, center: int, t: int) -> Loss:
        """See ``Objective.loss``."""
        proximal, linear = super().loss(center, t), self.linear[center]

        def loss(weights: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor | None]:
            data, rest = proximal(weights, batch)
            inner = (linear * weights[: linear.shape[0]]).sum()
            return data, -inner if rest is None else rest - inner

        return loss

    def hand(self, centers: Index, t: int) -> Hand:
        """See ``Objective.hand``."""
        rows = torch.from_numpy(centers)
        return DynamicHand(self.mu, self.anchors[rows], self.linear[rows])


@dataclass(frozen=True)
class DynamicHand(ProximalHand):
    """Adds α·(trunk − anchor) − g_k."""

    linear: torch.Tensor

    def at_parameters(self, parameters: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """See ``Hand.at_parameters``."""
        super().at_parameters(parameters, gradient)[:, : self.linear.shape[1]].sub_(self.linear)
        return gradient


@dataclass(frozen=True)
class FedDyn(FedAvg):
    """FedAvg with a linear and a proximal term in every local loss.

    Keeps «linear», g_k ``(C, trunk size)``, «drift», h, and «anchors», θ as it was received.
    """

    alpha: float = 0.01

    def init(self, engine: Engine, seed: int) -> Star:
        """See ``Method.init``."""
        state = super().init(engine, seed)
        shape = (len(engine.centers), engine.model.trunk.size)
        state.extra = {"linear": torch.zeros(shape), "drift": torch.zeros(shape[1])}
        return state

    def objective(self, engine: Engine, state: Star) -> Objective:
        """See ``FedAvg.objective``."""
        anchors = state.stack.weights[:, : engine.model.trunk.size].clone()
        state.extra["anchors"] = anchors
        return Dynamic(engine.model, self.alpha, anchors, state.extra["linear"])

    def aggregate(self, engine: Engine, state: Star, sent: torch.Tensor) -> torch.Tensor:
        """See ``FedAvg.aggregate``."""
        rows, count = torch.from_numpy(state.who), state.who.size
        moved = sent - state.extra["anchors"].index_select(0, rows)
        state.extra["linear"].index_add_(0, rows, moved * -self.alpha)
        uniform = np.full(count, 1.0 / count)
        share = count / len(engine.centers)
        state.extra["drift"] -= self.alpha * share * weighted_mean(moved, uniform)
        return weighted_mean(sent, uniform) - state.extra["drift"] / self.alpha
