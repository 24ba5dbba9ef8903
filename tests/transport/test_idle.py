"""Connections that nobody uses are closed by their opener, silently, and open again when needed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.stations import Station, Stations, eventually

IDLE_S = 0.4


def tcp_connections(station: Station) -> int:
    """Established TCP connections that end at the station's port, seen from the kernel."""
    port = f"{int(station.endpoint.rpartition(':')[2]):04X}"
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    ends = [line.split()[1:4] for line in lines]
    return sum(local.endswith(f":{port}") and state == "01" for local, _, state in ends)


async def test_an_idle_connection_is_closed_and_nobody_is_alarmed(stations: Stations) -> None:
    a, b = await stations.together("a", "b", idle_s=IDLE_S)
    a.knows(b)
    a.send(b, b"one")
    await eventually(lambda: b.frames and tcp_connections(b) == 1)
    await eventually(lambda: tcp_connections(b) == 0)
    assert a.transport.counters.idle_connections == 1
    assert not a.misbehavior and not b.misbehavior
    assert not a.notices and not b.notices
    assert b.transport.counters.peer("a").connections_lost == 0


async def test_what_it_held_goes_back_to_the_system_once(
    stations: Stations, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(
        "abps_node.transport.socket.give_back",
        lambda: looks.append(a.transport.counters.idle_connections),
    )
    a, b = await stations.together("a", "b", idle_s=IDLE_S)
    a.knows(b)
    for number in range(1, 3):
        a.send(b, b"one")
        await eventually(lambda number=number: len(looks) == number)  # type: ignore[misc]
    assert looks == [1, 2]


async def test_the_next_frame_opens_it_again(stations: Stations) -> None:
    a, b = await stations.together("a", "b", idle_s=IDLE_S)
    a.knows(b)
    b.knows(a)
    for number in range(1, 4):
        a.send(b, b"%d" % number)
        await eventually(lambda number=number: len(b.frames) == number)  # type: ignore[misc]
        await eventually(lambda: tcp_connections(b) == 0)
    assert a.transport.counters.opened_connections == 3
    # The side that had accepted notices, too, and opens one of its own.
    b.send(a, b"back")
    await eventually(lambda: a.frames == [("b", b"back")])


async def test_whatever_goes_through_keeps_it_open(stations: Stations) -> None:
    """Two stations play ping-pong for several times the idle time."""
    a, b = await stations.together("a", "b", idle_s=IDLE_S)
    a.knows(b)
    b.on_frame = lambda peer, frame: b.send(peer, frame) and None
    deadline = time.monotonic() + 4 * IDLE_S
    while time.monotonic() < deadline:
        count = len(a.frames)
        a.send(b, b"ball")
        await eventually(lambda count=count: len(a.frames) > count)  # type: ignore[misc]
    assert a.transport.counters.opened_connections == 1
    assert a.transport.counters.idle_connections == 0


async def test_thirty_peers_leave_no_connections_behind(stations: Stations) -> None:
    hub, *others = await stations.together("hub", *(f"c{n:02d}" for n in range(30)), idle_s=IDLE_S)
    for other in others:
        hub.knows(other)
        hub.send(other, b"hello")
    await eventually(lambda: all(other.frames for other in others))
    await eventually(lambda: not any(tcp_connections(other) for other in others))
    assert hub.transport.counters.idle_connections == 30
