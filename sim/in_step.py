"""The daemons' own learners and identities, as ``sim.lockstep`` wants them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from abps_node.data import CenterData
from abps_node.learning import Learner, initial_trunk_digest, trunk_layout
from abps_node.learning.learner import TrainResult
from protocol.center import Identity
from protocol.contract import Contract, Goal
from protocol.credit import Coalition
from protocol.record import ValidationRecord
from protocol.trunk import Vector

AnyLearner = TypeVar("AnyLearner", bound=Learner)


@dataclass
class InStep(Generic[AnyLearner]):
    """A learner, and what it said of its last local step."""

    learner: AnyLearner
    last: TrainResult | None = None

    def train(self, round: int) -> Vector:
        """See ``sim.lockstep.Learning``."""
        self.last = self.learner.train(round)
        return self.last.trunk

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


def identity_of(
    contract: Contract, center: str, seed: int, data: CenterData, goal: Goal | None = None
) -> Identity:
    """A center's first incarnation; ``goal``: default the contract's."""
    return Identity(
        center=center,
        incarnation=1,
        seed=seed,
        goal=goal or contract.policy.goal,
        card=data.card,
        size=len(data.train.y),
        layout=trunk_layout(contract),
        initial_trunk=initial_trunk_digest(contract),
    )
