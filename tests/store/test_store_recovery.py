"""What a restarted center finds is what the last commit said, no more and no less."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from abps_node.errors import StoreError
from abps_node.store import Recovered, Store
from protocol.beliefs import Belief
from protocol.effects import SessionRow
from protocol.messages import SessionId
from protocol.record import RestCause
from tests.support.records import Chronicle, make_contract, model_ref

CONTRACT = make_contract()
pytestmark = pytest.mark.usefixtures("journal")


def reopened(state_dir: Path) -> Recovered:
    with Store.open(state_dir, "here", CONTRACT) as store:
        store.begin_incarnation()
        return store.recover()


def test_a_new_center_begins_with_nothing(tmp_path: Path) -> None:
    state_dir = tmp_path / "deep" / "state"
    with Store.open(state_dir, "here", CONTRACT) as store:
        assert store.begin_incarnation() == 1
        assert store.recover() == Recovered(0, None, 0, None, None, 0, False, {}, (), frozenset())
    assert stat.S_IMODE(state_dir.stat().st_mode) == 0o700


def test_incarnations_rise_with_every_start(tmp_path: Path) -> None:
    for expected in (1, 2, 3):
        with Store.open(tmp_path, "here", CONTRACT) as store:
            assert store.current_incarnation() == expected - 1
            assert store.begin_incarnation() == expected
            assert store.current_incarnation() == expected


def test_the_last_committed_round_is_recovered(tmp_path: Path) -> None:
    chronicle = Chronicle()
    first = chronicle.with_partners({"near": 0.05, "far": None}, validation=0.8)
    second = chronicle.resting(RestCause.ALL_BUSY)
    third = chronicle.with_partners({"near": -0.02}, validation=0.7, finished=True)
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        for commit in (first, second, third):
            store.commit_round(commit)
        assert store.models_in_use() == {model_ref(n).name for n in (1, 2, 3)}

    found = reopened(tmp_path)
    assert found.last_round == 3
    assert found.model == model_ref(3)
    assert (found.best_round, found.best_metric, found.rounds_without_gain) == (1, 0.8, 2)
    assert found.best_model == model_ref(1)
    assert found.finished
    assert found.beliefs == chronicle.beliefs
    assert found.beliefs["far"] == Belief(1.0, 2.0, 1)
    assert set(found.sessions) == {*first.sessions, *third.sessions}
    assert [row.round for row in found.sessions] == [1, 1, 3]
    assert found.merged == {first.credits[0].session, third.credits[0].session}


def test_sessions_are_replaced_and_settled_ones_are_not_asked_about(tmp_path: Path) -> None:
    intent = SessionRow(SessionId("here", 1, "near", 4, 1), "near", 1, "accepted", False, False)
    other = SessionRow(SessionId("far", 2, "here", 1, 9), "far", 1, "accepted", False, False)
    settled = SessionRow(intent.session, "near", 2, "complete", True, True)
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        store.save_sessions([intent])
        store.save_sessions([settled, other])

    found = reopened(tmp_path)
    assert found.sessions == (other,)
    assert found.merged == {intent.session}


def test_rounds_follow_each_other_without_gap_or_repetition(tmp_path: Path) -> None:
    chronicle = Chronicle()
    first, second, third = (chronicle.with_partners({"near": 0.01}) for _ in range(3))
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        store.commit_round(first)
        for wrong in (first, third):
            with pytest.raises(StoreError, match=f"found a commit of round {wrong.record.round}"):
                store.commit_round(wrong)
        assert store.recover().last_round == 1
        assert store.recover().beliefs["near"].n == 1
        store.commit_round(second)
        assert store.recover().last_round == 2


def test_a_commit_that_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    commit = Chronicle().with_partners({"near": 0.01, "far": 0.02})
    torn = type(commit)(**{**vars(commit), "sessions": commit.sessions[:1]})
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        before = store.recover()
        with pytest.raises(StoreError, match="FOREIGN KEY"):
            store.commit_round(torn)
        assert store.recover() == before
        store.commit_round(commit)
        assert store.recover().last_round == 1


def test_nothing_can_be_written_before_the_incarnation_has_begun(tmp_path: Path) -> None:
    with Store.open(tmp_path, "here", CONTRACT) as store:
        with pytest.raises(StoreError, match="begin_incarnation"):
            store.save_sessions([])
        assert store.recover().last_round == 0
