"""Who gets a frame to the application, and who does not."""

from __future__ import annotations

import pytest
import zmq

from abps_node.errors import TransportError
from abps_node.keys import generate
from abps_node.transport import Transport, Undeliverable
from tests.support.stations import Station, Stations, eventually


def read(socket: zmq.Socket[bytes]) -> list[bytes] | None:
    """One message of a raw socket, if there is one."""
    try:
        return socket.recv_multipart(zmq.NOBLOCK)
    except zmq.Again:
        return None


async def prove_alive(a: Station, b: Station) -> None:
    """The two still understand each other."""
    a.knows(b)
    before = len(b.frames)
    a.send(b, b"alive")
    await eventually(lambda: b.frames[before:] == [("a", b"alive")])


async def test_a_strangers_key_is_refused(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    stranger = generate()
    stations.raw(b, stranger).send(b"let me in")
    refused = b.transport.counters.refused_handshakes
    await eventually(lambda: refused["unknown-key"] == 1)
    await prove_alive(a, b)
    assert b.frames == [("a", b"alive")]
    (report,) = b.misbehavior
    assert report[:2] == (None, "unknown-key")
    assert stranger.public in report[2] and "127.0.0.1" in report[2]


async def test_a_client_without_encryption_is_refused(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    stations.raw(b, None).send(b"in clear")
    # Either side may notice first that they do not speak the same, and hang up on the other.
    refused = b.transport.counters.refused_handshakes
    await eventually(lambda: refused["protocol"] + refused["incomplete"] >= 1)
    await prove_alive(a, b)
    assert b.frames == [("a", b"alive")]


async def test_a_client_that_expects_another_server_is_refused(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    socket = stations.raw(b, a.keys, server_key=generate().public)
    socket.send(b"for somebody else")
    await eventually(lambda: (None, "bad-handshake") in b.reasons())
    assert b.transport.counters.refused_handshakes["protocol"] >= 1
    await prove_alive(a, b)
    assert b.frames == [("a", b"alive")]


async def test_another_center_at_the_address_gets_nothing(stations: Stations) -> None:
    a, b, c = await stations.together("a", "b", "c")
    a.transport.set_address("b", c.endpoint)
    a.send(b, b"for b only")
    await eventually(lambda: ("b", "handshake-failed") in a.noticed())
    assert not c.frames and not b.frames
    a.knows(b)
    a.send(b, b"again")
    await eventually(lambda: b.frames == [("a", b"again")])
    assert not c.frames


async def test_peers_learn_that_their_key_is_not_known(stations: Stations) -> None:
    a_keys, b_keys = generate(), generate()
    a = await stations.start("a", a_keys, {"a": a_keys.public, "b": b_keys.public})
    b = await stations.start("b", b_keys, {"b": b_keys.public})
    a.knows(b)
    a.send(b, b"hello")
    await eventually(lambda: ("b", "refused-by-peer") in a.noticed())
    with pytest.raises(Undeliverable) as caught:
        a.send(b, b"hello")
    assert caught.value.reason == "refused-by-peer"
    assert not b.frames

    b.transport.set_roster({"a": a_keys.public, "b": b_keys.public})

    def sent() -> bool:
        try:
            a.send(b, b"admitted")
        except Undeliverable:
            return False
        return True

    await eventually(sent)
    await eventually(lambda: b.frames == [("a", b"admitted")])


async def test_the_own_key_is_no_peer(stations: Stations) -> None:
    _, b = await stations.together("a", "b")
    stations.raw(b, b.keys).send(b"I am you")
    await eventually(lambda: b.transport.counters.refused_handshakes["unknown-key"] == 1)
    assert not b.frames


async def test_a_key_counts_whatever_routing_id_it_claims(stations: Stations) -> None:
    a, b, c = await stations.together("a", "b", "c")
    b.on_frame = lambda peer, frame: b.send(peer, b"re: " + frame) and None
    a.knows(b)
    a.send(b, b"1")
    await eventually(lambda: a.frames == [("b", b"re: 1")])
    b.on_frame = lambda peer, frame: None
    # c connects with its own key and claims to be everything that could be somebody else.
    for claimed in (b"a", b"b", a.keys.public.encode(), b"five!", b"sixteen letters!"):
        b.frames.clear()
        thief = stations.raw(b, c.keys, options={zmq.ROUTING_ID: claimed})
        thief.send(b"mine")
        await eventually(lambda: b.frames == [("c", b"mine")])
        b.send("a", b"secret for a")
        await eventually(lambda: a.frames[-1:] == [("b", b"secret for a")])
        a.frames.clear()
        assert read(thief) is None
        with pytest.raises(Undeliverable, match="no-address"):
            # What c claimed is no way to c either; it must be met where c listens.
            b.send("c", b"for c")


async def test_a_claimed_id_cannot_be_shadowed_or_taken_over(stations: Stations) -> None:
    a, b, c = await stations.together("a", "b", "c")
    honest = stations.raw(b, a.keys, options={zmq.ROUTING_ID: b"chosen"})
    honest.send(b"first")
    await eventually(lambda: b.frames == [("a", b"first")])
    thief = stations.raw(b, c.keys, options={zmq.ROUTING_ID: b"chosen"})
    thief.send(b"taken over?")
    honest.send(b"still a")
    await eventually(lambda: b.frames[1:] == [("a", b"still a")])
    assert read(thief) is None


async def test_one_key_may_have_several_connections(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    first, second = stations.raw(b, a.keys), stations.raw(b, a.keys)
    first.send(b"first")
    await eventually(lambda: b.frames == [("a", b"first")])
    second.send(b"second")
    await eventually(lambda: b.frames[1:] == [("a", b"second")])
    b.send("a", b"to the newest")
    await eventually(lambda: read(second) == [b"to the newest"])
    second.close()

    def arrives_at_first() -> bool:
        b.send("a", b"to the one that is left")
        return read(first) == [b"to the one that is left"]

    await eventually(arrives_at_first)


async def test_a_key_is_revoked_at_run_time(stations: Stations) -> None:
    a, b, c = await stations.together("a", "b", "c")
    for peer in (a, c):
        peer.knows(b)
        peer.send(b, b"before")
    await eventually(lambda: len(b.frames) == 2)
    b.knows(a)
    b.frames.clear()

    b.transport.set_roster({"b": b.keys.public, "c": c.keys.public})
    with pytest.raises(Undeliverable, match="unknown-peer"):
        b.send("a", b"no more")
    assert not b.transport.has_address("a")
    await eventually(lambda: b.transport.counters.cut_connections["revoked"] == 1)
    # Its connection is opened again by libzmq, and refused.
    await eventually(lambda: ("b", "refused-by-peer") in a.noticed())
    c.send(b, b"after")
    await eventually(lambda: b.frames == [("c", b"after")])


async def test_frames_of_a_revoked_key_that_wait_already_are_dropped(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.knows(b)

    def revoke(peer: str, frame: bytes) -> None:
        b.transport.set_roster({"b": b.keys.public})

    b.on_frame = revoke
    for number in range(30):
        a.send(b, b"%d" % number)
    dropped = b.transport.counters.dropped_frames
    await eventually(lambda: b.frames and (dropped["unknown-key"] or a.notices))
    assert b.frames == [("a", b"0")]


async def test_a_changed_key_replaces_the_old_one(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    await prove_alive(a, b)
    new = generate()
    b.transport.set_roster({"a": new.public, "b": b.keys.public})
    stations.raw(b, new).send(b"with the new key")
    await eventually(lambda: b.frames[1:] == [("a", b"with the new key")])
    stations.raw(b, a.keys).send(b"with the old key")
    await eventually(lambda: b.transport.counters.refused_handshakes["unknown-key"] >= 1)
    assert len(b.frames) == 2


async def test_reports_of_strangers_are_throttled_but_counted(stations: Stations) -> None:
    keys = generate()
    b = await stations.start("b", keys, {"b": keys.public}, report_every_s=3600.0)
    for _ in range(8):
        stations.raw(b, generate()).send(b"knock")
    refused = b.transport.counters.refused_handshakes
    await eventually(lambda: refused["unknown-key"] == 8)
    assert len(b.misbehavior) == 1


def make(roster: dict[str, str]) -> Transport:
    return Transport(
        center_id="a",
        bind="tcp://127.0.0.1:0",
        keys=generate(),
        roster=roster,
        max_frame_bytes=1,
        on_frame=lambda peer, frame: None,
        on_misbehavior=lambda peer, reason, detail: None,
    )


def test_a_roster_with_one_key_twice_or_no_key_is_refused() -> None:
    key = generate().public
    with pytest.raises(TransportError, match="c and b have the same public key"):
        make({"b": key, "c": key})
    with pytest.raises(TransportError, match="roster: b: found 'short', allowed"):
        make({"b": "short"})
    transport = make({"b": key})
    with pytest.raises(TransportError, match="same public key"):
        transport.set_roster({"c": key, "d": key})
    with pytest.raises(Undeliverable, match="closed"):
        transport.send("b", b"")
