"""Daemons that live in the event loop of a test, over real sockets and real state directories."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable

import torch

from abps_node.audit.opening import open_record
from abps_node.config import CenterConfig
from abps_node.daemon import Daemon
from abps_node.data import load_center
from abps_node.learning import Learner, make_learner
from abps_node.store import Store, models
from abps_node.store.reader import Reader

WAIT_S = 60.0
"""Nothing here takes a second; but a machine may have other things to do."""


async def eventually(condition: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """Let the loop run until the condition holds; fail after ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, f"it did not come true within {wait_s:g} s"
        await asyncio.sleep(0.01)


class Resident:
    """One center: what ``run_center`` does, within a loop that others share."""

    def __init__(self, center: CenterConfig, learner: type[Learner] = Learner) -> None:
        torch.set_num_threads(1)
        self.center = center
        self._learner = learner
        self._has_state = False
        self.task = asyncio.create_task(self._live(), name=center.id)

    @property
    def reader(self) -> Reader:
        """Its state."""
        return Reader(self.center.state_dir)

    @property
    def endpoint(self) -> str | None:
        """Where it listens; None before it does. A later start of the center clears it."""
        return self.reader.status().endpoint if self._has_state else None

    def last_round(self) -> int:
        """The last committed round."""
        return self.reader.status().last_round if self._has_state else 0

    def has_event(self, kind: str, peer: str | None = None) -> bool:
        """Whether there is an event of this kind, about this peer if one is given."""
        if not self._has_state:
            return False
        return any(peer in (None, event.peer) for event in self.reader.events(kind=kind))

    def has_phase(self, phase: str) -> bool:
        """Whether it is in this phase."""
        return self._has_state and self.reader.status().phase == phase

    async def _live(self) -> int:
        center, contract = self.center, self.center.federation.contract
        data = load_center(contract, center.id, center.data, center.aims)
        learner: Learner
        if center.aims is None:
            learner = self._learner(contract, data, center.seed)
        else:
            learner = make_learner(contract, data, center.seed, center.aims)
        store = Store.open(center.state_dir, center.id, contract)
        try:
            incarnation = store.begin_incarnation()
            self._has_state = True
            recovered = store.recover()
            if recovered.model is not None:
                tensors = models.read_model(center.state_dir, recovered.model)
                learner.load_state_tensors(tensors)
            digest = contract.digest()
            record = open_record(center.state_dir, store, center.id, incarnation, digest)
            daemon = Daemon(center, data, learner, store, record, incarnation, recovered)
            with record:
                return await daemon.run()
        finally:
            store.close()


class Residents:
    """All daemons of one test."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[int]] = []
        self._handlers = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}

    def start(self, center: CenterConfig, learner: type[Learner] = Learner) -> Resident:
        """Start one center."""
        resident = Resident(center, learner)
        self._tasks.append(resident.task)
        return resident

    def forget(self, resident: Resident) -> None:
        """One that has ended with an error that the test has seen."""
        self._tasks.remove(resident.task)

    async def close(self) -> None:
        """End what still runs; an error that nobody has seen comes up here."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
