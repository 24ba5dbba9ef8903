"""Peers that end, come back, and come back elsewhere."""

from __future__ import annotations

from abps_node.keys import KeyPair, generate
from abps_node.transport import Undeliverable
from tests.support.stations import Station, Stations, eventually


async def pair(stations: Stations) -> tuple[Station, Station, KeyPair, dict[str, str]]:
    """Two that have talked; b's keys and the roster, to start b once more."""
    keys = {name: generate() for name in ("a", "b")}
    roster = {name: pair.public for name, pair in keys.items()}
    a, b = [await stations.start(name, keys[name], roster) for name in ("a", "b")]
    a.knows(b)
    a.send(b, b"before")
    await eventually(lambda: b.frames == [("a", b"before")])
    b.send(a, b"before")
    await eventually(lambda: a.frames == [("b", b"before")])
    return a, b, keys["b"], roster


def attempt(sender: Station, peer: Station, frame: bytes) -> bool:
    """Send until the peer has heard something; what was sent to its former self is lost."""
    if not peer.frames:
        sender.send(peer, frame)
    return bool(peer.frames)


async def test_a_peer_comes_back_on_the_same_port(stations: Stations) -> None:
    a, b, keys, roster = await pair(stations)
    await stations.stop(b)
    await eventually(lambda: ("b", "connection-lost") in a.noticed())
    again = await stations.start("b", keys, roster, bind=b.endpoint)
    await eventually(lambda: attempt(a, again, b"after"))
    again.send(a, b"I am back")
    await eventually(lambda: ("b", b"I am back") in a.frames)


async def test_a_peer_comes_back_on_another_port(stations: Stations) -> None:
    a, b, keys, roster = await pair(stations)
    await stations.stop(b)
    again = await stations.start("b", keys, roster)
    assert again.endpoint != b.endpoint
    a.knows(again)
    a.send(again, b"moved")
    await eventually(lambda: again.frames == [("a", b"moved")])


async def test_a_peer_that_comes_back_by_itself_is_answered_there(stations: Stations) -> None:
    a, b, keys, roster = await pair(stations)
    await stations.stop(b)
    again = await stations.start("b", keys, roster)
    again.knows(a)
    again.send(a, b"here")
    await eventually(lambda: ("b", b"here") in a.frames)
    # a still knows the old address only, and does not need it.
    a.send(again, b"found you")
    await eventually(lambda: again.frames == [("a", b"found you")])


async def test_frames_to_a_peer_that_is_away_wait_in_a_bounded_queue(stations: Stations) -> None:
    a, b, keys, roster = await pair(stations)
    await stations.stop(b)
    await eventually(lambda: ("b", "connection-lost") in a.noticed())
    sent = 0
    try:
        while sent < 1000:
            a.send(b, b"%d" % sent)
            sent += 1
    except Undeliverable as error:
        assert error.reason == "queue-full"
    assert sent <= 64
    again = await stations.start("b", keys, roster, bind=b.endpoint)
    await eventually(lambda: len(again.frames) == sent)
    assert [frame for _, frame in again.frames] == [b"%d" % number for number in range(sent)]


async def test_two_hints_with_one_address_do_not_disturb_each_other_for_long(
    stations: Stations,
) -> None:
    a, b, c = await stations.together("a", "b", "c")
    a.knows(b)
    a.transport.set_address("c", b.endpoint)
    a.send(b, b"for b")
    a.send(c, b"for c")
    await eventually(lambda: b.frames == [("a", b"for b")])
    await eventually(lambda: ("c", "handshake-failed") in a.noticed() or a.notices)
    a.knows(c)
    a.send(c, b"for c")
    a.send(b, b"for b again")
    await eventually(lambda: c.frames == [("a", b"for c")])
    await eventually(lambda: b.frames[1:] == [("a", b"for b again")])


async def test_drop_closes_the_opened_connection_only(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.transport.drop("b")
    a.knows(b)
    a.send(b, b"one")
    await eventually(lambda: b.frames)
    a.transport.drop("b")
    await eventually(lambda: ("a", "connection-lost") in b.noticed())
    a.send(b, b"two")
    await eventually(lambda: b.frames == [("a", b"one"), ("a", b"two")])
