"""Hello, refusal, incarnations, suspicion, goodbye."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.center import Memory, Phase
from protocol.effects import Note
from protocol.events import Flooded, Misbehaved, Reachable, Started, StopRequested, Undeliverable
from protocol.messages import (
    CardMessage,
    Goodbye,
    Hello,
    Ping,
    Pong,
    Refuse,
    RefuseReason,
    Rejected,
    Withdraw,
)
from protocol.peers import NOTES_BURST, PeerStatus
from tests.support.federations import contract
from tests.support.one_center import OneCenter, sent


def status(it: OneCenter, peer: str) -> PeerStatus:
    return it.node.center.peers[peer].status


@pytest.mark.parametrize(
    ("changes", "reason", "named"),
    [
        ({"contract": "f" * 64}, RefuseReason.CONTRACT, "contract hash of a: ffffffffffff"),
        ({"initial_trunk": "e" * 64}, RefuseReason.INITIAL_TRUNK, "initial trunk of a: eeeeee"),
        ({"protocol_version": 2}, RefuseReason.PROTOCOL_VERSION, "found 2, allowed: 1"),
        ({"center": "z"}, RefuseReason.FOREIGN_ID, "key of a introduced itself as z"),
        (
            {"card": CardMessage(1, (0.1, 5.0, 1.0))},
            RefuseReason.CONTRACT,
            "found 3 numbers, allowed: 2",
        ),
    ],
)
def test_disagreement_is_a_named_refusal_on_both_sides(
    changes: dict[str, Any], reason: RefuseReason, named: str
) -> None:
    it = OneCenter(contract())
    it.feed(Started())
    effects = it.hear("a", it.hello("a", reply=False, **changes))
    (refusal,) = sent(effects, Refuse, "a")
    assert refusal.reason is reason and named in refusal.detail
    assert status(it, "a") is PeerStatus.REFUSED
    assert named in it.notes("peer-refused")[0].text

    other = OneCenter(contract())
    other.feed(Started())
    other.hear("a", refusal)
    assert status(other, "a") is PeerStatus.REFUSED
    assert named in other.notes("refused-by-peer")[0].text


def test_all_refused_ends_with_its_own_reason() -> None:
    it = OneCenter(contract(min_peers=1, start_wait_s=3.0))
    it.feed(Started())
    it.hear("a", it.hello("a", contract="f" * 64))
    assert it.exit is None
    it.wait(3.5)
    assert it.exit is not None and it.exit.why == "refused"


def test_a_hello_is_answered_once_and_a_reply_never() -> None:
    it = OneCenter(contract(min_peers=2))
    it.feed(Started())
    assert len(sent(it.hear("a", it.hello("a", reply=False)), Hello, "a")) == 1
    assert not sent(it.hear("a", it.hello("a", reply=True)), Hello)


def test_unmet_peers_are_greeted_with_growing_pauses() -> None:
    it = OneCenter(contract(min_peers=2))
    it.feed(Started())
    it.feed(Reachable("a"))
    it.wait(60)
    greetings = it.sent(Hello, "a")
    assert 4 <= len(greetings) <= 9
    assert not it.sent(Hello, "z"), "discovery knows no address of z"


def test_nothing_is_done_for_a_peer_that_did_not_introduce_itself() -> None:
    it = OneCenter(contract(min_peers=2))
    it.feed(Started())
    effects = it.propose("a")
    assert not sent(effects, Rejected)
    assert len(sent(effects, Hello, "a")) == 1


def test_a_message_of_a_newer_incarnation_asks_for_an_introduction() -> None:
    it = OneCenter(contract())
    it.meet("a")
    it.now += 2
    effects = it.hear("a", Ping(2))
    assert not sent(effects, Pong) and sent(effects, Hello, "a")
    it.incarnations["a"] = 2
    it.hear("a", it.hello("a", card=CardMessage(2, (0.2, 5.0))))
    assert sent(it.hear("a", Ping(2)), Pong, "a")
    assert it.notes("peer-restarted")


def test_an_older_incarnation_is_refused() -> None:
    it = OneCenter(contract())
    it.incarnations["a"] = 3
    it.meet("a")
    for message in (Ping(2), it.hello("a", incarnation=2)):
        (refusal,) = sent(it.hear("a", message), Refuse, "a")
        assert refusal.reason is RefuseReason.SUPERSEDED and refusal.known_incarnation == 3


def test_a_superseded_copy_ends_when_most_peers_say_so() -> None:
    it = OneCenter(contract(), roster="abcm")
    it.meet("a", "b", "c")
    claim = Refuse(1, RefuseReason.SUPERSEDED, "seen", 2)
    it.hear("a", claim)
    it.hear("a", claim)
    assert it.exit is None, "one peer, however often, is not enough"
    it.hear("b", claim)
    assert it.exit is not None and it.exit.why == "superseded"
    assert it.node.phase is Phase.STOPPED


@pytest.mark.parametrize("met", ["", "a"])
def test_one_peer_ends_no_copy_that_has_met_nobody_else_yet(met: str) -> None:
    it = OneCenter(contract(min_peers=2), roster="abcm")
    it.meet(*met)
    it.hear("a", Refuse(1, RefuseReason.SUPERSEDED, "seen", 2))
    assert it.exit is None and it.notes("superseded-claim")
    it.hear("b", Refuse(1, RefuseReason.SUPERSEDED, "seen", 2))
    assert it.exit is not None and it.exit.why == "superseded"


def test_the_only_other_member_is_believed() -> None:
    it = OneCenter(contract(), roster="am")
    it.meet("a")
    it.hear("a", Refuse(1, RefuseReason.SUPERSEDED, "seen", 2))
    assert it.exit is not None and it.exit.why == "superseded"


def test_a_claim_about_an_older_incarnation_is_no_claim() -> None:
    it = OneCenter(contract(), incarnation=5)
    it.meet("a")
    it.hear("a", Refuse(1, RefuseReason.SUPERSEDED, "seen", 5))
    it.hear("a", Refuse(1, RefuseReason.SUPERSEDED, "seen", 4))
    assert it.exit is None and not it.notes("superseded-claim")


def test_a_card_is_fixed_until_its_sequence_rises() -> None:
    it = OneCenter(contract())
    it.meet("a")
    it.hear("a", it.hello("a", card=CardMessage(1, (0.9, 5.0))))
    assert it.node.center.peers["a"].card == (0.2, 5.0)
    assert it.notes("card-changed")
    it.hear("a", it.hello("a", card=CardMessage(2, (0.9, 5.0))))
    assert it.node.center.peers["a"].card == (0.9, 5.0)
    assert it.notes("card-renewed")
    it.hear("a", it.hello("a", card=CardMessage(1, (0.2, 5.0))))
    assert it.node.center.peers["a"].card == (0.9, 5.0)


def test_a_card_changes_once_a_round() -> None:
    it = OneCenter(contract())
    it.meet("a")
    it.meet("z")
    for sequence in range(2, 50):
        it.hear("a", it.hello("a", card=CardMessage(sequence, (sequence / 100, 5.0))))
    peer = it.node.center.peers["a"]
    assert (peer.card, peer.card_sequence) == ((0.02, 5.0), 2)
    assert len(it.notes("card-renewed")) == 1
    number = it.node.center.round.number
    assert f"more than once in round {number};" in it.notes("card-changed")[0].text
    it.train()
    it.wait(5.0)
    it.merge()
    it.wait(2.0)
    assert it.node.center.round.number == number + 1
    it.hear("a", it.hello("a", card=CardMessage(50, (0.5, 5.0))))
    assert (peer.card, peer.card_sequence) == ((0.5, 5.0), 50)
    it.hear("a", it.hello("a", card=CardMessage(60, (0.5, 5.0))))
    assert peer.card_sequence == 60, "the same card with a new number is no change"


def test_silence_makes_suspect_and_any_message_clears_it() -> None:
    it = OneCenter(contract(min_peers=1))
    it.meet("a")
    it.train()
    it.wait(1.0)
    assert status(it, "a") is PeerStatus.SUSPECT
    assert it.sent(Withdraw, "a"), "a late accept must not hold a slot over there"
    it.wait(3.0)
    assert it.sent(Ping, "a")
    it.hear("a", Pong(1))
    assert status(it, "a") is PeerStatus.MET and it.notes("peer-returned")


def test_an_undeliverable_message_makes_suspect_at_once() -> None:
    it = OneCenter(contract())
    it.meet("a", "z")
    it.train()
    it.feed(Undeliverable("a", "no-route"))
    assert status(it, "a") is PeerStatus.SUSPECT


def test_a_center_that_lagged_blames_itself_first() -> None:
    it = OneCenter(contract(min_peers=1))
    it.meet("a")
    it.train()
    it.now += 20.0
    it.wait(0.1)
    assert status(it, "a") is PeerStatus.MET, "twenty seconds frozen are not the peer's silence"
    assert it.node.center.clock.lag == pytest.approx(20.0, abs=0.2)
    it.wait(1.0)
    assert status(it, "a") is PeerStatus.SUSPECT


def test_goodbye_of_a_leaving_and_of_a_finished_peer() -> None:
    it = OneCenter(contract())
    it.meet("a", "z")
    it.hear("a", Goodbye(1, finished=False, settled=True))
    it.hear("z", Goodbye(1, finished=True, settled=True))
    assert status(it, "a") is PeerStatus.AWAY
    assert status(it, "z") is PeerStatus.FINISHED
    it.incarnations["a"] = 2
    it.hear("a", it.hello("a"))
    assert status(it, "a") is PeerStatus.MET


def test_stop_says_goodbye_and_ends() -> None:
    it = OneCenter(contract(min_peers=2))
    it.meet("a", "z")
    it.feed(StopRequested("SIGTERM"))
    assert [g.finished for g in it.sent(Goodbye)] == [False, False]
    assert it.exit is not None and it.exit.why == "stopped"
    assert it.hear("a", Ping(1)) == [], "after the end nothing is said any more"


def test_a_finished_center_restarts_into_lingering() -> None:
    it = OneCenter(contract(), memory=Memory(last_round=5, finished=True), incarnation=2)
    it.meet("a", "z")
    assert it.node.phase is Phase.LINGERING
    assert all(hello.finished for hello in it.sent(Hello))
    for peer in "az":
        it.hear(peer, Goodbye(1, finished=True, settled=True))
    it.wait(3.0)
    assert it.exit is not None and it.exit.why == "finished"


def test_lingering_is_bounded_by_the_time_peers_are_unseen() -> None:
    it = OneCenter(contract(linger_s=5.0), memory=Memory(last_round=5, finished=True))
    it.meet("a")
    it.wait(4.5)
    assert it.exit is None
    it.wait(2.0)
    assert it.exit is not None and it.exit.why == "finished"


def test_a_flood_is_cut_to_the_rate_and_noted_rarely() -> None:
    it = OneCenter(contract(messages_per_s=10.0))
    it.meet("a")
    answers = [bool(sent(it.hear("a", Ping(1)), Pong)) for _ in range(500)]
    assert 15 <= sum(answers) <= 20
    assert 1 <= len(it.notes("rate-limited")) <= 6


def test_bytes_that_were_no_message_are_noted() -> None:
    it = OneCenter(contract())
    it.meet("a")
    it.feed(Misbehaved("a", "multipart", "2 parts"))
    it.feed(Misbehaved("", "stranger", "unknown key"))
    assert [note.peer for note in it.notes("misbehavior")] == ["a", ""]


def test_another_protocol_version_is_refused_by_name() -> None:
    it = OneCenter(contract())
    it.feed(Started())
    effects = it.feed(Misbehaved("a", "protocol-version", "found 2, allowed: 1"))
    (refusal,) = sent(effects, Refuse, "a")
    assert refusal.reason is RefuseReason.PROTOCOL_VERSION
    assert status(it, "a") is PeerStatus.REFUSED


def test_somebody_off_the_roster_is_noted_and_ignored() -> None:
    it = OneCenter(contract(), roster="am")
    it.feed(Started())
    it.hear("x", Ping(1))
    assert it.notes("unknown-peer") and not it.sent(Pong)


def test_no_peer_can_fill_the_log() -> None:
    it = OneCenter(contract())
    it.meet("a", "z")
    for _ in range(1000):
        it.feed(Misbehaved("a", "bad-magic", "found b'x'"))
        it.hear("a", Goodbye(1, False, False))
        it.hear("a", it.hello("a"))
    assert len(it.notes("misbehavior")) + len(it.notes("peer-left")) <= NOTES_BURST
    it.hear("z", Goodbye(1, False, False))
    assert [note.peer for note in it.notes("peer-left")][-1] == "z", "others are still heard of"
    it.wait(2.0)
    it.feed(Misbehaved("a", "bad-magic", "found b'x'"))
    assert it.last(Note).data["held_back_before"] > 900


def test_frames_over_the_rate_are_not_worth_reading_junk_included() -> None:
    it = OneCenter(contract(messages_per_s=10.0))
    it.meet("a")
    junk = 0
    while it.node.has_room("a", it.now):
        it.feed(Misbehaved("a", "bad-magic", "found junk"))
        junk += 1
        assert junk <= 20
    it.feed(Flooded("a"))
    assert it.notes("rate-limited")
    it.wait(0.2)
    assert it.node.has_room("a", it.now) and it.node.has_room("nobody", it.now)
