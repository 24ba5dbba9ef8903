"""Frames: every message survives the way there and back, and only well-formed frames get in."""

from __future__ import annotations

import dataclasses
import struct

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol import PROTOCOL_VERSION, codec
from protocol import messages as m
from protocol.errors import FrameError, MessageError
from tests.support.strategies import MESSAGES

SESSION = m.SessionId("icu-a", 3, "icu-b", 4, 17)
PROPOSE = m.Propose(incarnation=3, session=SESSION, round=7)
WEIGHTS = m.Weights(
    incarnation=3,
    session=SESSION,
    round=7,
    staleness=0,
    size=100,
    dtype="bfloat16",
    layout="c" * 64,
    payload=b"\x01\x02\x03\x04",
)


def frame_of(header: object, payload: bytes = b"", version: int = PROTOCOL_VERSION) -> bytes:
    packed = header if isinstance(header, bytes) else msgpack.packb(header)
    return struct.pack("<4sBI", b"ABPS", version, len(packed)) + packed + payload


def propose_header(**changes: object) -> dict[str, object]:
    header = {"kind": "propose", "incarnation": 3, "session": str(SESSION), "round": 7}
    return {**header, **changes}


def refused(frame: bytes, error: type[Exception], max_payload: int = 0) -> str:
    with pytest.raises(error) as caught:
        codec.decode(frame, max_payload)
    assert type(caught.value) is error
    return f"{caught.value.reason}: {caught.value.detail}"


@pytest.mark.parametrize("kind", m.MESSAGE_KINDS)
@settings(max_examples=60)
@given(data=st.data())
def test_every_message_survives_the_round_trip(kind: str, data: st.DataObject) -> None:
    message = data.draw(MESSAGES[kind])
    frame = codec.encode(message)
    payload = len(message.payload) if isinstance(message, m.Weights) else 0
    assert codec.decode(frame, max_payload=payload) == message
    assert len(frame) <= codec.max_frame_bytes(payload)


def test_strategies_and_codec_know_every_kind_and_every_field() -> None:
    assert MESSAGES.keys() == m.MESSAGE_KINDS.keys()
    assert codec._FIELDS.keys() == set(m.MESSAGE_KINDS.values())
    for cls, fields in codec._FIELDS.items():
        expected = [f.name for f in dataclasses.fields(cls) if f.name != "payload"]
        assert [field.name for field in fields] == expected, cls.kind
        assert len(fields) < 15, "kind and fields must fit one fixmap"


def test_a_frame_is_magic_version_header_length_header_payload() -> None:
    frame = codec.encode(WEIGHTS)
    magic, version, length = struct.unpack_from("<4sBI", frame)
    assert (magic, version) == (b"ABPS", PROTOCOL_VERSION)
    header = msgpack.unpackb(frame[9 : 9 + length])
    assert header == {
        "kind": "weights",
        "incarnation": 3,
        "session": "icu-a#3>icu-b#4/17",
        "round": 7,
        "staleness": 0,
        "size": 100,
        "dtype": "bfloat16",
        "layout": "c" * 64,
    }
    assert frame[9 + length :] == WEIGHTS.payload


def test_the_longest_messages_fit_a_frame() -> None:
    most = m.MAX_INT
    session = m.SessionId("a" * 63, most, "b" * 63, most, most)
    longest = [
        m.Settle(most, ((session, True),) * m.MAX_SESSIONS_PER_MESSAGE),
        m.Reconcile(most, (session,) * m.MAX_SESSIONS_PER_MESSAGE),
        m.Refuse(most, m.RefuseReason.CONTRACT, "\U0001f600" * 500, most),
        m.Done(most, session, False, "\U0001f600" * m.MAX_TEXT),
    ]
    for message in longest:
        frame = codec.encode(message)
        assert len(frame) <= codec.max_frame_bytes(0)
        assert codec.decode(frame, 0) == message


def test_text_that_utf8_cannot_carry_arrives_with_question_marks() -> None:
    message = m.Done(1, SESSION, False, "bad \ud800 name")
    assert codec.decode(codec.encode(message), 0) == m.Done(1, SESSION, False, "bad ? name")


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (b"", "bad-magic"),
        (b"ABP", "bad-magic"),
        (b"HTTP/1.1 200 OK", "bad-magic"),
        (b"ABPS", "truncated"),
        (b"ABPS\x01\x00\x00", "truncated"),
        (b"ABPS\x01\x05\x00\x00\x00abcd", "truncated"),
        (b"ABPS\x01\x01\x00\x01\x00", "header-too-long"),
        (b"ABPS\x01\xff\xff\xff\xff", "header-too-long"),
        (codec.encode(PROPOSE) + b"x", "payload-too-long"),
    ],
)
def test_what_is_no_frame_is_refused_by_name(frame: bytes, reason: str) -> None:
    assert refused(frame, FrameError).startswith(reason + ": ")


def test_another_version_is_named_before_anything_else_is_read() -> None:
    for frame in (frame_of(b"\xff", version=9), b"ABPS\x09"):
        text = refused(frame, FrameError)
        assert text == "protocol-version: found version 9, this center speaks 1"


def test_only_weights_carry_a_payload() -> None:
    assert "trailing-bytes" in refused(codec.encode(PROPOSE) + b"x", FrameError, max_payload=1)
    frame = codec.encode(WEIGHTS)
    assert codec.decode(frame, max_payload=4) == WEIGHTS
    assert "found 4 bytes, allowed: 3" in refused(frame, FrameError, max_payload=3)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ([1, 2], "not-a-map"),
        (b"", "not-a-map"),
        (msgpack.packb({f"k{i}": i for i in range(16)}), "not-a-map"),
        (b"\x81\xa4kind", "bad-header"),
        (msgpack.packb({"kind": "ping", "incarnation": 1}) + b"\xc0", "bad-header"),
        ({1: "ping", "incarnation": 1}, "bad-header"),
        (propose_header(round=msgpack.ExtType(1, b"x")), "bad-header"),
        (propose_header(round=msgpack.Timestamp(0)), "bad-header"),
        (propose_header(session=b"\x00"), "bad-header"),
        (propose_header(session="a" * 2049), "bad-header"),
        (propose_header(round=[0] * 257), "bad-header"),
        (b"\x82\xa4kind\xa4ping\xa4kind\xa4ping", "duplicate-key"),
        ({"incarnation": 1}, "unknown-kind"),
        ({"kind": "pong!", "incarnation": 1}, "unknown-kind"),
        ({"kind": 1, "incarnation": 1}, "unknown-kind"),
        ({"kind": ["ping"], "incarnation": 1}, "unknown-kind"),
        (propose_header(extra=1), "unknown-key"),
        ({"kind": "propose", "incarnation": 3, "session": str(SESSION)}, "missing-key"),
        ({"kind": "propose", "incarnation": 3, "round": 7, "sessions": "x"}, "missing-key"),
    ],
)
def test_what_is_no_header_is_refused_by_name(header: object, reason: str) -> None:
    assert refused(frame_of(header), MessageError).startswith(reason + ": ")


HELLO = {
    "kind": "hello",
    "incarnation": 1,
    "center": "icu-a",
    "protocol_version": 1,
    "contract": "a" * 64,
    "initial_trunk": "b" * 64,
    "card": [1, [0.5, 6.0]],
    "finished": False,
    "reply": True,
}
SETTLE = {"kind": "settle", "incarnation": 1, "merged": [[str(SESSION), True]]}
RECONCILE = {"kind": "reconcile", "incarnation": 1, "sessions": [str(SESSION)]}
REJECT = {"kind": "reject", "incarnation": 1, "session": str(SESSION), "reason": "busy"}
REFUSE = {
    "kind": "refuse",
    "incarnation": 1,
    "reason": "contract",
    "detail": "",
    "known_incarnation": 0,
}
GOOD_HEADERS = [HELLO, SETTLE, RECONCILE, REJECT, REFUSE, propose_header()]


@pytest.mark.parametrize("header", GOOD_HEADERS, ids=lambda header: header["kind"])
def test_headers_written_by_hand_are_messages(header: dict[str, object]) -> None:
    message = codec.decode(frame_of(header), 0)
    assert codec.decode(codec.encode(message), 0) == message


@pytest.mark.parametrize(
    ("header", "field"),
    [
        (propose_header(incarnation=True), "incarnation"),
        (propose_header(incarnation=0), "incarnation"),
        (propose_header(round=7.0), "round"),
        (propose_header(round="7"), "round"),
        (propose_header(round=-1), "round"),
        (propose_header(round=2**63), "round"),
        (propose_header(round=None), "round"),
        (propose_header(round={"a": 1}), "round"),
        (propose_header(session=1), "session"),
        (propose_header(session=["a"]), "session"),
        (propose_header(session="icu-a#0>icu-b#4/17"), "session"),
        (propose_header(session="Icu-a#3>icu-b#4/17"), "session"),
        ({**HELLO, "center": "ICU"}, "center"),
        ({**HELLO, "contract": "a" * 63}, "contract"),
        ({**HELLO, "finished": 0}, "finished"),
        ({**HELLO, "reply": None}, "reply"),
        ({**HELLO, "card": {}}, "card"),
        ({**HELLO, "card": [1]}, "card"),
        ({**HELLO, "card": [0, [0.5]]}, "card.sequence"),
        ({**HELLO, "card": [1.0, [0.5]]}, "card"),
        ({**HELLO, "card": [1, 0.5]}, "card"),
        ({**HELLO, "card": [1, []]}, "card.values"),
        ({**HELLO, "card": [1, [1]]}, "card"),
        ({**HELLO, "card": [1, [True]]}, "card"),
        ({**HELLO, "card": [1, [float("nan")]]}, "card.values"),
        ({**HELLO, "card": [1, [float("inf")]]}, "card.values"),
        ({**HELLO, "card": [1, [2e6]]}, "card.values"),
        ({**SETTLE, "merged": []}, "merged"),
        ({**SETTLE, "merged": [[str(SESSION)]]}, "merged"),
        ({**SETTLE, "merged": [[str(SESSION), 1]]}, "merged"),
        ({**SETTLE, "merged": [["x", True]]}, "session"),
        ({**RECONCILE, "sessions": []}, "sessions"),
        ({**RECONCILE, "sessions": str(SESSION)}, "sessions"),
        ({**RECONCILE, "sessions": [[]]}, "sessions"),
        ({**REJECT, "reason": "bored"}, "reason"),
        ({**REJECT, "reason": []}, "reason"),
        ({**REFUSE, "reason": "busy"}, "reason"),
        ({**REFUSE, "detail": "x" * 501}, "detail"),
    ],
)
def test_a_bad_field_is_named(header: dict[str, object], field: str) -> None:
    assert refused(frame_of(header), MessageError).startswith(f"bad-field: {field}: ")


def test_text_must_be_utf8() -> None:
    packed = msgpack.packb({**REFUSE, "detail": "abc"}).replace(b"\xa3abc", b"\xa3ab\xff")
    assert refused(frame_of(packed), MessageError) == "bad-field: detail: not UTF-8"
