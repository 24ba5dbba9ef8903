"""What can happen to a center, as seen by ``protocol.node``: the stimuli of the state machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.messages import Message
from protocol.record import ObjectivesRecord, ValidationRecord
from protocol.trunk import Vector

Coalition = frozenset[str]


@dataclass(frozen=True)
class Event:
    """Base of all stimuli."""


@dataclass(frozen=True)
class Started(Event):
    """The skin is up: sockets bound, store open, data loaded."""


@dataclass(frozen=True)
class Tick(Event):
    """Time passed. Comes several times a second while the loop is healthy."""


@dataclass(frozen=True)
class Reachable(Event):
    """Discovery knows an address for this peer of the roster (a hint, nothing more)."""

    peer: str


@dataclass(frozen=True)
class Unreachable(Event):
    """Discovery took the address of this peer back: it left, or its hint is gone."""

    peer: str


@dataclass(frozen=True)
class MemberAdded(Event):
    """People of this center admitted a member, by its key."""

    peer: str


@dataclass(frozen=True)
class MemberRevoked(Event):
    """People of this center revoked the last key of a member, or it ran out."""

    peer: str


@dataclass(frozen=True)
class Heard(Event):
    """A well-formed message came over a connection authenticated as ``peer``."""

    peer: str
    message: Message
    frame_bytes: int = 0


@dataclass(frozen=True)
class Misbehaved(Event):
    """Bytes from ``peer`` were refused before they became a message."""

    peer: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Flooded(Event):
    """A frame of ``peer`` was dropped unread, since ``Node.has_room`` said no."""

    peer: str


@dataclass(frozen=True)
class Undeliverable(Event):
    """A message to ``peer`` could not be handed to any connection."""

    peer: str
    reason: str


@dataclass(frozen=True)
class Sent(Event):
    """A message was handed to a connection; for byte accounts only."""

    peer: str
    message: Message
    frame_bytes: int


@dataclass(frozen=True)
class Trained(Event):
    """The local step of ``round`` is done; ``trunk`` is its snapshot before any merge."""

    round: int
    trunk: Vector
    loss: float
    seconds: float
    objectives: ObjectivesRecord | None = None


@dataclass(frozen=True)
class ModelRef:
    """A model file that is already safe on disk."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Merged(Event):
    """Coalitions were measured, the new trunk was formed and its file was made durable."""

    round: int
    utilities: Mapping[Coalition, float]
    validation: ValidationRecord
    model: ModelRef
    seconds: float
    parts: tuple[float, ...] = ()
    """Of ``validation`` by objective; none for a center without objectives of its own."""


@dataclass(frozen=True)
class StopRequested(Event):
    """Somebody wants the center to end (SIGTERM, the launcher, its own newer copy)."""

    reason: str
    leave: bool = False
    """For good: the others are told not to wait for it."""
