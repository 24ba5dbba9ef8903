"""The learning of a center with objectives of its own: several heads on one shared trunk.

For the protocol it is a ``Learner`` like any other: it trains, merges trunks and measures what
coalitions bring. What is different stays in here and at the center.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import torch

from abps_node.aims import Aims
from abps_node.data import CenterData
from abps_node.data.objectives import ObjectiveData, ObjectiveSplit
from abps_node.errors import StoreError
from abps_node.learning.adam import Adam
from abps_node.learning.learner import Learner, TrainResult
from abps_node.learning.local_step import TrainingDiverged
from abps_node.learning.objective_losses import Rows, losses_of, rows_of
from abps_node.learning.objective_net import ObjectiveNet
from abps_node.learning.objective_step import StepResult, objective_step, standing
from abps_node.learning.objective_utility import ObjectiveUtility
from abps_node.learning.trunks import Statistics
from abps_node.learning.utility import FloatArray
from protocol.contract import Contract
from protocol.randomness import derive_seed
from protocol.record import ObjectiveRecord, ObjectivesRecord, ValidationRecord
from protocol.trunk import Vector

_LEAST_MEDIAN: Final = 1e-3
"""Days: where most stay not even one."""
STATISTICS: Final = "statistics."
"""Names of batch norm's running statistics among the tensors of the state."""


@dataclass(frozen=True)
class Tuning:
    """How private fine-tuning (stage 2) went."""

    kept: Literal["before", "after"]
    """Which model was better on validation; the former where they are equal."""
    before: ValidationRecord
    after: ValidationRecord
    epochs: int
    stationarity: float
    """‖Σ μ*g‖² at its end."""
    stationary: bool
    """Whether that ended it; else its budget did."""
    diverged: bool = False
    """Whether it left the finite numbers; then there is no model after it, and ``after`` is
    ``before``."""

    def document(self) -> dict[str, Any]:
        """As plain JSON, for a report."""
        return {
            "kept": self.kept,
            "validation_before": self.before.value,
            "validation_after": self.after.value,
            "metric": self.before.metric,
            "epochs": self.epochs,
            "stationarity": self.stationarity,
            "stationary": self.stationary,
            "diverged": self.diverged,
        }


class ObjectiveLearner(Learner):
    """Local model with one head per objective; see ``Learner``."""

    def __init__(self, contract: Contract, data: CenterData, seed: int, aims: Aims) -> None:
        """``data.objectives`` must have been read for these aims, else ``ValueError``."""
        own = data.objectives
        if own is None or own.train.y.shape[1] != len(aims.objectives):
            raise ValueError("data: found no outcomes, allowed: those of the center's objectives")
        self._aims = aims
        self._data = data
        self._own: ObjectiveData = own
        names = [objective.name for objective in aims.objectives]
        self._net = ObjectiveNet.of(contract, own.train.private.shape[1], names)
        self._begin(contract, seed, self._net)
        self._start_at_medians()
        self._losses = losses_of(aims, own.train)
        self._objective_utility = ObjectiveUtility.of(aims, own)
        self._train_x = torch.from_numpy(data.train.x)
        self._use_private(aims.private_features == "always")

    @property
    def metric(self) -> str:
        """What U is here."""
        return self._objective_utility.metric

    def train(self, round: int) -> TrainResult:
        """Run the local step of a round; see ``Learner.train``."""
        state = self._state
        result = objective_step(
            self._net,
            self._losses,
            state.weights,
            state.adam,
            self._rows,
            self._contract.training,
            self._aims,
            self._seed,
            round,
        )
        self._state = replace(state, weights=result.weights, adam=result.adam)
        self._trained = round
        told = _record(self._aims, result)
        return TrainResult(self._own_trunk(), float(np.mean(result.losses)), told)

    @property
    def sees_private(self) -> bool:
        """Whether heads see the private features at present, or zeros in their place."""
        return self._with_private

    @property
    def fine_tunes(self) -> bool:
        """Whether there is a stage 2."""
        return self._aims.stage2 is not None

    def fine_tune(self, cancelled: Callable[[], bool]) -> Tuning | None:
        """Stage 2: go on alone with all features until stationary or the budget ends, then keep
        the better of before and after. None if ``cancelled`` said so between two epochs."""
        stage = self._aims.stage2
        if stage is None:
            raise ValueError("aims: found no stage 2, allowed: one with a budget")
        start, before = self._state, self._validation()[0]
        was_private = self._with_private
        self._use_private(True)
        training = self._contract.training.model_copy(
            update={"epochs": 1, "learning_rate": stage.learning_rate}
        )
        aims = replace(self._aims, local_step="pareto", stationarity=None)
        weights, adam, epochs = start.weights, Adam.fresh(self._net.size), 0
        at = standing(self._net, self._losses, weights, self._rows)
        seed = derive_seed(self._seed, "stage2")
        while epochs < stage.epochs and at.stationarity > stage.stationarity:
            if cancelled():
                self._use_private(was_private)
                return None
            epochs += 1
            try:
                step = objective_step(
                    self._net, self._losses, weights, adam, self._rows, training, aims, seed, epochs
                )
            except TrainingDiverged:
                # The federation's model is there and whole; that is what this center has.
                self._use_private(was_private)
                return Tuning("before", before, before, epochs, at.stationarity, False, True)
            weights, adam = step.weights, step.adam
            at = step.standing or at
        self._state = replace(start, weights=weights)
        after = self._validation()[0]
        kept: Literal["before", "after"] = "after" if after.value > before.value else "before"
        if kept == "before":
            self._state = start
            self._use_private(was_private)
        stationary = at.stationarity <= stage.stationarity
        return Tuning(kept, before, after, epochs, at.stationarity, stationary)

    def test_report(self) -> dict[str, Any]:
        """Metrics of the present weights on the test split.

        Keys: those of the plain learner, of the first objective on the contract's label (without
        one they are None), and ``objectives``: the metrics of each.
        """
        from abps_node.learning import objective_metrics

        seed = derive_seed(self._seed, "bootstrap")
        outputs = self._outputs(self._state.weights, self._data.test.x, self._own.test)
        found = objective_metrics.report(self._aims, self._own, outputs, seed)
        return {
            **objective_metrics.headline(self._contract, self._aims, found),
            "train_rows": int(self._train_x.shape[0]),
            "selected": "last" if self._contract.policy.patience is None else "best",
            "objectives": found,
        }

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """As in the plain learner, and batch norm's statistics under the present trunk, for whoever
        applies the model; they stay with the center."""
        statistics = self._statistics(self._state.weights)
        named = {f"{STATISTICS}{n}": part.clone() for n, part in enumerate(statistics)}
        return {**super().state_tensors(), **named}

    def load_state_tensors(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Inverse of ``state_tensors``; statistics are those of the training rows, found anew."""
        there = {name for name in tensors if name.startswith(STATISTICS)}
        expected = {f"{STATISTICS}{n}" for n in range(4 if self._net.shared.normalizes else 0)}
        if there != expected:
            raise StoreError(
                f"model state: found {sorted(there)}, allowed: {sorted(expected)} for this model"
            )
        super().load_state_tensors({n: part for n, part in tensors.items() if n not in there})

    def _start_at_medians(self) -> None:
        """Let heads of durations begin with the training median.

        Drawn like any other, a head says one day to everybody; where stays are long, U is then 0
        for many rounds, whatever partners bring.
        """
        for number, report in enumerate(self._own.reports):
            if not self._aims.objectives[number].binary:
                # softplus(log m) = log(1 + m), which is m days.
                bias = math.log(max(report.median, _LEAST_MEDIAN))
                self._net.output_bias(self._state.weights, number).fill_(bias)

    def _use_private(self, wanted: bool) -> None:
        """Whether heads see the private features, or zeros in their place."""
        self._with_private = wanted
        self._rows: Rows = rows_of(self._aims, self._train_x, self._own.train, self._own, wanted)

    def _measure(self, trunk: Vector) -> float:
        return self._objective_utility.mean(self._parts(self._on(trunk)))

    def _validation(self) -> tuple[ValidationRecord, tuple[float, ...]]:
        parts = self._parts(self._state.weights)
        utility = self._objective_utility
        return utility.record(utility.mean(parts)), tuple(parts.tolist())

    def _parts(self, weights: torch.Tensor) -> FloatArray:
        outputs = self._outputs(weights, self._data.validation.x, self._own.validation)
        return self._objective_utility.parts(outputs)

    def _outputs(self, weights: torch.Tensor, x: Any, split: ObjectiveSplit) -> torch.Tensor:
        private = torch.from_numpy(split.private)
        if not self._with_private:
            private = torch.zeros_like(private)
        return self._net.outputs(weights, torch.from_numpy(x), private, self._statistics(weights))

    def _statistics(self, weights: torch.Tensor) -> Statistics:
        """Measured anew for every trunk, so that a partner's is not judged by the statistics of
        another; none without batch norm."""
        return self._net.statistics(weights, self._train_x)


def make_learner(contract: Contract, data: CenterData, seed: int, aims: Aims | None) -> Learner:
    """The learner of a center: the plain one, or one with heads for its objectives."""
    if aims is None:
        return Learner(contract, data, seed)
    return ObjectiveLearner(contract, data, seed, aims)


def _record(aims: Aims, result: StepResult) -> ObjectivesRecord:
    at = result.standing
    if at is None:
        raise AssertionError("a round is recorded without knowing where its model stands")
    per_objective = zip(
        aims.objectives, result.losses, at.weights, result.mean_weights, at.norms, strict=True
    )
    told_apart = aims.local_step == "pareto" and len(aims.objectives) > 1
    return ObjectivesRecord(
        step=aims.local_step,
        objectives=[
            ObjectiveRecord(
                name=objective.name,
                kind=objective.kind,
                loss=float(loss),
                mu=float(mu),
                mu_batches=float(used),
                norm=float(norm),
            )
            for objective, loss, mu, used, norm in per_objective
        ],
        cosines=[[float(value) for value in row] for row in at.cosines],
        conflicts=result.conflicts if told_apart else None,
        stationarity=at.stationarity,
        epochs=result.epochs,
    )
