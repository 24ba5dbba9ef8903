"""Whoever connects to the broker in tests: centers' discoveries, and clients with other intents."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiomqtt import Client, ProtocolVersion

from abps_node.config import Member
from abps_node.discovery.mqtt import MqttDiscovery
from protocol.effects import Note
from protocol.timing import Backoff
from tests.support.broker import HOST, MosquittoBroker

ROSTER: Final = [
    Member(id="north", public_key="a" * 40),
    Member(id="south", public_key="b" * 40),
    Member(id="west", public_key="c" * 40, address="tcp://west.example:5555"),
]
WAIT_S: Final = 20.0


async def eventually(condition: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """Let the loop run until the condition holds; fail after ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.005)


class Guest:
    """One center's discovery, and all that it found and said."""

    def __init__(self, broker: MosquittoBroker, center: str, **shared: Any) -> None:
        self.notes: list[Note] = []
        self.found: list[tuple[str, str | None]] = []
        self.left: list[tuple[str, str, str, bytes]] = []
        """What it said to have left at the broker."""
        self.discovery = MqttDiscovery(
            broker.shared(**shared),
            broker.access(center),
            ROSTER,
            center,
            self.notes.append,
            5,
            lambda *left: self.left.append(left),
            Backoff(0.1, 0.5),
        )
        self._watch = asyncio.create_task(self.discovery.watch(lambda *x: self.found.append(x)))

    @property
    def said(self) -> list[str]:
        """The kinds of its notes."""
        return [note.kind for note in self.notes]

    async def tries(self, times: int) -> None:
        """Until it has tried to connect so many times more."""
        enough = self.discovery._door.attempts + times
        await eventually(lambda: self.discovery._door.attempts >= enough)

    def knows(self, center: str, address: str | None) -> bool:
        """Whether this is the newest that it found out about the center."""
        return [where for who, where in self.found if who == center][-1:] == [address]

    async def close(self) -> None:
        """As the daemon does it; raises what has ended the watch, if anything has."""
        self._watch.cancel()
        await asyncio.wait({self._watch})
        if not self._watch.cancelled():
            self._watch.result()
        await self.discovery.withdraw()


class Eavesdropper:
    """A client that hears topics and keeps the newest payload of each, and all of them."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, bytes]] = []

    async def listen(self, client: Client) -> None:
        """Until cancelled."""
        async for message in client.messages:
            assert isinstance(message.payload, bytes)
            self.heard.append((str(message.topic), message.payload))

    def of(self, topic: str) -> list[bytes]:
        """All payloads of one topic."""
        return [payload for name, payload in self.heard if name == topic]

    def last(self, topic: str) -> Any:
        """The newest payload, as JSON; None if there is none, or an empty one."""
        payload = (self.of(topic) or [b""])[-1]
        return json.loads(payload) if payload else None


class Guests:
    """All guests of one test."""

    def __init__(self) -> None:
        self._centers: list[Guest] = []
        self._tasks: list[asyncio.Task[None]] = []

    async def center(
        self, broker: MosquittoBroker, center: str, port: int, incarnation: int = 1, **shared: Any
    ) -> Guest:
        """A center that announces itself at this port."""
        guest = Guest(broker, center, **shared)
        self._centers.append(guest)
        await guest.discovery.announce(f"tcp://127.0.0.1:{port}", incarnation)
        return guest

    async def gone(self, guest: Guest) -> None:
        """Stop one in order."""
        self._centers.remove(guest)
        await guest.close()

    async def dashboard(
        self, broker: MosquittoBroker, topics: Sequence[str] = ("abps/#",)
    ) -> Eavesdropper:
        """Somebody who may read all."""
        ear, ready = Eavesdropper(), asyncio.Event()

        async def live() -> None:
            async with plain_client(broker, "dashboard") as client:
                for topic in topics:
                    await client.subscribe(topic, qos=1)
                ready.set()
                await ear.listen(client)

        self._tasks.append(asyncio.create_task(live()))
        await ready.wait()
        return ear

    async def close(self) -> None:
        """Everybody leaves."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for guest in self._centers:
            await guest.close()


def plain_client(broker: MosquittoBroker, user: str, **options: Any) -> Client:
    """A client of the test's own, under this user."""
    context = ssl.create_default_context(cafile=broker.folder / "ca.crt") if broker.tls else None
    return Client(
        HOST,
        broker.port,
        username=user,
        password=broker.password(user),
        protocol=ProtocolVersion.V5,
        tls_context=context,
        **options,
    )
