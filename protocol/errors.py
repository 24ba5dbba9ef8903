"""The errors of the protocol: whose fault it is decides what happens next.

``ProtocolError``
├── ``LocalError``      our own code asked for something impossible: a bug, never swallowed
│   └── ``IllegalTransition``
└── ``RemoteError``     a peer said something unacceptable: recorded, never the end of a round
    ├── ``FrameError``      bytes that are not a frame of this protocol
    ├── ``MessageError``    a frame whose header is not a valid message
    └── ``TrunkError``      a trunk that failed its checks
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Base of every error that this package raises."""


class LocalError(ProtocolError):
    """This side did something the protocol forbids."""


class IllegalTransition(LocalError):
    """An event that the session state table does not allow in the present state."""


class RemoteError(ProtocolError):
    """A peer's message was refused.

    ``reason`` is a short stable word for records and counters, ``detail`` a sentence for people.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class FrameError(RemoteError):
    """Bytes that are not a frame of this protocol version."""


class MessageError(RemoteError):
    """A frame whose header is not a valid message."""


class TrunkError(RemoteError):
    """A received trunk that failed its checks (schema, dtype, length, finite, norm)."""
