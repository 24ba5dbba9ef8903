"""The messages of ``protocol.messages`` as tables, and one frame taken apart.

Order and type of the fields are read off an encoded example, bounds off the error that an
impossible value raises, meanings off the docstrings or, where a field's name says it all to a
programmer, from ``MEANINGS``. So no bound stands here a second time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgpack

from generator.source import attribute_docs, summary, table
from protocol import codec
from protocol import messages as m
from protocol.errors import MessageError

_SESSION = m.SessionId("north", 1, "south", 4, 12)
_DIGEST = "0" * 64
_PREFIX: Final = "<4sBI"
"""Magic, version, length of the header; ``test_generated_docs`` holds it to the codec."""

EXAMPLES: Final[tuple[m.Message, ...]] = (
    m.Hello(1, "north", 1, _DIGEST, _DIGEST, m.CardMessage(1, (0.16, 5.7)), False, False),
    m.Refuse(1, m.RefuseReason.CONTRACT, "contract hash of north: …", 0),
    m.Propose(1, _SESSION, 7),
    m.Accept(4, _SESSION, 7),
    m.Rejected(4, _SESSION, m.Reject.BUSY),
    m.Withdraw(1, _SESSION),
    m.Weights(1, _SESSION, 7, 0, 294, "bfloat16", _DIGEST, bytes(8)),
    m.Done(4, _SESSION, True, ""),
    m.Settle(1, ((_SESSION, True),)),
    m.Reconcile(4, (_SESSION,)),
    m.Ping(1),
    m.Pong(4),
    m.Goodbye(1, True, True),
)

COMMON: Final = {
    "incarnation": "The sender's start number; in every message.",
    "session": "Which proposal this is about; in every message about one.",
}
MEANINGS: Final[dict[tuple[str, str], str]] = {
    ("hello", "center"): "Whom the sender claims to be; compared with the owner of its key.",
    ("hello", "protocol_version"): "Compared with the own.",
    ("hello", "contract"): "Hash of the contract; compared with the own.",
    ("hello", "initial_trunk"): "Hash of the untrained trunk; compared with the own.",
    ("hello", "card"): "The aggregates that goal filters see, with a sequence number.",
    ("hello", "finished"): "Whether the sender has done all its rounds.",
    ("refuse", "reason"): "Why there is nothing to talk about.",
    ("refuse", "detail"): "A sentence for people.",
    ("propose", "round"): "The proposer's present round.",
    ("reject", "reason"): "Why not in this round.",
    ("weights", "dtype"): "Must be the contract's.",
    ("weights", "layout"): "Hash of names and shapes of the tensors; must be the own.",
    ("weights", "payload"): "The packed trunk, little-endian, behind the header.",
    ("done", "verified"): "Whether the trunk passed its checks in time.",
    ("settle", "merged"): "Session and whether its trunk entered a committed round.",
    ("reconcile", "sessions"): "Committed by the sender, final word of the receiver missing.",
    ("goodbye", "finished"): "True: done with all rounds. False: leaving for now.",
}
"""(message kind, field) to the meaning of a field without a docstring."""

_WORDS: Final = {
    "a refusal reason": ", ".join(m.RefuseReason),
    "a rejection reason": ", ".join(m.Reject),
    "a session id": "see above",
    "bytes": "length and values: see «Trunks»",
    "a card": "an array of two:",
}
"""What a check calls by a name, spelled out."""
_TYPES: Final = {int: "integer", bool: "boolean", str: "text", list: "array"}
_HEAD: Final = ["field", "type", "allowed", "meaning"]
_IMPOSSIBLE: Final[Any] = object()
_CHUNK: Final = 14


def common_fields() -> str:
    """The fields that messages share."""
    example = m.Withdraw(1, _SESSION)
    rows = [
        [f"`{name}`", kind, _allowed_in(example, name), COMMON[name]]
        for name, kind in _types(example).items()
    ]
    return table(_HEAD, rows)


def messages_section() -> str:
    """A heading, a sentence and a table of its own fields for every kind of message."""
    parts = []
    for example in EXAMPLES:
        parts += [f"#### `{example.kind}`", "", _plain(summary(type(example))), ""]
        rows = _rows(example)
        parts += [table(_HEAD, rows), ""] if rows else []
    return "\n".join(parts).rstrip()


def ping_dump() -> str:
    """A whole ``ping`` frame, byte by byte."""
    frame = codec.encode(m.Ping(1))
    magic, version, length = struct.unpack_from(_PREFIX, frame)
    header = frame[struct.calcsize(_PREFIX) :]
    rows = [
        (frame[:4], f'magic "{magic.decode()}"'),
        (frame[4:5], f"protocol version {version}"),
        (frame[5:9], f"length of the header, {length} (u32, little-endian)"),
        (header, f"header, msgpack: {msgpack.unpackb(header)!r}".replace("'", '"')),
    ]
    lines = [f"{part.hex(' '):<{3 * _CHUNK}}  {words}".rstrip() for part, words in _lines(rows)]
    return "\n".join(["```", *lines, "```"])


def allowed(make: Callable[[], object]) -> str:
    """What a message's own check allows, read off the error that making a wrong one raises."""
    try:
        made = make()
    except MessageError as error:
        words = error.detail.rpartition(", allowed: ")[2]
        words = words.replace(str(m.MAX_INT), "2^53").replace(str(2**31), "2^31")
        return _WORDS.get(words, words)
    raise AssertionError(f"{made}: takes anything")


def _allowed_in(example: m.Message, name: str) -> str:
    wrong: dict[str, Any] = {name: _IMPOSSIBLE}
    return allowed(lambda: replace(example, **wrong))


def _rows(example: m.Message) -> list[list[str]]:
    docs = {key: text for cls in type(example).__mro__[:-1] for key, text in _docs(cls).items()}
    rows = []
    for name, kind in _types(example).items():
        if name in COMMON:
            continue
        meaning = MEANINGS.get((example.kind, name)) or docs.get(name)
        if meaning is None:
            raise LookupError(f"{example.kind}: {name} has no docstring and no entry in MEANINGS")
        rows.append([f"`{name}`", kind, _allowed_in(example, name), _plain(meaning)])
        if isinstance(example, m.Hello) and name == "card":
            rows += _card_rows(example.card)
    return rows


def _card_rows(card: m.CardMessage) -> list[list[str]]:
    sequence = allowed(lambda: replace(card, sequence=_IMPOSSIBLE))
    length = allowed(lambda: replace(card, values=()))
    each = allowed(lambda: replace(card, values=(_IMPOSSIBLE,)))
    return [
        ["– `sequence`", "integer", sequence, "The incarnation that made the card."],
        ["– `values`", "array of floats", f"{length}: {each}", "The components."],
    ]


def _types(example: m.Message) -> dict[str, str]:
    """The fields in their order on the wire, and what msgpack makes of them."""
    start = struct.calcsize(_PREFIX)
    frame = codec.encode(example)
    length = struct.unpack_from(_PREFIX, frame)[2]
    header: dict[str, Any] = msgpack.unpackb(frame[start : start + length])
    types = {name: _TYPES[type(value)] for name, value in header.items() if name != "kind"}
    return {**types, "payload": "raw bytes"} if isinstance(example, m.Weights) else types


def _docs(cls: type) -> dict[str, str]:
    return attribute_docs(cls) if cls.__module__ == m.__name__ else {}


def _plain(text: str) -> str:
    return text.replace("``", "`")


def _lines(rows: list[tuple[bytes, str]]) -> list[tuple[bytes, str]]:
    """Long rows on several lines; the words stand on the first."""
    return [
        (content[start : start + _CHUNK], "" if start else words)
        for content, words in rows
        for start in range(0, len(content), _CHUNK)
    ]
