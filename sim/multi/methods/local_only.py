"""Nobody sends anything: every client trains on its own inputs, with the steps that others take.

The control for what federation brings: as many mini-batches as FedCARE, both stages together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from sim.multi.abreast import Way, tune_all, walk_all
from sim.multi.base import Losses, Method, Model, RoundStats, Settings, names, net_of
from sim.multi.clients import Clients


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
        told = Losses()
        ways = _ways(clients, state.weights, t)
        walks = walk_all(ways, settings, clients.seed, settings.batch_size)
        for client, went in zip(clients.members, walks, strict=True):
            told.add(client, went.losses)
        state.weights = [went.weights for went in walks]
        return RoundStats(told.mean(), 0, sum(went.steps for went in walks))

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
    walks = tune_all(_ways(clients, weights, "stage2"), settings, clients.seed)
    weights[:] = [went.weights for went in walks]
    return sum(went.steps for went in walks)


def _ways(clients: Clients, weights: list[torch.Tensor], when: str | int) -> list[Way]:
    return [
        Way(
            net_of(clients.common, client.private, names(client)),
            client.losses,
            client.train["private"],
            start,
            (client.id, when),
        )
        for client, start in zip(clients.members, weights, strict=True)
    ]
