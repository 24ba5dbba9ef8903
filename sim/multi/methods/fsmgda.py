"""FSMGDA: the server moves one model along the min-norm combination of the tasks' updates.

Yang, Liu, Liu, Dong, Momma: «Federated Multi-Objective Learning», NeurIPS 2023, algorithm 1. Each
client takes τ stochastic steps on each of its objectives apart and reports the sum of the
gradients; the server averages them per objective, solves for λ*, and takes η_g along Σ λ*_s Δ_s.
The whole model is shared, so the combination scales heads, too. Zero-padded inputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sim.multi.abreast import Way, walk_all
from sim.multi.base import BYTES, Losses, Method, Model, RoundStats, Settings, Shared, net_of
from sim.multi.clients import Client, Clients
from sim.multi.steps import only, only_loss, server_direction


@dataclass
class Served:
    """The server's model."""

    shared: Shared


@dataclass(frozen=True)
class Fsmgda(Method[Served]):
    """Min-norm combination at the server, stochastic gradients at the clients."""

    full: bool = False
    """Whether every local step sees all rows: FMGDA."""

    def init(self, clients: Clients, settings: Settings) -> Served:
        """See ``Method.init``."""
        return Served(Shared.fresh(clients, settings, clients.padded))

    def round(self, clients: Clients, settings: Settings, state: Served, t: int) -> RoundStats:
        """See ``Method.round``."""
        shared, told = state.shared, Losses()
        updates = torch.zeros(len(clients.tasks), shared.weights.numel(), dtype=torch.float64)
        rows_of = np.zeros(len(clients.tasks))
        batches = parameters = 0
        parts = [
            (client, number) for client in clients.members for number in range(len(client.tasks))
        ]
        ways = [self._way(clients, shared, *part, t) for part in parts]
        size = None if self.full else settings.batch_size
        for (client, number), went in zip(
            parts, walk_all(ways, settings, clients.seed, size), strict=True
        ):
            task = client.tasks[number]
            place = clients.tasks.index(task)
            updates[place] += client.size * shared.spread(went.summed, task.name).double()
            rows_of[place] += client.size
            told.add_one(task.name, went.losses[0])
            batches += went.steps
            parameters += went.summed.numel()
        parameters += len(clients.members) * shared.weights.numel()
        there = np.flatnonzero(rows_of)
        means = updates[there] / torch.from_numpy(rows_of[there]).unsqueeze(1)
        direction, weights, gram = step(clients, settings, told, there, means)
        shared.weights = shared.weights - settings.global_rate * direction
        length2 = float(direction.square().sum())
        return RoundStats(told.mean(), parameters * BYTES, batches, weights, gram, length2)

    def _way(self, clients: Clients, shared: Shared, client: Client, number: int, t: int) -> Way:
        """Of one client's objective: the model with its head."""
        name = client.tasks[number].name
        return Way(
            net_of(clients.padded, 0, (name,)),
            only_loss(client.losses, number),
            only(client.train["padded"], number),
            torch.cat([shared.trunk, shared.weights[shared.head(name)]]),
            (client.id, t),
        )

    def model(self, clients: Clients, settings: Settings, state: Served, place: int) -> Model:
        """See ``Method.model``."""
        client = clients.members[place]
        return Model(state.shared.net_for(client), state.shared.of(client), "padded")


def step(
    clients: Clients, settings: Settings, told: Losses, there: np.ndarray, means: torch.Tensor
) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Direction, λ* and Gram matrix, the latter two over all tasks, 0 for those nobody has."""
    by_name, count = told.mean(), len(clients.tasks)
    losses = np.array([by_name[clients.tasks[place].name] for place in there])
    direction, found, products = server_direction(means, losses, settings.normalization)
    weights, gram = np.zeros(count), np.zeros((count, count))
    weights[there] = found
    gram[np.ix_(there, there)] = products
    return direction.to(torch.float32), weights, gram
