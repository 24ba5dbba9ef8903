"""A running center under attack: refused, logged, counted, and its rounds go on.

Two centers run as processes while every test attacks the first of them, each as another member of
the roster, or as a stranger. What is refused stands in its events table and in its log.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import numpy as np
import pytest
import zmq

from abps_node.identity import load_own_keys
from abps_node.keys import generate
from abps_node.store.views import EventView
from abps_node.transport import Undeliverable
from protocol import codec
from protocol.beliefs import Belief
from protocol.messages import Ping, Refuse, RefuseReason, SessionId
from protocol.trunk import pack
from tests.support.player import LONGEST_FRAME, Player
from tests.support.residents import eventually
from tests.support.scene import Play, Raw, Scene, introduced, peak_memory

pytestmark = pytest.mark.timeout(600)

NULL_GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
"""ZMTP 3.1: signature, version, mechanism, not as server, filler."""
BAD_TRUNKS = 2
"""Refused trunks that each test waits for."""


# Before a word is said ----------------------------------------------------------------------------


async def test_a_strangers_key(scene: Scene, raw: Raw) -> None:
    keys = generate()
    raw(keys).send(b"let me in")
    event = await scene.refuses("unknown-key", peer="")
    assert keys.public in event.text
    assert event.level == "warning"


async def test_a_client_without_encryption(scene: Scene) -> None:
    """By hand, since a libzmq client may hang up before it has said what it wants."""
    host, _, port = scene.endpoint.removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(NULL_GREETING)
        event = await scene.refuses("bad-handshake", peer="")
        assert "MECHANISM_MISMATCH" in event.text
        while client.recv(4096):
            pass  # its own greeting, then the end of the connection


# Frames of a member that are no message -----------------------------------------------------------


async def test_a_message_of_several_frames(scene: Scene, raw: Raw) -> None:
    member = scene.next_attacker()
    raw(load_own_keys(member)).send_multipart([b"one", b"two"])
    await scene.refuses("multipart", peer=member.id)


async def test_a_flood_of_frames_in_one_message(scene: Scene, raw: Raw) -> None:
    """100 MB at 16 MB/s, of which the target may keep what its queue could honestly hold."""
    before = peak_memory(scene.target)
    async with narrows(scene.endpoint) as endpoint:
        client = raw(load_own_keys(scene.next_attacker()), endpoint)
        part = bytes(50_000)
        for _ in range(2_000):
            client.send(part, zmq.SNDMORE)
        client.send(part)
        event = await scene.refuses("flood", peer="")
    assert "not delivered in whole messages" in event.text
    assert peak_memory(scene.target) - before < 60e6


@asynccontextmanager
async def narrows(target: str) -> AsyncIterator[str]:
    """An endpoint that leads to the target, but lets pass no more than 16 MB a second."""
    host, _, port = target.removeprefix("tcp://").rpartition(":")

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(host, int(port))
        answers = asyncio.ensure_future(pump(there, writer, 0.0))
        await pump(reader, back, 0.004)
        await answers

    async def pump(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pause_s: float
    ) -> None:
        with suppress(ConnectionError):  # the target has cut it off
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()
                await asyncio.sleep(pause_s)
        writer.close()

    async with await asyncio.start_server(forward, "127.0.0.1", 0) as server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_an_oversized_frame(scene: Scene, play: Play) -> None:
    player = await play()
    await introduced(player)
    player.send(bytes(LONGEST_FRAME))
    event = await scene.refuses("connection-lost", peer=player.id, kind="connection")
    assert "longer than allowed" in event.text


@pytest.mark.parametrize(
    ("reason", "frame"),
    [
        ("bad-magic", b"GET / HTTP/1.1\r\n\r\n"),
        ("truncated", codec.encode(Ping(1))[:-1]),
        ("trailing-bytes", codec.encode(Ping(1)) + b"x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_malformed_frame(scene: Scene, play: Play, reason: str, frame: bytes) -> None:
    player = await play()
    await introduced(player)
    player.send(frame)
    await scene.refuses(reason, peer=player.id)
    await eventually(lambda: refused_frames(scene, player) == (1, len(frame)))


async def test_a_trunk_longer_than_any(scene: Scene, play: Play) -> None:
    player = await play()
    await introduced(player)
    session = SessionId(player.id, 1, "amber", player.their_incarnation, 1)
    too_long = bytes(player.layout.payload_bytes("float32") + 4)
    player.say(player.weights(session, payload=too_long))
    await scene.refuses("payload-too-long", peer=player.id)
    await eventually(lambda: refused_frames(scene, player)[0] == 1)


def refused_frames(scene: Scene, player: Player) -> tuple[int, int]:
    """Messages and bytes from the player that the byte accounts have as refused."""
    for row in scene.target.reader.traffic():
        if (row.peer, row.direction, row.kind) == (player.id, "in", "refused"):
            return row.messages, row.frame_bytes
    return 0, 0


async def test_a_future_protocol_version(scene: Scene, play: Play) -> None:
    player = await play()
    frame = bytearray(codec.encode(player.hello()))
    frame[4] = 2
    player.send(bytes(frame))
    await scene.refuses("protocol-version", peer=player.id)
    await eventually(lambda: player.of(Refuse))
    assert player.of(Refuse)[0].reason is RefuseReason.PROTOCOL_VERSION
    assert status(scene, player) == "refused"


# Messages of a member that are a lie --------------------------------------------------------------


async def test_a_foreign_id(scene: Scene, play: Play) -> None:
    player = await play()
    player.say(player.hello(center="birch"))
    await eventually(lambda: player.of(Refuse))
    assert player.of(Refuse)[0].reason is RefuseReason.FOREIGN_ID
    text = f"the key of {player.id} introduced itself as birch"
    assert player.of(Refuse)[0].detail == text

    def refused() -> list[EventView]:
        events = scene.target.reader.events(kind="peer-refused")
        return [event for event in events if event.peer == player.id]

    await eventually(refused)
    (event,) = refused()
    assert event.level == "error"
    assert text in event.text
    assert event.text in [line["text"] for line in scene.log() if line["event"] == "peer-refused"]
    assert status(scene, player) == "refused"
    await scene.goes_on()


def status(scene: Scene, player: Player) -> str:
    """How the target sees the player."""
    return next(peer.status for peer in scene.target.reader.peers() if peer.peer == player.id)


async def test_more_messages_than_the_contract_allows(scene: Scene, play: Play) -> None:
    player = await play()
    await introduced(player)

    def flood() -> list[EventView]:
        with suppress(Undeliverable):  # the queue is full; more comes at the next look
            for _ in range(100):
                player.say(Ping(1))
        return scene.target.reader.events(kind="rate-limited")

    await eventually(flood)
    event = flood()[0]
    assert event.peer == player.id
    assert "more than 200 messages a second" in event.text
    await scene.goes_on()


# Trunks -------------------------------------------------------------------------------------------


def not_a_number(player: Player) -> bytes:
    trunk = np.zeros(player.layout.size, dtype=np.float32)
    trunk[3] = np.nan
    return pack(trunk, "float32")


def too_short(player: Player) -> bytes:
    return bytes(player.layout.payload_bytes("float32") - 4)


def absurd(player: Player) -> bytes:
    return pack(np.full(player.layout.size, 1e6, dtype=np.float32), "float32")


@pytest.mark.parametrize(
    ("reason", "payload"),
    [("trunk-not-finite", not_a_number), ("trunk-length", too_short), ("trunk-norm", absurd)],
    ids=["not-finite", "too-short", "absurd-norm"],
)
async def test_a_bad_trunk(
    scene: Scene, play: Play, reason: str, payload: Callable[[Player], bytes]
) -> None:
    player = await play()
    await is_punished(scene, player, reason, payload=payload(player))


async def test_a_trunk_of_another_shape(scene: Scene, play: Play) -> None:
    await is_punished(scene, await play(), "trunk-layout", layout="0" * 64)


async def is_punished(scene: Scene, player: Player, reason: str, **trunk: Any) -> None:
    """Each trunk of the player is a credit of 0 in a committed round: β + 1, and no more."""
    player.be_partner(**trunk)
    await introduced(player)
    reader = scene.target.reader

    def credits() -> list[tuple[float | None, float]]:
        return [(c.phi, c.phi_bar) for c in reader.credits() if c.peer == player.id]

    await eventually(lambda: len(credits()) >= BAD_TRUNKS)
    await player.close()
    await scene.goes_on()
    earned = credits()
    assert set(earned) == {(None, 0.0)}
    assert reader.beliefs()[player.id] == Belief(1.0, 1.0 + len(earned), len(earned))
    assert len(scene.refusals(reason, player.id, "trunk-refused")) >= len(earned)
    failed = [
        partner
        for entry in reader.rounds()
        for partner in entry.record.failed
        if partner.peer == player.id and partner.refused is not None
    ]
    assert len(failed) == len(earned)
    assert all(str(partner.refused).startswith(reason) for partner in failed)
