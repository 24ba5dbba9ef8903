"""What a center tells dashboards: four kinds of event, each with the fields named here, no others.

Numbers of a whole round, names of centers, fixed words. No text, since texts may quote a peer; no
weights, no rows, no counts of patients, no beliefs about others. A utility has three decimals, so
that it does not tell how many patients stand behind it, and is left out where those are few.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal, get_args

from protocol.contract import Strict
from protocol.effects import CommitRound, Note
from protocol.record import RestCause, RestRecord, ValidationRecord

MAX_WAITING: Final = 1000
"""So many events wait for the broker; then the oldest make room."""
_DECIMALS: Final = 3


class Event(Strict):
    """What every event tells."""

    version: Literal[1] = 1
    center: str
    incarnation: int
    number: int
    """Counts the events of this incarnation from 1; a gap tells of lost ones."""
    time: str
    """When it happened, UTC, ISO 8601."""
    round: int


class RoundEvent(Event):
    """A round was committed."""

    partners: list[str]
    rest: RestCause | None
    """Why nobody came; None with partners."""
    metric: str
    value: float | None
    """Utility on the own validation split after the merge; None over too few patients."""
    best_round: int
    seconds: float | None
    bytes_sent: int
    bytes_received: int
    finished: bool
    """Whether this was the last round."""


Count = Literal[
    "known",
    "unavailable",
    "finished",
    "refused",
    "before_filter",
    "after_filter",
    "admissible",
    "attempts",
]


class IsolationEvent(Event):
    """A round without a partner."""

    cause: RestCause
    intentional: bool
    counts: dict[Count, int]
    """How many centers were known, unavailable and so on; how many proposals were attempted."""


class SuspectEvent(Event):
    """A peer fell silent (``suspect``) or answers again."""

    peer: str
    suspect: bool


class RejectedEvent(Event):
    """A peer's trunk was refused."""

    peer: str
    reason: str
    """A fixed word of ``protocol``, as ``stale`` or ``trunk-norm``."""


KINDS: Final[dict[type[Event], str]] = {
    RoundEvent: "round",
    IsolationEvent: "isolation",
    SuspectEvent: "suspect",
    RejectedEvent: "rejected",
}
"""The last level of the topic."""


class EventQueue:
    """The sink of a center whose events go to a broker: bounded, and never in anybody's way."""

    def __init__(
        self, center: str, min_events: int, wake: Callable[[], None], limit: int = MAX_WAITING
    ) -> None:
        """``wake``: called when there is something to take.

        A utility over fewer than ``min_events`` patients with or without the label is not told.
        """
        self.incarnation = 0
        self._center = center
        self._min_events = min_events
        self._wake = wake
        self._limit = limit
        self._waiting: deque[Event] = deque()
        self._number = 0
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def take(self) -> Event:
        """The oldest one that waits; ``IndexError`` if none does."""
        return self._waiting.popleft()

    def put_back(self, event: Event) -> None:
        """What could not be sent, unless newer ones have taken its place."""
        if len(self._waiting) >= self._limit:
            self._dropped += 1
        else:
            self._waiting.appendleft(event)

    def take_dropped(self) -> int:
        """How many made room for newer ones since this was last asked."""
        dropped, self._dropped = self._dropped, 0
        return dropped

    def committed(self, commit: CommitRound) -> None:
        """The round, and why nobody came if nobody did."""
        record = commit.record
        if record.rest is not None:
            self._add(IsolationEvent, record.round, **_isolation(record.rest))
        self._add(
            RoundEvent,
            record.round,
            partners=[partner.peer for partner in record.partners],
            rest=record.rest.cause if record.rest is not None else None,
            metric=record.validation.metric,
            value=told_utility(record.validation, self._min_events),
            best_round=commit.best_round,
            seconds=_rounded(record.durations.get("total", 0.0)),
            bytes_sent=sum(record.bytes_sent.values()),
            bytes_received=sum(record.bytes_received.values()),
            finished=commit.finished,
        )

    def note(self, note: Note, round: int) -> None:
        """Suspicion and refused trunks; nothing else that is noted leaves the center."""
        peer = note.peer or ""
        match note.kind:
            case "peer-suspect" | "peer-returned":
                self._add(SuspectEvent, round, peer=peer, suspect=note.kind == "peer-suspect")
            case "trunk-refused":
                self._add(RejectedEvent, round, peer=peer, reason=str(note.data["reason"]))
            case _:
                pass

    def _add(self, kind: type[Event], round: int, **fields: object) -> None:
        self._number += 1
        if len(self._waiting) >= self._limit:
            self._waiting.popleft()
            self._dropped += 1
        common = {
            "center": self._center,
            "incarnation": self.incarnation,
            "number": self._number,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "round": round,
        }
        self._waiting.append(kind.model_validate({**common, **fields}))
        self._wake()


def told_utility(validation: ValidationRecord, min_events: int) -> float | None:
    """The utility as outsiders may know it: three decimals, None over few patients.

    Few are fewer than ``min_events`` with or without the label.
    """
    few = min(validation.events, validation.rows - validation.events) < min_events
    return None if few else _rounded(validation.value)


def _rounded(value: float) -> float | None:
    return round(value, _DECIMALS) if math.isfinite(value) else None


def _isolation(rest: RestRecord) -> dict[str, object]:
    counts = {name: rest.counts[name] for name in get_args(Count) if name in rest.counts}
    return {"cause": rest.cause, "intentional": rest.intentional, "counts": counts}
