"""What centers say to each other: one frozen dataclass per message kind, every field bounded.

The envelope of each message carries the sender's incarnation; who the sender *is* comes from the
authenticated connection, never from here. ``protocol.codec`` turns messages into frames and back.
Fields are checked on construction, so an invalid message cannot exist on either side.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Literal

from protocol.contract import CENTER_ID_PATTERN
from protocol.errors import MessageError

MAX_CARD = 256
MAX_SESSIONS_PER_MESSAGE = 64
MAX_TEXT = 200
MAX_INT = 2**53
_CENTER_ID = re.compile(CENTER_ID_PATTERN)
_HEX_DIGEST = re.compile(r"^[0-9a-f]{64}$")


class Reject(StrEnum):
    """Why a proposal was rejected."""

    BUSY = "busy"
    NOT_READY = "not-ready"
    FINISHED = "finished"
    STOPPING = "stopping"
    FILTER = "filter"
    BELIEF = "belief"
    ALREADY_PARTNERS = "already-partners"
    STALE_SESSION = "stale-session"
    BACK_OFF = "back-off"


class RefuseReason(StrEnum):
    """Why a peer will not be talked to at all."""

    PROTOCOL_VERSION = "protocol-version"
    CONTRACT = "contract"
    INITIAL_TRUNK = "initial-trunk"
    FOREIGN_ID = "foreign-id"
    SUPERSEDED = "superseded"


# Each message that comes in passes a dozen of these checks: what is wrong with a value is put into
# words only when something is.


def _bad_field(field: str, found: object, allowed: str) -> MessageError:
    text = repr(found)
    text = text if len(text) <= 80 else text[:77] + "..."
    return MessageError("bad-field", f"{field}: found {text}, allowed: {allowed}")


def _require(good: bool, field: str, found: object, allowed: str) -> None:
    if not good:
        raise _bad_field(field, found, allowed)


def _check_int(field: str, value: object, low: int = 0, high: int = MAX_INT) -> None:
    if type(value) is not int or not low <= value <= high:
        raise _bad_field(field, value, f"an integer from {low} to {high}")


def _check_text(field: str, value: object, longest: int = MAX_TEXT) -> None:
    if not isinstance(value, str) or len(value) > longest:
        raise _bad_field(field, value, f"text of at most {longest} characters")


def _check_digest(field: str, value: object) -> None:
    good = isinstance(value, str) and _HEX_DIGEST.fullmatch(value) is not None
    _require(good, field, value, "64 hexadecimal digits")


def _check_bool(field: str, value: object) -> None:
    _require(isinstance(value, bool), field, value, "true or false")


def check_center_id(field: str, value: object) -> None:
    """Raise ``MessageError`` unless the value is a well-formed center id."""
    if not isinstance(value, str) or _CENTER_ID.fullmatch(value) is None:
        raise _bad_field(field, value, f"a center id, {CENTER_ID_PATTERN}")


@dataclass(frozen=True, order=True)
class SessionId:
    """Unique name of one proposal; carries both incarnations, so a restart makes it stale."""

    proposer: str
    proposer_incarnation: int
    acceptor: str
    acceptor_incarnation: int
    number: int

    def __post_init__(self) -> None:
        check_center_id("session.proposer", self.proposer)
        check_center_id("session.acceptor", self.acceptor)
        _check_int("session.proposer_incarnation", self.proposer_incarnation, 1)
        _check_int("session.acceptor_incarnation", self.acceptor_incarnation, 1)
        _check_int("session.number", self.number, 1)

    def __str__(self) -> str:
        return (
            f"{self.proposer}#{self.proposer_incarnation}>"
            f"{self.acceptor}#{self.acceptor_incarnation}/{self.number}"
        )

    @classmethod
    def parse(cls, text: object) -> SessionId:
        """Inverse of ``str``; raises ``MessageError``."""
        match = _SESSION_ID.fullmatch(text) if isinstance(text, str) and len(text) <= 220 else None
        if match is None:
            _require(False, "session", text, "proposer#n>acceptor#n/number")
            raise AssertionError
        proposer, p_incarnation, acceptor, a_incarnation, number = match.groups()
        return cls(proposer, int(p_incarnation), acceptor, int(a_incarnation), int(number))

    def peer_of(self, center: str) -> str:
        """The other side, seen from ``center``."""
        return self.acceptor if center == self.proposer else self.proposer


_NUMBER = r"([1-9][0-9]{0,15})"
_SESSION_ID = re.compile(
    rf"^([a-z0-9][a-z0-9._-]{{0,62}})#{_NUMBER}>([a-z0-9][a-z0-9._-]{{0,62}})#{_NUMBER}/{_NUMBER}$"
)


@dataclass(frozen=True)
class Message:
    """Base: the sender's incarnation."""

    kind: ClassVar[str]
    incarnation: int

    def __post_init__(self) -> None:
        _check_int("incarnation", self.incarnation, 1)


@dataclass(frozen=True)
class CardMessage:
    """The aggregates of section 4.1: fixed-length vector, rising sequence number."""

    sequence: int
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_int("card.sequence", self.sequence, 1)
        good = isinstance(self.values, tuple) and 0 < len(self.values) <= MAX_CARD
        _require(good, "card.values", self.values, f"1 to {MAX_CARD} numbers")
        for value in self.values:
            finite = isinstance(value, float) and math.isfinite(value) and abs(value) <= 1e6
            _require(finite, "card.values", value, "finite numbers up to 1e6")


@dataclass(frozen=True)
class Hello(Message):
    """Introduces a center: what must agree before anything else is said."""

    kind: ClassVar[str] = "hello"
    center: str
    protocol_version: int
    contract: str
    initial_trunk: str
    card: CardMessage
    finished: bool
    reply: bool
    """True if this answers a hello; then no further answer is due."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_center_id("center", self.center)
        _check_int("protocol_version", self.protocol_version, 0, 2**31)
        _check_digest("contract", self.contract)
        _check_digest("initial_trunk", self.initial_trunk)
        _require(isinstance(self.card, CardMessage), "card", self.card, "a card")
        _check_bool("finished", self.finished)
        _check_bool("reply", self.reply)


@dataclass(frozen=True)
class Refuse(Message):
    """A named refusal of the whole relation, said to the peer as well."""

    kind: ClassVar[str] = "refuse"
    reason: RefuseReason
    detail: str
    known_incarnation: int
    """For ``superseded``: the newer incarnation that was seen; else 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(isinstance(self.reason, RefuseReason), "reason", self.reason, "a refusal reason")
        _check_text("detail", self.detail, 500)
        _check_int("known_incarnation", self.known_incarnation)


@dataclass(frozen=True)
class SessionMessage(Message):
    """Base of all messages about one session."""

    session: SessionId

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(isinstance(self.session, SessionId), "session", self.session, "a session id")


@dataclass(frozen=True)
class Propose(SessionMessage):
    """Asks for partnership in the sender's present round."""

    kind: ClassVar[str] = "propose"
    round: int

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_int("round", self.round, 1)


@dataclass(frozen=True)
class Accept(SessionMessage):
    """Agrees; a slot of the sender is reserved until the session ends."""

    kind: ClassVar[str] = "accept"
    round: int
    """The acceptor's round in which the session counts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_int("round", self.round, 1)


@dataclass(frozen=True)
class Rejected(SessionMessage):
    """Declines, with the reason."""

    kind: ClassVar[str] = "reject"
    reason: Reject

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(isinstance(self.reason, Reject), "reason", self.reason, "a rejection reason")


@dataclass(frozen=True)
class Withdraw(SessionMessage):
    """The proposer no longer wants it (full, or the proposal is over)."""

    kind: ClassVar[str] = "withdraw"


@dataclass(frozen=True)
class Weights(SessionMessage):
    """The newest finished trunk. The packed tensors follow the header in the same frame."""

    kind: ClassVar[str] = "weights"
    round: int
    """Round whose local step made this trunk."""
    staleness: int
    """The sender's present round minus ``round``."""
    size: int
    """Training patients of the sender."""
    dtype: Literal["float32", "bfloat16"]
    layout: str
    payload: bytes

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_int("round", self.round, 1)
        _check_int("staleness", self.staleness)
        _check_int("size", self.size, 1)
        _require(self.dtype in ("float32", "bfloat16"), "dtype", self.dtype, "float32, bfloat16")
        _check_digest("layout", self.layout)
        _require(isinstance(self.payload, bytes), "payload", type(self.payload), "bytes")


@dataclass(frozen=True)
class Done(SessionMessage):
    """Acknowledges a trunk: verified, or refused with a reason."""

    kind: ClassVar[str] = "done"
    verified: bool
    reason: str
    """Empty if verified."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bool("verified", self.verified)
        _check_text("reason", self.reason)


@dataclass(frozen=True)
class Settle(Message):
    """The sender's final word on sessions: did the other side's trunk enter its committed round?"""

    kind: ClassVar[str] = "settle"
    merged: tuple[tuple[SessionId, bool], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        good = isinstance(self.merged, tuple) and 0 < len(self.merged) <= MAX_SESSIONS_PER_MESSAGE
        _require(good, "merged", "…", f"1 to {MAX_SESSIONS_PER_MESSAGE} entries")
        for entry in self.merged:
            good = isinstance(entry, tuple) and len(entry) == 2
            _require(good and isinstance(entry[0], SessionId), "merged", entry, "session, bool")
            _check_bool("merged", entry[1])


@dataclass(frozen=True)
class Reconcile(Message):
    """Asks for the other side's final word on sessions that are unsettled here."""

    kind: ClassVar[str] = "reconcile"
    sessions: tuple[SessionId, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        good = isinstance(self.sessions, tuple)
        good = good and 0 < len(self.sessions) <= MAX_SESSIONS_PER_MESSAGE
        _require(good, "sessions", "…", f"1 to {MAX_SESSIONS_PER_MESSAGE} sessions")
        for session in self.sessions:
            _require(isinstance(session, SessionId), "sessions", session, "a session id")


@dataclass(frozen=True)
class Ping(Message):
    """Are you there?"""

    kind: ClassVar[str] = "ping"


@dataclass(frozen=True)
class Pong(Message):
    """I am."""

    kind: ClassVar[str] = "pong"


@dataclass(frozen=True)
class Goodbye(Message):
    """Finished (lingering, no more sessions) or leaving."""

    kind: ClassVar[str] = "goodbye"
    finished: bool
    settled: bool
    """Whether the sender lacks no final word of the receiver any more."""
    left: bool = False
    """Whether it leaves for good: nobody need wait for it, though it may return."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bool("finished", self.finished)
        _check_bool("settled", self.settled)
        _check_bool("left", self.left)


MESSAGE_KINDS: dict[str, type[Message]] = {
    message.kind: message
    for message in (
        Hello,
        Refuse,
        Propose,
        Accept,
        Rejected,
        Withdraw,
        Weights,
        Done,
        Settle,
        Reconcile,
        Ping,
        Pong,
        Goodbye,
    )
}
