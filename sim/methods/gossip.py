"""Gossip learning: each center sends its model to one random peer, which merges by age and trains.

Hegedűs, Danner, Jelasity: «Decentralized learning works: An empirical comparison of gossip learning
and federated learning», Journal of Parallel and Distributed Computing 148, 2021, algorithms 1 and
2: on receiving (w_r, t_r) a node sets w ← (t·w + t_r·w_r)/(t + t_r), t ← max(t, t_r), and updates
with its own data, which adds to t. Here all send once a round, what arrives is merged in random
order, and the age counts optimizer steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from protocol.randomness import derive_rng
from sim.engine import Engine, Mix
from sim.engine.stack import Index
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
class Aged(State):
    """Models with ages."""

    age: Index
    """Optimizer steps behind each center's model, ``(C,)``."""


class Gossip(Method[Aged]):
    """Sends its model to one random peer, which merges by age and trains."""

    def init(self, engine: Engine, seed: int) -> Aged:
        """See ``Method.init``."""
        stack, active = begin(engine)
        return Aged(stack, seed, active, np.zeros(len(engine.centers), dtype=np.int64))

    def round(self, engine: Engine, state: Aged, t: int) -> RoundStats:
        """See ``Method.round``."""
        before = state.stack.steps.numpy().copy()
        losses = engine.train(state.stack, t, state.who)
        state.age += state.stack.steps.numpy() - before
        sent = travelled(state.stack.weights[:, : engine.model.trunk.size], engine)
        arrived = self._send(engine, state, t)
        ages = state.age.copy()
        mixes = []
        for row, senders in sorted(arrived.items()):
            mixes.append(Mix(row, tuple(senders), _weights(ages, row, senders), ()))
            state.age[row] = max(int(ages[row]), *(int(ages[sender]) for sender in senders))
        engine.merge(state.stack, sent, mixes)
        partners = np.zeros(losses.size, dtype=np.int64)
        partners[list(arrived)] = [len(senders) for senders in arrived.values()]
        moved = int(partners.sum()) * trunk_bytes(engine)
        return RoundStats(t, mean_loss(losses), moved, partners)

    def _send(self, engine: Engine, state: Aged, t: int) -> dict[int, list[int]]:
        """Receiver to senders in the order of arrival; each active center sends to one other."""
        rng = derive_rng(state.seed, t, "gossip")
        rows = [row for name in sorted(engine.ids) if state.active[row := engine.place[name]]]
        arrived: dict[int, list[int]] = {}
        if len(rows) < 2:
            return arrived
        for sender in rng.sample(rows, len(rows)):
            receiver = rng.choice([row for row in rows if row != sender])
            arrived.setdefault(receiver, []).append(sender)
        return arrived


def _weights(ages: Index, row: int, senders: list[int]) -> tuple[float, ...]:
    """What merging one after the other comes to, as weights in one mean."""
    weights: list[float] = []
    age = int(ages[row])
    for sender in senders:
        share = int(ages[sender]) / (age + int(ages[sender]))
        weights = [weight * (1.0 - share) for weight in weights] + [share]
        age = max(age, int(ages[sender]))
    return tuple(weights)
