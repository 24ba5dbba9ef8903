"""ABPS + Pareto: the daemon's form. No server, chosen partners, the Pareto local step, stage 2.

Seidi, Roy, Das, arXiv 2609.16446, with FedCARE's trunk, heads and step. These are the daemons' own
state machine and learner in the simulator's schedule (``sim.lockstep``): private features are used
throughout, Adam keeps its moments, and stage 2 keeps the better of before and after on validation.
A local step is one pass over all rows, so there are as many rounds as make the mini-batches of the
other methods' ``rounds`` × ``local_steps``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch

from abps_node.aims import LocalStep, Stage2
from abps_node.learning import trunk_layout
from abps_node.learning.objective_learner import ObjectiveLearner
from protocol.contract import Contract
from protocol.randomness import derive_seed
from sim.in_step import InStep, identity_of
from sim.lockstep import Lockstep
from sim.multi.base import BYTES, Losses, Method, Model, RoundStats, Settings, names, net_of
from sim.multi.clients import Client, Clients


@dataclass
class Network:
    """All daemons."""

    contract: Contract
    lockstep: Lockstep
    centers: list[InStep[ObjectiveLearner]]


@dataclass(frozen=True)
class AbpsPareto(Method[Network]):
    """The daemons, policy «abps» unless the row says otherwise."""

    preset: str = "abps"
    local_step: ClassVar[LocalStep] = "pareto"

    def rounds(self, clients: Clients, settings: Settings) -> int:
        """See ``Method.rounds``."""
        mean = sum(_batches(each, settings) for each in clients.members) / len(clients.members)
        return max(1, round(settings.rounds * settings.local_steps / mean))

    def init(self, clients: Clients, settings: Settings) -> Network:
        """See ``Method.init``."""
        contract = self._contract(clients, settings)
        seeds = {each.id: derive_seed(clients.seed, each.id) for each in clients.members}
        identities = [
            identity_of(contract, each.id, seeds[each.id], each.data) for each in clients.members
        ]
        learning = {
            each.id: InStep(self._learner(contract, each, seeds[each.id], settings))
            for each in clients.members
        }
        lockstep = Lockstep(contract, identities, learning, clients.seed)
        return Network(contract, lockstep, list(learning.values()))

    def round(self, clients: Clients, settings: Settings, state: Network, t: int) -> RoundStats:
        """See ``Method.round``."""
        records = state.lockstep.round(t)
        losses, size = Losses(), trunk_layout(state.contract).size
        for client, center in zip(clients.members, state.centers, strict=True):
            if center.last is not None and center.last.objectives is not None:
                found = [each.loss for each in center.last.objectives.objectives]
                losses.add(client, np.array(found))
        sent = sum(len(record.partners) for record in records.values())
        batches = sum(_batches(each, settings) for each in clients.members)
        return RoundStats(losses.mean(), sent * size * BYTES, batches)

    def finish(self, clients: Clients, settings: Settings, state: Network) -> int:
        """See ``Method.finish``."""
        steps = 0
        for client, center in zip(clients.members, state.centers, strict=True):
            learner = center.learner
            tuning = learner.fine_tune(lambda: False) if learner.fine_tunes else None
            steps += 0 if tuning is None else tuning.epochs * _batches(client, settings)
        return steps

    def model(self, clients: Clients, settings: Settings, state: Network, place: int) -> Model:
        """See ``Method.model``."""
        client = clients.members[place]
        net = net_of(clients.common, client.private, names(client))
        tensors = state.centers[place].learner.state_tensors()
        weights = torch.cat([tensors[f"model.{name}"].flatten() for name, _ in net.tensors])
        return Model(net, weights, "private")

    def _contract(self, clients: Clients, settings: Settings) -> Contract:
        """Round 1 waits for everybody, as in the simulator."""
        dump = clients.contract.model_dump(exclude_unset=True)
        policy = {"preset": self.preset, "head_layers": 3, "rounds": self.rounds(clients, settings)}
        training = {
            "epochs": 1,
            "batch_size": settings.batch_size,
            "learning_rate": settings.local_rate,
            "weight_decay": 0.0,
        }
        pacing = {"min_peers": len(clients.members) - 1, "messages_per_s": 100_000.0}
        changed = {"policy": policy, "training": training, "pacing": pacing}
        return Contract.model_validate({**dump, **changed})

    def _learner(
        self, contract: Contract, client: Client, seed: int, settings: Settings
    ) -> ObjectiveLearner:
        epochs = settings.tuning_steps // _batches(client, settings)
        stage2 = None
        if settings.tuning_steps:
            stage2 = Stage2(
                epochs=max(1, epochs),
                learning_rate=settings.tuning_rate,
                stationarity=settings.stationarity,
            )
        aims = replace(
            client.aims,
            local_step=self.local_step,
            normalization=settings.normalization,
            stage2=stage2,
        )
        return ObjectiveLearner(contract, client.data, seed, aims)


def _batches(client: Client, settings: Settings) -> int:
    return math.ceil(client.size / settings.batch_size)
