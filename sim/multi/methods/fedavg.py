"""FedAvg on zero-padded inputs: common and private features side by side, one model for all.

McMahan, Moore, Ramage, Hampson, Agüera y Arcas: «Communication-Efficient Learning of Deep Networks
from Decentralized Data», AISTATS 2017, in the form of FedCARE's section V-A. Private columns of
different tasks share input slots, as they must where rows are padded. The trunk is the mean of all
clients by training rows, each head that of the clients with its task.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from sim.multi.abreast import Way, tune_all, walk_all
from sim.multi.base import BYTES, Losses, Method, Model, RoundStats, Settings, Shared
from sim.multi.clients import Client, Clients
from sim.multi.steps import Pull


@dataclass
class Average:
    """The server's model, and what clients made of it after the last round."""

    shared: Shared
    tuned: dict[int, torch.Tensor]


@dataclass(frozen=True)
class FedAvg(Method[Average]):
    """Mean of the clients' models."""

    server: Literal["mean", "global-rate"] = "mean"
    """mean: the models' mean, as published. global-rate: the server takes η_g times the mean sum of
    gradients, a step as long as that of the multi-objective methods."""
    tune: bool = False
    """Whether every client goes on alone afterwards, with FedCARE's stage-2 budget."""

    def init(self, clients: Clients, settings: Settings) -> Average:
        """See ``Method.init``."""
        return Average(Shared.fresh(clients, settings, clients.padded), {})

    def pull(self, start: torch.Tensor) -> Pull | None:
        """A further local gradient; none here."""
        return None

    def round(self, clients: Clients, settings: Settings, state: Average, t: int) -> RoundStats:
        """See ``Method.round``."""
        shared, told, batches = state.shared, Losses(), 0
        moved = torch.zeros_like(shared.weights, dtype=torch.float64)
        total = torch.zeros_like(moved)
        size = 0
        ways = [self._way(shared, client, t) for client in clients.members]
        walks = walk_all(ways, settings, clients.seed, settings.batch_size)
        for client, way, went in zip(clients.members, ways, walks, strict=True):
            far = way.start - went.weights
            if self.server == "global-rate":
                far = settings.global_rate * went.summed
            _add(shared, client, far, moved, total)
            told.add(client, went.losses)
            batches += went.steps
            size += 2 * way.start.numel()
        shared.weights = shared.weights - (moved / total.clamp(min=1.0)).to(torch.float32)
        return RoundStats(told.mean(), size * BYTES, batches)

    def finish(self, clients: Clients, settings: Settings, state: Average) -> int:
        """See ``Method.finish``."""
        if not self.tune:
            return 0
        ways = [self._way(state.shared, client, "stage2") for client in clients.members]
        walks = tune_all(ways, settings, clients.seed)
        state.tuned = {place: went.weights for place, went in enumerate(walks)}
        return sum(went.steps for went in walks)

    def model(self, clients: Clients, settings: Settings, state: Average, place: int) -> Model:
        """See ``Method.model``."""
        client = clients.members[place]
        weights = state.tuned.get(place)
        if weights is None:
            weights = state.shared.of(client)
        return Model(state.shared.net_for(client), weights, "padded")

    def _way(self, shared: Shared, client: Client, when: str | int) -> Way:
        start = shared.of(client)
        pull = None if when == "stage2" else self.pull(start)
        rows, purpose = client.train["padded"], (client.id, when)
        return Way(shared.net_for(client), client.losses, rows, start, purpose, pull)


def _add(
    shared: Shared, client: Client, far: torch.Tensor, moved: torch.Tensor, total: torch.Tensor
) -> None:
    """Add one client's way, weighted by its rows, to the trunk and to the heads of its tasks."""
    trunk, wide = shared.net.trunk_size, far.to(torch.float64)
    parts = [(slice(0, trunk), wide[:trunk])]
    heads = wide[trunk:].chunk(len(client.tasks))
    parts += [(shared.head(t.name), head) for t, head in zip(client.tasks, heads, strict=True)]
    for where, part in parts:
        moved[where] += client.size * part
        total[where] += client.size
