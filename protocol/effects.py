"""What ``protocol.node`` wants done. The skin performs effects strictly in the order given.

That order is what makes «durable before said» true: a ``SaveSessions`` or ``CommitRound`` stands
before the ``Send`` that promises it, and the skin does not go on before the commit has returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from protocol.beliefs import Belief
from protocol.events import Coalition, ModelRef
from protocol.messages import Message, SessionId
from protocol.record import RoundRecord
from protocol.trunk import Vector


@dataclass(frozen=True)
class Effect:
    """Base of all effects."""


@dataclass(frozen=True)
class Send(Effect):
    """Hand a message to the connection with ``peer``, opening one if need be."""

    peer: str
    message: Message


@dataclass(frozen=True)
class SessionRow:
    """A session as the store keeps it."""

    session: SessionId
    peer: str
    round: int
    """The own round in which the session counts."""
    state: str
    """A state of ``protocol.session``; an open one is an intent."""
    settled: bool
    """Whether the peer's final word is known and the outcome can no longer change."""
    merged: bool
    """Whether the peer's trunk entered a committed round here."""


@dataclass(frozen=True)
class SaveSessions(Effect):
    """Commit these rows before any later effect (insert or replace by session id)."""

    rows: tuple[SessionRow, ...]


@dataclass(frozen=True)
class Train(Effect):
    """Run the local step of ``round`` off the event loop; answer with ``Trained``."""

    round: int


@dataclass(frozen=True)
class Merge(Effect):
    """Measure ``coalitions``, form the new trunk, make the model file durable; answer ``Merged``.

    U(S) is measured with the plain mean of {own} ∪ S under the same weights, before momentum.
    """

    round: int
    trunks: Mapping[str, Vector]
    weights: Mapping[str, float]
    """Peer to merge weight; the own weight is what is missing to 1."""
    coalitions: tuple[Coalition, ...]


@dataclass(frozen=True)
class Credit:
    """One belief update, as recorded."""

    peer: str
    session: SessionId
    phi: float | None
    """None for a trunk that failed its checks."""
    phi_bar: float


@dataclass(frozen=True)
class CommitRound(Effect):
    """One transaction: record, credits, beliefs, sessions, model reference, best, patience."""

    record: RoundRecord
    model: ModelRef
    credits: tuple[Credit, ...]
    beliefs: Mapping[str, Belief]
    """Only those that changed."""
    sessions: tuple[SessionRow, ...]
    best_round: int
    rounds_without_gain: int
    best_metric: float
    finished: bool
    """Whether this was the last round."""


@dataclass(frozen=True)
class Note(Effect):
    """Something worth a line in the log and a row in the events table."""

    kind: str
    level: str
    """info, warning or error."""
    peer: str | None
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PhaseChanged(Effect):
    """The center entered another phase; for ``abps status``."""

    phase: str
    round: int


@dataclass(frozen=True)
class PeerChanged(Effect):
    """What is known of a peer changed; for ``abps peers``."""

    peer: str
    status: str
    """A word of ``peers.PeerStatus``."""
    incarnation: int
    card: tuple[float, ...] | None
    detail: str


@dataclass(frozen=True)
class Exit(Effect):
    """End the process. ``why`` is finished, stopped, left, superseded or refused."""

    why: str
    detail: str
