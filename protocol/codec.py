"""One message, one frame: the wire format, and the only way in.

A frame is the magic ``ABPS``, the protocol version (u8), the length of the header (u32,
little-endian), the header (a msgpack map with the message's kind and fields) and, for weights
alone, the raw bytes of the packed trunk. One frame, because the size limit of libzmq holds per
frame and a multipart message passes it.

Whatever bytes come in, ``decode`` returns a valid message or raises ``FrameError`` or
``MessageError``, in memory bounded by the frame and ``MAX_HEADER``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import StrEnum
from typing import Any, Final, NamedTuple

import msgpack

from protocol import PROTOCOL_VERSION
from protocol import messages as m
from protocol.errors import FrameError, MessageError

MAGIC: Final = b"ABPS"
MAX_HEADER: Final = 64 * 1024
_PREFIX: Final = struct.Struct("<4sBI")
_PACKER: Final = msgpack.Packer(unicode_errors="replace")
"""One for all messages, since each new one allocates a buffer of 256 KiB."""
_FIXMAP: Final = 0x80
_MAX_KEYS: Final = 15
_MAX_TEXT_BYTES: Final = 2048
_MAX_ITEMS: Final = max(m.MAX_CARD, m.MAX_SESSIONS_PER_MESSAGE)


def max_frame_bytes(payload_bytes: int) -> int:
    """Length of the longest frame that can be valid when trunks are this long."""
    return _PREFIX.size + MAX_HEADER + payload_bytes


def encode(message: m.Message) -> bytes:
    """The frame of a message. Valid messages always fit.

    Text for people loses lone surrogates (they become «?»), which UTF-8 cannot carry.
    """
    fields = _FIELDS[type(message)]
    header = {"kind": message.kind}
    for field in fields:
        value = getattr(message, field.name)
        header[field.name] = value if field.to_wire is None else field.to_wire(value)
    packed = _PACKER.pack(header)
    prefix = _PREFIX.pack(MAGIC, PROTOCOL_VERSION, len(packed))
    payload = message.payload if isinstance(message, m.Weights) else b""
    return b"".join((prefix, packed, payload))


def decode(frame: bytes, max_payload: int) -> m.Message:
    """The message in a frame; ``max_payload`` bounds the trunk bytes behind the header.

    Raises ``FrameError`` (magic, version, lengths) or ``MessageError`` (header).
    """
    end = _header_end(frame)
    if len(frame) - end > max_payload:
        found = len(frame) - end
        raise FrameError("payload-too-long", f"found {found} bytes, allowed: {max_payload}")
    header = _unpack_header(frame[_PREFIX.size : end])
    cls = _kind_of(header)
    values = _read_fields(cls, header)
    if cls is m.Weights:
        values["payload"] = frame[end:]
    elif end != len(frame):
        raise FrameError("trailing-bytes", f"{len(frame) - end} bytes after a {cls.kind}")
    return cls(**values)


def _header_end(frame: bytes) -> int:
    """Offset of the first byte after the header, everything before it checked."""
    if frame[:4] != MAGIC:
        raise FrameError("bad-magic", f"found {frame[:4]!r}, allowed: {MAGIC!r}")
    # The version comes before any length: a later version may lay out the rest differently.
    if len(frame) > 4 and frame[4] != PROTOCOL_VERSION:
        raise FrameError(
            "protocol-version", f"found version {frame[4]}, this center speaks {PROTOCOL_VERSION}"
        )
    if len(frame) < _PREFIX.size:
        raise FrameError("truncated", f"found {len(frame)} bytes of {_PREFIX.size}")
    length: int = _PREFIX.unpack_from(frame)[2]
    if length > MAX_HEADER:
        raise FrameError("header-too-long", f"found {length} bytes, allowed: {MAX_HEADER}")
    end = _PREFIX.size + length
    if len(frame) < end:
        raise FrameError("truncated", f"found {len(frame)} bytes of {end}")
    return end


def _unpack_header(packed: bytes) -> dict[bytes, Any]:
    if not packed or packed[0] & 0xF0 != _FIXMAP:
        raise MessageError("not-a-map", f"the header is no map of at most {_MAX_KEYS} keys")
    try:
        # raw: keys stay bytes. As text they would be interned, which some Pythons never undo.
        header: dict[bytes, Any] = msgpack.unpackb(
            packed,
            raw=True,
            use_list=False,
            strict_map_key=True,
            max_str_len=_MAX_TEXT_BYTES,
            max_bin_len=0,
            max_array_len=_MAX_ITEMS,
            max_map_len=_MAX_KEYS,
            max_ext_len=0,
        )
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        found = f"{type(error).__name__} {error}".strip()[:100]
        raise MessageError("bad-header", f"not msgpack within bounds: {found}") from None
    if len(header) != packed[0] & 0x0F:
        raise MessageError("duplicate-key", "a key of the header stands there twice")
    return header


def _kind_of(header: dict[bytes, Any]) -> type[m.Message]:
    kind = header.pop(b"kind", None)
    cls = m.MESSAGE_KINDS.get(kind.decode("ascii", "replace")) if type(kind) is bytes else None
    if cls is None:
        found = repr(kind[:40]) if type(kind) is bytes else _type_name(kind)
        raise MessageError("unknown-kind", f"found {found}, allowed: {', '.join(m.MESSAGE_KINDS)}")
    return cls


def _read_fields(cls: type[m.Message], header: dict[bytes, Any]) -> dict[str, Any]:
    fields = _FIELDS[cls]
    values = {}
    for field in fields:
        if field.key not in header:
            raise MessageError("missing-key", f"{cls.kind} has no {field.name!r}")
        values[field.name] = field.from_wire(field.name, header[field.key])
    if len(header) != len(fields):
        known = {field.key for field in fields}
        unknown = next(key for key in header if key not in known)
        raise MessageError("unknown-key", f"{cls.kind} has no key {unknown[:40]!r}")
    return values


# What a field looks like on the wire. Readers check types strictly and never print a container
# (it may be nested a thousand deep); ranges and patterns are the business of the messages.


def _bad_field(name: str, found: object, allowed: str) -> MessageError:
    return MessageError("bad-field", f"{name}: found {_type_name(found)}, allowed: {allowed}")


def _type_name(value: object) -> str:
    names = {tuple: "an array", dict: "a map", bytes: "text", type(None): "nothing"}
    return names.get(type(value), type(value).__name__)


def _integer(name: str, value: object) -> int:
    if type(value) is not int:
        raise _bad_field(name, value, "an integer")
    return value


def _flag(name: str, value: object) -> bool:
    if type(value) is not bool:
        raise _bad_field(name, value, "true or false")
    return value


def _text(name: str, value: object) -> str:
    if type(value) is not bytes:
        raise _bad_field(name, value, "text")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MessageError("bad-field", f"{name}: not UTF-8") from None


def _array(name: str, value: object, length: int | None = None) -> tuple[Any, ...]:
    if type(value) is not tuple or (length is not None and len(value) != length):
        raise _bad_field(name, value, f"an array of {length or 'items'}")
    return value


def _session(name: str, value: object) -> m.SessionId:
    return m.SessionId.parse(_text(name, value))


def _sessions(name: str, value: object) -> tuple[m.SessionId, ...]:
    return tuple(_session(name, item) for item in _array(name, value))


def _verdicts(name: str, value: object) -> tuple[tuple[m.SessionId, bool], ...]:
    pairs = (_array(name, item, 2) for item in _array(name, value))
    return tuple((_session(name, session), _flag(name, merged)) for session, merged in pairs)


def _card(name: str, value: object) -> m.CardMessage:
    sequence, values = _array(name, value, 2)
    for item in _array(name, values):
        if type(item) is not float:
            raise _bad_field(name, item, "floating-point numbers")
    return m.CardMessage(_integer(name, sequence), values)


def _word(words: type[StrEnum]) -> Callable[[str, object], StrEnum]:
    known = {word.value: word for word in words}

    def read(name: str, value: object) -> StrEnum:
        found = known.get(_text(name, value))
        if found is None:
            raise MessageError("bad-field", f"{name}: no such word, allowed: {', '.join(known)}")
        return found

    return read


class _Field(NamedTuple):
    name: str
    key: bytes
    from_wire: Callable[[str, object], Any]
    to_wire: Callable[[Any], Any] | None


def _field(
    name: str,
    from_wire: Callable[[str, object], Any],
    to_wire: Callable[[Any], Any] | None = None,
) -> _Field:
    return _Field(name, name.encode(), from_wire, to_wire)


def _layout(*fields: _Field) -> tuple[_Field, ...]:
    return (_field("incarnation", _integer), *fields)


_SESSION: Final = _field("session", _session, str)
_ROUND: Final = _field("round", _integer)

_FIELDS: Final[dict[type[m.Message], tuple[_Field, ...]]] = {
    m.Hello: _layout(
        _field("center", _text),
        _field("protocol_version", _integer),
        _field("contract", _text),
        _field("initial_trunk", _text),
        _field("card", _card, lambda card: (card.sequence, card.values)),
        _field("finished", _flag),
        _field("reply", _flag),
    ),
    m.Refuse: _layout(
        _field("reason", _word(m.RefuseReason)),
        _field("detail", _text),
        _field("known_incarnation", _integer),
    ),
    m.Propose: _layout(_SESSION, _ROUND),
    m.Accept: _layout(_SESSION, _ROUND),
    m.Rejected: _layout(_SESSION, _field("reason", _word(m.Reject))),
    m.Withdraw: _layout(_SESSION),
    m.Weights: _layout(
        _SESSION,
        _ROUND,
        _field("staleness", _integer),
        _field("size", _integer),
        _field("dtype", _text),
        _field("layout", _text),
    ),
    m.Done: _layout(_SESSION, _field("verified", _flag), _field("reason", _text)),
    m.Settle: _layout(
        _field("merged", _verdicts, lambda pairs: [(str(key), value) for key, value in pairs])
    ),
    m.Reconcile: _layout(_field("sessions", _sessions, lambda ids: [str(item) for item in ids])),
    m.Ping: _layout(),
    m.Pong: _layout(),
    m.Goodbye: _layout(_field("finished", _flag), _field("settled", _flag), _field("left", _flag)),
}
"""The fields of every message, in their order on the wire; the payload of weights stands apart."""
