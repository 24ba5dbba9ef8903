"""FedAvg: the server averages everybody's trunk each round, weighted by training rows.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: «Communication-Efficient Learning of Deep Networks
from Decentralized Data», AISTATS 2017, algorithm 1, with all clients in every round (C = 1).

With the policy's extensions it is the paper's fair comparator: ``head_layers`` keeps heads private
(Arivazhagan et al. 2019), ``wire_dtype`` rounds what travels in either direction, ``momentum`` is
the server's moving average: FedAvg+P+Q and FedAvg-X.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from sim.engine import Engine, Objective
from sim.engine.stack import Floats
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
class Star(State):
    """Centers around a server. Between rounds every active center holds the server's trunk."""

    server: torch.Tensor
    """The server's trunk before it travels, ``(trunk size,)``."""
    merges: int = 0
    extra: dict[str, torch.Tensor] = field(default_factory=dict)
    """What a variant keeps beside, by name."""


class FedAvg(Method[Star]):
    """A server averages all trunks each round, weighted by training rows.

    Also the frame of everything else that has a server.
    """

    def init(self, engine: Engine, seed: int) -> Star:
        """See ``Method.init``."""
        stack, active = begin(engine)
        return Star(stack, seed, active, stack.weights[0, : engine.model.trunk.size].clone())

    def round(self, engine: Engine, state: Star, t: int) -> RoundStats:
        """See ``Method.round``."""
        who, size = state.who, engine.model.trunk.size
        objective = self.objective(engine, state)
        losses = engine.train(state.stack, t, who, objective)
        rows = torch.from_numpy(who)
        sent = travelled(state.stack.weights[:, :size].index_select(0, rows), engine)
        fresh = self.aggregate(engine, state, sent)
        beta = engine.contract.policy.momentum
        if beta is not None and state.merges > 0:
            fresh = beta * state.server + (1.0 - beta) * fresh
        state.server, state.merges = fresh, state.merges + 1
        state.stack.weights[rows, :size] = travelled(fresh, engine)
        moved = 2 * who.size * trunk_bytes(engine)
        return RoundStats(t, mean_loss(losses), moved, np.zeros(losses.size, dtype=np.int64))

    def objective(self, engine: Engine, state: Star) -> Objective | None:
        """What the centers minimize this round: cross-entropy, if this says nothing else."""
        return None

    def aggregate(self, engine: Engine, state: Star, sent: torch.Tensor) -> torch.Tensor:
        """The server's new trunk of those that arrived, ``(active, trunk size)``."""
        return weighted_mean(sent, self.shares(engine, state))

    def shares(self, engine: Engine, state: Star) -> Floats:
        """Weights of the active centers in the mean."""
        sizes = engine.sizes[state.who].astype(np.float64)
        shares: Floats = sizes / sizes.sum()
        return shares
