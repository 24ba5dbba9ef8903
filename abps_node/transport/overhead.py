"""What ZMTP 3.1 and CurveZMQ add to a frame on the wire.

libzmq counts no socket bytes, so they are computed from the documented framing (ZeroMQ RFC 23, 26
and 37) and checked in a test against a TCP proxy that counts. Bytes of TCP/IP are not included.

- A ZMTP frame has a header of 2 bytes (flags, 1-byte length) up to 255 bytes of body, else of 9.
- Under CURVE the body is a MESSAGE command: its name with length (8 bytes), a nonce (8), the MAC of
  the box (16), one byte of flags, then the encrypted frame.
"""

from __future__ import annotations

from typing import Final

_SHORT_BODY: Final = 255
_SHORT_HEADER: Final = 2
_LONG_HEADER: Final = 9
_MESSAGE_NAME: Final = 8
_NONCE: Final = 8
_MAC: Final = 16
_FLAGS: Final = 1

CURVE_MESSAGE_BYTES: Final = _MESSAGE_NAME + _NONCE + _MAC + _FLAGS
"""What a CURVE MESSAGE command adds to the frame that it encrypts."""

_GREETING: Final = 64
_COMMAND_HEADER: Final = 2
# Socket-Type (11 characters) = ROUTER, Identity (8 characters) = empty; each property is a 1-byte
# name length, the name, a 4-byte value length and the value.
_METADATA: Final = (1 + 11 + 4 + 6) + (1 + 8 + 4 + 0)

NULL_HANDSHAKE_BYTES: Final = _GREETING + _COMMAND_HEADER + 6 + _METADATA
"""One side's greeting and READY command without security, empty routing id."""

CURVE_CLIENT_HANDSHAKE_BYTES: Final = (
    _GREETING + (_COMMAND_HEADER + 200) + (_LONG_HEADER + 257 + _METADATA)
)
"""Greeting, HELLO and INITIATE: what the connecting side sends once per connection."""

CURVE_SERVER_HANDSHAKE_BYTES: Final = (
    _GREETING + (_COMMAND_HEADER + 168) + (_COMMAND_HEADER + 6 + 8 + _MAC + _METADATA)
)
"""Greeting, WELCOME and READY: what the accepting side sends once per connection."""


def body_bytes(frame_bytes: int, curve: bool) -> int:
    """Length of the ZMTP frame body, which is what libzmq's size limit is compared with."""
    return frame_bytes + (CURVE_MESSAGE_BYTES if curve else 0)


def wire_bytes(frame_bytes: int, curve: bool) -> int:
    """Bytes that one message of ``frame_bytes`` takes in the TCP stream."""
    body = body_bytes(frame_bytes, curve)
    return body + (_SHORT_HEADER if body <= _SHORT_BODY else _LONG_HEADER)
