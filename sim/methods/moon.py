"""MOON: a contrastive term pulls local representations to the server's, away from one's last.

Li, He, Song: «Model-Contrastive Federated Learning», CVPR 2021, algorithm 1. The representation z
is what the last hidden layer gives on (no projection head is added, so that all methods train the
same network); z_server and z_previous are taken without dropout. Temperature 0.5 as there, μ = 1 of
the values that they try {0.1, 1, 5, 10}.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional

from abps_node.learning.local_step import Batch, Loss
from abps_node.learning.model import Mlp
from sim.engine import Engine, Hand, Objective, Table
from sim.engine.stack import Index
from sim.methods.fedavg import FedAvg, Star

_SHORTEST = 1e-6
"""A representation shorter than this has no direction, hence no gradient."""


@dataclass(frozen=True)
class Contrastive(Objective):
    """Cross-entropy − μ·log(a/(a + b)); a, b = exp(cos(z, z_server)/τ), exp(cos(z, z_prev)/τ)."""

    model: Mlp
    table: Table
    mu: float
    temperature: float
    server: torch.Tensor
    """z_server of every training row, ``(N, h)``, of length 1 or 0."""
    previous: torch.Tensor
    """z_previous, alike."""

    def loss(self, center: int, t: int) -> Loss:
        """See ``Objective.loss``."""
        rows = self.table.rows(center)
        server, previous = self.server[rows], self.previous[rows]

        def loss(weights: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            z = self.model.representation(weights, batch.x, batch.masks)
            logits = self.model.output(weights, z)
            data = functional.binary_cross_entropy_with_logits(logits, batch.y)
            unit = z / z.norm(dim=1, keepdim=True).clamp_min(_SHORTEST)
            nearer = (unit * (previous[batch.rows] - server[batch.rows])).sum(1)
            return data, self.mu * functional.softplus(nearer / self.temperature).mean()

        return loss

    def hand(self, centers: Index, t: int) -> Hand:
        """See ``Objective.hand``."""
        return ContrastiveHand(self.mu, self.temperature, self.previous, self.server)


@dataclass(frozen=True)
class ContrastiveHand(Hand):
    """Adds μ/τ·σ(s/τ)·(d − (d·u)·u)/‖z‖ with u = z/‖z‖, d = z_prev − z_server, s = d·u."""

    mu: float
    temperature: float
    previous: torch.Tensor
    server: torch.Tensor
    reads_representation = True

    def at_representation(
        self,
        activations: torch.Tensor,
        rows: torch.Tensor,
        share: torch.Tensor,
        gradient: torch.Tensor,
    ) -> None:
        """See ``Hand.at_representation``; cosines do not see the factor of dropout."""
        length = activations.norm(dim=2, keepdim=True)
        unit = activations / length.clamp_min(_SHORTEST)
        away = self.previous[rows] - self.server[rows]
        nearer = (unit * away).sum(2, keepdim=True)
        slope = torch.sigmoid(nearer / self.temperature) * (self.mu / self.temperature)
        scale = torch.where(length > _SHORTEST, slope * share.unsqueeze(2) / length, 0.0)
        gradient.add_((away - nearer * unit) * scale)


@dataclass(frozen=True)
class Moon(FedAvg):
    """FedAvg with a contrastive term in every local loss.

    Keeps «previous», the local models before the last merge ``(C, P)``.
    """

    mu: float = 1.0
    temperature: float = 0.5

    def init(self, engine: Engine, seed: int) -> Star:
        """See ``Method.init``."""
        state = super().init(engine, seed)
        state.extra["previous"] = state.stack.weights.clone()
        return state

    def objective(self, engine: Engine, state: Star) -> Objective:
        """See ``FedAvg.objective``."""
        server, previous = (
            functional.normalize(engine.represent(weights), dim=1, eps=_SHORTEST)
            for weights in (state.stack.weights, state.extra["previous"])
        )
        table = engine.tables["train"]
        return Contrastive(engine.model, table, self.mu, self.temperature, server, previous)

    def aggregate(self, engine: Engine, state: Star, sent: torch.Tensor) -> torch.Tensor:
        """See ``FedAvg.aggregate``."""
        state.extra["previous"] = state.stack.weights.clone()
        return super().aggregate(engine, state, sent)
