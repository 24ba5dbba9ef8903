"""Centralized: one model on everybody's rows. No federation, the paper's upper reference.

The rows are those that the centers learn from, standardized by each center, since nothing else is
known of them here; as many epochs a round as the centers run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sim.engine import Engine
from sim.methods.base import Method, RoundStats, State, mean_loss


@dataclass
class Pooled(State):
    """The stack holds the one model."""

    engine: Engine
    """Of the one center that holds all rows."""


class Centralized(Method[Pooled]):
    """One model on the rows of all centers: what sharing all patients would give."""

    def init(self, engine: Engine, seed: int) -> Pooled:
        """See ``Method.init``."""
        pooled = engine.pooled()
        active = np.ones(len(engine.centers), dtype=bool)
        return Pooled(pooled.start(), seed, active, pooled)

    def round(self, engine: Engine, state: Pooled, t: int) -> RoundStats:
        """See ``Method.round``."""
        losses = state.engine.train(state.stack, t)
        nobody = np.zeros(len(engine.centers), dtype=np.int64)
        return RoundStats(t, mean_loss(losses), 0, nobody)

    def models(self, engine: Engine, state: Pooled) -> torch.Tensor:
        """See ``Method.models``."""
        return state.stack.weights.expand(len(engine.centers), -1)
