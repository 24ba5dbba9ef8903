"""Events, peers, traffic, reports, phase: what people look at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from abps_node.store import Store
from abps_node.store.reader import Reader
from abps_node.store.schema import EVENTS_BATCH, MAX_EVENTS
from protocol.effects import Note, PeerChanged, PhaseChanged
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract()
pytestmark = pytest.mark.usefixtures("journal")


class Clock:
    """Wall time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Store:
    store = Store.open(tmp_path, "here", CONTRACT, clock=clock)
    store.begin_incarnation()
    return store


def test_events_keep_their_data_and_their_order(tmp_path: Path, store: Store, clock: Clock) -> None:
    store.note(Note("refused", "warning", "near", "A stranger knocked.", {"bytes": 12}), 3)
    clock.now += 1
    store.note(Note("finished", "info", None, "All rounds are done."), 4)
    first, second = Reader(tmp_path).events()
    assert (first.at, first.round, first.kind, first.level) == (1_000.0, 3, "refused", "warning")
    assert (first.peer, first.text) == ("near", "A stranger knocked.")
    assert first.data == {"bytes": 12}
    assert (second.at, second.peer, second.data) == (1_001.0, None, {})
    assert Reader(tmp_path).events(since_id=first.id) == [second]
    assert Reader(tmp_path).events(limit=1) == [second]
    assert Reader(tmp_path).events(kind="refused") == [first]
    assert Reader(tmp_path).status().last_event == second


def test_events_are_bounded(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("abps_node.store.rows.MAX_EVENTS", 300)
    for number in range(3 * EVENTS_BATCH + 10):
        store.note(Note("tick", "info", None, str(number)), 1)
    events = Reader(tmp_path).events()
    assert len(events) == 300 + 10
    assert events[-1].text == str(3 * EVENTS_BATCH + 9)
    assert MAX_EVENTS >= 10_000


def test_a_peer_keeps_its_card_and_its_last_sign_of_life(
    tmp_path: Path, store: Store, clock: Clock
) -> None:
    store.peer(PeerChanged("near", "met", 2, (0.25, 4.5), "hello"))
    clock.now = 2_000.0
    store.seen("near")
    store.seen("far")
    assert Reader(tmp_path).peers()[0].last_seen is None, "written with the next transaction"
    clock.now = 3_000.0
    store.peer(PeerChanged("near", "suspect", 2, None, "silent for 5 s"))
    store.commit_round(Chronicle().with_partners({"near": 0.01, "far": None}))

    far, near = Reader(tmp_path).peers()
    assert (near.status, near.incarnation, near.detail) == ("suspect", 2, "silent for 5 s")
    assert near.card == (0.25, 4.5)
    assert near.last_seen == far.last_seen == 2_000.0
    assert (near.last_outcome, near.last_outcome_round) == ("complete", 1)
    assert (far.status, far.last_outcome) == ("unmet", "trunk refused: trunk-norm")


def test_traffic_adds_up(tmp_path: Path, store: Store) -> None:
    store.add_traffic(
        {("near", "out", "weights"): (1, 100, 130), ("near", "in", "ping"): (2, 8, 90)}
    )
    store.add_traffic(
        {("near", "out", "weights"): (2, 200, 260), ("far", "in", "ping"): (1, 4, 45)}
    )
    store.add_traffic({})
    by_key = {(row.peer, row.direction, row.kind): row for row in Reader(tmp_path).traffic()}
    weights = by_key["near", "out", "weights"]
    assert (weights.messages, weights.frame_bytes, weights.wire_bytes) == (3, 300, 390)
    status = Reader(tmp_path).status()
    assert (status.sent.messages, status.sent.wire_bytes) == (3, 390)
    assert (status.received.messages, status.received.frame_bytes) == (3, 12)


def test_a_report_is_replaced_by_a_newer_one(tmp_path: Path, store: Store) -> None:
    assert Reader(tmp_path).report("alone") is None
    store.save_report("alone", {"auroc": 0.6, "calibration_slope": None})
    store.save_report("alone", {"auroc": 0.7, "calibration_slope": None})
    assert Reader(tmp_path).report("alone") == {"auroc": 0.7, "calibration_slope": None}


def test_the_condition_follows_the_life_of_the_process(
    tmp_path: Path, store: Store, clock: Clock
) -> None:
    reader = Reader(tmp_path)
    assert reader.status().phase == "starting"
    store.set_runtime("tcp://127.0.0.1:5555", os.getpid())
    clock.now = 1_500.0
    store.phase(PhaseChanged("training", 4))
    status = reader.status()
    assert (status.condition, status.pid, status.endpoint) == (
        "running",
        os.getpid(),
        "tcp://127.0.0.1:5555",
    )
    assert (status.phase, status.phase_round, status.phase_since) == ("training", 4, 1_500.0)
    assert reader.alive()

    store.close()
    assert reader.condition() == "stopped"
    assert not reader.alive()

    with Store.open(tmp_path, "here", CONTRACT, clock=clock) as again:
        again.begin_incarnation()
        assert reader.alive()
        again.commit_round(Chronicle(incarnation=2).resting(finished=True))
        assert reader.condition() == "running", "lingers"
    assert reader.condition() == "finished"


def test_a_center_that_ends_by_an_error_has_not_stopped_but_died(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="a bug"),
        Store.open(tmp_path, "here", CONTRACT) as store,
    ):
        store.begin_incarnation()
        store.set_runtime("tcp://127.0.0.1:5555", _gone())
        raise RuntimeError("a bug")
    assert Reader(tmp_path).condition() == "dead"


def _gone() -> int:
    """The id of a process that has ended."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid
