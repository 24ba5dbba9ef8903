"""Trunks in, trunks out, acknowledgments, credit, final words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocol.beliefs import Belief
from protocol.center import Memory, Phase
from protocol.effects import CommitRound, Merge, SaveSessions, SessionRow
from protocol.events import Sent
from protocol.messages import (
    Accept,
    Done,
    Hello,
    Propose,
    Reconcile,
    Reject,
    Rejected,
    SessionId,
    Settle,
    Weights,
)
from protocol.session import State
from tests.support.federations import contract
from tests.support.one_center import LAYOUT, OneCenter, sent


def exchanging(policy: dict[str, Any] | None = None) -> tuple[OneCenter, SessionId]:
    """A center that was proposed to by «a», and has accepted."""
    it = OneCenter(contract({"kappa": 1, **(policy or {})}), roster="am")
    it.meet("a")
    it.train()
    it.hear("a", Rejected(1, it.sent(Propose, "a")[-1].session, Reject.BUSY))
    (accept,) = sent(it.propose("a"), Accept, "a")
    return it, accept.session


def finish_round(it: OneCenter) -> CommitRound:
    it.wait(4.0)
    it.merge(gain=0.02)
    return it.last(CommitRound)


def test_a_good_trunk_is_answered_with_the_own_and_acknowledged() -> None:
    it, session = exchanging()
    effects = it.weights("a", session)
    (own,) = sent(effects, Weights, "a")
    assert (own.round, own.staleness, own.size) == (1, 0, 100)
    assert [d.verified for d in sent(effects, Done, "a")] == [True]
    it.done("a", session)
    commit = finish_round(it)
    (partner,) = commit.record.partners
    assert (partner.peer, partner.outcome, partner.size) == ("a", "complete", 50)
    assert partner.phi == pytest.approx(0.02)
    assert partner.phi_bar == pytest.approx(0.6)
    assert commit.beliefs == {"a": Belief(1.6, 1.4, 1)}
    assert partner.bytes_received == 100


BAD_TRUNKS: list[tuple[dict[str, Any], str]] = [
    ({"trunk": np.full(4, np.nan, dtype=np.float32)}, "trunk-not-finite"),
    ({"trunk": np.full(4, np.inf, dtype=np.float32)}, "trunk-not-finite"),
    ({"trunk": np.full(4, 1e30, dtype=np.float32)}, "trunk-norm"),
    ({"trunk": np.zeros(4, dtype=np.float32)}, "trunk-norm"),
    ({"trunk": np.full(4, 1e-42, dtype=np.float32)}, "trunk-norm"),
    ({"payload": b"\0" * 15}, "trunk-length"),
    ({"payload": b""}, "trunk-length"),
    ({"dtype": "bfloat16"}, "trunk-dtype"),
    ({"layout": "a" * 64}, "trunk-layout"),
    ({"round": 6}, "trunk-claim"),
    ({"round": 2**53}, "trunk-claim"),
    ({"round": 1, "staleness": 2**53}, "trunk-claim"),
    ({"round": 2, "staleness": 4}, "trunk-claim"),
]


@pytest.mark.parametrize(("changes", "reason"), BAD_TRUNKS)
def test_a_bad_trunk_is_a_recorded_outcome_with_credit_zero(
    changes: dict[str, Any], reason: str
) -> None:
    it, session = exchanging()
    effects = it.weights("a", session, **changes)
    assert not sent(effects, Weights), "the own trunk is not given for it"
    (done,) = sent(effects, Done, "a")
    assert (done.verified, done.reason) == (False, reason)
    assert it.notes("trunk-refused")[0].data["reason"] == reason
    commit = finish_round(it)
    assert commit.record.partners == []
    (failed,) = commit.record.failed
    assert failed.outcome == "aborted" and reason in (failed.refused or "")
    assert commit.beliefs == {"a": Belief(1.0, 2.0, 1)}
    assert commit.credits[0].phi is None and commit.credits[0].phi_bar == 0.0


def test_a_stale_trunk_is_refused_without_blame() -> None:
    it, session = exchanging({"max_staleness": 2})
    effects = it.weights("a", session, staleness=3)
    assert sent(effects, Done, "a")[0].reason == "stale"
    assert finish_round(it).beliefs == {}


def test_without_a_bound_a_stale_trunk_earns_normal_credit() -> None:
    it, session = exchanging({"rounds": 37})
    it.weights("a", session, staleness=30, round=7)
    it.done("a", session)
    (partner,) = finish_round(it).record.partners
    assert (partner.staleness, partner.lag, partner.peer_round) == (30, -6, 7)


def test_without_acknowledgment_it_is_received_only_and_merged() -> None:
    it, session = exchanging()
    it.weights("a", session)
    commit = finish_round(it)
    assert [p.outcome for p in commit.record.partners] == ["received-only"]


def test_a_refused_own_trunk_does_not_hurt_the_other_direction() -> None:
    it, session = exchanging()
    it.weights("a", session)
    it.done("a", session, verified=False)
    assert it.notes("own-trunk-refused")
    commit = finish_round(it)
    assert [p.outcome for p in commit.record.partners] == ["received-only"]
    assert commit.beliefs["a"].n == 1


def test_a_timeout_changes_no_belief() -> None:
    it, _ = exchanging()
    commit = finish_round(it)
    assert commit.beliefs == {} and commit.record.failed[0].outcome == "aborted"


def test_weights_for_a_closed_session_are_said_to_be_too_late() -> None:
    it, session = exchanging()
    finish_round(it)
    effects = it.weights("a", session)
    assert [(d.verified, d.reason) for d in sent(effects, Done, "a")] == [(False, "closed")]


def test_a_duplicate_trunk_is_acknowledged_again_and_counted_once() -> None:
    it, session = exchanging()
    it.weights("a", session)
    effects = it.weights("a", session)
    assert [d.verified for d in sent(effects, Done, "a")] == [True]
    assert not sent(effects, Weights)
    assert finish_round(it).beliefs["a"].n == 1


def test_merge_weights_by_size_are_capped() -> None:
    it, session = exchanging({"merge_weights": "size", "size_cap": 300})
    it.weights("a", session, size=10**9)
    it.done("a", session)
    it.wait(4.0)
    assert it.last(Merge).weights == {"a": pytest.approx(300 / 400)}


def test_every_coalition_up_to_the_whole_is_asked_for() -> None:
    it, session = exchanging()
    it.weights("a", session)
    it.done("a", session)
    it.wait(4.0)
    merge = it.last(Merge)
    assert set(merge.coalitions) == {frozenset(), frozenset("a")}
    assert merge.trunks["a"].shape == (LAYOUT.size,)


# Final words ------------------------------------------------------------------------------------


def committed(outcome: str = "complete") -> tuple[OneCenter, SessionId]:
    it, session = exchanging()
    it.weights("a", session)
    if outcome == "complete":
        it.done("a", session)
    commit = finish_round(it)
    assert commit.record.partners[0].outcome == outcome
    return it, session


def test_after_the_commit_the_final_word_is_said() -> None:
    it, session = committed()
    assert it.sent(Settle, "a")[-1].merged == ((session, True),)


@pytest.mark.parametrize(
    ("outcome", "word", "after"),
    [
        ("complete", True, "complete"),
        ("complete", False, "received-only"),
        ("received-only", True, "complete"),
        ("received-only", False, "received-only"),
    ],
)
def test_their_final_word_fixes_the_ledger(outcome: str, word: bool, after: str) -> None:
    it, session = committed(outcome)
    it.hear("a", Settle(1, ((session, word),)))
    (row,) = it.last(SaveSessions).rows
    assert (row.state, row.settled, row.merged) == (after, True, True)
    before = len(it.effects)
    it.hear("a", Settle(1, ((session, not word),)))
    assert not [e for e in it.effects[before:] if isinstance(e, SaveSessions)], "settled is settled"


def test_a_word_that_comes_before_the_own_commit_is_applied_with_it() -> None:
    it, session = exchanging()
    it.weights("a", session)
    it.hear("a", Settle(1, ((session, True),)))
    commit = finish_round(it)
    (row,) = commit.sessions
    assert (row.state, row.settled) == ("complete", True)


def test_missing_words_are_asked_for_until_they_come() -> None:
    it, session = committed()
    effects = it.wait(5.0)
    asked = sent(effects, Reconcile, "a")
    assert 2 <= len(asked) <= 4
    assert asked[0].sessions == (session,)
    it.hear("a", Settle(1, ((session, True),)))
    assert not sent(it.wait(5.0), Reconcile)


def test_a_reconcile_is_answered_the_same_however_often() -> None:
    it, session = committed()
    unknown = it.id_from("a", 77)
    for _ in range(2):
        (answer,) = sent(it.hear("a", Reconcile(1, (session, unknown))), Settle, "a")
        assert answer.merged == ((session, True), (unknown, False))


def test_an_undecided_session_gets_no_word_yet() -> None:
    it, session = exchanging()
    it.weights("a", session)
    assert not sent(it.hear("a", Reconcile(1, (session,))), Settle)


def test_what_was_said_not_to_be_merged_can_never_begin() -> None:
    it, _ = exchanging()
    later = it.id_from("a", 9)
    it.hear("a", Reconcile(1, (later,)))
    answers = sent(it.propose("a", 9), Rejected, "a")
    assert [a.reason for a in answers] == [Reject.STALE_SESSION]


def test_nobody_gets_or_gives_words_about_sessions_of_others() -> None:
    it = OneCenter(contract(), roster="amz")
    it.meet("a", "z")
    foreign = SessionId("z", 1, "m", 1, 1)
    assert not sent(it.hear("a", Reconcile(1, (foreign,))), Settle)
    it.hear("a", Settle(1, ((foreign, True),)))
    assert not [e for e in it.effects if isinstance(e, SaveSessions)]


def test_a_restart_aborts_open_sessions_and_reconciles_them() -> None:
    session = SessionId("m", 1, "a", 1, 4)
    open_row = SessionRow(session, "a", 3, State.SENT, settled=False, merged=False)
    memory = Memory(last_round=2, sessions=(open_row,))
    it = OneCenter(contract(), roster="am", memory=memory, incarnation=2)
    it.meet("a")
    (row,) = it.last(SaveSessions).rows
    assert (row.state, row.settled) == ("aborted", False)
    assert it.sent(Reconcile, "a")[0].sessions == (session,)
    it.hear("a", Settle(1, ((session, True),)))
    (row,) = it.last(SaveSessions).rows
    assert (row.state, row.settled, row.merged) == ("sent-only", True, False)


def test_at_each_contact_missing_words_are_asked_for() -> None:
    it, session = committed()
    it.incarnations["a"] = 2
    effects = it.hear("a", it.hello("a", reply=False))
    assert sent(effects, Hello, "a")
    assert sent(effects, Reconcile, "a")[0].sessions == (session,)


def test_every_byte_stands_in_the_record_of_one_round() -> None:
    it = OneCenter(contract({"kappa": 1, "rounds": 2}, min_peers=2, round_min_s=5.0))
    it.meet("a", "z")
    it.train()
    (proposal,) = it.sent(Propose)
    it.accept(proposal.session.acceptor, proposal.session)
    it.weights(proposal.session.acceptor, proposal.session)
    it.done(proposal.session.acceptor, proposal.session)
    it.merge()
    assert it.node.phase is Phase.PAUSING
    it.propose("z")
    for message in it.sent(Accept, "z"):
        it.feed(Sent("z", message, 10))
    it.weights("z", it.id_from("z", 1))
    it.done("z", it.id_from("z", 1))
    it.wait(6.0)
    it.train()
    it.merge()
    first, second = (e.record for e in it.effects if isinstance(e, CommitRound))
    assert first.bytes_received == {"hello": 200, "accept": 100, "weights": 100, "done": 100}
    assert second.bytes_received == {"propose": 100, "weights": 100, "done": 100}
    assert second.bytes_sent == {"accept": 10}
