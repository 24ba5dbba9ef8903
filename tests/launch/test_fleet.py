"""Real daemons under the supervisor: stopped, all restarted at once, one slow, one without port."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from abps_node.store.reader import Reader
from launch.layout import FederationLayout, write_federation
from tests.support.center_processes import ROOT, WAIT_S, last_round, wait_until
from tests.support.layouts import patients, small_federation
from tests.support.records import make_contract
from tests.support.soundness import check_state, disagreements
from tests.support.throttle import slowed

CENTERS = [f"c{number:02d}" for number in range(12)]


def start(layout: FederationLayout, *options: str) -> subprocess.Popen[str]:
    """``abps launch local``, which must be a process of its own to be forked from."""
    command = [sys.executable, "-m", "abps_node", "launch", "local", str(layout.directory)]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *options], stdout=pipe, stderr=pipe, text=True, cwd=ROOT)


def last_rounds(layout: FederationLayout) -> list[int]:
    return [last_round(center) for center in layout.centers]


@pytest.mark.slow
def test_twelve_centers_are_stopped_and_restarted_all_at_once(tmp_path: Path) -> None:
    contract = make_contract(preset="abps+p+q+k1", rounds=5)
    values = contract.model_dump(mode="json", exclude_none=True)
    values["pacing"] = {"greet": "needed", "round_min_s": 0.5, "linger_s": 10.0}
    tables = dict.fromkeys(CENTERS, patients(60))
    layout = write_federation(tmp_path / "fed", values, tables, compare_alone=False)

    run = start(layout)
    wait_until(lambda: min(last_rounds(layout)) >= 1, "every center has a round", 2 * WAIT_S)
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate(timeout=WAIT_S)
    assert run.returncode == 1
    assert "killed" not in out, "each said goodbye in time"
    assert not list((layout.directory / "cards").glob("*.json"))
    for center in layout.centers:
        assert Reader(center.state_dir).status().condition == "stopped"
        check_state(center)

    run = start(layout)
    out, said = run.communicate(timeout=2 * WAIT_S)
    assert run.returncode == 0, out + said
    assert disagreements(layout.centers) == []
    for center in layout.centers:
        status = Reader(center.state_dir).status()
        assert (status.condition, status.last_round, status.incarnation) == ("finished", 5, 2)
        assert not status.peers.get("suspect"), f"{center.id} still suspects somebody"
        check_state(center)


@pytest.mark.slow
def test_a_center_twenty_times_slower_ends_after_others_and_is_not_given_up(tmp_path: Path) -> None:
    values = make_contract(preset="abps+p+q+k1", rounds=4).model_dump(
        mode="json", exclude_none=True
    )
    values["pacing"] = {"round_min_s": 0.5, "negotiation_s": 5.0, "linger_s": 60.0}
    tables = dict.fromkeys(["far", "mid", "near", "slow"], patients(60))
    layout = write_federation(tmp_path / "fed", values, tables, compare_alone=False)
    run = start(layout)
    wait_until(lambda: min(last_rounds(layout)) >= 1, "every center has a round", 2 * WAIT_S)
    readers = {center.id: Reader(center.state_dir) for center in layout.centers}
    pid = readers["slow"].status().pid
    assert pid is not None
    with slowed(pid, 20):
        out, said = run.communicate(timeout=2 * WAIT_S)
    assert run.returncode == 0, out + said
    assert "started again" not in out and "killed" not in out
    ends = {name: reader.status() for name, reader in readers.items()}
    assert {(end.condition, end.last_round) for end in ends.values()} == {("finished", 4)}
    last = {name: end.last_round_at or 0.0 for name, end in ends.items()}
    assert min(last, key=lambda name: last[name]) != "slow"
    assert disagreements(layout.centers) == []
    for center in layout.centers:
        assert not ends[center.id].peers.get("suspect"), f"{center.id} still suspects somebody"
        check_state(center)


@pytest.mark.slow
def test_a_port_that_a_stranger_holds_stops_one_center_only(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", ["far", "mid", "near"], rounds=2)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = f"tcp://127.0.0.1:{stranger.getsockname()[1]}"
        path = layout.directory / "centers" / "far" / "center.toml"
        path.write_text(re.sub(r'bind = ".*"', f'bind = "{taken}"', path.read_text()))
        run = start(layout)
        out, said = run.communicate(timeout=2 * WAIT_S)
    assert run.returncode == 1
    assert "far: exit 13" in out and f"{taken}: cannot be bound" in out, said
    assert f"its last words: bind in {path}: " in out, out
    assert "started again" not in out
    assert [Reader(center.state_dir).status().finished for center in layout.centers] == [
        False,
        True,
        True,
    ]


@pytest.mark.slow
def test_parts_of_a_federation_meet_as_if_on_two_hosts(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", ["far", "mid", "near"], rounds=2)
    runs = [start(layout, "--slice", "1/2"), start(layout, "--slice", "2/2", "--json")]
    for run in runs:
        out, said = run.communicate(timeout=2 * WAIT_S)
        assert run.returncode == 0, out + said
    assert disagreements(layout.centers) == []
    met = {
        partner.peer
        for c in layout.centers
        for r in Reader(c.state_dir).rounds()
        for partner in r.record.partners
    }
    assert met == {"far", "mid", "near"}
