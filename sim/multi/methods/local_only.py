"""Nobody sends anything: every client trains on its own inputs, with the steps that others take.

The control for what federation brings: as many mini-batches as FedCARE, both stages together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from sim.multi.base import Losses, Method, Model, RoundStats, Settings, names, net_of
from sim.multi.clients import Clients
from sim.multi.steps import mini_batches, pareto_walk, walk


@dataclass
class Alone:
    """Each client's model, [trunk ‖ heads] with its private features."""

    weights: list[torch.Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class LocalOnly(Method[Alone]):
    """No communication."""

    def init(self, clients: Clients, settings: Settings) -> Alone:
        """See ``Method.init``."""
        seed = clients.contract.model.init_seed
        return Alone(
            [net_of(clients.common, c.private, names(c)).initial(seed) for c in clients.members]
        )

    def round(self, clients: Clients, settings: Settings, state: Alone, t: int) -> RoundStats:
        """See ``Method.round``."""
        told, batches = Losses(), 0
        for place, client in enumerate(clients.members):
            net, rows = (
                net_of(clients.common, client.private, names(client)),
                client.train["private"],
            )
            drawn = mini_batches(
                net, rows, settings.local_steps, settings.batch_size, clients.seed, client.id, t
            )
            went = walk(net, client.losses, state.weights[place], drawn, settings)
            state.weights[place] = went.weights
            told.add(client, went.losses)
            batches += went.steps
        return RoundStats(told.mean(), 0, batches)

    def finish(self, clients: Clients, settings: Settings, state: Alone) -> int:
        """See ``Method.finish``."""
        return tune(clients, settings, state.weights)

    def model(self, clients: Clients, settings: Settings, state: Alone, place: int) -> Model:
        """See ``Method.model``."""
        client = clients.members[place]
        net = net_of(clients.common, client.private, names(client))
        return Model(net, state.weights[place], "private")


def tune(clients: Clients, settings: Settings, weights: list[torch.Tensor]) -> int:
    """FedCARE's stage 2, in place: every client on all its features; the mini-batches taken."""
    steps = 0
    for place, client in enumerate(clients.members):
        net, rows = net_of(clients.common, client.private, names(client)), client.train["private"]
        budget, size = settings.tuning_steps, settings.batch_size
        drawn = mini_batches(net, rows, budget, size, clients.seed, client.id, "stage2")
        went = pareto_walk(
            net, client.losses, weights[place], drawn, settings, settings.normalization
        )
        weights[place] = went.weights
        steps += went.steps
    return steps
