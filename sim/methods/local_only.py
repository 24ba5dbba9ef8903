"""Local-only: every center trains alone. The lower bound of the paper's Table 1."""

from __future__ import annotations

import numpy as np

from sim.engine import Engine
from sim.methods.base import Method, RoundStats, State, begin, mean_loss


class LocalOnly(Method[State]):
    """The same local step and selection rule as everywhere, and nobody to talk to."""

    def init(self, engine: Engine, seed: int) -> State:
        """See ``Method.init``."""
        stack, active = begin(engine)
        return State(stack, seed, active)

    def round(self, engine: Engine, state: State, t: int) -> RoundStats:
        """See ``Method.round``."""
        losses = engine.train(state.stack, t, state.who)
        return RoundStats(t, mean_loss(losses), 0, np.zeros(losses.size, dtype=np.int64))
