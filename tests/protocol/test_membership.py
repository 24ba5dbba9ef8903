"""Members revoked, admitted, leaving: what becomes of sessions, trunks, words and waiting."""

from __future__ import annotations

from protocol.effects import CommitRound, Exit, Merge, Send
from protocol.events import MemberAdded, MemberRevoked, StopRequested
from protocol.messages import Goodbye, Propose, Settle
from protocol.session import State
from tests.support.federations import contract
from tests.support.one_center import OneCenter, sent


def with_a_trunk_of_a() -> OneCenter:
    """Round 1 gathers; «a» has proposed, was accepted, and its trunk is here."""
    center = OneCenter(contract({"kappa": 2}, round_min_s=5.0))
    center.meet("a", "z")
    center.train()
    proposed = {m.session.acceptor for m in center.sent(Propose)}
    assert proposed == {"a", "z"}
    session = next(m.session for m in center.sent(Propose, "a"))
    center.accept("a", session)
    center.weights("a", session)
    center.done("a", session)
    return center


def test_a_trunk_that_came_before_the_revocation_is_not_merged() -> None:
    center = with_a_trunk_of_a()
    center.feed(MemberRevoked("a"))
    effects = center.wait(6.0)
    merge = next(e for e in effects if isinstance(e, Merge))
    assert merge.trunks == {} and merge.weights == {}
    center.merge()
    commit = center.last(CommitRound)
    assert commit.record.partners == [] and commit.credits == ()
    (failed,) = [p for p in commit.record.failed if p.peer == "a"]
    assert failed.outcome == State.SENT_ONLY
    assert center.node.center.peers["a"].status == "revoked"


def test_nothing_is_said_to_it_or_heard_of_it_any_more() -> None:
    center = with_a_trunk_of_a()
    center.feed(MemberRevoked("a"))
    effects = center.wait(6.0) + center.merge() + center.hear("a", center.hello("a"))
    effects += center.propose("a", 9) + center.wait(3.0)
    assert not [e for e in effects if isinstance(e, Send) and e.peer == "a"]
    assert center.notes("member-revoked")


def test_a_merge_under_way_is_finished_and_the_event_says_so() -> None:
    center = with_a_trunk_of_a()
    center.wait(6.0)
    assert set(center.last(Merge).trunks) == {"a"}
    center.feed(MemberRevoked("a"))
    assert "merge of round 1 with its trunk was under way" in center.notes("member-revoked")[0].text
    center.merge()
    assert [p.peer for p in center.last(CommitRound).record.partners] == ["a"]


def test_admitted_again_it_is_met_and_asked_again() -> None:
    center = with_a_trunk_of_a()
    center.feed(MemberRevoked("a"))
    center.feed(MemberAdded("a"))
    assert center.node.center.peers["a"].status == "unmet"
    center.hear("a", center.hello("a"))
    assert center.node.center.peers["a"].status == "met"
    center.feed(MemberAdded("a"))
    assert len(center.notes("member-added")) == 1


def test_whoever_leaves_gives_its_final_words_and_is_not_waited_for() -> None:
    center = with_a_trunk_of_a()
    effects = center.feed(StopRequested("asked to", leave=True))
    (settle,) = sent(effects, Settle, "a")
    assert [word for _, word in settle.merged] == [False]
    for peer in "az":
        (goodbye,) = sent(effects, Goodbye, peer)
        assert goodbye.left and not goodbye.finished
    assert [e.why for e in effects if isinstance(e, Exit)] == ["left"]


def test_a_center_that_has_finished_does_not_wait_for_one_that_left() -> None:
    center = OneCenter(contract({"rounds": 1}, round_min_s=0.0, negotiation_s=0.5, linger_s=600.0))
    center.meet("a", "z")
    center.train()
    center.wait(2.0)
    center.merge()
    center.hear("a", Goodbye(1, finished=True, settled=True))
    center.wait(5.0)
    assert center.exit is None
    center.hear("z", Goodbye(1, finished=False, settled=True, left=True))
    assert center.node.center.peers["z"].status == "left"
    assert center.notes("member-left")
    center.wait(5.0)
    assert center.exit is not None and center.exit.why == "finished"


def test_a_newcomer_may_take_its_first_partners_trunk_in_the_place_of_its_own() -> None:
    center = OneCenter(contract({"kappa": 2}, round_min_s=5.0), join_from="partner")
    center.meet("a", "z")
    center.train()
    for number, adopted in ((1, True), (2, False)):
        session = center.sent(Propose, "a")[-1].session
        center.accept("a", session)
        center.weights("a", session)
        center.done("a", session)
        center.wait(6.0)
        weights = center.last(Merge).weights
        assert weights == ({"a": 1.0} if adopted else {"a": 0.5})
        assert len(center.notes("trunk-adopted")) == 1
        center.merge()
        assert center.last(CommitRound).record.round == number
        center.wait(0.2)
        center.train()


def test_one_that_left_may_return() -> None:
    center = OneCenter(contract())
    center.meet("a", "z")
    center.hear("a", Goodbye(1, finished=False, settled=True, left=True))
    center.incarnations["a"] = 2
    center.hear("a", center.hello("a"))
    assert center.node.center.peers["a"].status == "met"
