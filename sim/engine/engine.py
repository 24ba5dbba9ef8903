"""What the methods of the simulator ask for: local steps, merges with credit, predictions.

Two engines answer: ``SequentialEngine`` goes center by center through the daemon's own learning
code and is the reference; ``BatchedEngine`` does many centers at once and is what one uses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from abps_node.data import Split
from abps_node.learning.model import Mlp
from abps_node.learning.utility import Metric, Utility
from protocol.contract import Contract
from protocol.randomness import derive_seed
from protocol.record import ValidationRecord
from sim.engine.objective import Objective
from sim.engine.stack import Floats, Index, Scores, SplitName, Stack, Table
from sim.federation import SimCenter


@dataclass(frozen=True)
class Mix:
    """One center's merge: whose trunks, with what weights, and which coalitions to measure."""

    center: int
    """Row of the center that merges."""
    partners: tuple[int, ...]
    """Rows of its partners."""
    weights: tuple[float, ...]
    """Of the partners; positive, the own weight is what is missing to 1."""
    coalitions: tuple[frozenset[int], ...]
    """Subsets of the partners whose utility is asked for."""


class Engine(ABC):
    """The patients of all centers, and what can be computed on them.

    ``centers`` stand in ascending order of training rows (then of ids), and so does everything else
    here: centers that train together lie together. ``seeds`` gives each center's own seed by id.
    """

    def __init__(
        self, contract: Contract, centers: Sequence[SimCenter], seeds: Mapping[str, int]
    ) -> None:
        self.contract = contract
        self.model = Mlp.of(contract)
        self.centers = tuple(sorted(centers, key=lambda c: (c.data.train.y.size, c.id)))
        self.ids = [center.id for center in self.centers]
        self.place = {name: number for number, name in enumerate(self.ids)}
        self.seeds = [seeds[name] for name in self.ids]
        data = [center.data for center in self.centers]
        for part in data:
            if part.train.x.shape[1] != self.model.widths[0]:
                raise ValueError(
                    f"data: found {part.train.x.shape[1]} inputs, allowed: {self.model.widths[0]}"
                )
        self.tables: dict[SplitName, Table] = {
            "train": Table.below_each_other([part.train for part in data]),
            "validation": Table.below_each_other([part.validation for part in data]),
            "test": Table.below_each_other([part.test for part in data]),
        }
        wanted = contract.policy.utility
        self.metrics: list[Metric] = [
            Utility.choose(wanted, part.validation.y).metric for part in data
        ]
        self.sizes: Index = self.tables["train"].sizes

    def start(self) -> Stack:
        """All centers before round 1: the contract's initial weights, fresh optimizers."""
        return Stack.start(self.model.initial(self.contract.model.init_seed), len(self.centers))

    def validation_record(self, center: int, value: float) -> ValidationRecord:
        """A measured utility as the round's record wants it."""
        table = self.tables["validation"]
        y = table.y[table.rows(center)]
        return ValidationRecord(
            metric=self.metrics[center], value=value, events=int(y.sum()), rows=len(y)
        )

    @abstractmethod
    def train(
        self,
        stack: Stack,
        t: int,
        who: Index | None = None,
        objective: Objective | None = None,
    ) -> Floats:
        """The local step of round ``t``, in place, of the centers ``who`` (ascending; all).

        Returns the mean loss of the data per patient in the last epoch, ``(C,)``, NaN for those who
        did not train. Raises ``TrainingDiverged``.
        """

    @abstractmethod
    def merge(self, stack: Stack, sent: torch.Tensor, mixes: Sequence[Mix]) -> list[Floats]:
        """Measure coalitions, then move the trunks of the merging centers, in place.

        ``sent`` ``(C, trunk size)`` are the trunks as they travel: partners count as they were
        sent, the own trunk as it is. Returns the utilities of each mix, in the order of its
        coalitions. Without partners a trunk stays as it is.
        """

    @abstractmethod
    def measure(self, weights: torch.Tensor, who: Index | None = None) -> Floats:
        """Each center's utility on its own validation split, of weights ``(C, P)`` or ``(P,)``.

        Shape ``(C,)``; with ``who`` only of these centers (ascending), NaN for the others.
        """

    @abstractmethod
    def predict(
        self, weights: torch.Tensor, split: SplitName, pairs: tuple[Index, Index] | None = None
    ) -> Scores:
        """Logits of each center's own model ``(C, P)``, or of one for all ``(P,)``.

        With ``pairs`` (centers ``(M,)``, models ``(M,)``) of these rows of ``weights`` on the
        patients of these centers, pair after pair.
        """

    @abstractmethod
    def represent(self, weights: torch.Tensor, split: SplitName = "train") -> torch.Tensor:
        """What the last hidden layer gives on without dropout, ``(N, width)``, rows as the table's.

        Of each center's own model ``(C, P)``, or of one for all ``(P,)``.
        """

    @abstractmethod
    def pooled(self) -> Engine:
        """The same kind of engine over one center «pooled» that holds everybody's rows."""

    def _pooled_center(self) -> tuple[SimCenter, dict[str, int]]:
        train, validation, test = (
            Split(table.x.numpy(), table.y.numpy()) for table in self.tables.values()
        )
        data = replace(self.centers[0].data, train=train, validation=validation, test=test)
        center = SimCenter("pooled", data)
        return center, {"pooled": derive_seed(self.seeds[0], "pooled")}
