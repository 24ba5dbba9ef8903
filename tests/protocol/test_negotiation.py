"""Propose, accept, reject, withdraw, cross; slots and pairs."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.beliefs import Belief
from protocol.center import Memory, Phase
from protocol.effects import CommitRound, SaveSessions, Send
from protocol.messages import (
    Accept,
    Goodbye,
    Propose,
    Reject,
    Rejected,
    SessionId,
    Settle,
    Weights,
    Withdraw,
)
from protocol.session import State
from tests.support.federations import contract
from tests.support.one_center import OneCenter, sent


def ready(policy: dict[str, Any] | None = None, roster: str = "amz", **pacing: Any) -> OneCenter:
    """A center in round 1 whose first local step is done, that has met everybody."""
    peers = [peer for peer in roster if peer != "m"]
    it = OneCenter(contract(policy, min_peers=len(peers), **pacing), roster=roster)
    it.meet(*peers)
    return it


def only_reason(it: OneCenter, peer: str, number: int = 1, round_number: int = 1) -> Reject:
    (answer,) = sent(it.propose(peer, number, round_number), Rejected, peer)
    return answer.reason


def own_session(it: OneCenter, peer: str) -> SessionId:
    return it.sent(Propose, peer)[-1].session


def test_before_the_first_local_step_nobody_is_accepted() -> None:
    assert only_reason(ready(), "a") is Reject.NOT_READY


def test_while_training_a_later_round_proposals_are_answered() -> None:
    it = ready({"kappa": 2, "rounds": 3})
    it.train()
    it.wait(2.0)
    it.merge()
    it.wait(1.0)
    assert it.node.phase is Phase.TRAINING and it.node.center.round.number == 2
    it.hear("a", it.hello("a"))
    effects = it.propose("a", round_number=7)
    (accept,) = sent(effects, Accept, "a")
    assert accept.round == 2
    (weights,) = sent(it.weights("a", accept.session), Weights, "a")
    assert (weights.round, weights.staleness) == (1, 1), "the newest finished, never waiting"


def test_the_intent_is_durable_before_the_accept_and_before_the_weights() -> None:
    it = ready({"kappa": 2})
    it.train()
    effects = it.propose("z") if not it.sent(Propose, "z") else it.accept("z", own_session(it, "z"))
    kinds = [type(e.message).__name__ if isinstance(e, Send) else type(e).__name__ for e in effects]
    said = next(i for i, kind in enumerate(kinds) if kind in ("Accept", "Weights"))
    assert "SaveSessions" in kinds[:said]


def test_no_more_proposals_than_free_slots() -> None:
    it = ready({"kappa": 2}, roster="abcdm")
    it.train()
    assert len(it.sent(Propose)) == 2
    first = it.sent(Propose)[0]
    peer = first.session.acceptor
    it.hear(peer, Rejected(1, first.session, Reject.BUSY))
    assert len(it.sent(Propose)) == 3, "the next on the list is asked"


def test_never_more_than_kappa_partners_an_extra_accept_is_withdrawn() -> None:
    it = ready({"kappa": 1}, roster="amz")
    it.train()
    asked = own_session(it, it.sent(Propose)[0].session.acceptor)
    other = "z" if asked.acceptor == "a" else "a"
    (accept,) = sent(it.propose(other), Accept, other)
    assert it.node.center.ledger.slots_used(1) == 1
    effects = it.accept(asked.acceptor, asked)
    assert sent(effects, Withdraw, asked.acceptor) and not sent(effects, Weights)
    it.weights(other, accept.session)
    it.done(other, accept.session)
    it.merge()
    record = it.last(CommitRound).record
    assert [p.peer for p in record.partners] == [other]
    assert record.proposals_sent[0].outcome == "withdrawn"


def test_a_full_center_is_busy_and_a_withdrawn_slot_is_free_again() -> None:
    it = ready({"kappa": 1}, roster="abm")
    it.node.center.round.queue.clear()
    it.train()
    asked = it.sent(Propose)[0].session
    it.hear(asked.acceptor, Rejected(1, asked, Reject.BUSY))
    rest = it.sent(Propose)[-1].session
    it.hear(rest.acceptor, Rejected(1, rest, Reject.BUSY))
    (accept,) = sent(it.propose("a"), Accept, "a")
    assert only_reason(it, "b") is Reject.BUSY
    it.hear("a", Withdraw(1, accept.session))
    assert sent(it.propose("b", number=2), Accept, "b")


@pytest.mark.parametrize(("peer", "survives"), [("a", "theirs"), ("z", "mine")])
def test_crossing_proposals_become_one_of_the_smaller_id(peer: str, survives: str) -> None:
    it = ready({"kappa": 1}, roster="m" + peer)
    it.train()
    mine = own_session(it, peer)
    effects = it.propose(peer)
    if survives == "theirs":
        assert sent(effects, Accept, peer)
        assert it.node.center.ledger.sessions[mine].state is State.CROSSED
    else:
        assert not sent(effects, Accept) and not sent(effects, Rejected)
        assert sent(it.accept(peer, mine), Weights, peer)


def test_a_late_copy_of_an_old_proposal_crosses_nothing() -> None:
    it = ready({"kappa": 1}, roster="am")
    assert only_reason(it, "a") is Reject.NOT_READY
    it.train()
    session = own_session(it, "a")
    assert only_reason(it, "a") is Reject.STALE_SESSION
    assert sent(it.accept("a", session), Weights, "a")


def test_having_proposed_is_consent_even_below_the_own_threshold() -> None:
    policy = {"kappa": 1, "gamma": 0.0, "epsilon": 1.0}
    low = Memory(last_round=1, beliefs={"a": Belief(1, 9, 8)})
    it = OneCenter(contract(policy), roster="am", memory=low)
    it.meet("a")
    it.train()
    assert own_session(it, "a"), "an exploratory proposal skips the own test"
    assert sent(it.propose("a"), Accept, "a")


def test_an_exploratory_proposal_does_not_skip_the_acceptors_test() -> None:
    policy = {"kappa": 1, "gamma": 0.0}
    low = Memory(last_round=1, beliefs={"a": Belief(1, 9, 8)})
    it = OneCenter(contract(policy), roster="am", memory=low)
    it.meet("a")
    it.train()
    assert not it.sent(Propose)
    assert only_reason(it, "a", round_number=2) is Reject.BELIEF


def test_one_session_per_pair_and_round_even_after_it_failed() -> None:
    it = ready({"kappa": 2}, roster="am")
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    (accept,) = sent(it.propose("a", 1), Accept, "a")
    it.weights("a", accept.session, payload=b"short")
    assert only_reason(it, "a", 2) is Reject.ALREADY_PARTNERS


def test_after_the_merge_began_a_session_counts_in_the_next_round() -> None:
    it = ready({"kappa": 1, "rounds": 2}, roster="am")
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    it.wait(0.6)
    assert it.node.phase is Phase.CREDITING
    (accept,) = sent(it.propose("a"), Accept, "a")
    assert accept.round == 2
    it.weights("a", accept.session)
    it.done("a", accept.session)
    it.merge()
    assert it.last(CommitRound).record.partners == []
    it.wait(0.5)
    it.train()
    it.merge()
    assert [p.peer for p in it.last(CommitRound).record.partners] == ["a"]


def test_in_the_last_round_there_is_no_next_one() -> None:
    it = ready({"kappa": 1, "rounds": 1}, roster="am")
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    it.wait(0.6)
    assert only_reason(it, "a") is Reject.FINISHED


def test_what_counted_in_a_round_that_never_comes_is_discarded_and_said_so() -> None:
    it = ready({"kappa": 1, "rounds": 9, "patience": 1}, roster="am")
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    it.wait(0.6)
    it.merge(value=0.7)
    it.wait(0.5)
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    it.wait(0.6)
    (accept,) = sent(it.propose("a"), Accept, "a")
    it.weights("a", accept.session)
    it.done("a", accept.session)
    effects = it.merge(value=0.6)
    assert it.last(CommitRound).finished
    (settle,) = sent(effects, Settle, "a")
    assert settle.merged == ((accept.session, False),)
    row = next(r for r in it.last(CommitRound).sessions if r.session == accept.session)
    assert row.state == "sent-only" and not row.merged
    assert sent(effects, Goodbye, "a")


@pytest.mark.parametrize(
    "session",
    [
        SessionId("a", 2, "m", 1, 1),
        SessionId("a", 1, "m", 7, 1),
        SessionId("m", 1, "a", 1, 99),
    ],
    ids=["other incarnation of theirs", "other incarnation of ours", "not theirs to propose"],
)
def test_stale_sessions_are_rejected(session: SessionId) -> None:
    it = ready(roster="am")
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    (answer,) = sent(it.hear("a", Propose(1, session, 1)), Rejected, "a")
    assert answer.reason is Reject.STALE_SESSION


def test_a_session_number_is_good_once() -> None:
    it = ready({"kappa": 1}, roster="am")
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    (accept,) = sent(it.propose("a", 5), Accept, "a")
    assert sent(it.propose("a", 5), Accept, "a"), "a duplicate is answered again"
    it.hear("a", Withdraw(1, accept.session))
    it.wait(1.0)
    it.merge()
    it.wait(1.0)
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    assert only_reason(it, "a", 5) is Reject.STALE_SESSION
    assert only_reason(it, "a", 4) is Reject.STALE_SESSION


def test_a_session_between_others_is_misbehavior() -> None:
    it = ready()
    it.train()
    it.hear("a", Propose(1, SessionId("z", 1, "m", 1, 1), 1))
    assert it.notes("misbehavior")[0].data["reason"] == "foreign-session"
    assert not it.sent(Accept)


def test_records_of_received_proposals_are_bounded() -> None:
    it = ready({"kappa": 1}, roster="am", messages_per_s=1e6)
    for number in range(1, 700):
        it.propose("a", number)
    it.train()
    it.hear("a", Rejected(1, own_session(it, "a"), Reject.BUSY))
    it.wait(0.6)
    it.merge()
    record = it.last(CommitRound).record
    assert len(record.proposals_received) == 512
    assert record.proposals_unrecorded == 699 - 512


def test_a_silent_peer_costs_a_third_of_the_budget_then_the_next_is_asked() -> None:
    it = ready({"kappa": 1}, roster="abm")
    it.train()
    first = it.sent(Propose)[0].session.acceptor
    it.wait(0.6)
    assert [p.session.acceptor for p in it.sent(Propose)] == [first, "b" if first == "a" else "a"]


def test_a_late_accept_is_withdrawn() -> None:
    it = ready({"kappa": 1}, roster="am")
    it.train()
    mine = own_session(it, "a")
    it.wait(0.6)
    assert sent(it.accept("a", mine), Withdraw, "a")


def test_accept_and_stall_backs_off_twice_as_long_each_time() -> None:
    it = ready({"kappa": 1, "rounds": 12}, roster="am")
    asked: list[int] = []
    for _ in range(11):
        before = len(it.sent(Propose))
        effects = it.train()
        if len(it.sent(Propose)) > before:
            asked.append(it.node.center.round.number)
            it.accept("a", own_session(it, "a"))
            it.wait(1.0)
            it.hear("a", it.hello("a"))
        effects = it.wait(4.0)
        assert it.node.phase is Phase.CREDITING, effects
        it.merge()
        it.wait(0.6)
    assert asked == [1, 3, 6, 11]
    assert it.notes("exchange-timeout")


def test_saved_rows_speak_of_this_session_only() -> None:
    it = ready({"kappa": 1}, roster="am")
    it.train()
    it.accept("a", own_session(it, "a"))
    rows = it.last(SaveSessions).rows
    assert [(row.state, row.settled, row.merged) for row in rows] == [("sent", False, False)]
