"""Several keys of one center, a change of the own, and a side that takes no connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from abps_node.config import Member
from abps_node.discovery.directory import DirectoryDiscovery
from abps_node.discovery.mqtt_cards import BrokerCard, CardBook, Topics
from abps_node.keys import generate
from abps_node.transport import Undeliverable
from tests.support.stations import Station, Stations, eventually

ADDRESS = "tcp://127.0.0.1:5000"


def delivers(sender: Station, receiver: Station, frame: bytes) -> bool:
    """Send until it arrives: what is under way while connections change may get lost."""
    try:
        sender.send(receiver, frame)
    except Undeliverable:
        return False
    return (sender.name, frame) in receiver.frames


async def test_a_center_is_known_by_either_of_its_keys(stations: Stations) -> None:
    old, new, other = generate(), generate(), generate()
    roster = {"a": (new.public, old.public), "b": other.public}
    b = await stations.start("b", other, roster)
    for keys in (old, new):
        socket = stations.raw(b, keys)
        socket.send(keys.public.encode())
        await eventually(lambda keys=keys: ("a", keys.public.encode()) in b.frames)  # type: ignore[misc]


@pytest.mark.parametrize("first", ["old", "new"])
async def test_whoever_opens_a_connection_tries_one_key_after_the_other(
    stations: Stations, first: str
) -> None:
    pairs = {"old": generate(), "new": generate()}
    other = generate()
    a = await stations.start("a", pairs[first], {"b": other.public})
    b = await stations.start(
        "b", other, {"a": (pairs["new"].public, pairs["old"].public), "b": other.public}
    )
    b.knows(a)
    await eventually(lambda: delivers(b, a, b"found"))


async def test_the_own_key_changes_on_the_same_port_and_both_sides_go_on(
    stations: Stations,
) -> None:
    old, new, other = generate(), generate(), generate()
    a = await stations.start("a", old, {"b": other.public})
    b = await stations.start("b", other, {"a": (new.public, old.public), "b": other.public})
    a.knows(b)
    b.knows(a)
    await eventually(lambda: delivers(a, b, b"before") and delivers(b, a, b"before"))
    await a.transport.change_keys(new)
    b.transport.set_roster({"a": new.public, "b": other.public})
    await eventually(lambda: delivers(b, a, b"after"))
    await eventually(lambda: delivers(a, b, b"after"))
    assert b.transport.counters.peer("a").frames_in > 1


async def test_the_end_of_one_key_ends_its_connections_and_keeps_the_address(
    stations: Stations,
) -> None:
    old, new, other = generate(), generate(), generate()
    a = await stations.start("a", old, {"b": other.public})
    b = await stations.start("b", other, {"a": (new.public, old.public), "b": other.public})
    a.knows(b)
    b.knows(a)
    await eventually(lambda: delivers(a, b, b"before"))
    b.transport.set_roster({"a": new.public, "b": other.public})
    await eventually(lambda: ("b", "refused-by-peer") in a.noticed())
    assert b.transport.has_address("a")


async def test_a_side_that_takes_no_connections_is_sent_to_over_its_own(
    stations: Stations,
) -> None:
    a, b = await stations.together("a", "b")
    await stations.stop(a)
    roster = {"a": a.keys.public, "b": b.keys.public}  # type: ignore[union-attr]
    hidden = await stations.start("a", a.keys, roster, bind=None)
    assert hidden.endpoint == ""
    with pytest.raises(Undeliverable, match="no-address"):
        b.send("a", b"too early")
    hidden.knows(b)
    hidden.send(b, b"hello")
    await eventually(lambda: b.frames == [("a", b"hello")])
    b.send("a", b"and back")
    await eventually(lambda: hidden.frames == [("b", b"and back")])
    assert b.transport.counters.opened_connections == 0


def members(*names: str) -> list[Member]:
    return [Member(id=name, public_key=generate().public) for name in names]


async def test_a_card_of_a_member_that_came_later_is_found(tmp_path: Path) -> None:
    north, south = members("north", "south")
    watcher = DirectoryDiscovery(tmp_path, [north], "north", 0.01)
    later = DirectoryDiscovery(tmp_path, [north, south], "south", 0.01)
    await later.announce(ADDRESS, 1)
    assert watcher.readable() == []
    former = generate().public
    watcher.admit(
        {"north": (north.public_key,), "south": (former, south.public_key)}, north.public_key
    )
    (found,) = watcher.readable()
    assert (found.center, found.address) == ("south", ADDRESS)
    watcher.admit({"north": (north.public_key,), "south": (former,)}, north.public_key)
    (found,) = watcher.readable()
    assert found.address is None and "public_key" in found.problem


async def test_a_member_that_comes_back_is_told_of_again_at_once(tmp_path: Path) -> None:
    north, south = members("north", "south")
    both = {"north": (north.public_key,), "south": (south.public_key,)}
    other = DirectoryDiscovery(tmp_path, [north, south], "south", 3600.0)
    await other.announce(ADDRESS, 1)
    watcher = DirectoryDiscovery(tmp_path, [north, south], "north", 3600.0)
    told: list[tuple[str, str | None]] = []
    watching = asyncio.create_task(watcher.watch(lambda *news: told.append(news)))
    await eventually(lambda: told == [("south", ADDRESS)])
    watcher.admit({"north": (north.public_key,)}, north.public_key)
    watcher.admit(both, north.public_key)
    await eventually(lambda: told == [("south", ADDRESS)] * 2)
    watching.cancel()
    await asyncio.wait([watching])


def test_a_card_that_came_before_its_member_counts_once_that_is_one() -> None:
    north, south = members("north", "south")
    book = CardBook([north], "north", Topics("abps"))
    card = BrokerCard(
        id="south", public_key=south.public_key, address=ADDRESS, incarnation=1, state="online"
    )
    assert book.take("abps/card/south", card.payload()) is None
    book.admit({"north": (north.public_key,), "south": (south.public_key,)})
    assert book.cards["south"].address == ADDRESS
    book.admit({"north": (north.public_key,)})
    assert not book.cards and not book.sightings()
    # The broker says it once, so what it said is kept until the member comes back.
    book.admit({"north": (north.public_key,), "south": (south.public_key,)})
    assert book.cards["south"].address == ADDRESS
