"""Kill −9 at any instant leaves the round before or the round after.

A real process commits rounds as fast as it can and writes one byte into a pipe at every SQL
statement and every system call on a model file. The test reads some of these bytes and kills: the
instant lies anywhere, also within a transaction or between fsync and rename.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from abps_node.store import Store
from abps_node.store.models import prune, read_model, write_model
from abps_node.store.reader import Reader
from protocol.effects import SessionRow
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract(rounds=1_000_000)
pytestmark = pytest.mark.usefixtures("journal")
FORK = multiprocessing.get_context("fork")
KILLS = 10
PEERS = ("a", "b", "c")


def phi_of(round_number: int, peer: str) -> float:
    """Any function of the round, so that a redo repeats itself."""
    return random.Random(f"{round_number} {peer}").uniform(-0.1, 0.1)


def tensors_of(round_number: int) -> dict[str, torch.Tensor]:
    return {"round": torch.full((64,), float(round_number))}


def run_rounds(state_dir: Path, pipe: int) -> None:
    """A center without a network: recover, then round after round until killed."""

    def stage(*_: object) -> None:
        os.write(pipe, b".")

    _announce(stage)
    store = Store.open(state_dir, "here", CONTRACT)
    store._db.set_trace_callback(stage)
    chronicle = Chronicle(contract=CONTRACT, peers=PEERS, incarnation=store.begin_incarnation())
    found = store.recover()
    chronicle.round, chronicle.beliefs = found.last_round, dict(found.beliefs)
    chronicle.best_round, chronicle.best_metric = found.best_round, found.best_metric or 0.0
    while True:
        number = chronicle.round + 1
        intent = SessionRow(chronicle.session("a"), "a", number, "accepted", False, False)
        store.save_sessions([intent])
        model = write_model(state_dir, number, tensors_of(number))
        phis = {peer: phi_of(number, peer) for peer in PEERS}
        store.commit_round(chronicle.with_partners(phis, model=model))
        prune(state_dir, store.models_in_use())


def _announce(stage: Callable[..., None]) -> None:
    """Call ``stage`` before and after each step that makes a model file durable."""

    def spied(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            stage()
            result = original(*args)
            stage()
            return result

        return call

    os.fsync = spied(os.fsync)
    Path.replace = spied(Path.replace)  # type: ignore[method-assign]


def kill_after(state_dir: Path, stages: int) -> None:
    """Start a center, let it pass this many stages, kill it."""
    reading, writing = os.pipe()
    process = FORK.Process(target=run_rounds, args=(state_dir, writing))
    process.start()
    os.close(writing)
    passed = 0
    while passed < stages:
        passed += len(os.read(reading, stages - passed))
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    os.close(reading)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_whole_rounds_whenever_it_is_killed(tmp_path: Path, seed: int) -> None:
    choice = random.Random(seed)
    last_round = 0
    for kill in range(1, KILLS + 1):
        kill_after(tmp_path, choice.randint(30, 200))

        reader = Reader(tmp_path)
        assert reader.status().condition == "dead"
        entries = reader.rounds()
        numbers = [entry.record.round for entry in entries]
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) >= last_round
        last_round = len(numbers)

        assert reader.beliefs() == reader.folded_beliefs()
        assert [credit.phi for credit in reader.credits()] == [
            phi_of(number, peer) for number in numbers for peer in PEERS
        ]
        store = Store.open(tmp_path, "here", CONTRACT)
        assert store.current_incarnation() == kill
        found = store.recover()
        store.close()
        assert found.last_round == last_round
        assert (found.model is None) == (last_round == 0)
        for ref, number in ((found.model, found.last_round), (found.best_model, found.best_round)):
            if ref is not None:
                assert torch.equal(read_model(tmp_path, ref)["round"], tensors_of(number)["round"])
    assert last_round >= KILLS, "it got somewhere between the kills"
