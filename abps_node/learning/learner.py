"""One center's learning, as the daemon drives it: train, merge, report, keep the state.

«Alone» is the same class, merged with no partner. Nothing here knows sockets or files; every method
may run in a worker thread, one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from abps_node.data import CenterData, Split
from abps_node.learning import metrics
from abps_node.learning.aggregate import weighted_mean, with_momentum
from abps_node.learning.local_step import local_step
from abps_node.learning.model import Mlp
from abps_node.learning.state import LearnerState, Parameters, from_tensors, to_tensors
from abps_node.learning.utility import FloatArray, Utility
from protocol.contract import Contract
from protocol.randomness import derive_seed
from protocol.record import ObjectivesRecord, ValidationRecord
from protocol.trunk import Vector

Coalition = frozenset[str]


@dataclass(frozen=True)
class TrainResult:
    """Outcome of one local step."""

    trunk: Vector
    """Snapshot before any merge, float32 ``(trunk size,)``; later training does not touch it."""
    loss: float
    objectives: ObjectivesRecord | None = None
    """None for a center without objectives of its own."""


@dataclass(frozen=True)
class MergeResult:
    """Outcome of one merge."""

    utilities: dict[Coalition, float]
    """U(S) of every coalition asked for: own head, mean trunk of {own} ∪ S, before momentum."""
    validation: ValidationRecord
    """Of the model after merge and momentum."""
    parts: tuple[float, ...] = ()
    """Of ``validation`` by objective; none for a center without objectives of its own."""


class Learner:
    """Local model, optimizer and merge history of one center.

    ``seed`` is the center's own; all randomness of a round derives from it and the round's number.
    """

    def __init__(self, contract: Contract, data: CenterData, seed: int) -> None:
        self._model = Mlp.of(contract)
        self._begin(contract, seed, self._model)
        for split in (data.train, data.validation, data.test):
            if split.x.shape[1] != self._model.widths[0]:
                raise ValueError(
                    f"data: found {split.x.shape[1]} inputs, allowed: {self._model.widths[0]}"
                )
        self._train_x, self._train_y = _tensors(data.train)
        self._validation_x, _ = _tensors(data.validation)
        self._test = data.test
        self._utility = Utility.choose(contract.policy.utility, data.validation.y)

    def _begin(self, contract: Contract, seed: int, shape: Parameters) -> None:
        """What every kind of model needs; ``shape`` says how its parameters lie."""
        self._contract = contract
        self._seed = seed
        self._shape = shape
        self._state = LearnerState.fresh(shape, contract.model.init_seed)
        self._trained: int | None = None

    @property
    def metric(self) -> str:
        """What U is here: «brier» (as 1 − Brier) where validation lacks a class for «auroc»."""
        return self._utility.metric

    def train(self, round: int) -> TrainResult:
        """Run the local step of a round. From the same state it gives the same bits.

        Raises ``TrainingDiverged``, leaving the state as it was.
        """
        state = self._state
        result = local_step(
            self._model,
            state.weights,
            state.adam,
            self._train_x,
            self._train_y,
            self._contract.training,
            self._seed,
            round,
        )
        self._state = LearnerState(result.weights, result.adam, state.previous, state.merges)
        self._trained = round
        return TrainResult(self._own_trunk(), result.loss)

    def merge(
        self,
        round: int,
        trunks: Mapping[str, Vector],
        weights: Mapping[str, float],
        coalitions: Sequence[Coalition],
    ) -> MergeResult:
        """Measure coalitions of partners, then move the trunk to the mean of all.

        ``trunks`` are verified ones, peer to float32 ``(trunk size,)``; ``weights`` are positive,
        the own weight is what is missing to 1. Without partners the model stays as it is. Raises
        ``ValueError`` on a round that was not the last one trained and on arguments that disagree.
        """
        self._check_merge(round, trunks, weights, coalitions)
        own = self._own_trunk()
        utilities = {
            coalition: self._measure(weighted_mean(own, trunks, weights, coalition))
            for coalition in coalitions
        }
        if trunks:
            self._move_trunk(weighted_mean(own, trunks, weights, trunks))
        return MergeResult(utilities, *self._validation())

    def test_report(self) -> dict[str, Any]:
        """Metrics of the present weights on the test split; nothing else ever looks at it.

        Keys: those of ``metrics.report``, ``train_rows``, and ``selected``: «best» under a policy
        with ``patience`` (whose best state the caller has loaded before), else «last».
        """
        x, _ = _tensors(self._test)
        seed = derive_seed(self._seed, "bootstrap")
        labels = self._test.y.astype(np.float64)
        return {
            **metrics.report(self._logits(self._state.weights, x), labels, seed),
            "train_rows": int(self._train_y.shape[0]),
            "selected": "last" if self._contract.policy.patience is None else "best",
        }

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """All that the next round depends on, as named copies, fit for safetensors."""
        return to_tensors(self._shape, self._state)

    def load_state_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from ``state_tensors``, bit for bit; raises ``StoreError`` if they do not fit."""
        self._state = from_tensors(self._shape, tensors)
        self._trained = None

    def _own_trunk(self) -> Vector:
        trunk: Vector = self._state.weights[: self._shape.trunk.size].numpy().copy()
        return trunk

    def _validation(self) -> tuple[ValidationRecord, tuple[float, ...]]:
        """U of the present model, and its parts where it has any."""
        return self._utility.record(self._measure(self._own_trunk())), ()

    def _measure(self, trunk: Vector) -> float:
        """U of the own head on this trunk."""
        weights = self._on(trunk)
        return self._utility.measure(self._logits(weights, self._validation_x))

    def _on(self, trunk: Vector) -> torch.Tensor:
        """The own head on this trunk."""
        head = self._state.weights[self._shape.trunk.size :]
        return torch.cat([torch.from_numpy(trunk), head])

    def _logits(self, weights: torch.Tensor, x: torch.Tensor) -> FloatArray:
        with torch.inference_mode():
            logits: FloatArray = self._model.logits(weights, x).numpy().astype(np.float64)
        return logits

    def _move_trunk(self, mean: Vector) -> None:
        state, beta = self._state, self._contract.policy.momentum
        if beta is not None and state.merges > 0:
            mean = with_momentum(state.previous.numpy(), mean, beta)
        trunk = torch.from_numpy(mean)
        weights = torch.cat([trunk, state.weights[trunk.shape[0] :]])
        self._state = LearnerState(weights, state.adam, trunk, state.merges + 1)

    def _check_merge(
        self,
        round: int,
        trunks: Mapping[str, Vector],
        weights: Mapping[str, float],
        coalitions: Sequence[Coalition],
    ) -> None:
        if round != self._trained:
            raise ValueError(
                f"merge: found round {round}, allowed: the one trained, {self._trained}"
            )
        if set(weights) != set(trunks):
            raise ValueError(f"weights: found {sorted(weights)}, allowed: {sorted(trunks)}")
        shape = (self._shape.trunk.size,)
        for peer, trunk in trunks.items():
            if trunk.shape != shape or trunk.dtype != np.float32:
                raise ValueError(
                    f"trunk of {peer}: found {trunk.dtype} {trunk.shape}, allowed: float32 {shape}"
                )
        for coalition in coalitions:
            if not coalition <= set(trunks):
                raise ValueError(
                    f"coalition: found {sorted(coalition)}, allowed: of {sorted(trunks)}"
                )


def _tensors(split: Split) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(split.x), torch.from_numpy(split.y)
