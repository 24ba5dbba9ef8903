"""The session state table: how one proposal between two centers lives and ends.

Two rules.

1. Everything that decides a transition of one session stands in this file.
2. This file does not know its role: the same table serves proposer and acceptor.

Theory of operation. A proposal opens a session. The proposer is ``proposed`` until it hears an
answer; the acceptor is ``accepted`` from the moment it has promised a slot. The proposer's trunk
confirms the acceptance, the acceptor's trunk answers it, and each side acknowledges what it
verified. Two facts decide the outcome on each side: *did their trunk reach me and pass its checks*
and *did mine reach them*:

=================  =============  ===============
outcome            theirs is here  mine is there
=================  =============  ===============
``complete``       yes            yes
``received-only``  yes            no, or unknown
``sent-only``      no             yes
``aborted``        no             no, or unknown
=================  =============  ===============

The first two are merged and earn credit. Over a lossy network nobody can know for certain that the
last message arrived, so an acknowledgment is only evidence. The final word on «mine is there» is
the peer's ``settle``, said after its round is committed: it may raise or lower the outcome once
more. Then the session is settled and both ledgers agree: complete with complete, received-only
with sent-only, aborted with aborted.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import Final

from protocol.errors import IllegalTransition


class State(StrEnum):
    """Where a session stands, on one side."""

    NEW = "new"
    PROPOSED = "proposed"
    ACCEPTED = "accepted"
    SENT = "sent"
    RECEIVED = "received"
    ACKNOWLEDGED = "acknowledged"
    COMPLETE = "complete"
    RECEIVED_ONLY = "received-only"
    SENT_ONLY = "sent-only"
    ABORTED = "aborted"
    REJECTED = "rejected"
    WITHDRAWN = "withdrawn"
    CROSSED = "crossed"


class Input(StrEnum):
    """What can happen to a session."""

    PROPOSE = "propose"
    """I proposed."""
    ACCEPT = "accept"
    """I accepted their proposal."""
    ACCEPTED = "accepted"
    """They accepted mine, and my trunk goes out."""
    REJECTED = "rejected"
    """They rejected mine."""
    WITHDRAW = "withdraw"
    """I withdrew mine."""
    WITHDRAWN = "withdrawn"
    """They withdrew theirs."""
    CROSS = "cross"
    """My proposal yields to theirs, which crossed it."""
    TRUNK = "trunk"
    """Their trunk came and passed its checks."""
    BAD_TRUNK = "bad-trunk"
    """Their trunk came and was refused."""
    ACK = "ack"
    """They verified mine."""
    NACK = "nack"
    """They refused mine, or it came too late."""
    GIVE_UP = "give-up"
    """The time is over, the peer is gone, or this side restarted."""
    DISCARD = "discard"
    """Their trunk is here but will never be merged: the center finished first."""
    SETTLED_YES = "settled-yes"
    """Final word: mine entered their committed round."""
    SETTLED_NO = "settled-no"
    """Final word: it did not."""


_S, _I = State, Input

TRANSITIONS: Final = MappingProxyType(
    {
        (_S.NEW, _I.PROPOSE): _S.PROPOSED,
        (_S.NEW, _I.ACCEPT): _S.ACCEPTED,
        (_S.PROPOSED, _I.ACCEPTED): _S.SENT,
        (_S.PROPOSED, _I.REJECTED): _S.REJECTED,
        (_S.PROPOSED, _I.WITHDRAW): _S.WITHDRAWN,
        (_S.PROPOSED, _I.CROSS): _S.CROSSED,
        (_S.PROPOSED, _I.GIVE_UP): _S.ABORTED,
        (_S.ACCEPTED, _I.TRUNK): _S.RECEIVED,
        (_S.ACCEPTED, _I.BAD_TRUNK): _S.ABORTED,
        (_S.ACCEPTED, _I.WITHDRAWN): _S.WITHDRAWN,
        (_S.ACCEPTED, _I.GIVE_UP): _S.ABORTED,
        (_S.SENT, _I.TRUNK): _S.RECEIVED,
        (_S.SENT, _I.BAD_TRUNK): _S.ABORTED,
        (_S.SENT, _I.ACK): _S.ACKNOWLEDGED,
        (_S.SENT, _I.NACK): _S.ABORTED,
        (_S.SENT, _I.GIVE_UP): _S.ABORTED,
        (_S.RECEIVED, _I.ACK): _S.COMPLETE,
        (_S.RECEIVED, _I.NACK): _S.RECEIVED_ONLY,
        (_S.RECEIVED, _I.GIVE_UP): _S.RECEIVED_ONLY,
        (_S.ACKNOWLEDGED, _I.TRUNK): _S.COMPLETE,
        (_S.ACKNOWLEDGED, _I.BAD_TRUNK): _S.SENT_ONLY,
        (_S.ACKNOWLEDGED, _I.GIVE_UP): _S.SENT_ONLY,
        (_S.COMPLETE, _I.DISCARD): _S.SENT_ONLY,
        (_S.RECEIVED_ONLY, _I.DISCARD): _S.ABORTED,
        (_S.COMPLETE, _I.SETTLED_YES): _S.COMPLETE,
        (_S.COMPLETE, _I.SETTLED_NO): _S.RECEIVED_ONLY,
        (_S.RECEIVED_ONLY, _I.SETTLED_YES): _S.COMPLETE,
        (_S.RECEIVED_ONLY, _I.SETTLED_NO): _S.RECEIVED_ONLY,
        (_S.SENT_ONLY, _I.SETTLED_YES): _S.SENT_ONLY,
        (_S.SENT_ONLY, _I.SETTLED_NO): _S.ABORTED,
        (_S.ABORTED, _I.SETTLED_YES): _S.SENT_ONLY,
        (_S.ABORTED, _I.SETTLED_NO): _S.ABORTED,
    }
)
"""The whole truth. ``docs/protocol.md`` draws its diagram from here."""

OPEN: Final = frozenset({_S.PROPOSED, _S.ACCEPTED, _S.SENT, _S.RECEIVED, _S.ACKNOWLEDGED})
"""States that still wait for something within this round."""

EXCHANGING: Final = frozenset({_S.ACCEPTED, _S.SENT, _S.RECEIVED, _S.ACKNOWLEDGED})
"""Open states that hold a slot."""

MERGEABLE: Final = frozenset({_S.COMPLETE, _S.RECEIVED_ONLY})
"""Outcomes whose trunk is merged and earns credit."""

VOID: Final = frozenset({_S.REJECTED, _S.WITHDRAWN, _S.CROSSED})
"""Final states in which nothing was or will be exchanged."""

OUTCOMES: Final = frozenset({_S.COMPLETE, _S.RECEIVED_ONLY, _S.SENT_ONLY, _S.ABORTED})
"""The four outcomes of a session in which an exchange was promised."""


def transition(state: State, event: Input) -> State:
    """The next state; raises ``IllegalTransition`` for a pair that is not in the table."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        allowed = ", ".join(e for s, e in TRANSITIONS if s == state) or "nothing, it is final"
        raise IllegalTransition(f"session is {state}: found {event}, allowed: {allowed}") from None


def is_allowed(state: State, event: Input) -> bool:
    """Whether the table has this pair; for messages that may come late or twice."""
    return (state, event) in TRANSITIONS
