"""DeFTA: decentralized averaging, corrected for how often each model is used, among trusted peers.

Zhou, Shi, Tian, Ye, Lv: «DeFTA: A Plug-and-Play Peer-to-Peer Decentralized Federated Learning
Framework», Information Sciences 670, 2024. Each round a center draws peers by trust and averages
their models with its own by weights ∝ (training rows)/(out-degree), which makes the expected mean
that of FedAvg. Trust is softmax(min(confidence, 0)); the confidence of the peers merged falls by
their weight times the rise of the own training loss since the last round. Two peers a round: as
many transfers as FedAvg makes, as the paper's Table 1 counts it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from protocol.randomness import derive_rng
from sim.engine import Engine, Mix
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


@dataclass
class Trusting(State):
    """Centers and how much they trust each other."""

    confidence: Floats
    """Of row about column, ``(C, C)``; 0 at first."""
    weights: Floats
    """Weight of each peer in the last merge, ``(C, C)``."""
    loss: Floats
    """Training loss of the last round, ``(C,)``; NaN before the first."""


@dataclass(frozen=True)
class DeFTA(Method[Trusting]):
    """Averages with peers drawn by trust, corrected for how often each model is used."""

    peers: int = 2

    def init(self, engine: Engine, seed: int) -> Trusting:
        """See ``Method.init``."""
        stack, active = begin(engine)
        count = len(engine.centers)
        return Trusting(
            stack,
            seed,
            active,
            np.zeros((count, count)),
            np.zeros((count, count)),
            np.full(count, np.nan),
        )

    def round(self, engine: Engine, state: Trusting, t: int) -> RoundStats:
        """See ``Method.round``."""
        losses = engine.train(state.stack, t, state.who)
        rise = np.nan_to_num(losses - state.loss)
        state.confidence -= state.weights * rise[:, None]
        state.loss = losses
        chosen = self._choose(engine, state, t)
        used = np.ones(losses.size)
        """Out-degree: everybody uses its own model."""
        for peers in chosen.values():
            used[peers] += 1
        state.weights[:] = 0.0
        mixes = []
        for row, peers in chosen.items():
            members = np.append(peers, row)
            shares = engine.sizes[members] / used[members]
            shares = shares / shares.sum()
            state.weights[row, peers] = shares[:-1]
            mixes.append(Mix(row, tuple(peers.tolist()), tuple(shares[:-1].tolist()), ()))
        sent = travelled(state.stack.weights[:, : engine.model.trunk.size], engine)
        engine.merge(state.stack, sent, mixes)
        partners = np.zeros(losses.size, dtype=np.int64)
        partners[list(chosen)] = [peers.size for peers in chosen.values()]
        moved = int(partners.sum()) * trunk_bytes(engine)
        return RoundStats(t, mean_loss(losses), moved, partners)

    def _choose(self, engine: Engine, state: Trusting, t: int) -> dict[int, Index]:
        """Peers of each active center, drawn by trust without repetition."""
        chosen = {}
        for row in state.who.tolist():
            others = state.who[state.who != row]
            rng = derive_rng(engine.seeds[row], engine.ids[row], t, "trust")
            trust = np.exp(np.minimum(state.confidence[row, others], 0.0))
            chosen[row] = _draw(others, trust, min(self.peers, others.size), rng)
        return chosen


def _draw(others: Index, trust: Floats, count: int, rng: random.Random) -> Index:
    """``count`` of them, one after the other, with probability proportional to trust."""
    # Efraimidis and Spirakis: the largest u^(1/w) are such a sample.
    keys = [rng.random() for _ in others]
    order = np.argsort(np.log(np.maximum(keys, 1e-300)) / trust)
    return np.sort(others[order[::-1][:count]])
