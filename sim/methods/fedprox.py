"""FedProx: FedAvg with a proximal term μ/2·‖w − w_server‖² in every local loss.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: «Federated Optimization in Heterogeneous Networks»,
MLSys 2020, algorithm 2. μ = 0.01, of the values that they try {0.001, 0.01, 0.1, 1}.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from abps_node.learning.local_step import Batch, Loss, cross_entropy
from abps_node.learning.model import Mlp
from sim.engine import Engine, Hand, Objective
from sim.engine.stack import Index
from sim.methods.fedavg import FedAvg, Star


@dataclass(frozen=True)
class Proximal(Objective):
    """Cross-entropy + μ/2·‖trunk − anchor‖²; a private head is free."""

    model: Mlp
    mu: float
    anchors: torch.Tensor
    """Where each center began the round, ``(C, trunk size)``."""

    def loss(self, center: int, t: int) -> Loss:
        """See ``Objective.loss``."""
        plain, anchor = cross_entropy(self.model), self.anchors[center]

        def loss(weights: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            away = weights[: anchor.shape[0]] - anchor
            return plain(weights, batch)[0], self.mu / 2 * away.square().sum()

        return loss

    def hand(self, centers: Index, t: int) -> Hand:
        """See ``Objective.hand``."""
        return ProximalHand(self.mu, self.anchors[torch.from_numpy(centers)])


@dataclass(frozen=True)
class ProximalHand(Hand):
    """Adds μ·(trunk − anchor)."""

    mu: float
    anchors: torch.Tensor

    def at_parameters(self, parameters: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
        """See ``Hand.at_parameters``."""
        size = self.anchors.shape[1]
        gradient[:, :size].add_(parameters[:, :size] - self.anchors, alpha=self.mu)
        return gradient


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg that holds its centers close."""

    mu: float = 0.01

    def objective(self, engine: Engine, state: Star) -> Objective:
        """See ``FedAvg.objective``."""
        anchors = state.stack.weights[:, : engine.model.trunk.size].clone()
        return Proximal(engine.model, self.mu, anchors)
