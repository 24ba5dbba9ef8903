"""«Alone»: the very same rounds without partners, the baseline of every center.

The same state machine, learner, seeds, epochs and selection rule; only the roster is empty. So the
difference between the two test reports is what the partners brought.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from abps_node.aims import Aims
from abps_node.data import CenterData
from abps_node.learning import ObjectiveLearner, make_learner
from protocol.center import Identity, Memory
from protocol.contract import Contract
from protocol.effects import CommitRound, Effect, Exit, Merge, Train
from protocol.events import Event, Merged, ModelRef, Started, StopRequested, Tick, Trained
from protocol.node import Node
from protocol.timing import MAX_GAP_S

Tensors = dict[str, torch.Tensor]


class AloneRun:
    """Drives a node without a roster, in virtual time."""

    def __init__(
        self,
        contract: Contract,
        identity: Identity,
        data: CenterData,
        seed: int,
        aims: Aims | None = None,
    ) -> None:
        pacing = contract.pacing.model_copy(update={"min_peers": 0, "round_min_s": 0.0})
        self._node = Node(contract.model_copy(update={"pacing": pacing}), identity, (), Memory())
        self._learner = make_learner(contract, data, seed, aims)
        self._restore_best = contract.policy.patience is not None
        self._best: Tensors = {}
        self._current: Tensors = {}
        self._ended = False
        self._now = 0.0
        self.best_round = 0
        self.last_round = 0

    def report(self, cancelled: Callable[[], bool]) -> dict[str, Any] | None:
        """Run all rounds; the test report, or None if ``cancelled`` said so between two steps."""
        pending: list[Event] = [Started()]
        while not self._ended:
            if cancelled():
                pending = [StopRequested("cancelled")]
            event = pending.pop(0) if pending else Tick()
            self._now += MAX_GAP_S
            for effect in self._node.handle(event, self._now):
                pending += self._perform(effect)
        if cancelled():
            return None
        if self._restore_best:
            self._learner.load_state_tensors(self._best)
        report = self._learner.test_report()
        tuned = self._tuned(cancelled)
        return {
            **report,
            "best_round": self.best_round,
            "rounds": self.last_round,
            **({"stage2": tuned} if tuned is not None else {}),
        }

    def _tuned(self, cancelled: Callable[[], bool]) -> dict[str, Any] | None:
        """The same private fine-tuning as after the federation, so that like stands beside like."""
        learner = self._learner
        if not isinstance(learner, ObjectiveLearner) or not learner.fine_tunes:
            return None
        tuning = learner.fine_tune(cancelled)
        return None if tuning is None else {**learner.test_report(), **tuning.document()}

    def _perform(self, effect: Effect) -> list[Event]:
        match effect:
            case Train(round=number):
                trained = self._learner.train(number)
                return [Trained(number, trained.trunk, trained.loss, 0.0, trained.objectives)]
            case Merge(round=number):
                merged = self._learner.merge(number, {}, {}, effect.coalitions)
                self._current = self._learner.state_tensors() if self._restore_best else {}
                model = ModelRef(f"alone-{number}", "")
                return [Merged(number, merged.utilities, merged.validation, model, 0.0)]
            case CommitRound():
                self.best_round, self.last_round = effect.best_round, effect.record.round
                if effect.best_round == effect.record.round:
                    self._best = self._current
                if effect.finished:
                    self._ended = True
            case Exit():
                self._ended = True
            case _:
                pass
        return []
