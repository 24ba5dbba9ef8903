"""Cards through a real broker: exchange, access rules, last will, clean stop, putting right."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from abps_node.discovery import mqtt_own
from abps_node.discovery.mqtt_cards import BrokerCard
from tests.support.broker import MosquittoBroker
from tests.support.broker_guests import Guests, eventually, plain_client

ROOT = Path(__file__).parents[2]
NORTH, SOUTH = "abps/card/north", "abps/card/south"


def card(center: str, key: str, **changes: object) -> bytes:
    """A card that fits, with changes."""
    values = {
        "id": center,
        "public_key": key * 40,
        "address": "tcp://10.0.0.1:5555",
        "incarnation": 1,
        "state": "online",
        **changes,
    }
    return json.dumps({"version": 1, **values}).encode()


async def put(broker: MosquittoBroker, user: str, topic: str, payload: bytes) -> None:
    """Publish, retained, as this user; a denied one gets no error here either."""
    async with plain_client(broker, user) as client:
        await client.publish(topic, payload, qos=1, retain=True)


async def test_cards_reach_whoever_is_there_and_whoever_comes_later(
    broker: MosquittoBroker, guests: Guests
) -> None:
    north = await guests.center(broker, "north", 1001)
    south = await guests.center(broker, "south", 1002)
    await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1002"))
    await eventually(lambda: south.knows("north", "tcp://127.0.0.1:1001"))
    assert north.said == south.said == ["broker-met"]
    addresses = {sighting.center: sighting.address for sighting in north.discovery.readable()}
    assert addresses == {"south": "tcp://127.0.0.1:1002", "west": None}
    assert north.found[0] == ("west", "tcp://west.example:5555"), "the roster's are hints, too"


async def test_card_of_a_new_start_replaces_the_old_address(
    broker: MosquittoBroker, guests: Guests
) -> None:
    north = await guests.center(broker, "north", 1001)
    south = await guests.center(broker, "south", 1002)
    await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1002"))
    await guests.gone(south)
    await eventually(lambda: north.knows("south", None))
    await guests.center(broker, "south", 1003, incarnation=2)
    await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1003"))


async def test_card_under_a_new_key_counts_as_long_as_both_do(
    broker: MosquittoBroker, guests: Guests
) -> None:
    """The access rules ask who writes, not which key stands in the card."""
    north = await guests.center(broker, "north", 1001)
    south = await guests.center(broker, "south", 1002)
    ear = await guests.dashboard(broker)
    await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1002"))
    former, new = "b" * 40, "d" * 40
    north.discovery.admit({"north": ("a" * 40,), "south": (former, new)}, "a" * 40)
    south.discovery.admit({"north": ("a" * 40,), "south": (new, former)}, new)
    await south.discovery.announce("tcp://127.0.0.1:1003", 1)
    await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1003"))
    await eventually(lambda: (ear.last(SOUTH) or {}).get("public_key") == new)
    assert [s.problem for s in north.discovery.readable() if s.center == "south"] == [""]
    assert south.said == ["broker-met"], "neither denied nor connected anew"


async def test_clean_stop_clears_the_card_for_good(broker: MosquittoBroker, guests: Guests) -> None:
    north = await guests.center(broker, "north", 1001)
    ear = await guests.dashboard(broker)
    await eventually(lambda: ear.last(NORTH))
    await guests.gone(north)
    await eventually(lambda: ear.of(NORTH)[-1:] == [b""])
    late = await guests.dashboard(broker)
    await put(broker, "south", SOUTH, b"x")
    await eventually(lambda: late.of(SOUTH))
    assert late.of(NORTH) == [], "nothing is left, not even an offline card"


async def test_nobody_can_write_the_card_of_another(
    broker: MosquittoBroker, guests: Guests
) -> None:
    north = await guests.center(broker, "north", 1001)
    ear = await guests.dashboard(broker)
    await put(broker, "south", NORTH, card("north", "a", incarnation=9))
    await put(broker, "south", NORTH, b"")
    await put(broker, "dashboard", NORTH, b"")
    await put(broker, "south", SOUTH, card("south", "b"))
    await eventually(lambda: north.knows("south", "tcp://10.0.0.1:5555"))
    await eventually(lambda: ear.of(SOUTH))
    assert len(ear.of(NORTH)) == 1, "the broker has passed on the owner's card only"


@pytest.mark.parametrize(
    ("payload", "problem"),
    [
        (card("south", "a"), "public_key: found aaa"),
        (card("west", "b"), "id: found 'west'"),
        (card("south", "b", address="tcp://*:5555"), "address: "),
        (card("south", "b", extra=1), "extra: "),
        (b"\xff\x00", "the card: "),
        (b"{" * 5000, "found 5000 bytes, allowed: 4096"),
    ],
)
async def test_what_is_no_card_of_its_topic_is_ignored_and_reported_once(
    broker: MosquittoBroker,
    guests: Guests,
    caplog: pytest.LogCaptureFixture,
    payload: bytes,
    problem: str,
) -> None:
    north = await guests.center(broker, "north", 1001)
    for _ in range(3):
        await put(broker, "south", SOUTH, payload)
    await put(broker, "west", "abps/card/west", card("west", "c"))
    await eventually(lambda: north.knows("west", "tcp://10.0.0.1:5555"))
    assert all(who != "south" for who, _ in north.found)
    reported = [record.getMessage() for record in caplog.records if SOUTH in record.getMessage()]
    assert len(reported) == 1 and problem in reported[0]
    (sighting,) = [one for one in north.discovery.readable() if one.center == "south"]
    assert sighting.address is None and problem in sighting.problem


async def test_one_killed_is_offline_at_once_and_its_address_stays_a_hint(
    broker: MosquittoBroker, guests: Guests
) -> None:
    north = await guests.center(broker, "north", 1001)
    ear = await guests.dashboard(broker)
    code = (
        "import asyncio, sys; from pathlib import Path;"
        "from tests.support.broker import MosquittoBroker;"
        "from tests.support.broker_guests import Guests;"
        "broker = MosquittoBroker(Path(sys.argv[1])); broker.port = int(sys.argv[2])\n"
        "async def main():\n"
        "    await Guests().center(broker, 'south', 1002)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())"
    )
    command = [sys.executable, "-c", code, str(broker.folder), str(broker.port)]
    with subprocess.Popen(command, cwd=ROOT) as child:
        try:
            await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1002"))
        finally:
            child.send_signal(signal.SIGKILL)
    await eventually(lambda: ear.last(SOUTH)["state"] == "offline")
    await eventually(
        lambda: [one.state for one in north.discovery._book.cards.values()] == ["offline"]
    )
    assert north.knows("south", "tcp://127.0.0.1:1002"), "away from the broker, not from the peers"
    west = await guests.center(broker, "west", 1003)
    await eventually(lambda: west.knows("south", "tcp://127.0.0.1:1002"))


async def test_own_card_is_put_right_whatever_lies_in_its_place(
    broker: MosquittoBroker, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_own, "RESTORE_S", 0.05)
    await guests.center(broker, "north", 1001, incarnation=5)
    ear = await guests.dashboard(broker)
    await eventually(lambda: ear.of(NORTH))
    good = ear.of(NORTH)[-1]
    for spoiled in (b"", b"junk", BrokerCard.model_validate_json(good).offline().payload()):
        await put(broker, "north", NORTH, spoiled)
        await eventually(lambda expected=spoiled: expected in ear.of(NORTH))
        await eventually(lambda: ear.of(NORTH)[-1] == good)


async def test_card_of_a_newer_copy_is_left_alone_also_at_the_end(
    broker: MosquittoBroker, guests: Guests, caplog: pytest.LogCaptureFixture
) -> None:
    old = await guests.center(broker, "north", 1001, incarnation=5)
    ear = await guests.dashboard(broker)
    newer = card("north", "a", incarnation=6)
    await put(broker, "north", NORTH, newer)
    await eventually(lambda: "newer copy" in caplog.text)
    await guests.gone(old)
    await put(broker, "south", SOUTH, b"x")
    await eventually(lambda: ear.of(SOUTH))
    assert ear.of(NORTH)[-1] == newer


async def test_what_does_not_stay_is_no_card(broker: MosquittoBroker, guests: Guests) -> None:
    """By this the preflight can try the access rules without changing anything for anybody."""
    north = await guests.center(broker, "north", 1001)
    south = await guests.center(broker, "south", 1002)
    await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1002"))
    async with plain_client(broker, "south") as client:
        await client.publish(SOUTH, b"", qos=1)
        await client.publish(SOUTH, card("south", "b"), qos=1)
    await put(broker, "west", "abps/card/west", card("west", "c"))
    await eventually(lambda: north.knows("west", "tcp://10.0.0.1:5555"))
    assert north.knows("south", "tcp://127.0.0.1:1002")
    assert south.said == ["broker-met"]


async def test_rules_that_deny_the_own_card_are_noticed(
    still: MosquittoBroker, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abps_node.discovery.mqtt.DENIED_AFTER_S", 0.2)
    rules = still.folder / "acl"
    rules.write_text("pattern read abps/card/+\n", encoding="utf-8")
    still.start()
    north = await guests.center(still, "north", 1001)
    await eventually(lambda: north.said == ["broker-met", "broker-denies"])
    assert "abps/card/north does not come back" in north.notes[-1].text
