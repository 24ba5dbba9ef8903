"""What every method of FedCARE's tables is: a state, an account per round, models to test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field

from abps_node.aims import Normalization
from abps_node.learning.min_norm import FloatArray
from abps_node.learning.objective_net import FEDCARE_HEAD, ObjectiveNet
from abps_node.learning.trunks import FedcareTrunk
from protocol.contract import Strict
from sim.multi.clients import Client, Clients, View

BYTES: Final = 4
"""Of a parameter on its way, float32."""


class Settings(Strict):
    """What all methods of an experiment have in common; a row may change what it is about."""

    rounds: int = Field(default=100, ge=1, description="communication rounds, T")
    local_steps: int = Field(default=5, ge=1, description="mini-batches of a round, τ")
    batch_size: int = Field(default=128, ge=2, description="rows of a mini-batch; not in the paper")
    local_rate: float = Field(default=0.001, gt=0, description="η_l")
    global_rate: float = Field(default=0.01, gt=0, description="η_g")
    optimizer: Literal["sgd", "adam"] = Field(
        default="sgd", description="of local steps; begun anew every round"
    )
    tuning_rate: float = Field(default=0.001, gt=0, description="η_p of stage 2")
    tuning_steps: int = Field(default=500, ge=0, description="mini-batches of stage 2, at most")
    stationarity: float = Field(default=0.0, ge=0, description="ε that ends either stage")
    normalization: Normalization = Field(
        default="none", description="of the objectives' gradients before the point of least norm"
    )
    heads: Literal["per-task", "one"] = Field(
        default="per-task", description="outputs of a model that sees zero-padded inputs"
    )


@dataclass(frozen=True)
class RoundStats:
    """The account of one round."""

    losses: Mapping[str, float]
    """Task to mean training loss over its clients."""
    bytes: int
    batches: int
    """Mini-batches that were gone through, all clients together."""
    weights: FloatArray | None = None
    """λ* of the server ``(S,)``, where it solves for one."""
    gram: FloatArray | None = None
    """Inner products of the tasks' aggregated gradients ``(S, S)``."""
    stationarity: float | None = None
    """‖d‖²."""


@dataclass(frozen=True)
class Model:
    """What a client predicts with."""

    net: ObjectiveNet
    weights: torch.Tensor
    view: View


S = TypeVar("S")


class Method(ABC, Generic[S]):
    """One row of the table. Instances hold hyperparameters of their own only."""

    @abstractmethod
    def init(self, clients: Clients, settings: Settings) -> S:
        """The state before round 1."""

    @abstractmethod
    def round(self, clients: Clients, settings: Settings, state: S, t: int) -> RoundStats:
        """Run round ``t`` ≥ 1, in place."""

    def rounds(self, clients: Clients, settings: Settings) -> int:
        """How many there are, if nothing ends them earlier."""
        return settings.rounds

    def finish(self, clients: Clients, settings: Settings, state: S) -> int:
        """What comes after the last round, without communication; the mini-batches that it took."""
        return 0

    @abstractmethod
    def model(self, clients: Clients, settings: Settings, state: S, place: int) -> Model:
        """What the client at ``place`` would use now; to read, not to write."""


@dataclass
class Shared:
    """One model for all: a trunk and heads by key, on one flat vector."""

    net: ObjectiveNet
    weights: torch.Tensor
    one: bool
    """Whether all tasks have one output in common."""

    @classmethod
    def fresh(cls, clients: Clients, settings: Settings, inputs: int) -> Shared:
        """The initial model on ``inputs`` inputs."""
        one = settings.heads == "one"
        names = ("all",) if one else tuple(task.name for task in clients.tasks)
        net = net_of(inputs, 0, names)
        return cls(net, net.initial(clients.contract.model.init_seed), one)

    @property
    def trunk(self) -> torch.Tensor:
        """A view."""
        return self.weights[: self.net.trunk_size]

    def key(self, task: str) -> int:
        """Place of a task's head."""
        return 0 if self.one else self.net.names.index(task)

    def head(self, task: str) -> slice:
        """Where a task's head lies."""
        size = (self.net.size - self.net.trunk_size) // len(self.net.names)
        begin = self.net.trunk_size + self.key(task) * size
        return slice(begin, begin + size)

    def of(self, client: Client) -> torch.Tensor:
        """A copy of what a client trains: the trunk and the heads of its tasks."""
        return torch.cat([self.trunk, *(self.weights[self.head(t.name)] for t in client.tasks)])

    def spread(self, vector: torch.Tensor, task: str) -> torch.Tensor:
        """[trunk ‖ one head] as a vector over everything, zero elsewhere."""
        wide = torch.zeros_like(self.weights)
        wide[: self.net.trunk_size] = vector[: self.net.trunk_size]
        wide[self.head(task)] = vector[self.net.trunk_size :]
        return wide

    def net_for(self, client: Client) -> ObjectiveNet:
        """The net whose parameters ``of`` gives."""
        return net_of(self.net.shared.tensors[0][1][1], 0, names(client))


def names(client: Client) -> tuple[str, ...]:
    """Of a client's tasks."""
    return tuple(task.name for task in client.tasks)


def net_of(inputs: int, private: int, tasks: tuple[str, ...]) -> ObjectiveNet:
    """FedCARE's backbone and heads (its section V-A)."""
    return ObjectiveNet(FedcareTrunk(inputs, 128, 64), private, tasks, FEDCARE_HEAD, 0.3)


@dataclass
class Losses:
    """Adds up what clients report."""

    total: dict[str, list[float]] = field(default_factory=dict)

    def add(self, client: Client, values: FloatArray) -> None:
        """One client's losses, in the order of its tasks."""
        for task, value in zip(client.tasks, values, strict=True):
            self.add_one(task.name, value)

    def add_one(self, task: str, value: float) -> None:
        """The loss of one of a client's tasks."""
        self.total.setdefault(task, []).append(float(value))

    def mean(self) -> dict[str, float]:
        """Per task."""
        return {task: float(np.mean(values)) for task, values in sorted(self.total.items())}


AnyMethod = Method[Any]
