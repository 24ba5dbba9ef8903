"""The reference: center by center, through the code that the daemons run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from abps_node.learning.adam import Adam
from abps_node.learning.aggregate import weighted_mean
from abps_node.learning.local_step import local_step
from abps_node.learning.utility import Utility
from sim.engine.engine import Engine, Mix
from sim.engine.objective import Objective
from sim.engine.stack import Floats, Index, Scores, SplitName, Stack


class SequentialEngine(Engine):
    """Slow and plain."""

    def train(
        self,
        stack: Stack,
        t: int,
        who: Index | None = None,
        objective: Objective | None = None,
    ) -> Floats:
        """See ``Engine.train``."""
        table = self.tables["train"]
        losses = np.full(len(self.centers), np.nan)
        for center in self._all(who):
            rows = table.rows(center)
            adam = Adam(int(stack.steps[center]), stack.exp_avg[center], stack.exp_avg_sq[center])
            result = local_step(
                self.model,
                stack.weights[center],
                adam,
                table.x[rows],
                table.y[rows],
                self.contract.training,
                self.seeds[center],
                t,
                None if objective is None else objective.loss(center, t),
            )
            stack.weights[center] = result.weights
            stack.exp_avg[center] = result.adam.exp_avg
            stack.exp_avg_sq[center] = result.adam.exp_avg_sq
            stack.steps[center] = result.adam.step
            losses[center] = result.loss
        return losses

    def merge(self, stack: Stack, sent: torch.Tensor, mixes: Sequence[Mix]) -> list[Floats]:
        """See ``Engine.merge``."""
        return [self._merge(stack, sent, mix) for mix in mixes]

    def _merge(self, stack: Stack, sent: torch.Tensor, mix: Mix) -> Floats:
        size = self.model.trunk.size
        names = {partner: self.ids[partner] for partner in mix.partners}
        trunks = {name: sent[partner].numpy() for partner, name in names.items()}
        weights = dict(zip(names.values(), mix.weights, strict=True))
        own = stack.weights[mix.center, :size].numpy().copy()
        head = stack.weights[mix.center, size:]

        def mean(members: frozenset[int]) -> torch.Tensor:
            chosen = [names[member] for member in members]
            return torch.from_numpy(weighted_mean(own, trunks, weights, chosen))

        utilities = [
            self._utility(torch.cat([mean(coalition), head]), mix.center)
            for coalition in mix.coalitions
        ]
        if mix.partners:
            stack.weights[mix.center, :size] = mean(frozenset(mix.partners))
        return np.array(utilities)

    def measure(self, weights: torch.Tensor, who: Index | None = None) -> Floats:
        """See ``Engine.measure``."""
        values = np.full(len(self.centers), np.nan)
        for center in self._all(who):
            values[center] = self._utility(_row(weights, center), center)
        return values

    def predict(
        self, weights: torch.Tensor, split: SplitName, pairs: tuple[Index, Index] | None = None
    ) -> Scores:
        """See ``Engine.predict``."""
        table = self.tables[split]
        everybody = np.arange(len(self.centers))
        owners, models = (everybody, everybody) if pairs is None else pairs
        logits = [
            self.model.logits(_row(weights, int(model)), table.x[table.rows(owner)])
            for owner, model in zip(owners, models, strict=True)
        ]
        return Scores(torch.cat(logits).numpy(), *table.of(owners))

    def represent(self, weights: torch.Tensor, split: SplitName = "train") -> torch.Tensor:
        """See ``Engine.represent``."""
        table = self.tables[split]
        parts = [
            self.model.representation(_row(weights, center), table.x[table.rows(center)])
            for center in range(len(self.centers))
        ]
        return torch.cat(parts)

    def pooled(self) -> SequentialEngine:
        """See ``Engine.pooled``."""
        center, seeds = self._pooled_center()
        return SequentialEngine(self.contract, [center], seeds)

    def _utility(self, weights: torch.Tensor, center: int) -> float:
        table = self.tables["validation"]
        rows = table.rows(center)
        logits = self.model.logits(weights, table.x[rows]).numpy().astype(np.float64)
        y = table.y[rows].numpy().astype(np.float64)
        return Utility(self.metrics[center], y).measure(logits)

    def _all(self, who: Index | None) -> list[int]:
        return list(range(len(self.centers))) if who is None else who.tolist()


def _row(weights: torch.Tensor, center: int) -> torch.Tensor:
    return weights if weights.dim() == 1 else weights[center]
