"""Transports for tests: what came in is kept, everything is closed at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import zmq

from abps_node.keys import KeyPair, generate
from abps_node.transport import Transport

WAIT_S = 15.0
MAX_FRAME = 4096


async def eventually(condition: Callable[[], object], wait_s: float = WAIT_S) -> None:
    """Let the loop run until the condition holds; fail after ``wait_s``."""
    deadline = time.monotonic() + wait_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("the condition did not come true in time")
        await asyncio.sleep(0.002)


class Station:
    """One transport and all that it reported."""

    def __init__(self, name: str, keys: KeyPair | None, **options: Any) -> None:
        self.name = name
        self.keys = keys
        self.frames: list[tuple[str, bytes]] = []
        self.misbehavior: list[tuple[str | None, str, str]] = []
        self.notices: list[tuple[str | None, str, str]] = []
        self.on_frame: Callable[[str, bytes], None] = lambda peer, frame: None
        self.transport = Transport(
            center_id=name,
            keys=keys,
            on_frame=self._take,
            on_misbehavior=lambda *report: self.misbehavior.append(report),
            on_notice=lambda *report: self.notices.append(report),
            **{
                "bind": "tcp://127.0.0.1:0",
                "max_frame_bytes": MAX_FRAME,
                "report_every_s": 0.0,
                **options,
            },
        )
        self.endpoint = ""

    def _take(self, peer: str, frame: bytes) -> None:
        self.frames.append((peer, frame))
        self.on_frame(peer, frame)

    def reasons(self) -> set[tuple[str | None, str]]:
        """Peer and reason of all misbehavior reported."""
        return {(peer, reason) for peer, reason, _ in self.misbehavior}

    def noticed(self) -> set[tuple[str | None, str]]:
        """Peer and kind of all notices."""
        return {(peer, reason) for peer, reason, _ in self.notices}

    def knows(self, other: Station) -> None:
        """Tell the address of the other."""
        self.transport.set_address(other.name, other.endpoint)

    def send(self, other: Station | str, frame: bytes) -> int:
        """Send to another station."""
        return self.transport.send(other if isinstance(other, str) else other.name, frame)


class Stations:
    """A small world of transports and raw clients."""

    def __init__(self) -> None:
        self._open: list[Station] = []
        self._context = zmq.Context()
        self._raw: list[zmq.Socket[bytes]] = []

    async def start(
        self, name: str, keys: KeyPair | None, roster: Mapping[str, str], **options: Any
    ) -> Station:
        """Start one transport."""
        station = Station(name, keys, roster=roster, **options)
        station.endpoint = await station.transport.start()
        self._open.append(station)
        return station

    async def together(self, *names: str, **options: Any) -> list[Station]:
        """Start transports that know each other's keys, but no addresses."""
        keys = {name: generate() for name in names}
        roster = {name: pair.public for name, pair in keys.items()}
        return [await self.start(name, keys[name], roster, **options) for name in names]

    def raw(
        self,
        server: Station,
        keys: KeyPair | None,
        *,
        server_key: str | None = None,
        kind: int = zmq.DEALER,
        options: Mapping[int, bytes | int] | None = None,
    ) -> zmq.Socket[bytes]:
        """A bare ZeroMQ socket that connects to a station; ``keys=None``: without CURVE."""
        socket = self._context.socket(kind)
        self._raw.append(socket)
        socket.linger = 0
        if keys is not None:
            known = server.keys.public if server.keys is not None else ""
            socket.curve_publickey = keys.public.encode()
            socket.curve_secretkey = keys.secret.encode()
            socket.curve_serverkey = (server_key or known).encode()
        for option, value in (options or {}).items():
            socket.setsockopt(option, value)
        socket.connect(server.endpoint)
        return socket

    async def stop(self, station: Station) -> None:
        """Close one transport."""
        self._open.remove(station)
        await station.transport.close(200)

    async def close(self) -> None:
        """Close everything."""
        for socket in self._raw:
            socket.close(linger=0)
        for station in list(self._open):
            await self.stop(station)
        self._context.term()
