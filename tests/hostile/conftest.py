"""One attacked center for all tests of this folder: two daemons, and a roster of attackers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import zmq

from abps_node.exits import ExitCode
from abps_node.keys import KeyPair
from tests.support.center_processes import CenterProcesses
from tests.support.player import Player
from tests.support.scene import ATTACKERS, Play, Raw, Scene
from tests.support.wards import ward_contract, ward_federation


@pytest.fixture(scope="session")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    pacing = {"negotiation_s": 0.9, "linger_s": 5.0}
    contract = ward_contract({"rounds": 100_000, "wire_dtype": "float32"}, pacing)
    directory = tmp_path_factory.mktemp("hostile") / "federation"
    layout = ward_federation(directory, ["amber", "birch", *ATTACKERS], contract)
    processes = CenterProcesses()
    try:
        scene = Scene(layout, processes)
        yield scene
        for process in (scene.target, scene.companion):
            process.send(15)  # type: ignore[arg-type]
        for process in (scene.target, scene.companion):
            assert process.wait_for_end() == ExitCode.STOPPED, process.said()[-2000:]
    finally:
        processes.close()


@pytest.fixture
async def play(scene: Scene) -> AsyncIterator[Play]:
    """Play one more member; it is connected, and has said nothing yet."""
    players: list[Player] = []

    async def begin() -> Player:
        player = Player(scene.next_attacker(), scene.target.center)
        players.append(player)
        await player.connect(scene.endpoint)
        return player

    yield begin
    for player in players:
        await player.close()


@pytest.fixture
def raw(scene: Scene) -> Iterator[Raw]:
    """A bare ZeroMQ client of the target, with these keys."""
    context: zmq.Context[Any] = zmq.Context()
    clients: list[zmq.Socket[bytes]] = []

    def connect(keys: KeyPair, endpoint: str | None = None) -> zmq.Socket[bytes]:
        client: zmq.Socket[bytes] = context.socket(zmq.DEALER)
        clients.append(client)
        client.linger = 0
        client.curve_publickey = keys.public.encode()
        client.curve_secretkey = keys.secret.encode()
        client.curve_serverkey = scene.target_key.encode()
        client.connect(endpoint or scene.endpoint)
        return client

    yield connect
    for client in clients:
        client.close()
    context.term()
