"""When the next tick is wanted: just when something expires or opens, else now and then."""

from __future__ import annotations

import pytest

from protocol.agenda import CALM_TICK_S, LEAST_TICK_S
from protocol.center import Phase
from protocol.events import Tick
from protocol.messages import Propose
from protocol.timing import MAX_GAP_S
from tests.support.federations import contract
from tests.support.one_center import OneCenter


def gathering(**pacing: object) -> OneCenter:
    """In round 1, having proposed to «a», who does not answer."""
    it = OneCenter(contract({"kappa": 1}, **pacing), roster="am")
    it.meet("a")
    it.train()
    assert it.sent(Propose, "a")
    return it


def test_with_nothing_due_ticks_are_calm_but_never_look_like_a_stall() -> None:
    it = OneCenter(contract(start_wait_s=60.0, min_peers=5), roster="am")
    it.meet("a")
    it.wait(5.0)
    assert it.node.next_tick() == pytest.approx(CALM_TICK_S, abs=0.26)
    assert 2 * CALM_TICK_S <= MAX_GAP_S


def test_a_proposal_expires_at_the_tick_that_was_asked_for() -> None:
    it = gathering(negotiation_s=0.6, round_min_s=0.0)
    asked = it.now
    while it.node.center.ledger.outstanding(1):
        step = it.node.next_tick()
        assert LEAST_TICK_S <= step <= CALM_TICK_S
        it.now += step
        it.feed(Tick())
        assert it.now - asked < 1.0
    assert it.now - asked == pytest.approx(0.2, abs=2 * LEAST_TICK_S)


def test_the_next_round_begins_as_soon_as_this_one_is_old_enough() -> None:
    it = OneCenter(contract({"kappa": 1}, round_min_s=1.0, min_peers=0), roster="am")
    it.feed(Tick())
    it.meet()
    it.train()
    begin = it.node.center.round.started
    while it.node.center.round.number == 1:
        if it.node.phase is Phase.CREDITING:
            it.merge()
        it.now += it.node.next_tick()
        it.feed(Tick())
        assert it.now - begin < 3.0
    assert it.node.center.round.started - begin == pytest.approx(1.0, abs=2 * LEAST_TICK_S)


def test_what_is_overdue_does_not_spin() -> None:
    """The least time of the round is over, and the door stays open for other reasons."""
    it = gathering(negotiation_s=30.0, round_min_s=0.1)
    it.wait(1.0)
    assert it.node.next_tick() > 0.1
