"""Security «none»: a center is whom the first frame of its connection names."""

from __future__ import annotations

from bench.counting_proxy import CountingProxy
from tests.support.stations import Station, Stations, eventually

ROSTER = {"a": "", "b": "", "c": ""}


def identify(frame: bytes) -> str | None:
    return frame[5:].decode() if frame.startswith(b"I am ") else None


async def start(stations: Stations, *names: str, **options: object) -> list[Station]:
    return [
        await stations.start(name, None, ROSTER, identify=identify, **options) for name in names
    ]


async def test_the_first_frame_names_the_sender(stations: Stations) -> None:
    a, b = await start(stations, "a", "b")
    a.knows(b)
    a.send(b, b"I am a")
    a.send(b, b"I am c")  # not a first frame any more: just a frame of a
    a.send(b, b"anything")
    await eventually(lambda: len(b.frames) == 3)
    assert b.frames == [("a", b"I am a"), ("a", b"I am c"), ("a", b"anything")]
    b.send(a, b"answer")
    await eventually(lambda: a.frames == [("b", b"answer")])


async def test_nameless_and_unknown_senders_are_dropped(stations: Stations) -> None:
    (b,) = await start(stations, "b")
    stations.raw(b, None).send(b"no name")
    stations.raw(b, None).send(b"I am a stranger")
    stations.raw(b, None).send(b"I am b")
    dropped = b.transport.counters.dropped_frames
    await eventually(lambda: sum(dropped.values()) == 3)
    assert dropped == {"unidentified": 1, "unknown-center": 2}
    assert not b.frames


async def test_another_center_at_the_address_is_found_out(stations: Stations) -> None:
    a, c = await start(stations, "a", "c")
    c.on_frame = lambda peer, frame: c.send(peer, b"I am c") and None
    async with CountingProxy(c.endpoint) as proxy:
        a.transport.set_address("b", proxy.address)
        a.send("b", b"I am a")
        await eventually(lambda: ("b", "wrong-center") in a.reasons())
        # That connection is given up: whoever is there gets nothing more of what is for b.
        a.send("b", b"I am a")
        await eventually(lambda: proxy.connections == 2)
    assert not a.frames


async def test_a_reconnection_is_recognized(stations: Stations) -> None:
    a, b = await start(stations, "a", "b")
    a.knows(b)
    a.send(b, b"I am a")
    a.send(b, b"more")
    await eventually(lambda: len(b.frames) == 2)
    a.send(b, b"and more")
    await eventually(lambda: len(b.frames) == 3)
    # b cuts the connection; libzmq opens it again, and no frame names a any more.
    b.transport._guard.cut_peer("a", "for the test")
    assert b.transport.counters.cut_connections["revoked"] == 1

    def heard() -> bool:
        a.send(b, b"it is me")
        return ("a", b"it is me") in b.frames

    await eventually(heard)
    assert not b.transport.counters.dropped_frames
