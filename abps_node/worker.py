"""The heavy work of a center, one job at a time in a thread of its own.

The event loop stays free: while a local step runs, proposals are still answered.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from abps_node.alone import AloneRun
from abps_node.config import CenterConfig
from abps_node.data import CenterData
from abps_node.learning import Learner, ObjectiveLearner
from abps_node.store import models
from protocol.center import Identity
from protocol.effects import Merge, Train
from protocol.events import Merged, ModelRef, Trained

T = TypeVar("T")
_log = logging.getLogger(__name__)


class Worker:
    """Runs learner, model files and reports in one thread; answers with events."""

    def __init__(self, config: CenterConfig, data: CenterData, learner: Learner) -> None:
        self._config = config
        self._data = data
        self._learner = learner
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="learning")
        self._cancelled = False
        self._texts: dict[bool, str] = {}

    @property
    def _state_dir(self) -> Path:
        return self._config.state_dir

    async def train(self, effect: Train) -> Trained:
        """Run the local step."""
        return await self._run(lambda: self._train(effect))

    def _train(self, effect: Train) -> Trained:
        started = time.monotonic()
        result = self._learner.train(effect.round)
        seconds = time.monotonic() - started
        return Trained(effect.round, result.trunk, result.loss, seconds, result.objectives)

    async def merge(self, effect: Merge) -> Merged:
        """Measure coalitions, merge, and make the model file durable."""
        return await self._run(lambda: self._merge(effect))

    def _merge(self, effect: Merge) -> Merged:
        started = time.monotonic()
        result = self._learner.merge(effect.round, effect.trunks, effect.weights, effect.coalitions)
        tensors = self._learner.state_tensors()
        model = models.write_model(self._state_dir, effect.round, tensors, self._fitted)
        seconds = time.monotonic() - started
        return Merged(
            effect.round, result.utilities, result.validation, model, seconds, result.parts
        )

    @property
    def _fitted(self) -> str:
        """What belongs to a model beside its weights, as JSON: its preprocessing, its heads."""
        learner = self._learner
        used = isinstance(learner, ObjectiveLearner) and learner.sees_private
        if used not in self._texts:
            self._texts[used] = json.dumps(self._preparation(used))
        return self._texts[used]

    def _preparation(self, private_used: bool) -> dict[str, Any]:
        fitted = self._data.encoder.to_dict()
        aims, own = self._config.aims, self._data.objectives
        if aims is not None and own is not None:
            fitted["objectives"] = [
                {"name": objective.name, "kind": objective.kind, "column": objective.column}
                for objective in aims.objectives
            ]
            fitted["private"] = own.encoder.to_dict()
            fitted["private_used"] = private_used
        return fitted

    async def federated_report(self, model: ModelRef) -> dict[str, Any]:
        """Test metrics of a committed model."""
        return await self._run(lambda: self._federated_report(model))

    def _federated_report(self, model: ModelRef) -> dict[str, Any]:
        self._learner.load_state_tensors(models.read_model(self._state_dir, model))
        return self._learner.test_report()

    async def fine_tune(self) -> dict[str, Any] | None:
        """Stage 2 from the model of the last report on; its own report, or None without one.

        None, too, if the center is stopping meanwhile. Sends nothing.
        """
        return await self._run(self._fine_tune)

    def _fine_tune(self) -> dict[str, Any] | None:
        learner = self._learner
        if not isinstance(learner, ObjectiveLearner) or not learner.fine_tunes:
            return None
        _tell("private fine-tuning begins; nothing is sent")
        tuning = learner.fine_tune(lambda: self._cancelled)
        if tuning is None:
            _tell(
                "private fine-tuning given up, since the center stops; the next start begins anew"
            )
            return None
        reached = f"{tuning.before.value:.4f} → {tuning.after.value:.4f}"
        _tell(
            f"private fine-tuning ended, epochs: {tuning.epochs}, validation: {reached}, kept: the "
            f"model {tuning.kept} it"
        )
        model = models.write_tuned(self._state_dir, learner.state_tensors(), self._fitted)
        return {
            **learner.test_report(),
            **tuning.document(),
            "model": model.name,
            "sha256": model.sha256,
        }

    async def alone_report(self, identity: Identity) -> dict[str, Any] | None:
        """Test metrics of the same rounds without partners; None if the center is stopping."""
        contract = self._config.federation.contract
        run = AloneRun(contract, identity, self._data, self._config.seed, self._config.aims)
        return await self._run(lambda: run.report(lambda: self._cancelled))

    async def _run(self, job: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, job)

    def cancel(self) -> None:
        """Give up the baseline run at its next step; nothing else takes long."""
        self._cancelled = True

    def close(self) -> None:
        """Let the present job end, start no other."""
        self.cancel()
        self._thread.shutdown(wait=True, cancel_futures=True)


def _tell(text: str) -> None:
    """Of stage 2, which may take long and shows nowhere else before it has ended."""
    _log.info("%s", text, extra={"event": "stage2", "fields": {}})
