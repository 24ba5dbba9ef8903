"""The clients of one run: who has which task, which patients, which inputs.

Everything is drawn from the run's seed: the patients of each client, the tasks, the split and the
initial weights. Methods of one seed share all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from pydantic import Field
from torch.nn import functional

from abps_node.aims import Aims, Normalization, Objective, Stage2
from abps_node.data import CenterData, Split, prepare_table, table_in_memory
from abps_node.data.objectives import ObjectiveData, ObjectiveSplit
from abps_node.errors import ConfigError
from abps_node.learning.objective_losses import Losses, Rows, losses_of, rows_of
from protocol.contract import Contract, Policy, Strict, Training
from protocol.randomness import derive_rng, derive_seed
from sim import partitions
from sim.multi.tasks import PATIENT, Task, TaskData, with_ratio

View = Literal["common", "private", "joined", "padded"]
"""What a model sees: common features, with zeros at the head for private ones; both, the private
ones at the head; both in one row; or that, padded with zeros to everybody's width."""
HIDDEN: Final = [128, 128, 64]
"""FedCARE's backbone (its section V-A)."""


class Options(Strict):
    """How a federation is made of a data set with tasks."""

    clients: int = Field(default=5, ge=1, description="number of clients, K")
    rho: float | None = Field(
        default=None, gt=0, lt=1, description="disparity ratio ρ; default: the data's own division"
    )
    tasks_per_client: int = Field(default=1, ge=1, description="so many tasks for each client")
    partition: Literal["iid", "dirichlet"] = Field(
        default="iid", description="patients dealt evenly, or with skew in the first 0/1 task"
    )
    alpha: float = Field(default=0.5, gt=0, description="of the Dirichlet draw")
    patients: int | None = Field(
        default=None, ge=1, description="only so many patients, drawn at random; default: all"
    )


@dataclass(frozen=True)
class Client:
    """One hospital: its tasks, its patients, and all rows in every view."""

    id: str
    tasks: tuple[Task, ...]
    aims: Aims
    data: CenterData
    losses: Losses
    train: dict[View, Rows]
    validation: dict[View, Rows]
    test: dict[View, Rows]

    @property
    def size(self) -> int:
        """Training rows, N_k."""
        return self.train["common"].count

    @property
    def private(self) -> int:
        """Private inputs, d_u."""
        return int(self.train["common"].private.shape[1])


@dataclass(frozen=True)
class Clients:
    """All of them, and what they agree on."""

    contract: Contract
    tasks: tuple[Task, ...]
    members: tuple[Client, ...]
    seed: int
    notes: tuple[str, ...]
    common: int
    """Width of the common features, d_c."""
    padded: int
    """Width of the zero-padded inputs."""

    def with_task(self, task: Task) -> list[int]:
        """Places of the clients that have it."""
        return [place for place, each in enumerate(self.members) if task in each.tasks]


def clients_of(
    data: TaskData,
    options: Options,
    seed: int,
    training: Training,
    policy: Policy | None = None,
    normalization: Normalization = "none",
    stage2: Stage2 | None = None,
) -> Clients:
    """Draw the federation of one seed.

    Raises ``ConfigError`` for options that the data do not allow, ``DataError`` for a client whose
    split or outcome has nothing to learn from.
    """
    divided = data if options.rho is None else with_ratio(data, options.rho)
    if options.tasks_per_client > len(data.tasks):
        raise ConfigError(
            f"tasks_per_client: found {options.tasks_per_client}, allowed: up to {len(data.tasks)}"
        )
    contract = _contract(divided, seed, training, policy)
    table = _sample(divided.table, options.patients, seed)
    owners = _owners(divided, table, options, seed)
    assigned = assignment(len(divided.tasks), options, seed)
    made = []
    for place, name in enumerate(sorted(set(owners.tolist()))):
        tasks = tuple(divided.tasks[number] for number in assigned[place])
        aims = _aims(tasks, normalization, stage2)
        rows = table.filter(pa.array(owners == name))
        made.append((name, tasks, aims, _prepared(contract, name, rows, aims)))
    own = [each.objectives for *_, each in made if each.objectives is not None]
    common = len(divided.common)
    padded = common + max(part.train.private.shape[1] for part in own)
    members = tuple(_client(*each, padded) for each in made)
    notes = (*divided.notes, f"clients drawn at random ({options.partition}): no real hospitals")
    return Clients(contract, divided.tasks, members, seed, notes, common, padded)


def assignment(tasks: int, options: Options, seed: int) -> list[list[int]]:
    """Task numbers of each client: every task once if there are clients enough, then at random."""
    rng = derive_rng(seed, "tasks", options.clients)
    first = list(range(tasks))
    rng.shuffle(first)
    found = []
    for place in range(options.clients):
        lead = first[place] if place < tasks else rng.randrange(tasks)
        others = [number for number in range(tasks) if number != lead]
        rng.shuffle(others)
        found.append(sorted([lead, *others[: options.tasks_per_client - 1]]))
    return found


def _contract(data: TaskData, seed: int, training: Training, policy: Policy | None) -> Contract:
    label = next(task.column for task in data.tasks if task.binary)
    chosen = {} if policy is None else policy.model_dump(exclude_unset=True)
    return Contract.model_validate(
        {
            "name": data.title,
            "data": {
                "label": label,
                "group": PATIENT,
                "features": [each.model_dump(exclude_unset=True) for each in data.common],
                "split_seed": derive_seed(seed, "split"),
            },
            "model": {
                "kind": "fedcare",
                "hidden": HIDDEN,
                "dropout": 0.3,
                "init_seed": derive_seed(seed, "init"),
            },
            "training": training.model_dump(),
            "policy": {**chosen, "head_layers": 3},
        }
    )


def _aims(tasks: Sequence[Task], normalization: Normalization, stage2: Stage2 | None) -> Aims:
    private = tuple({each.name: each for task in tasks for each in task.private}.values())
    objectives = tuple(Objective(name=t.name, kind=t.kind, column=t.column) for t in tasks)
    return Aims(objectives, private, normalization=normalization, stage2=stage2)


def _sample(table: pa.Table, patients: int | None, seed: int) -> pa.Table:
    if patients is None:
        return table
    everybody = sorted(set(table[PATIENT].to_pylist()))
    if patients > len(everybody):
        raise ConfigError(f"patients: found {patients}, allowed: up to {len(everybody)}")
    chosen = derive_rng(seed, "patients").sample(everybody, patients)
    return table.filter(pc.is_in(table[PATIENT], value_set=pa.array(chosen)))


def _owners(data: TaskData, table: pa.Table, options: Options, seed: int) -> partitions.Names:
    patients = [str(each) for each in table[PATIENT].to_pylist()]
    if options.clients > (most := len(set(patients))):
        raise ConfigError(
            f"clients: found {options.clients}, allowed: at most one per patient, {most}"
        )
    drawn = derive_seed(seed, "partition")
    if options.partition == "iid":
        return partitions.iid(patients, options.clients, drawn)
    label = next(task.column for task in data.tasks if task.binary)
    labels = table[label].to_numpy().astype(np.float64)
    return partitions.dirichlet(labels, patients, options.clients, options.alpha, drawn)


def _prepared(contract: Contract, name: str, rows: pa.Table, aims: Aims) -> CenterData:
    features = [feature.name for feature in contract.data.features]
    names = [contract.data.label, PATIENT, *features, *aims.columns]
    source = f"{contract.name}, client {name!r}"
    table = table_in_memory(rows.combine_chunks(), list(dict.fromkeys(names)), source)
    return prepare_table(contract, name, table, aims)[2]


def _client(
    name: str, tasks: tuple[Task, ...], aims: Aims, data: CenterData, padded: int
) -> Client:
    own = data.objectives
    if own is None:
        raise AssertionError("a client was prepared without its outcomes")

    def views(split: Split, outcomes: ObjectiveSplit) -> dict[View, Rows]:
        return _views(aims, torch.from_numpy(split.x), outcomes, own, padded)

    return Client(
        name,
        tasks,
        aims,
        data,
        losses_of(aims, own.train),
        views(data.train, own.train),
        views(data.validation, own.validation),
        views(data.test, own.test),
    )


def _views(
    aims: Aims, x: torch.Tensor, split: ObjectiveSplit, own: ObjectiveData, padded: int
) -> dict[View, Rows]:
    private = rows_of(aims, x, split, own, with_private=True)
    joined = torch.cat([x, private.private], 1)
    return {
        "common": rows_of(aims, x, split, own, with_private=False),
        "private": private,
        "joined": replace(private, x=joined, private=joined[:, :0]),
        "padded": replace(
            private,
            x=functional.pad(joined, (0, padded - joined.shape[1])),
            private=joined[:, :0],
        ),
    }
