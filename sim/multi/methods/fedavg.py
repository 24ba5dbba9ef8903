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

from sim.multi.base import BYTES, Losses, Method, Model, RoundStats, Settings, Shared
from sim.multi.clients import Client, Clients
from sim.multi.steps import Pull, mini_batches, pareto_walk, walk


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
        for client in clients.members:
            net, start = shared.net_for(client), shared.of(client)
            rows = client.train["padded"]
            drawn = mini_batches(
                net, rows, settings.local_steps, settings.batch_size, clients.seed, client.id, t
            )
            went = walk(net, client.losses, start, drawn, settings, self.pull(start))
            way = start - went.weights
            if self.server == "global-rate":
                way = settings.global_rate * went.summed
            _add(shared, client, way, moved, total)
            told.add(client, went.losses)
            batches += went.steps
            size += 2 * start.numel()
        shared.weights = shared.weights - (moved / total.clamp(min=1.0)).to(torch.float32)
        return RoundStats(told.mean(), size * BYTES, batches)

    def finish(self, clients: Clients, settings: Settings, state: Average) -> int:
        """See ``Method.finish``."""
        steps = 0
        for place, client in enumerate(clients.members if self.tune else ()):
            net, rows = state.shared.net_for(client), client.train["padded"]
            drawn = mini_batches(
                net,
                rows,
                settings.tuning_steps,
                settings.batch_size,
                clients.seed,
                client.id,
                "stage2",
            )
            start = state.shared.of(client)
            went = pareto_walk(net, client.losses, start, drawn, settings, settings.normalization)
            state.tuned[place] = went.weights
            steps += went.steps
        return steps

    def model(self, clients: Clients, settings: Settings, state: Average, place: int) -> Model:
        """See ``Method.model``."""
        client = clients.members[place]
        weights = state.tuned.get(place)
        if weights is None:
            weights = state.shared.of(client)
        return Model(state.shared.net_for(client), weights, "padded")


def _add(
    shared: Shared, client: Client, way: torch.Tensor, moved: torch.Tensor, total: torch.Tensor
) -> None:
    """Add one client's way, weighted by its rows, to the trunk and to the heads of its tasks."""
    trunk, wide = shared.net.trunk_size, way.to(torch.float64)
    parts = [(slice(0, trunk), wide[:trunk])]
    heads = wide[trunk:].chunk(len(client.tasks))
    parts += [(shared.head(t.name), head) for t, head in zip(client.tasks, heads, strict=True)]
    for where, part in parts:
        moved[where] += client.size * part
        total[where] += client.size
