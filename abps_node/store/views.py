"""What the reader returns: plain typed values, times as wall clock seconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from protocol.record import RestCause, RestRecord, RoundRecord, ValidationRecord

Condition = Literal["new", "running", "finished", "stopped", "left", "dead", "elsewhere"]
"""``new``: never started. ``running``: its process is there, also while it lingers after the last
round. ``finished``: all rounds done and gone. ``stopped``: ended on request. ``dead``: gone without
a word. ``elsewhere``: last run on another machine, where only it can be asked."""


@dataclass(frozen=True)
class RoundEntry:
    """One committed round and when it was committed."""

    at: float
    record: RoundRecord


@dataclass(frozen=True)
class RoundHead:
    """What is known of a committed round without its record."""

    round: int
    at: float
    partners: int
    cause: RestCause | None
    """Why there was no partner."""


@dataclass(frozen=True)
class RestEntry:
    """One isolated round."""

    round: int
    at: float
    rest: RestRecord


@dataclass(frozen=True)
class PeerView:
    """What is known of one peer."""

    peer: str
    status: str
    """unmet, met, suspect, finished, away or refused."""
    incarnation: int
    card: tuple[float, ...] | None
    detail: str
    last_seen: float | None
    last_outcome: str | None
    last_outcome_round: int | None


@dataclass(frozen=True)
class SessionView:
    """One session of the ledger, as text: ``id`` is ``str(SessionId)``."""

    id: str
    peer: str
    round: int
    state: str
    settled: bool
    merged: bool
    incarnation: int
    updated: float


@dataclass(frozen=True)
class CreditView:
    """One belief update, in the order in which they were made."""

    round: int
    peer: str
    session: str
    phi: float | None
    phi_bar: float


@dataclass(frozen=True)
class EventView:
    """One event worth a line."""

    id: int
    at: float
    round: int
    kind: str
    level: str
    peer: str | None
    text: str
    data: dict[str, Any]


@dataclass(frozen=True)
class TrafficView:
    """Account of one peer, direction and message kind since the beginning."""

    peer: str
    direction: Literal["in", "out"]
    kind: str
    messages: int
    frame_bytes: int
    wire_bytes: int


@dataclass(frozen=True)
class TrafficTotal:
    """Sum over peers and kinds in one direction."""

    messages: int = 0
    frame_bytes: int = 0
    wire_bytes: int = 0


@dataclass(frozen=True)
class Status:
    """One center at a glance."""

    center: str
    contract_name: str
    contract_digest: str
    condition: Condition
    incarnation: int
    endpoint: str | None
    host: str | None
    pid: int | None
    started: float | None
    ended: float | None
    phase: str | None
    phase_round: int
    phase_since: float | None
    rounds_planned: int
    last_round: int
    """The last committed one; 0 before the first."""
    last_round_at: float | None
    partners_now: tuple[str, ...]
    """Peers with whom an exchange of the round under way is promised or done."""
    partners_last: tuple[str, ...]
    """Partners of the last committed round."""
    validation: ValidationRecord | None
    """Of the last committed round."""
    best_round: int
    best_metric: float | None
    rounds_without_gain: int
    finished: bool
    """Whether the last round of the run is committed."""
    reports: dict[str, dict[str, Any]]
    """Test reports by name, ``federated`` and ``alone``; empty until the end."""
    isolated: dict[str, int]
    """Rest cause to rounds."""
    peers: dict[str, int]
    """Peer status to number of peers."""
    sent: TrafficTotal
    received: TrafficTotal
    last_event: EventView | None
