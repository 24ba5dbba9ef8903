"""Thousands of broken and malicious frames: only the documented errors, in bounded memory."""

from __future__ import annotations

import random
import struct
import tracemalloc

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from protocol import codec
from protocol import messages as m
from protocol.errors import FrameError, MessageError
from tests.support.sample_messages import SAMPLES, SESSION
from tests.support.strategies import messages

MAX_PAYLOAD = 512
FRAMES = [codec.encode(message) for message in SAMPLES]


def survives(frame: bytes) -> m.Message | None:
    """The message, or none if refused; any exception but the documented two fails the test."""
    try:
        message = codec.decode(frame, MAX_PAYLOAD)
    except (FrameError, MessageError) as error:
        assert error.reason and len(error.detail) < 1000
        return None
    assert codec.decode(codec.encode(message), MAX_PAYLOAD) == message
    return message


def test_samples_cover_every_kind() -> None:
    assert [message.kind for message in SAMPLES] == list(m.MESSAGE_KINDS)


@pytest.mark.parametrize("frame", FRAMES, ids=list(m.MESSAGE_KINDS))
def test_every_truncation_is_refused(frame: bytes) -> None:
    message = codec.decode(frame, MAX_PAYLOAD)
    header_end = 9 + struct.unpack_from("<I", frame, 5)[0]
    for length in range(header_end):
        assert survives(frame[:length]) is None
    assert survives(frame[:header_end]) == (
        message
        if not isinstance(message, m.Weights)
        # How long a trunk must be is known to protocol.trunk.unpack, not to the codec.
        else m.Weights(**{**vars(message), "payload": b""})
    )


@pytest.mark.parametrize("frame", FRAMES, ids=list(m.MESSAGE_KINDS))
def test_every_single_byte_change_is_a_message_or_refused(frame: bytes) -> None:
    header_end = 9 + struct.unpack_from("<I", frame, 5)[0]
    for position in range(header_end):
        for value in {0x00, 0x01, 0x7F, 0x80, 0xC0, 0xC1, 0xDD, 0xDF, 0xFF, frame[position] ^ 0x20}:
            changed = frame[:position] + bytes([value]) + frame[position + 1 :]
            message = survives(changed)
            # Nothing in a header is optional or without meaning: another byte, another message.
            assert changed == frame or message is None or codec.encode(message) != frame


def test_thousands_of_mutations() -> None:
    rng = random.Random(20260916)
    outcomes = {"message": 0, "refused": 0}
    for _ in range(20_000):
        frame = bytearray(rng.choice(FRAMES))
        for _ in range(rng.randint(1, 6)):
            where = rng.randrange(len(frame) + 1)
            what = rng.randrange(4)
            if what == 0 and where < len(frame):
                frame[where] = rng.randrange(256)
            elif what == 1:
                frame[where:where] = rng.randbytes(rng.randint(1, 8))
            elif what == 2:
                del frame[where : where + rng.randint(1, 8)]
            else:
                other = rng.choice(FRAMES)
                frame[where:] = other[rng.randrange(len(other)) :]
        if len(frame) > 9 and rng.random() < 0.8:
            # Repair the length, so that the mutation reaches the header's reader.
            payload = 64 if frame[16:23] == b"weights" else 0
            struct.pack_into("<I", frame, 5, max(0, len(frame) - 9 - payload))
        outcomes["message" if survives(bytes(frame)) else "refused"] += 1
    assert outcomes["refused"] > 10_000
    assert outcomes["message"] > 100, "too few mutants live: the mutation is too crude"


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(message=messages, junk=st.binary(min_size=1, max_size=MAX_PAYLOAD))
def test_extended_frames_are_refused(message: m.Message, junk: bytes) -> None:
    extended = codec.encode(message) + junk
    assert isinstance(message, m.Weights) or survives(extended) is None


@settings(max_examples=500)
@given(junk=st.binary(max_size=400))
def test_random_bytes_are_refused(junk: bytes) -> None:
    assert survives(junk) is None
    assert survives(b"ABPS\x01" + struct.pack("<I", len(junk)) + junk) is None


_scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=30)
    | st.binary(max_size=10)
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=5) | st.integers(0, 9), inner, max_size=5)
    ),
    max_leaves=10,
)


@settings(max_examples=500, suppress_health_check=[HealthCheck.too_slow])
@given(sample=st.sampled_from(SAMPLES), data=st.data())
def test_any_value_in_any_field_is_a_message_or_refused(
    sample: m.Message, data: st.DataObject
) -> None:
    frame = codec.encode(sample)
    end = 9 + struct.unpack_from("<I", frame, 5)[0]
    header = msgpack.unpackb(frame[9:end])
    header[data.draw(st.sampled_from(sorted(header)))] = data.draw(_values)
    packed = msgpack.packb(header)
    survives(b"ABPS\x01" + struct.pack("<I", len(packed)) + packed + frame[end:])


def _bombs() -> dict[str, bytes]:
    full = codec.MAX_HEADER
    start = b"\x81\xa4kind"
    tail = b"\xdc\x01\x00"
    round_at_the_end = msgpack.packb(
        {"kind": "propose", "incarnation": 1, "session": str(SESSION), "round": 0}
    )[:-1]
    return {
        "arrays without end": start + b"\x91" * full,
        "arrays 900 deep": start + b"\x91" * 900 + b"\xc0",
        "a round 900 deep": round_at_the_end + b"\x91" * 900 + b"\xc0",
        "maps without end": start + b"\x81\xa1a" * full,
        "long arrays within long arrays": start + tail * full,
        "an array of 2^32": start + b"\xdd\xff\xff\xff\xff",
        "a map of 2^32": start + b"\xdf\xff\xff\xff\xff",
        "text of 2^32": start + b"\xdb\xff\xff\xff\xff",
        "bytes of 2^32": start + b"\xc6\xff\xff\xff\xff",
        "an extension of 2^32": start + b"\xc9\xff\xff\xff\xff\x01",
        "a timestamp out of range": start + b"\xc7\x0c\xff" + b"\xff" * 12,
        "60,000 empty maps": start + tail + (tail + b"\x80" * 256) * 255,
        "60,000 empty arrays": start + tail + (tail + b"\x90" * 256) * 255,
        "7,000 floats": start + b"\x9f" + (tail + (b"\xcb" + b"\x11" * 8) * 256) * 15,
        "a map as a key": b"\x81\x80\x01",
        "an array as a key": b"\x81\x91\x01\x01",
        "a byte that is never used": start + b"\xc1",
    }


@pytest.mark.parametrize("name", _bombs())
def test_bombs_are_refused_in_bounded_memory(name: str) -> None:
    header = _bombs()[name][: codec.MAX_HEADER]
    frame = b"ABPS\x01" + struct.pack("<I", len(header)) + header
    tracemalloc.start()
    try:
        assert survives(frame) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20


def test_refusing_a_long_frame_costs_no_copy_of_it() -> None:
    frame = codec.encode(SAMPLES[6]) + bytes(32 * 2**20)
    tracemalloc.start()
    try:
        assert survives(frame) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2**20
