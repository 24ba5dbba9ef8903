"""DeceFL: neighbors in a fixed connected graph mix their models with doubly stochastic weights.

Yuan, Liu, Jin, et al.: «DeceFL: A Principled Fully Decentralized Federated Learning Framework»,
National Science Open 2(1), 2023: w_k ← Σ_j W_kj·w_j − η·∇F_k, here with the local step in the place
of the gradient step. The graph is a ring in random order, W its Metropolis weights (1/3 each): n
edges, so exactly FedAvg's bandwidth, as the paper's Table 1 counts it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.randomness import derive_rng
from sim.engine import Engine, Mix
from sim.methods.base import (
    Method,
    RoundStats,
    State,
    begin,
    mean_loss,
    travelled,
    trunk_bytes,
)


@dataclass
class Ring(State):
    """Centers in a ring."""

    order: list[int]
    """Rows, each beside its neighbors; the last beside the first."""

    def neighbors(self) -> dict[int, tuple[int, ...]]:
        """Of every active center; who stopped is left out and the ring closes."""
        ring = [row for row in self.order if self.active[row]]
        ends = {
            row: {ring[place - 1], ring[(place + 1) % len(ring)]} - {row}
            for place, row in enumerate(ring)
        }
        return {row: tuple(sorted(found)) for row, found in sorted(ends.items())}


class DeceFL(Method[Ring]):
    """Mixes with its two neighbors on a ring, by doubly stochastic weights; no server."""

    def init(self, engine: Engine, seed: int) -> Ring:
        """See ``Method.init``."""
        stack, active = begin(engine)
        order = [engine.place[name] for name in sorted(engine.ids)]
        derive_rng(seed, "ring").shuffle(order)
        return Ring(stack, seed, active, order)

    def round(self, engine: Engine, state: Ring, t: int) -> RoundStats:
        """See ``Method.round``."""
        losses = engine.train(state.stack, t, state.who)
        size = engine.model.trunk.size
        sent = travelled(state.stack.weights[:, :size], engine)
        near = state.neighbors()
        # Metropolis: 1/(1 + larger degree); in a ring all degrees are equal.
        mixes = [
            Mix(row, peers, (1.0 / (len(peers) + 1),) * len(peers), ())
            for row, peers in near.items()
        ]
        engine.merge(state.stack, sent, mixes)
        partners = np.zeros(losses.size, dtype=np.int64)
        partners[list(near)] = [len(peers) for peers in near.values()]
        moved = int(partners.sum()) * trunk_bytes(engine)
        return RoundStats(t, mean_loss(losses), moved, partners)
