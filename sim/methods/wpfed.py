"""WPFed: neighbors by similarity of models (LSH codes) and by rank, knowledge by distillation.

Ye, He, Wang, Xue, Kou, Li: «WPFed: Web-based Personalized Federation for Decentralized Systems»,
arXiv 2410.11378v1. A center publishes the LSH code of its model (signs of random projections); the
weight of neighbor j is s_j·exp(−γ·d_ij), d the share of bits that differ, s_j the share of those
who used j that ranked it in the upper half. It takes the N heaviest neighbors, ranks them by their
loss, and trains on (1 − a)·cross-entropy + a·‖p − mean of their predictions‖².

Departure: there, reference rows travel and predictions come back. Patients do not travel here, so
the neighbors' models do, and predict the center's own training rows; so does the paper's Table 1
count it. N = 2 (FedAvg's number of transfers), a = 0.5, γ = 1, 128 bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional

from abps_node.learning.local_step import Batch, Loss
from abps_node.learning.model import Mlp
from protocol.randomness import derive_seed
from sim.engine import Engine, Hand, Objective, Table
from sim.engine import ranks as metrics
from sim.engine.stack import Floats, Index
from sim.methods.base import (
    Method,
    RoundStats,
    State,
    begin,
    mean_loss,
    travelled,
    trunk_bytes,
)


@dataclass(frozen=True)
class Distillation(Objective):
    """(1 − a)·cross-entropy + a·mean (p − target)²."""

    model: Mlp
    table: Table
    share: float
    targets: torch.Tensor
    """For every training row, ``(N,)``."""

    def loss(self, center: int, t: int) -> Loss:
        """See ``Objective.loss``."""
        targets = self.targets[self.table.rows(center)]

        def loss(weights: torch.Tensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            logits = self.model.logits(weights, batch.x, batch.masks)
            data = functional.binary_cross_entropy_with_logits(logits, batch.y)
            away = (torch.sigmoid(logits) - targets[batch.rows]).square().mean()
            return data, self.share * (away - data)

        return loss

    def hand(self, centers: Index, t: int) -> Hand:
        """See ``Objective.hand``."""
        return DistillationHand(self.share, self.targets)


@dataclass(frozen=True)
class DistillationHand(Hand):
    """(1 − a)·gradient + 2a·(p − target)·p·(1 − p)/rows."""

    share: float
    targets: torch.Tensor

    def at_logits(
        self,
        logits: torch.Tensor,
        rows: torch.Tensor,
        share: torch.Tensor,
        gradient: torch.Tensor,
    ) -> None:
        """See ``Hand.at_logits``."""
        p = torch.sigmoid(logits)
        away = 2 * self.share * (p - self.targets[rows]) * p * (1 - p) * share
        gradient.mul_(1 - self.share).add_(away)


@dataclass
class Ranked(State):
    """Centers and what is known of their quality."""

    planes: torch.Tensor
    """Random projections, ``(trunk size, bits)``."""
    quality: Floats
    """s_j, ``(C,)``; 1 before anybody ranked."""


@dataclass(frozen=True)
class WPFed(Method[Ranked]):
    """Distills from peers whose models are similar (LSH codes) and rank well."""

    neighbors: int = 2
    share: float = 0.5
    gamma: float = 1.0
    bits: int = 128

    def init(self, engine: Engine, seed: int) -> Ranked:
        """See ``Method.init``."""
        stack, active = begin(engine)
        generator = torch.Generator().manual_seed(derive_seed(seed, "planes"))
        planes = torch.randn(engine.model.trunk.size, self.bits, generator=generator)
        return Ranked(stack, seed, active, planes, np.ones(len(engine.centers)))

    def round(self, engine: Engine, state: Ranked, t: int) -> RoundStats:
        """See ``Method.round``."""
        who = state.who
        chosen = self._choose(engine, state)
        count = chosen.shape[1]
        moved = int(chosen.size) * trunk_bytes(engine)
        partners = np.zeros(len(engine.centers), dtype=np.int64)
        partners[who] = count
        objective = self._learn_from(engine, state, chosen) if count else None
        losses = engine.train(state.stack, t, who, objective)
        return RoundStats(t, mean_loss(losses), moved, partners)

    def _choose(self, engine: Engine, state: Ranked) -> Index:
        """The heaviest neighbors of each active center, ``(active, N)``."""
        who = state.who
        trunks = state.stack.weights[torch.from_numpy(who), : engine.model.trunk.size]
        # Projected from the common start: what training made different, not what all share.
        start = engine.model.initial(engine.contract.model.init_seed)[: trunks.shape[1]]
        code = ((trunks - start) @ state.planes > 0).to(torch.float32) * 2 - 1
        apart = (0.5 - 0.5 * (code @ code.T) / self.bits).numpy().astype(np.float64)
        weights = state.quality[who] * np.exp(-self.gamma * apart)
        np.fill_diagonal(weights, -1.0)
        count = min(self.neighbors, who.size - 1)
        return who[np.argsort(-weights, axis=1, kind="stable")[:, :count]]

    def _learn_from(self, engine: Engine, state: Ranked, chosen: Index) -> Distillation:
        """Targets of all training rows, and new ranks of the neighbors."""
        who, count = state.who, chosen.shape[1]
        received = state.stack.weights.clone()
        size = engine.model.trunk.size
        received[:, :size] = travelled(state.stack.weights[:, :size], engine)
        pairs = np.repeat(who, count), chosen.ravel()
        scores = engine.predict(received, "train", pairs)
        losses = -metrics.negative_log_loss(scores.logits, scores.y, scores.start)
        state.quality = _quality(losses.reshape(-1, count), chosen, state.quality)
        table = engine.tables["train"]
        targets = torch.zeros(len(table.y))
        p = torch.sigmoid(torch.from_numpy(scores.logits))
        for place, row in enumerate(np.repeat(who, count).tolist()):
            rows = slice(int(scores.start[place]), int(scores.start[place + 1]))
            targets[table.rows(row)] += p[rows] / count
        return Distillation(engine.model, table, self.share, targets)


def _quality(losses: Floats, chosen: Index, before: Floats) -> Floats:
    """s_j anew for those who were used: how often they ranked in the upper half of a list."""
    count = chosen.shape[1]
    place = np.argsort(np.argsort(losses, axis=1, kind="stable"), axis=1, kind="stable")
    good = np.bincount(chosen[place < max(1, count // 2)], minlength=before.size)
    used = np.bincount(chosen.ravel(), minlength=before.size)
    # One use more on either side, lest a single bad rank exclude a center for ever.
    return np.where(used > 0, (good + 1) / (used + 1), before)
