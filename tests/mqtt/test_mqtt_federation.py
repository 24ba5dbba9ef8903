"""Real daemons that know each other through a real broker only."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from abps_node.config import CenterConfig, load_center_config
from abps_node.exits import ExitCode
from tests.support.broker import HOST, MosquittoBroker
from tests.support.broker_events import assert_harmless
from tests.support.broker_guests import Eavesdropper, Guests, eventually
from tests.support.center_processes import CenterProcess, CenterProcesses
from tests.support.layouts import small_federation

CENTERS = ("north", "south", "west")
PATIENCE_S = 60.0
STUCK_STOP_S = 10.0
"""Goodbye to peers, farewell to the broker, or the rest of an attempt to connect."""


@pytest.fixture
def processes() -> Iterator[CenterProcesses]:
    made = CenterProcesses()
    yield made
    made.close()


def federation(directory: Path, broker: MosquittoBroker) -> list[CenterConfig]:
    """Three centers whose only discovery is the broker, and no address on the roster."""
    layout = small_federation(directory, CENTERS, rounds=1000, kappa=2)
    head, _, rest = layout.federation.read_text(encoding="utf-8").partition("[discovery]")
    roster = rest[rest.index("[[roster]]") :]
    discovery = (
        "[contract.pacing]\nround_min_s = 0.2\n\n"
        f'[discovery]\nkind = "mqtt"\nhost = "{HOST}"\nport = {broker.port}\nkeepalive_s = 2\n'
    )
    layout.federation.write_text(f"{head}{discovery}\n{roster}", encoding="utf-8")
    for center in layout.centers:
        own = {
            "password_file": str(broker.folder / "users" / f"{center.id}.password"),
            "ca_file": str(broker.folder / "ca.crt"),
        }
        lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in own.items())
        with center.path.open("a", encoding="utf-8") as file:
            file.write(f"\n[mqtt]\n{lines}")
    return [load_center_config(center.path) for center in layout.centers]


def said(process: CenterProcess, kind: str) -> int:
    """How often this start of the center has said something of this kind."""
    return process.said().count(f'"event": "{kind}"')


def partners(process: CenterProcess) -> int:
    """Of the last round."""
    rounds = process.reader.rounds(limit=1)
    return len(rounds[-1].record.partners) if rounds else 0


@pytest.mark.slow
@pytest.mark.timeout(240)
async def test_federation_outlives_its_broker(
    still: MosquittoBroker, guests: Guests, processes: CenterProcesses, tmp_path: Path
) -> None:
    """No broker at the start; a center dies and returns; one is stopped while the broker is stuck.

    What passed through the broker is read from the outside, and every word of it is checked.
    """
    centers = federation(tmp_path / "federation", still)
    north, south, west = started = processes.start_all(centers)
    await eventually(lambda: all(said(one, "broker-away") for one in started), PATIENCE_S)
    still.start()
    ear = await guests.dashboard(still)
    await eventually(lambda: all(one.last_round() >= 2 for one in started), PATIENCE_S)
    for kind in ("broker-away", "broker-met"):
        assert [len(one.reader.events(kind=kind)) for one in started] == [1, 1, 1]

    west.send(signal.SIGKILL)
    await eventually(lambda: ear.last("abps/card/west")["state"] == "offline")
    again = processes.start(centers[2])
    await eventually(lambda: ear.last("abps/card/west")["incarnation"] == 2, PATIENCE_S)
    await eventually(lambda: again.last_round() > 2 and partners(again), PATIENCE_S)

    still.freeze()
    before = north.last_round()
    await eventually(lambda: north.last_round() >= before + 2, PATIENCE_S)
    begin = time.monotonic()
    north.send(signal.SIGTERM)
    assert north.wait_for_end() == ExitCode.STOPPED
    assert time.monotonic() - begin < STUCK_STOP_S
    # A short stall is no outage: only what lasts beyond the keepalive is noticed and said.
    noticed = ((south, 2), (again, 1))
    await eventually(
        lambda: all(said(one, "broker-away") == times for one, times in noticed), PATIENCE_S
    )
    still.thaw()
    await eventually(
        lambda: min(said(one, "broker-met") for one in (south, again)) == 2, PATIENCE_S
    )

    for one in (south, again):
        one.send(signal.SIGTERM)
    assert [one.wait_for_end() for one in (south, again)] == [ExitCode.STOPPED] * 2
    for center in ("south", "west"):
        await eventually(lambda name=center: ear.of(f"abps/card/{name}")[-1] == b"")
    check_what_was_told(ear)


def check_what_was_told(ear: Eavesdropper) -> None:
    kinds = set()
    for topic, payload in ear.heard:
        assert_harmless(topic, payload, set(CENTERS))
        kinds.add(topic.rpartition("/")[2] if "/event/" in topic else "card")
    assert kinds >= {"card", "round", "suspect"}
    rounds = [json.loads(one) for one in ear.of("abps/event/south/round")]
    numbers = [one["round"] for one in rounds]
    assert numbers == sorted(numbers) and any(one["partners"] for one in rounds)
