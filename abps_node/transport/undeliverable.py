"""Why a frame could not be handed to any connection."""

from __future__ import annotations

from enum import StrEnum

from abps_node.errors import TransportError


class Reason(StrEnum):
    """Short stable words for records and counters."""

    UNKNOWN_PEER = "unknown-peer"
    """Not on the roster."""
    NO_ADDRESS = "no-address"
    """No connection, and discovery has not told where the peer listens."""
    BAD_ADDRESS = "bad-address"
    """libzmq cannot use the address that discovery told."""
    QUEUE_FULL = "queue-full"
    """The peer, or the network to it, takes frames slower than they are sent."""
    REFUSED_BY_PEER = "refused-by-peer"
    """The peer does not know the own key; tried again after a moment."""
    HELD_OFF = "held-off"
    """The peer flooded this center and is left alone for a while."""
    TOO_LARGE = "too-large"
    """Longer than the limit, which holds on both sides."""
    CLOSED = "closed"
    """The transport is not open."""


class Undeliverable(TransportError):
    """A frame to ``peer`` was handed to no connection; nothing of it was sent."""

    def __init__(self, peer: str, reason: Reason, detail: str) -> None:
        super().__init__(f"{peer}: {reason}: {detail}")
        self.peer = peer
        self.reason = reason
        self.detail = detail
