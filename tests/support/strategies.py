"""Hypothesis strategies for the vocabulary of ``protocol``: ids, sessions, messages, beliefs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from hypothesis import strategies as st

from protocol import messages as m
from protocol.beliefs import Belief
from protocol.trunk import BYTES_PER_PARAMETER

_ID_START = "abcdefghijklmnopqrstuvwxyz0123456789"

center_ids = st.builds(
    lambda first, rest: first + rest,
    st.sampled_from(_ID_START),
    st.text(_ID_START + "._-", max_size=62),
)
positive_ints = st.integers(1, m.MAX_INT)
natural_ints = st.integers(0, m.MAX_INT)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
texts = st.text(max_size=m.MAX_TEXT)
probabilities = st.floats(0, 1)

session_ids = st.builds(
    m.SessionId,
    proposer=center_ids,
    proposer_incarnation=positive_ints,
    acceptor=center_ids,
    acceptor_incarnation=positive_ints,
    number=positive_ints,
)

card_values = st.lists(st.floats(-1e6, 1e6, allow_nan=False), min_size=1, max_size=m.MAX_CARD).map(
    tuple
)
cards = st.builds(m.CardMessage, sequence=positive_ints, values=card_values)


_verdicts = st.lists(
    st.tuples(session_ids, st.booleans()), min_size=1, max_size=m.MAX_SESSIONS_PER_MESSAGE
).map(tuple)
_sessions = st.lists(session_ids, min_size=1, max_size=m.MAX_SESSIONS_PER_MESSAGE).map(tuple)

MESSAGES: dict[str, st.SearchStrategy[m.Message]] = {
    "hello": st.builds(
        m.Hello,
        incarnation=positive_ints,
        center=center_ids,
        protocol_version=st.integers(0, 2**31),
        contract=digests,
        initial_trunk=digests,
        card=cards,
        finished=st.booleans(),
        reply=st.booleans(),
    ),
    "refuse": st.builds(
        m.Refuse,
        incarnation=positive_ints,
        reason=st.sampled_from(m.RefuseReason),
        detail=st.text(max_size=500),
        known_incarnation=natural_ints,
    ),
    "propose": st.builds(
        m.Propose, incarnation=positive_ints, session=session_ids, round=positive_ints
    ),
    "accept": st.builds(
        m.Accept, incarnation=positive_ints, session=session_ids, round=positive_ints
    ),
    "reject": st.builds(
        m.Rejected,
        incarnation=positive_ints,
        session=session_ids,
        reason=st.sampled_from(m.Reject),
    ),
    "withdraw": st.builds(m.Withdraw, incarnation=positive_ints, session=session_ids),
    "weights": st.builds(
        m.Weights,
        incarnation=positive_ints,
        session=session_ids,
        round=positive_ints,
        staleness=natural_ints,
        size=positive_ints,
        dtype=st.sampled_from(sorted(BYTES_PER_PARAMETER)),
        layout=digests,
        payload=st.binary(max_size=512),
    ),
    "done": st.builds(
        m.Done,
        incarnation=positive_ints,
        session=session_ids,
        verified=st.booleans(),
        reason=texts,
    ),
    "settle": st.builds(m.Settle, incarnation=positive_ints, merged=_verdicts),
    "reconcile": st.builds(m.Reconcile, incarnation=positive_ints, sessions=_sessions),
    "ping": st.builds(m.Ping, incarnation=positive_ints),
    "pong": st.builds(m.Pong, incarnation=positive_ints),
    "goodbye": st.builds(
        m.Goodbye,
        incarnation=positive_ints,
        finished=st.booleans(),
        settled=st.booleans(),
        left=st.booleans(),
    ),
}
"""Message kind to a strategy for valid messages of it."""

messages = st.one_of(*MESSAGES.values())


@st.composite
def beliefs(draw: st.DrawFn, max_n: int = 50) -> Belief:
    """A posterior that some history of credits could have given."""
    n = draw(st.integers(0, max_n))
    earned = draw(st.floats(0, n))
    return Belief(1.0 + earned, 1.0 + (n - earned), n)


@st.composite
def games(
    draw: st.DrawFn, min_players: int = 0, max_players: int = 5
) -> tuple[tuple[str, ...], dict[frozenset[str], float]]:
    """Players and a utility in [0, 1] for each of their coalitions."""
    players = draw(st.lists(center_ids, unique=True, min_size=min_players, max_size=max_players))
    return tuple(players), {c: draw(probabilities) for c in all_coalitions(players)}


def all_coalitions(players: Sequence[str]) -> list[frozenset[str]]:
    """All 2^n subsets."""
    sizes = range(len(players) + 1)
    return [frozenset(c) for size in sizes for c in combinations(sorted(players), size)]
