"""The session state table: every pair is either in it, or raises and changes nothing."""

from __future__ import annotations

import itertools

import pytest

from protocol.errors import IllegalTransition
from protocol.ledger import Session
from protocol.messages import SessionId
from protocol.session import (
    EXCHANGING,
    MERGEABLE,
    OPEN,
    OUTCOMES,
    TRANSITIONS,
    Input,
    State,
    is_allowed,
    transition,
)

PAIRS = list(itertools.product(State, Input))


def session(state: State) -> Session:
    return Session(SessionId("a", 1, "b", 1, 1), "b", 1, 0.0, 1.0, state=state)


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=lambda value: str(value))
def test_every_pair_is_in_the_table_or_raises_and_changes_nothing(
    state: State, event: Input
) -> None:
    it = session(state)
    if (state, event) in TRANSITIONS:
        it.apply(event)
        assert it.state is TRANSITIONS[state, event]
        assert is_allowed(state, event)
        return
    assert not is_allowed(state, event)
    before = dict(vars(it))
    with pytest.raises(IllegalTransition, match=rf"session is {state}: found {event}, allowed: "):
        it.apply(event)
    assert vars(it) == before


def test_every_open_state_can_be_given_up_so_no_round_waits_for_ever() -> None:
    for state in OPEN:
        assert transition(state, Input.GIVE_UP) not in OPEN


def test_every_state_is_reachable_from_new() -> None:
    reached, frontier = {State.NEW}, {State.NEW}
    while frontier:
        frontier = {to for (state, _), to in TRANSITIONS.items() if state in frontier} - reached
        reached |= frontier
    assert reached == set(State)


def test_settling_an_outcome_twice_changes_nothing_more() -> None:
    for state in OUTCOMES:
        for event in (Input.SETTLED_YES, Input.SETTLED_NO):
            once = transition(state, event)
            assert transition(once, event) is once


def test_final_words_make_both_sides_agree() -> None:
    """Whatever the two sides believed, the two final words lead to a pair that agrees."""
    agreeing = {
        (State.COMPLETE, State.COMPLETE),
        (State.RECEIVED_ONLY, State.SENT_ONLY),
        (State.SENT_ONLY, State.RECEIVED_ONLY),
        (State.ABORTED, State.ABORTED),
    }
    for mine, theirs in itertools.product(OUTCOMES, repeat=2):
        my_word = Input.SETTLED_YES if theirs in MERGEABLE else Input.SETTLED_NO
        their_word = Input.SETTLED_YES if mine in MERGEABLE else Input.SETTLED_NO
        assert (transition(mine, my_word), transition(theirs, their_word)) in agreeing


def test_only_exchanges_hold_slots() -> None:
    for state in State:
        assert session(state).holds_slot == (state in EXCHANGING or state in MERGEABLE)
