"""FedCARE: a trunk learned together from common features, then private fine-tuning.

Tripathy, Bera, Ghosh, Buyya: «FedCARE: A Multi-Objective Personalised Federated Learning Framework
for Smart Healthcare», arXiv 2608.03498, algorithms 1 and 2. Stage 1 is FSMGDA on the trunk; heads
stay at the clients, follow their own gradient and see zeros for private features. Stage 2: every
client alone, trunk and heads, all features, the min-norm direction of its own objectives.

Read into the paper: heads take the local steps with η_l and keep what they learned; without
private features a client's head in FedCARE-B is that of stage 1; the budget of stage 2 is
``tuning_steps``, since its «τ local iterations» would be five mini-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from sim.multi.abreast import Way, walk_all
from sim.multi.base import BYTES, Losses, Method, Model, RoundStats, Settings, names, net_of
from sim.multi.clients import Client, Clients
from sim.multi.methods.fsmgda import step
from sim.multi.methods.local_only import tune
from sim.multi.steps import only, only_loss


@dataclass
class Backbone:
    """The server's trunk, each client's heads one after the other, and the models of stage 2."""

    trunk: torch.Tensor
    heads: list[list[torch.Tensor]]
    tuned: list[torch.Tensor] | None = None


@dataclass(frozen=True)
class FedCare(Method[Backbone]):
    """Shared backbone by min-norm aggregation, then stage 2."""

    stage2: bool = True

    def init(self, clients: Clients, settings: Settings) -> Backbone:
        """See ``Method.init``."""
        heads = []
        trunk = torch.zeros(0)
        for client in clients.members:
            net = net_of(clients.common, client.private, names(client))
            start = net.initial(clients.contract.model.init_seed)
            trunk = start[: net.trunk_size].clone()
            heads.append(list(start[net.trunk_size :].clone().chunk(len(client.tasks))))
        return Backbone(trunk, heads)

    def round(self, clients: Clients, settings: Settings, state: Backbone, t: int) -> RoundStats:
        """See ``Method.round``."""
        told, size = Losses(), state.trunk.numel()
        updates = torch.zeros(len(clients.tasks), size, dtype=torch.float64)
        rows_of = np.zeros(len(clients.tasks))
        batches = 0
        parts = [
            (client, heads, number)
            for client, heads in zip(clients.members, state.heads, strict=True)
            for number in range(len(client.tasks))
        ]
        ways = [_way(clients, state.trunk, *part, t) for part in parts]
        for (client, heads, number), went in zip(
            parts, walk_all(ways, settings, clients.seed, settings.batch_size), strict=True
        ):
            task = client.tasks[number]
            heads[number] = went.weights[size:]
            place = clients.tasks.index(task)
            updates[place] += client.size * went.summed[:size].double()
            rows_of[place] += client.size
            told.add_one(task.name, went.losses[0])
            batches += went.steps
        parameters = size * (len(clients.members) + len(parts))
        there = np.flatnonzero(rows_of)
        means = updates[there] / torch.from_numpy(rows_of[there]).unsqueeze(1)
        direction, weights, gram = step(clients, settings, told, there, means)
        state.trunk = state.trunk - settings.global_rate * direction
        length2 = float(direction.square().sum())
        return RoundStats(told.mean(), parameters * BYTES, batches, weights, gram, length2)

    def finish(self, clients: Clients, settings: Settings, state: Backbone) -> int:
        """See ``Method.finish``."""
        if not self.stage2:
            return 0
        state.tuned = [torch.cat([state.trunk, *heads]) for heads in state.heads]
        return tune(clients, settings, state.tuned)

    def model(self, clients: Clients, settings: Settings, state: Backbone, place: int) -> Model:
        """See ``Method.model``."""
        client = clients.members[place]
        net = net_of(clients.common, client.private, names(client))
        if state.tuned is None:
            return Model(net, torch.cat([state.trunk, *state.heads[place]]), "common")
        return Model(net, state.tuned[place], "private")


def _way(
    clients: Clients,
    trunk: torch.Tensor,
    client: Client,
    heads: list[torch.Tensor],
    number: int,
    t: int,
) -> Way:
    """Of one client's objective in stage 1: zeros in the place of private features."""
    return Way(
        net_of(clients.common, client.private, (client.tasks[number].name,)),
        only_loss(client.losses, number),
        only(client.train["common"], number),
        torch.cat([trunk, heads[number]]),
        (client.id, t),
    )
