"""ABPS + Pareto: the daemon's form. No server, chosen partners, the Pareto local step, stage 2.

Seidi, Roy, Das, arXiv 2609.16446, with FedCARE's trunk, heads and step. These are the daemons' own
state machine and learner in the simulator's schedule (``sim.lockstep``): private features are used
throughout, Adam keeps its moments, and stage 2 keeps the better of before and after on validation.
A local step is one pass over all rows, so there are as many rounds as make the mini-batches of the
other methods' ``rounds`` × ``local_steps``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch

from abps_node.aims import LocalStep, Stage2
from abps_node.learning import initial_trunk_digest, trunk_layout
from abps_node.learning.objective_learner import ObjectiveLearner
from protocol.center import Identity
from protocol.contract import Contract
from protocol.credit import Coalition
from protocol.randomness import derive_seed
from protocol.record import ObjectivesRecord, ValidationRecord
from protocol.trunk import Vector
from sim.lockstep import Lockstep
from sim.multi.base import BYTES, Losses, Method, Model, RoundStats, Settings, names, net_of
from sim.multi.clients import Client, Clients


@dataclass
class Told:
    """A learner as the lockstep wants it, and what it said of its last local step."""

    learner: ObjectiveLearner
    last: ObjectivesRecord | None = None
    batches: int = 0

    def train(self, round: int) -> Vector:
        """See ``sim.lockstep.Learning``."""
        result = self.learner.train(round)
        self.last = result.objectives
        return result.trunk

    def merge(
        self,
        round: int,
        trunks: Mapping[str, Vector],
        weights: Mapping[str, float],
        coalitions: Sequence[Coalition],
    ) -> tuple[dict[Coalition, float], ValidationRecord]:
        """See ``sim.lockstep.Learning``."""
        result = self.learner.merge(round, trunks, weights, coalitions)
        return result.utilities, result.validation


@dataclass
class Network:
    """All daemons."""

    contract: Contract
    lockstep: Lockstep
    told: list[Told] = field(default_factory=list)


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
        told = [
            Told(
                self._learner(contract, each, seeds[each.id], settings),
                None,
                _batches(each, settings),
            )
            for each in clients.members
        ]
        identities = [
            Identity(
                center=each.id,
                incarnation=1,
                seed=seeds[each.id],
                goal=contract.policy.goal,
                card=each.data.card,
                size=each.size,
                layout=trunk_layout(contract),
                initial_trunk=initial_trunk_digest(contract),
            )
            for each in clients.members
        ]
        learning = {each.id: part for each, part in zip(clients.members, told, strict=True)}
        return Network(contract, Lockstep(contract, identities, learning, clients.seed), told)

    def round(self, clients: Clients, settings: Settings, state: Network, t: int) -> RoundStats:
        """See ``Method.round``."""
        records = state.lockstep.round(t)
        told, size = Losses(), trunk_layout(state.contract).size
        for client, part in zip(clients.members, state.told, strict=True):
            if part.last is not None:
                told.add(client, np.array([each.loss for each in part.last.objectives]))
        sent = sum(len(record.partners) for record in records.values())
        return RoundStats(told.mean(), sent * size * BYTES, sum(p.batches for p in state.told))

    def finish(self, clients: Clients, settings: Settings, state: Network) -> int:
        """See ``Method.finish``."""
        steps = 0
        for part in state.told:
            tuning = part.learner.fine_tune(lambda: False) if part.learner.fine_tunes else None
            steps += 0 if tuning is None else tuning.epochs * part.batches
        return steps

    def model(self, clients: Clients, settings: Settings, state: Network, place: int) -> Model:
        """See ``Method.model``."""
        client = clients.members[place]
        net = net_of(clients.common, client.private, names(client))
        tensors = state.told[place].learner.state_tensors()
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
