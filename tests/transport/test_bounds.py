"""What a peer on the roster cannot do: block, starve or fill up another center."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import time
from collections.abc import Iterator

import pytest
import zmq

from abps_node.errors import TransportError
from abps_node.keys import KeyPair, generate
from abps_node.transport import Undeliverable, floods
from abps_node.transport.floods import AVAILABLE, FloodGuard
from abps_node.transport.trust import HANDSHAKES, HOLD_S, MOST_HOLD_S, Patience
from tests.support.stations import MAX_FRAME, Station, Stations, eventually

Pair = tuple[socket.socket, socket.socket]


def resident_bytes() -> int:
    """Memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - /proc
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def known_clear_text(frame: bytes) -> str | None:
    """Without security: a frame that starts with «I am X» names X."""
    return frame[5:].decode() if frame.startswith(b"I am ") else None


async def test_multipart_messages_are_dropped_and_reported(stations: Stations) -> None:
    a, b, c = await stations.together("a", "b", "c")
    c.knows(b)
    hostile = stations.raw(b, a.keys)
    for _ in range(50):
        hostile.send_multipart([b"looks good", b"smuggled", b""])
    hostile.send(b"one frame")
    c.send(b, b"meanwhile")
    await eventually(lambda: len(b.frames) == 2)
    assert sorted(b.frames) == [("a", b"one frame"), ("c", b"meanwhile")]
    assert b.transport.counters.dropped_frames["multipart"] == 50
    assert b.reasons() == {("a", "multipart")}


async def test_a_message_of_very_many_parts_does_not_hold_up_others(stations: Stations) -> None:
    a, b, c = await stations.together("a", "b", "c")
    c.knows(b)
    hostile = stations.raw(b, a.keys)
    for _ in range(5000):
        hostile.send(b"part", zmq.SNDMORE)
    hostile.send(b"")
    c.send(b, b"before")
    await eventually(lambda: b.transport.counters.dropped_frames["multipart"] == 1)
    c.send(b, b"after")
    hostile.send(b"I can behave")
    await eventually(lambda: len(b.frames) == 3)


async def test_empty_delimiters_of_req_sockets_are_multipart(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    stations.raw(b, a.keys, kind=zmq.REQ).send(b"question")
    await eventually(lambda: b.reasons() == {("a", "multipart")})
    assert not b.frames


async def test_an_oversized_frame_costs_its_sender_the_connection(stations: Stations) -> None:
    a, b, c = await stations.together("a", "b", "c")
    c.knows(b)
    hostile = stations.raw(b, a.keys)
    hostile.send(b"x" * MAX_FRAME)
    await eventually(lambda: b.frames)
    hostile.send(b"x" * (MAX_FRAME + 1))
    lost = b.transport.counters.peer("a")
    await eventually(lambda: lost.connections_lost == 1)
    assert ("a", "connection-lost") in b.noticed()
    hostile.send(b"back again")
    c.send(b, b"never noticed")
    await eventually(lambda: len(b.frames) == 3)
    assert all(len(frame) <= MAX_FRAME for _, frame in b.frames)


async def test_a_frame_just_above_the_limit_in_clear_is_refused(stations: Stations) -> None:
    b = await stations.start("b", None, {"a": "", "b": ""}, identify=known_clear_text)
    raw = stations.raw(b, None)
    raw.send(b"I am a")
    await eventually(lambda: b.frames)
    raw.send(b"x" * (MAX_FRAME + 1))
    await eventually(lambda: b.transport.counters.peer("a").connections_lost == 1)
    assert len(b.frames) == 1


async def test_a_slow_reader_blocks_nobody_and_costs_a_bounded_queue(stations: Stations) -> None:
    frame_bytes, queue = 1 << 20, 8
    a, b = await stations.together("a", "b", max_frame_bytes=frame_bytes, queue_frames=queue)
    never_reads = stations.raw(a, b.keys, options={zmq.RCVHWM: 1, zmq.RCVBUF: 1 << 16})
    never_reads.send(b"write to me")
    await eventually(lambda: a.frames)
    before = resident_bytes()
    frame = bytes(frame_bytes)
    sent = 0
    with pytest.raises(Undeliverable, match="queue-full: 8 frames wait already"):
        while sent < 400:
            a.send("b", frame)
            sent += 1
            await asyncio.sleep(0)
    assert sent < 100
    assert resident_bytes() - before < 150 << 20


async def test_strangers_cannot_use_up_the_descriptors(stations: Stations) -> None:
    a, b = await stations.together("a", "b")
    b.transport._guard.limit_accepted(5)
    host, port = b.endpoint.removeprefix("tcp://").split(":")
    idle = [socket.create_connection((host, int(port))) for _ in range(9)]
    cut = b.transport.counters.cut_connections
    await eventually(lambda: cut["too-many-connections"] == 4)
    for silent in idle:
        silent.close()

    # An honest connection that was cut meanwhile is opened again by libzmq.
    a.knows(b)
    a.send(b, b"hello")
    await eventually(lambda: b.frames == [("a", b"hello")])


GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x01" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
READY = b"\x05READY" + b"\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
MORE = 0x01


def part(content: bytes, flags: int = 0) -> bytes:
    """A short ZMTP frame."""
    return bytes([flags, len(content)]) + content


async def speak_zmtp(b: Station) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection by hand, since libzmq itself never sends an unfinished message."""
    host, port = b.endpoint.removeprefix("tcp://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(GREETING + part(READY, flags=0x04))
    await reader.readexactly(64)
    return reader, writer


async def flood(writer: asyncio.StreamWriter, most: int) -> int:
    """Send parts of one endless message until it is cut off; returns the bytes sent."""
    parts = part(b"x" * 250, MORE) * 130
    sent = 0
    try:
        while sent < most:
            writer.write(parts)
            await writer.drain()
            sent += len(parts)
            # 16 MB a second: the sender's speed, without which the bound would depend on it.
            await asyncio.sleep(0.002)
    except ConnectionError:
        pass
    return sent


@pytest.mark.skipif(not AVAILABLE, reason="needs TCP_INFO")
async def test_an_endless_multipart_message_is_cut_off(stations: Stations) -> None:
    roster = {"a": "", "b": "", "c": ""}
    b, c = [
        await stations.start(name, None, roster, identify=known_clear_text, queue_frames=8)
        for name in ("b", "c")
    ]
    c.knows(b)
    _, writer = await speak_zmtp(b)
    writer.write(part(b"I am a"))
    await eventually(lambda: b.frames)
    sent = await flood(writer, 64 << 20)
    writer.close()
    assert sent < 16 << 20
    assert b.transport.counters.cut_connections["flood"] == 1
    assert ("a", "flood") in b.reasons()
    c.send(b, b"I am c")
    await eventually(lambda: b.frames[1:] == [("c", b"I am c")])


@pytest.mark.skipif(not AVAILABLE, reason="needs TCP_INFO")
async def test_who_floods_may_not_come_back_at_once(stations: Stations) -> None:
    """Else the rests of all its connections, which wait to be read, would pile up."""
    a, b = await stations.together("a", "b")
    peer = stations.raw(b, a.keys, options={zmq.SNDHWM: 0})
    peer.send(b"I am a")
    await eventually(lambda: b.frames)

    def flooded() -> bool:
        for _ in range(10_000):
            peer.send(bytes(100))
        time.sleep(0.4)  # this loop reads nothing meanwhile, as where it is busy
        return ("a", "flood") in b.reasons()

    await eventually(flooded)
    # libzmq connects again by itself.
    await eventually(lambda: b.transport.counters.refused_handshakes["too-often"])
    assert b.transport.counters.cut_connections["flood"] == 1
    b.knows(a)
    with pytest.raises(Undeliverable) as caught:
        b.send(a, b"hello")
    assert caught.value.reason == "held-off"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_patience_shrinks_with_every_flood_and_comes_back() -> None:
    clock = Clock()
    patience = Patience(clock)
    assert patience.hold_off("a") == HOLD_S
    assert patience.hold_off("a") == 0.0, "it is held off already"
    assert patience.holds_off("a") and not patience.bears("a")
    assert not patience.holds_off("b") and patience.bears("b")
    clock.now += HOLD_S
    assert not patience.holds_off("a") and patience.bears("a")
    assert patience.hold_off("a") == 2 * HOLD_S
    for _ in range(20):
        clock.now += MOST_HOLD_S
        seconds = patience.hold_off("a")
    assert seconds == MOST_HOLD_S
    clock.now += 2 * MOST_HOLD_S
    assert patience.hold_off("a") == HOLD_S


def test_connections_without_end_are_not_borne() -> None:
    clock = Clock()
    patience = Patience(clock)
    assert [patience.bears("a") for _ in range(HANDSHAKES + 2)] == [True] * HANDSHAKES + [False] * 2
    clock.now += 1.0
    assert [patience.bears("a") for _ in range(2)] == [True, False]
    clock.now += 1000.0
    assert sum(patience.bears("a") for _ in range(2 * HANDSHAKES)) == HANDSHAKES


@pytest.mark.skipif(not AVAILABLE, reason="needs TCP_INFO")
class TestFloodGuard:
    """The guard on plain TCP connections, looking only when it is told to."""

    @pytest.fixture
    def pair(self) -> Iterator[Pair]:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
            self.server = server
            with socket.create_connection(server.getsockname()) as sender:
                accepted, _ = server.accept()
                with accepted:
                    yield sender, accepted

    def guard(self, most: int = 10) -> tuple[FloodGuard, list[tuple[str | None, str, str]]]:
        cuts: list[tuple[str | None, str, str]] = []
        return FloodGuard(1 << 20, most, lambda *cut: cuts.append(cut)), cuts

    def move(self, sender: socket.socket, accepted: socket.socket, count: int) -> None:
        """``count`` bytes from the sender through the kernel into the reader's memory."""
        while count:
            chunk = min(count, 1 << 16)
            sender.sendall(bytes(chunk))
            accepted.recv(chunk, socket.MSG_WAITALL)
            count -= chunk

    def test_more_than_the_queue_can_hold_is_cut(self, pair: Pair) -> None:
        sender, accepted = pair
        guard, cuts = self.guard()
        guard.opened(accepted.fileno(), False, self.port)
        guard.delivered(accepted.fileno(), "a", 0)
        guard.look()
        self.move(sender, accepted, 1 << 20)
        guard.look()
        assert not cuts
        self.move(sender, accepted, 1 << 20)
        guard.look()
        guard.look()
        assert [cut[:2] for cut in cuts] == [("a", "flood")]
        assert sender.recv(1) == b""

    def test_a_message_read_before_the_news_of_its_connection_names_the_peer(
        self, pair: Pair
    ) -> None:
        _, accepted = pair
        guard, _ = self.guard()
        guard.delivered(accepted.fileno(), "a", 9)
        guard.opened(accepted.fileno(), False, self.port)
        assert guard.closed(accepted.fileno()) == "a"

    def test_deliveries_make_room(self, pair: Pair) -> None:
        sender, accepted = pair
        guard, cuts = self.guard()
        guard.opened(accepted.fileno(), False, self.port)
        for _ in range(6):
            self.move(sender, accepted, 1 << 20)
            guard.delivered(accepted.fileno(), "a", 1 << 19)
            guard.dropped(accepted.fileno(), 1 << 19)
            guard.look()
        assert not cuts

    def test_what_waits_in_the_kernel_does_not_count(self, pair: Pair) -> None:
        sender, accepted = pair
        guard, cuts = self.guard()
        guard._bound = 1 << 14
        guard.opened(accepted.fileno(), False, self.port)
        sender.sendall(bytes(1 << 15))
        assert len(accepted.recv(1 << 15, socket.MSG_PEEK | socket.MSG_WAITALL)) == 1 << 15
        guard.look()
        assert not cuts
        accepted.recv(1 << 15, socket.MSG_WAITALL)
        guard.look()
        assert len(cuts) == 1

    def test_what_a_peer_keeps_counts_over_all_its_connections(self, pair: Pair) -> None:
        sender, accepted = pair
        guard, cuts = self.guard()
        with socket.create_connection(("127.0.0.1", self.port)) as again:
            other, _ = self.server.accept()
            with other:
                for each in (accepted, other):
                    guard.opened(each.fileno(), False, self.port)
                    guard.delivered(each.fileno(), "a", 0)
                self.move(sender, accepted, 700_000)
                self.move(again, other, 500_000)
                guard.look()
                assert not cuts
                self.move(again, other, 300_000)
                guard.look()
        assert [cut[:2] for cut in cuts] == [("a", "flood")] * 2

    def test_a_descriptor_that_became_something_else_is_left_alone(self, pair: Pair) -> None:
        sender, accepted = pair
        guard, cuts = self.guard()
        # As if libzmq had closed it, and the descriptor were now a connection of somebody else.
        guard.opened(accepted.fileno(), False, self.port + 1)
        self.move(sender, accepted, 4 << 20)
        guard.look()
        assert not cuts
        sender.sendall(b"still open")
        assert accepted.recv(10) == b"still open"

    def test_closed_descriptors_are_forgotten(self, pair: Pair) -> None:
        _, accepted = pair
        guard, cuts = self.guard(most=1)
        guard.opened(accepted.fileno(), False, self.port)
        guard.delivered(accepted.fileno(), "a", 9)
        assert guard.closed(accepted.fileno()) == "a"
        assert guard.closed(accepted.fileno()) is None
        guard.opened(accepted.fileno(), False, self.port)
        assert not cuts
        accepted.close()
        guard.look()
        assert not cuts


async def test_pings_amid_a_flood_that_is_reset_end_nothing(stations: Stations) -> None:
    """libzmq aborts the process at a ping that it reads behind a full queue of a dead peer."""
    b = await stations.start("b", None, {"a": "", "b": ""}, identify=known_clear_text)
    _, writer = await speak_zmtp(b)
    writer.write(part(b"I am a"))
    await eventually(lambda: b.frames)
    ping = part(b"\x04PING" + bytes(2), flags=0x04)
    burst = (part(b"I am a") * 8 + ping) * 40
    tcp = writer.transport.get_extra_info("socket")
    tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.write(burst)
    writer.transport.abort()
    time.sleep(0.2)  # this loop reads nothing meanwhile, as where it is busy
    await eventually(lambda: len(b.frames) > 64)


async def test_dead_connections_are_tcps_to_find_and_libzmq_has_no_timers(
    stations: Stations,
) -> None:
    """With heartbeats a flood, a broken connection and a busy loop end the process: see options."""
    a, b = await stations.together("a", "b", dead_after_s=9.0)
    a.knows(b)
    a.send(b, b"hello")
    await eventually(lambda: b.frames)
    for station in (a, b):
        assert station.transport._socket.getsockopt(zmq.HEARTBEAT_IVL) == 0
        connections = station.transport._guard._connections
        await eventually(lambda found=connections: found)
        for descriptor, connection in connections.items():
            with floods._borrowed(descriptor, connection) as tcp:
                assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                found = [
                    tcp.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                ]
                assert found == [3, 3, 3]
                assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 9000


@pytest.mark.parametrize("option", ["max_frame_bytes", "queue_frames", "dead_after_s"])
def test_a_bound_of_nothing_is_refused(option: str) -> None:
    # libzmq would take 0 for «no limit».
    with pytest.raises(TransportError, match=f"{option}: found 0, allowed: "):
        Station("a", generate(), roster={}, **{option: 0})


def test_keys_and_identify_exclude_each_other() -> None:
    for keys, identify in ((None, None), (KeyPair("", ""), known_clear_text)):
        with pytest.raises(TransportError, match="exactly one"):
            Station("a", keys, roster={}, identify=identify)
