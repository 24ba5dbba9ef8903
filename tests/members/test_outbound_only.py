"""Centers that take no connections: sessions both ways, and a named outcome where none can be."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from abps_node.cli.read_outbound import Filter, lines
from abps_node.config import CenterConfig, load_center_config
from launch.layout import FederationLayout, read_layout
from protocol.record import RestCause
from tests.support.center_processes import CenterProcess, CenterProcesses, wait_until
from tests.support.command_line import abps
from tests.support.wards import edit_toml, ward_contract, ward_federation, with_static_discovery

pytestmark = pytest.mark.timeout(600)

OPEN_ENDED = {"rounds": 100_000, "kappa": 2}


def behind_firewalls(layout: FederationLayout, names: Sequence[str]) -> FederationLayout:
    """These centers take no connections, and have no address on the roster."""
    for center in layout.centers:
        if center.id in names:
            edit_toml(center.path, lambda tables: tables.update(bind="none"))

    def take_addresses(tables: dict) -> None:  # type: ignore[type-arg]
        for member in tables["roster"]:
            if member["id"] in names:
                member.pop("address", None)

    edit_toml(layout.federation, take_addresses)
    return read_layout(layout.directory)


def partners(process: CenterProcess, peer: str, side: str) -> bool:
    """Whether a proposal of this side led to a merged trunk of the peer."""
    for view in process.reader.rounds():
        sent = view.record.proposals_sent if side == "asked" else view.record.proposals_received
        accepted = {p.session for p in sent if p.peer == peer and p.outcome == "accepted"}
        if any(partner.session in accepted for partner in view.record.partners):
            return True
    return False


def undelivered(center: CenterConfig, peer: str) -> bool:
    """Whether something for the peer was taken by no connection."""
    return any(not line["sent"] for line in lines(center.state_dir, Filter(peer)))


def statuses(center: CenterConfig) -> dict[str, str]:
    done = abps("peers", center.path, "--json")
    return {line["peer"]: line["status"] for line in json.loads(done.out)["peers"]}


def test_sessions_go_both_ways_over_the_one_connection_and_come_back_after_a_restart(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    layout = with_static_discovery(
        ward_federation(tmp_path, ["amber", "birch", "cedar"], ward_contract(OPEN_ENDED))
    )
    edit_toml(layout.centers[0].path, lambda tables: tables.update(record_stimuli=64))
    amber, birch, cedar = behind_firewalls(layout, ["birch", "cedar"]).centers
    hub, *spokes = processes.start_all([amber, birch, cedar])
    for process in (hub, *spokes):
        process.wait_for_round(1)
    for spoke in spokes:
        name = spoke.center.id
        wait_until(lambda: partners(hub, name, "asked"), f"amber proposed to {name}")  # noqa: B023
        wait_until(lambda: partners(spoke, "amber", "asked"), f"{name} to amber")  # noqa: B023
    assert statuses(amber) == {"birch": "met", "cedar": "met"}
    assert statuses(birch) == {"amber": "met", "cedar": "unreachable"}
    assert statuses(cedar) == {"amber": "met", "birch": "unreachable"}
    (event,) = spokes[0].reader.events(kind="peer-unreachable")
    assert event.peer == "cedar"
    assert hub.reader.events(kind="peer-unreachable") == []
    for view in spokes[0].reader.rounds():
        assert {p.peer for p in view.record.proposals_sent} <= {"amber"}

    spokes[0].send(signal.SIGKILL)
    spokes[0].wait_for_end()
    wait_until(lambda: undelivered(amber, "birch"), "no connection takes what is for birch")
    hub.wait_for_round(hub.last_round() + 2)
    processes.start(birch).wait_for_event("peer-met", "amber")
    hub.send(signal.SIGKILL)
    hub.wait_for_end()
    assert "the same decisions" in abps("replay", amber.path).out
    before = hub.last_round()
    again = processes.start(amber)
    again.wait_for_event("peer-met", "birch")

    again.wait_for_round(before + 2)

    def both_ways() -> bool:
        views = [view.record for view in again.reader.rounds() if view.record.round > before + 1]
        asked = {p.peer for r in views for p in r.proposals_sent if p.outcome == "accepted"}
        return asked >= {"birch", "cedar"}

    wait_until(both_ways, "the restarted center proposes to those whose addresses it never knew")


def test_two_of_them_alone_are_told_so_and_finish(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    contract = ward_contract({"rounds": 2}, {"start_wait_s": 0.5, "linger_s": 2.0})
    layout = with_static_discovery(ward_federation(tmp_path, ["amber", "birch"], contract))
    centers = behind_firewalls(layout, ["amber", "birch"]).centers
    for process in processes.start_all(centers):
        assert process.wait_for_end() == 0
        for view in process.reader.rounds():
            rest = view.record.rest
            assert rest is not None and rest.cause is RestCause.ALL_UNREACHABLE
            assert not rest.intentional and rest.counts["unreachable"] == 1
            assert "takes no connections" in rest.explanation
    assert statuses(centers[0]) == {"birch": "unreachable"}
    told = abps("isolation", centers[0].path)
    assert "all-unreachable" in told.out


def test_the_preflight_says_what_bind_none_means(tmp_path: Path) -> None:
    layout = with_static_discovery(ward_federation(tmp_path, ["amber", "birch"]))
    (amber, *_) = behind_firewalls(layout, ["amber", "birch"]).centers
    findings = json.loads(abps("check", amber.path, "--json").out)["findings"]
    told = [f["finding"] for f in findings if f["check"] in ("port", "peers")]
    assert any("takes no connections" in text and "bind is none" in text for text in told)
    assert any("stay unreachable" in text for text in told)
    assert load_center_config(amber.path).bind is None
