"""Frames between centers over real sockets on loopback, CURVE on."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from abps_node.errors import BindError, TransportError
from abps_node.keys import generate
from abps_node.transport import Undeliverable
from abps_node.transport.overhead import wire_bytes
from tests.support.stations import MAX_FRAME, Station, Stations, eventually

COUNT = 400


def numbered(count: int) -> list[bytes]:
    return [b"%06d" % number + b"." * (number % 97) for number in range(count)]


async def send_all(sender: Station, peer: Station, frames: list[bytes]) -> None:
    """Send in order; where the queue is full, wait until it is not."""
    for frame in frames:
        while True:
            try:
                sender.send(peer, frame)
                break
            except Undeliverable as error:
                assert error.reason == "queue-full"
                await asyncio.sleep(0)


async def test_three_centers_talk_to_each_other(stations: Stations) -> None:
    trio = await stations.together("a", "b", "c")
    for sender in trio:
        for peer in trio:
            if peer is not sender:
                sender.knows(peer)
                assert sender.send(peer, b"from " + sender.name.encode()) == 6
    await eventually(lambda: all(len(station.frames) == 2 for station in trio))
    for station in trio:
        others = {other.name for other in trio} - {station.name}
        assert {peer for peer, _ in station.frames} == others
        assert all(frame == b"from " + peer.encode() for peer, frame in station.frames)
        assert not station.misbehavior


async def test_answers_travel_back_without_an_address(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    b.on_frame = lambda peer, frame: b.send(peer, b"re: " + frame) and None
    a.knows(b)
    a.send(b, b"hello")
    await eventually(lambda: a.frames)
    assert a.frames == [("b", b"re: hello")]
    assert not b.transport.has_address("a")


async def test_hundreds_of_frames_both_ways_keep_order_and_number(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.knows(b)
    a.send(b, b"open")
    await eventually(lambda: b.frames)
    sent = numbered(COUNT)
    await asyncio.gather(send_all(a, b, sent), send_all(b, a, sent))
    await eventually(lambda: len(a.frames) == COUNT and len(b.frames) == COUNT + 1)
    assert [frame for _, frame in a.frames] == sent
    assert [frame for _, frame in b.frames[1:]] == sent


async def test_connections_that_cross_lose_and_double_nothing(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.knows(b)
    b.knows(a)
    sent = numbered(COUNT)
    await asyncio.gather(send_all(a, b, sent), send_all(b, a, sent))
    await eventually(lambda: len(a.frames) >= COUNT and len(b.frames) >= COUNT)
    assert sorted(frame for _, frame in a.frames) == sent
    assert sorted(frame for _, frame in b.frames) == sent


async def test_counters_tell_frames_and_bytes(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.knows(b)
    lengths = [0, 1, 222, 223, MAX_FRAME]
    for length in lengths:
        assert a.send(b, bytes(length)) == length
    await eventually(lambda: len(b.frames) == len(lengths))
    out, into = a.transport.counters.peer("b"), b.transport.counters.peer("a")
    assert (out.frames_out, out.bytes_out) == (len(lengths), sum(lengths))
    assert (into.frames_in, into.bytes_in) == (len(lengths), sum(lengths))
    assert out.wire_out == into.wire_in == sum(wire_bytes(length, True) for length in lengths)


async def test_an_application_error_does_not_stall_reading(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.knows(b)
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))

    def fail_at_first(peer: str, frame: bytes) -> None:
        if len(b.frames) == 1:
            raise RuntimeError("bug of the application")

    b.on_frame = fail_at_first
    for frame in numbered(10):
        a.send(b, frame)
    await eventually(lambda: len(b.frames) == 10)
    assert len(errors) == 1


async def test_a_busy_loop_delays_handshakes_but_refuses_nobody(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.knows(b)
    a.send(b, b"hello")

    def keep_busy() -> None:
        until = time.perf_counter() + 0.05
        while time.perf_counter() < until:
            pass
        if not b.frames:
            asyncio.get_running_loop().call_soon(keep_busy)

    keep_busy()
    await eventually(lambda: b.frames)
    assert not a.notices
    assert not b.transport.counters.refused_handshakes


async def test_what_cannot_be_sent_says_why(stations: Stations) -> None:
    a, _ = await stations.together("a", "b")
    for peer, frame, reason in (
        ("b", b"", "no-address"),
        ("stranger", b"", "unknown-peer"),
        ("b", bytes(MAX_FRAME + 1), "too-large"),
    ):
        with pytest.raises(Undeliverable) as caught:
            a.send(peer, frame)
        assert (caught.value.peer, caught.value.reason) == (peer, reason)
    await a.transport.close()
    with pytest.raises(Undeliverable, match="closed"):
        a.send("b", b"")


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:0", "tcp://*:1", "ipc:///tmp/x", "tcp://h:70000", ""]
)
async def test_addresses_of_the_wrong_form_are_refused(stations: Stations, address: str) -> None:
    a, _ = await stations.together("a", "b")
    with pytest.raises(TransportError, match="address of b: found"):
        a.transport.set_address("b", address)
    assert not a.transport.has_address("b")


async def test_close_frees_the_port_and_leaves_no_task(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.knows(b)
    a.send(b, b"hello")
    await eventually(lambda: b.frames)
    await stations.stop(b)
    await stations.stop(a)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    host, port = b.endpoint.removeprefix("tcp://").split(":")
    with socket.create_server((host, int(port))):
        pass


async def test_close_flushes_what_was_sent(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    a.knows(b)
    for frame in numbered(20):
        a.send(b, frame)
    await a.transport.close(5000)
    await eventually(lambda: len(b.frames) == 20)


async def test_close_is_bounded_when_nobody_answers(stations: Stations) -> None:
    a, _ = await stations.together("a", "b")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        a.transport.set_address("b", f"tcp://127.0.0.1:{silent.getsockname()[1]}")
        a.send("b", b"never read")
        before = time.monotonic()
        await a.transport.close(100)
        assert time.monotonic() - before < 5


async def test_a_port_in_use_is_named_and_can_be_tried_again(stations: Stations) -> None:
    (a,) = await stations.together("a")
    keys = generate()
    roster = {"b": keys.public}
    blocked = Station("b", keys, roster=roster, bind=a.endpoint)
    with pytest.raises(BindError, match=f"{a.endpoint}.*[Aa]ddress.*in use"):
        await blocked.transport.start()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await stations.stop(a)
    assert await blocked.transport.start() == a.endpoint
    await blocked.transport.close(0)


async def test_ipv6(stations: Stations) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6")
    a, b = await stations.together("a", "b", bind="tcp://[::1]:0")
    a.knows(b)
    a.send(b, b"hello")
    await eventually(lambda: b.frames == [("a", b"hello")])
