"""PAFNet: own projections, a masked common model, peers weighted by likeness.

Molaei, Thakur, Clifton et al.: «Learning Across the Divide: Personalised Federated Learning for
Robust Clinical Modelling under Data-View Heterogeneity», IEEE JBHI 30(3), 2026, as FedCARE
describes it (its section II-A): client-specific projection layers map local features to a common
latent space, trainable masks personalise the global model, aggregation gives more weight to
functionally similar clients. **A simplified form:** the graph part has no counterpart in rows of
numbers and is left out; the projection is linear to as many latent features as there are common
ones; a parameter's mask is 2σ(m), 1 at the start; a peer's weight is the softmax of the cosine
between two clients' changes of the common model. Several objectives count equally.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from abps_node.learning.objective_losses import Rows
from abps_node.learning.objective_net import ObjectiveNet
from protocol.randomness import derive_seed
from sim.multi.base import BYTES, Losses, Method, Model, RoundStats, Settings, names, net_of
from sim.multi.clients import Client, Clients
from sim.multi.steps import mini_batches, optimizer


@dataclass
class Peers:
    """Per client: the common model as it received it, and what never leaves.

    ``own`` is [projection ‖ mask ‖ heads].
    """

    common: list[torch.Tensor]
    own: list[torch.Tensor]


@dataclass(frozen=True)
class PafNet(Method[Peers]):
    """Projection, mask, attention among peers."""

    temperature: float = 1.0

    def init(self, clients: Clients, settings: Settings) -> Peers:
        """See ``Method.init``."""
        common, own = [], []
        for client in clients.members:
            net = net_of(clients.common, 0, names(client))
            start = net.initial(clients.contract.model.init_seed)
            inputs = _inputs(client)
            seed = derive_seed(clients.seed, client.id, "projection")
            uniform = torch.rand(
                clients.common * inputs, generator=torch.Generator().manual_seed(seed)
            )
            projection = (2 * uniform - 1) / math.sqrt(inputs)
            common.append(start[: net.trunk_size].clone())
            mask = torch.zeros(net.trunk_size)
            own.append(torch.cat([projection, mask, start[net.trunk_size :]]))
        return Peers(common, own)

    def round(self, clients: Clients, settings: Settings, state: Peers, t: int) -> RoundStats:
        """See ``Method.round``."""
        told, batches, ways = Losses(), 0, []
        for place, client in enumerate(clients.members):
            net = net_of(clients.common, 0, names(client))
            rows = client.train["joined"]
            size, start = net.trunk_size, state.common[place]
            weights = torch.cat([start, state.own[place]])
            moves = optimizer(settings, weights.numel())
            seen = []
            for batch, masks in mini_batches(
                net, rows, settings.local_steps, settings.batch_size, clients.seed, client.id, t
            ):
                leaf = weights.detach().requires_grad_()
                values = _losses(net, client, leaf, batch, masks)
                gradient = torch.autograd.grad(torch.stack(values).mean(), leaf)[0]
                moves.update(weights, gradient, settings.local_rate, 0.0)
                seen.append([float(value.detach()) for value in values])
                batches += 1
            ways.append(weights[:size] - start)
            state.own[place] = weights[size:]
            told.add(client, np.array(seen).mean(0))
        _attend(state, torch.stack(ways), self.temperature)
        parameters = 2 * sum(each.numel() for each in state.common)
        return RoundStats(told.mean(), parameters * BYTES, batches)

    def model(self, clients: Clients, settings: Settings, state: Peers, place: int) -> Model:
        """See ``Method.model``: the projection joined to the first layer, masks multiplied in."""
        client = clients.members[place]
        latent = net_of(clients.common, 0, names(client))
        weights = torch.cat([state.common[place], state.own[place]])
        projection, trunk, heads = _parts(latent, client, weights)
        first = latent.shared.tensors[0][1]
        cut = first[0] * first[1]
        joined = trunk[:cut].view(first) @ projection
        net = net_of(_inputs(client), 0, names(client))
        return Model(net, torch.cat([joined.flatten(), trunk[cut:], heads]), "joined")


def _inputs(client: Client) -> int:
    return int(client.train["joined"].x.shape[1])


def _parts(
    net: ObjectiveNet, client: Client, weights: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Projection ``(d_c, inputs)``, masked trunk, heads."""
    size, inputs = net.trunk_size, _inputs(client)
    latent = net.shared.tensors[0][1][1]
    common, own = weights[:size], weights[size:]
    projection, rest = own[: latent * inputs].view(latent, inputs), own[latent * inputs :]
    return projection, common * (2 * torch.sigmoid(rest[:size])), rest[size:]


def _losses(
    net: ObjectiveNet,
    client: Client,
    weights: torch.Tensor,
    batch: Rows,
    masks: list[torch.Tensor],
) -> list[torch.Tensor]:
    projection, trunk, heads = _parts(net, client, weights)
    shared = len(net.shared.dropped)
    latent, _ = net.shared.forward(net.trunk_parts(trunk), batch.x @ projection.t(), masks[:shared])
    outputs = net.heads(heads, net.inputs(latent, batch.private), masks[shared:])
    found, _ = client.losses.of(outputs, batch)
    return [loss for loss in found if loss is not None]


def _attend(state: Peers, ways: torch.Tensor, temperature: float) -> None:
    """Every client's common model becomes its attention-weighted mean of all, in place."""
    wide = ways.double()
    unit = wide / wide.norm(dim=1, keepdim=True).clamp(min=1e-30)
    shares = torch.softmax(unit @ unit.t() / temperature, dim=1)
    sent = torch.stack(state.common).double() + wide
    mixed = (shares @ sent).float()
    state.common = [row.clone() for row in mixed]
