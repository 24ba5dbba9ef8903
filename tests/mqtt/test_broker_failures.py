"""The broker absent, lost, stuck, refusing, or something else: said once, and survived."""

from __future__ import annotations

import asyncio
import gc
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from abps_node.discovery import broker as door
from abps_node.discovery import mqtt
from tests.support.broker import HOST, MosquittoBroker, free_port
from tests.support.broker_guests import Guest, Guests, eventually


@pytest.fixture(autouse=True)
def nothing_escapes(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """asyncio complains to its log about exceptions and tasks that nobody has looked after."""
    yield
    gc.collect()
    complaints = [record for record in caplog.records if record.name in ("asyncio", "mqtt")]
    assert complaints == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of the broker are awaited for half a second."""
    monkeypatch.setattr(door, "ANSWER_S", 0.5)


async def both_at(broker: MosquittoBroker, guests: Guests, **shared: object) -> tuple[Guest, Guest]:
    """North and south, who know each other."""
    north = await guests.center(broker, "north", 1001, **shared)
    south = await guests.center(broker, "south", 1002, **shared)
    await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1002"))
    await eventually(lambda: south.knows("north", "tcp://127.0.0.1:1001"))
    return north, south


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_absent_at_the_start(still: MosquittoBroker, guests: Guests) -> None:
    north = await guests.center(still, "north", 1001)
    await eventually(lambda: north.knows("west", "tcp://west.example:5555"))
    await eventually(lambda: north.said)
    await north.tries(3)
    (note,) = north.notes
    assert (note.kind, note.level) == ("broker-away", "warning")
    assert "Connection refused" in note.text and "the addresses it knows (1)" in note.text
    still.start()
    await eventually(lambda: north.said == ["broker-away", "broker-met"])
    south = await guests.center(still, "south", 1002)
    await eventually(lambda: south.knows("north", "tcp://127.0.0.1:1001"))


async def test_lost_and_back(broker: MosquittoBroker, guests: Guests) -> None:
    north, south = await both_at(broker, guests)
    for outage in (1, 2):
        broker.stop()
        await eventually(lambda: north.said[-1] == south.said[-1] == "broker-away")
        found = len(north.found)
        broker.start()
        await eventually(lambda: north.said[-1] == south.said[-1] == "broker-met")
        assert north.said == ["broker-met", *["broker-away", "broker-met"] * outage]
        assert len(north.found) == found, "an address that is known is not news"
    west = await guests.center(broker, "west", 1003)
    await eventually(lambda: west.knows("north", "tcp://127.0.0.1:1001"))
    await eventually(lambda: west.knows("south", "tcp://127.0.0.1:1002"))


async def test_refused_password_is_told_once_with_what_to_do_and_a_new_one_is_taken_up(
    broker: MosquittoBroker, guests: Guests
) -> None:
    password = broker.folder / "users" / "north.password"
    good = password.read_text(encoding="utf-8")
    password.write_text("wrong\n", encoding="utf-8")
    north = await guests.center(broker, "north", 1001)
    await eventually(lambda: north.said)
    await north.tries(3)
    (note,) = north.notes
    assert (note.kind, note.level) == ("broker-refuses", "warning")
    assert "user north is refused: Not authorized" in note.text
    assert "mqtt.password_file" in note.text and "wrong" not in note.text
    password.write_text(good, encoding="utf-8")
    await eventually(lambda: north.said == ["broker-refuses", "broker-met"])


async def test_password_file_that_others_can_read_stops_the_reconnect_but_nothing_else(
    broker: MosquittoBroker, guests: Guests
) -> None:
    north, _ = await both_at(broker, guests)
    password = broker.folder / "users" / "north.password"
    password.chmod(0o644)
    broker.stop()
    broker.start()
    await eventually(lambda: north.said[-1] == "broker-refuses")
    assert "found mode 0644, allowed: 0600" in north.notes[-1].text
    password.chmod(0o600)
    await eventually(lambda: north.said[-1] == "broker-met")


async def test_stuck_and_back(broker: MosquittoBroker, guests: Guests) -> None:
    """A frozen broker accepts connections and never answers; keepalive finds out."""
    north, south = await both_at(broker, guests, keepalive_s=1)
    broker.freeze()
    await eventually(lambda: north.said[-1] == south.said[-1] == "broker-away")
    assert "no sign of life" in north.notes[-1].text
    broker.thaw()
    await eventually(
        lambda: north.said == south.said == ["broker-met", "broker-away", "broker-met"]
    )


async def test_close_is_short_while_the_broker_is_stuck(
    broker: MosquittoBroker, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt, "FAREWELL_S", 0.3)
    north, _ = await both_at(broker, guests)
    broker.freeze()
    begin = time.monotonic()
    await guests.gone(north)
    assert time.monotonic() - begin < 2
    broker.thaw()


@pytest.mark.usefixtures("impatient")
async def test_plain_client_at_the_tls_port_gives_up_in_time(
    broker: MosquittoBroker, guests: Guests
) -> None:
    plain = MosquittoBroker(broker.folder, tls=False)
    plain.port = broker.port
    begin = time.monotonic()
    north = await guests.center(plain, "north", 1001)
    await eventually(lambda: "broker-away" in north.said)
    assert time.monotonic() - begin < 3
    assert "no answer within" in north.notes[-1].text
    before = open_files()
    await north.tries(3)
    assert open_files() <= before + 1, "attempts without an answer leave no socket behind"
    assert len([kind for kind in north.said if kind == "broker-away"]) == 1
    assert north.said[0] == "insecure"


async def test_tls_client_at_a_plain_port_is_told_so(
    still: MosquittoBroker, guests: Guests
) -> None:
    plain = MosquittoBroker(still.folder, tls=False)
    plain.start()
    try:
        still.port = plain.port
        north = await guests.center(still, "north", 1001)
        await eventually(lambda: north.said)
        assert north.said == ["broker-away"]
        assert "no TLS there" in north.notes[0].text and "discovery.port" in north.notes[0].text
    finally:
        plain.stop()


async def test_broker_of_another_authority_gets_no_password(
    broker: MosquittoBroker, guests: Guests, tmp_path: Path
) -> None:
    from tests.support.broker import prepare

    other = tmp_path / "other"
    prepare(other, "north")
    shutil.copy(other / "ca.crt", broker.folder / "ca.crt")
    north = await guests.center(broker, "north", 1001)
    await eventually(lambda: north.said)
    assert north.said == ["broker-refuses"]
    assert "certificate" in north.notes[0].text and "mqtt.ca_file" in north.notes[0].text
    assert "as abps-north" not in broker.log.read_text(encoding="utf-8")


@pytest.fixture
async def mad_server() -> AsyncIterator[int]:
    """Accepts an MQTT connection, then sends a packet that cannot be read."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        writer.write(bytes.fromhex("2003000000"))  # CONNACK of MQTT 5, success
        await reader.read(4096)
        writer.write(bytes.fromhex("900400010000"))  # SUBACK
        writer.write(bytes.fromhex("30060002fffe0041"))  # PUBLISH to a topic that is not UTF-8
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, HOST, free_port())
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.usefixtures("impatient")
async def test_broker_that_talks_nonsense_leaves_no_socket_behind(
    mad_server: int, still: MosquittoBroker, guests: Guests
) -> None:
    mad = MosquittoBroker(still.folder, tls=False)
    mad.port = mad_server
    north = await guests.center(mad, "north", 1001)
    await eventually(lambda: "broker-away" in north.said)
    before = open_files()
    await north.tries(3)
    assert open_files() <= before + 2


async def test_nobody_waits_for_a_connection_attempt_that_is_under_way(
    broker: MosquittoBroker, guests: Guests
) -> None:
    """The loop goes on; the end waits no longer than TCP, TLS and answer are given."""
    broker.freeze()
    north = await guests.center(broker, "north", 1001)
    await north.tries(1)
    begin = time.monotonic()
    await guests.gone(north)
    assert time.monotonic() - begin < mqtt.CLOSE_S
    broker.thaw()
