"""BrainTorrent: one center after another fetches what is newer than what it knows, and fine-tunes.

Guha Roy, Siddiqui, Pölsterl, Navab, Wachinger: «BrainTorrent: A Peer-to-Peer Environment for
Decentralized Federated Learning», arXiv 1905.06731, algorithm 1: a random center asks all for their
versions, receives the models that are newer than those it has seen, averages them with its own by
training rows, trains, and counts its version up. A round here is each center once, in random order,
so that all methods train alike; the traffic is as large as it must then be.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from protocol.randomness import derive_rng
from sim.engine import Engine
from sim.engine.stack import Index
from sim.methods.base import (
    Method,
    RoundStats,
    State,
    begin,
    mean_loss,
    travelled,
    trunk_bytes,
    weighted_mean,
)


@dataclass
class Versions(State):
    """Models with versions."""

    version: Index
    """Fine-tunings of each center, ``(C,)``."""
    seen: Index
    """The version of each peer that a center merged last, ``(C, C)``."""


class BrainTorrent(Method[Versions]):
    """One center after another fetches what is newer than what it knows, and fine-tunes."""

    def init(self, engine: Engine, seed: int) -> Versions:
        """See ``Method.init``."""
        stack, active = begin(engine)
        count = len(engine.centers)
        version = np.zeros(count, dtype=np.int64)
        return Versions(stack, seed, active, version, np.zeros((count, count), dtype=np.int64))

    def round(self, engine: Engine, state: Versions, t: int) -> RoundStats:
        """See ``Method.round``."""
        order = [row for name in sorted(engine.ids) if state.active[row := engine.place[name]]]
        derive_rng(state.seed, t, "initiators").shuffle(order)
        losses = np.full(len(engine.centers), np.nan)
        partners = np.zeros(len(engine.centers), dtype=np.int64)
        for row in order:
            newer = np.flatnonzero(state.version > state.seen[row])
            newer = newer[newer != row]
            self._fetch(engine, state, row, newer)
            losses[row] = engine.train(state.stack, t, np.array([row]))[row]
            state.version[row] += 1
            partners[row] = newer.size
        moved = int(partners.sum()) * trunk_bytes(engine)
        return RoundStats(t, mean_loss(losses), moved, partners)

    def _fetch(self, engine: Engine, state: Versions, row: int, newer: Index) -> None:
        """Average the own trunk with those of ``newer``, by training rows."""
        trunks = state.stack.weights[:, : engine.model.trunk.size]
        received = travelled(trunks[torch.from_numpy(newer)], engine)
        sizes = engine.sizes[np.append(newer, row)].astype(np.float64)
        together = torch.cat([received, trunks[row : row + 1]])
        trunks[row] = weighted_mean(together, sizes / sizes.sum())
        state.seen[row, newer] = state.version[newer]
