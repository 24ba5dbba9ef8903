"""Whatever bytes a connection brings, others are served and nothing but a refusal comes of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.stations import Station, Stations, eventually

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
GREETING = {
    mechanism: SIGNATURE + b"\x03\x01" + mechanism.ljust(20, b"\0") + b"\0" + bytes(31)
    for mechanism in (b"NULL", b"CURVE", b"PLAIN")
}
HELLO = b"\x04\xc8\x05HELLO\x01\x00" + bytes(72) + bytes(32) + b"\0" * 7 + b"\1" + bytes(80)
"""A CURVE HELLO of the right length whose box cannot be opened."""

frames = st.builds(
    lambda flags, body: bytes([flags, len(body)]) + body,
    st.integers(0, 255),
    st.binary(max_size=60),
)
long_frames = st.builds(
    lambda flags, length, body: bytes([flags]) + length.to_bytes(8, "big") + body,
    st.sampled_from([0x02, 0x03, 0x06]),
    st.integers(0, 2**64 - 1),
    st.binary(max_size=60),
)
commands = st.builds(
    lambda name, body: bytes([0x04, 1 + len(name) + len(body), len(name)]) + name + body,
    st.sampled_from([b"READY", b"ERROR", b"HELLO", b"INITIATE", b"MESSAGE", b"PING", b"SUBSCRIBE"]),
    st.binary(max_size=60),
)
speeches = st.lists(
    st.one_of(
        st.sampled_from([*GREETING.values(), SIGNATURE, HELLO]),
        frames,
        long_frames,
        commands,
        st.binary(max_size=200),
    ),
    min_size=1,
    max_size=8,
)


class Street:
    """Two honest stations, one of which strangers knock at."""

    def __init__(self, a: Station, b: Station) -> None:
        self.a, self.b = a, b

    async def knock(self, speech: list[bytes], secure: bool) -> None:
        host, port = self.b.endpoint.removeprefix("tcp://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            for part in speech:
                writer.write(part)
                await writer.drain()
        before = len(self.b.frames)
        self.a.send(self.b, b"still there?")
        await eventually(lambda: len(self.b.frames) > before)
        writer.close()
        if secure:
            assert {peer for peer, _ in self.b.frames} == {"a"}
            assert set(self.b.frames) == {("a", b"still there?")}
        self.b.frames.clear()


async def _street(stations: Stations, secure: bool) -> Street:
    if secure:
        a, b = await stations.together("a", "b")
    else:
        clear = {"identify": lambda frame: "a" if frame == b"still there?" else None}
        roster = {"a": "", "b": ""}
        a, b = [await stations.start(name, None, roster, **clear) for name in roster]
    a.knows(b)
    a.send(b, b"still there?")
    await eventually(lambda: b.frames)
    return Street(a, b)


def _fuzz(secure: bool, examples: int) -> None:
    with asyncio.Runner() as runner:
        stations = Stations()
        street = runner.run(_street(stations, secure))

        @settings(
            max_examples=examples,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
            database=None,
        )
        @given(speech=speeches)
        def knocks(speech: list[bytes]) -> None:
            runner.run(street.knock(speech, secure))

        try:
            knocks()
        finally:
            runner.run(stations.close())


def test_bytes_of_strangers_under_curve() -> None:
    _fuzz(secure=True, examples=100)


def test_bytes_of_strangers_in_clear() -> None:
    _fuzz(secure=False, examples=100)
