"""Trunks that were here before: echoed, or sold twice."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.effects import CommitRound
from protocol.errors import TrunkError
from protocol.messages import Accept, Done, Propose, Reject, Rejected, SessionId, Weights
from protocol.provenance import OWN_TRUNKS, PEER_TRUNKS, Provenance
from tests.support.federations import contract
from tests.support.one_center import OneCenter, sent


def refusal(seen: Provenance, peer: str, payload: bytes, number: int) -> str | None:
    try:
        seen.check(peer, payload, number)
    except TrunkError as error:
        return error.reason
    return None


def test_own_trunks_are_known_for_long() -> None:
    seen = Provenance()
    for number in range(OWN_TRUNKS):
        seen.made(b"own %d" % number)
    assert {refusal(seen, "a", b"own %d" % number, 1) for number in range(OWN_TRUNKS)} == {
        "trunk-echo"
    }
    seen.made(b"one more")
    assert refusal(seen, "a", b"own 0", 1) is None, "the memory is bounded"


def test_the_same_trunk_for_the_same_round_is_honest() -> None:
    seen = Provenance()
    assert [refusal(seen, "a", b"x", 3) for _ in range(4)] == [None] * 4
    assert refusal(seen, "b", b"x", 4) is None, "who of two copied from whom is not known"


@pytest.mark.parametrize("number", [1, 2, 4, 1000])
def test_an_old_trunk_under_another_round_is_a_replay(number: int) -> None:
    seen = Provenance()
    assert refusal(seen, "a", b"x", 3) is None
    assert refusal(seen, "a", b"y", 4) is None
    assert refusal(seen, "a", b"x", number) == "trunk-replay"
    assert refusal(seen, "a", b"x", 3) is None, "a lie does not change what is remembered"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.binary(max_size=2), st.integers(1, 5))))
def test_memory_is_bounded_and_refusals_are_deserved(
    said: Iterable[tuple[str, bytes, int]],
) -> None:
    seen = Provenance()
    rounds: dict[tuple[str, bytes], int] = {}
    for peer, payload, number in said:
        reason = refusal(seen, peer, payload, number)
        if reason is None:
            rounds.setdefault((peer, payload), number)
        else:
            assert reason == "trunk-replay"
            assert rounds[peer, payload] != number
    assert all(len(each) <= PEER_TRUNKS for each in seen.theirs.values())


def test_a_thousand_trunks_of_a_peer_leave_the_newest() -> None:
    seen = Provenance()
    for number in range(1, 1001):
        assert refusal(seen, "a", b"%d" % number, number) is None
    assert len(seen.theirs["a"]) == PEER_TRUNKS
    assert refusal(seen, "a", b"1000", 1) == "trunk-replay"


def accepted(it: OneCenter, number: int) -> SessionId:
    """The center has accepted a proposal of «a»."""
    it.hear("a", Rejected(1, it.sent(Propose, "a")[-1].session, Reject.BUSY))
    (accept,) = sent(it.propose("a", number), Accept, "a")
    return accept.session


def punished(it: OneCenter) -> CommitRound:
    it.wait(4.0)
    it.merge(gain=0.02)
    commit = it.last(CommitRound)
    assert commit.record.partners == []
    assert commit.credits[0].phi is None and commit.credits[0].phi_bar == 0.0
    return commit


def test_the_own_trunk_echoed_earns_nothing_and_gets_nothing() -> None:
    it = OneCenter(contract({"kappa": 1}), roster="am")
    it.meet("a")
    it.train()
    own = it.node.center.own
    assert own is not None
    session = accepted(it, 1)
    effects = it.weights("a", session, payload=own.payload)
    assert sent(effects, Done, "a")[0].reason == "trunk-echo"
    assert not sent(effects, Weights)
    assert punished(it).beliefs["a"].beta == 2.0


def test_an_old_trunk_of_the_peer_is_refused_in_the_next_round() -> None:
    it = OneCenter(contract({"kappa": 1}), roster="am")
    it.meet("a")
    for number in (1, 2):
        it.train()
        session = accepted(it, number)
        effects = it.weights("a", session, trunk=np.full(4, 0.75, np.float32), round=number)
        done = sent(effects, Done, "a")[0]
        if number == 1:
            assert done.verified
            it.done("a", session)
            it.wait(4.0)
            it.merge(gain=0.02)
            it.wait(0.1)
    assert done.reason == "trunk-replay"
    assert it.notes("trunk-refused")[0].data["reason"] == "trunk-replay"
    punished(it)
