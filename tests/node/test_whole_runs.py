"""Federations of daemons from the first hello to the last goodbye, over every kind of discovery."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from abps_node.exits import ExitCode
from abps_node.learning import trunk_layout
from launch.layout import FederationLayout, read_layout
from tests.support.residents import WAIT_S, Resident, Residents
from tests.support.soundness import check_pruned, check_state, disagreements, records
from tests.support.wards import edit_toml, ward_contract, ward_federation, with_static_discovery

ROUNDS = 4


async def run(layout: FederationLayout, residents: Residents) -> list[Resident]:
    """Run all centers to their end; what holds after every good run."""
    started = [residents.start(center) for center in layout.centers]
    async with asyncio.timeout(WAIT_S):
        codes = await asyncio.gather(*(resident.task for resident in started))
    assert codes == [ExitCode.OK] * len(started)
    for center in layout.centers:
        check_state(center)
        check_pruned(center)
        assert len(records(center)) == ROUNDS
        assert any(record.partners for record in records(center))
    assert disagreements(layout.centers) == []
    return started


def contract(**sections: Any) -> Any:
    return ward_contract({"rounds": ROUNDS}, **sections)


async def test_discovery_by_directory(tmp_path: Path, residents: Residents) -> None:
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], contract(), compare_alone=True)
    amber, birch = await run(layout, residents)
    assert not list((layout.directory / "cards").iterdir()), "withdrawn at the end"
    for resident in (amber, birch):
        for name in ("federated", "alone"):
            report = resident.reader.report(name)
            assert report is not None
            assert report["rounds"] == ROUNDS
            assert report["rows"] == 18
            assert report["auroc_low"] <= report["auroc"] <= report["auroc_high"]
        status = resident.reader.status()
        assert (status.condition, status.phase) == ("finished", "stopped")
    sent, received = amber.reader.status().sent, birch.reader.status().received
    assert 0 <= sent.messages - received.messages <= 1, "a last goodbye may find nobody"


async def test_static_discovery(tmp_path: Path, residents: Residents) -> None:
    layout = ward_federation(tmp_path / "f", ["amber", "birch", "cedar"], contract())
    await run(with_static_discovery(layout), residents)
    assert not list((layout.directory / "cards").iterdir())


async def test_one_known_address_is_enough(tmp_path: Path, residents: Residents) -> None:
    """Behind a firewall a center has no address: it connects, and is answered."""
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], contract())
    layout = with_static_discovery(layout)
    edit_toml(layout.federation, lambda tables: tables["roster"][1].pop("address"))
    layout = read_layout(layout.directory)
    assert layout.centers[0].federation.roster[1].address is None
    await run(layout, residents)


async def test_without_security_there_is_a_warning(
    tmp_path: Path, residents: Residents, caplog: pytest.LogCaptureFixture
) -> None:
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], contract(security="none"))
    for center in layout.centers:
        center.secret_key.unlink()
    await run(layout, residents)
    assert len(insecure(caplog)) == 2
    assert "security is «none»" in insecure(caplog)[0]


def insecure(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings that everything goes in clear."""
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    return [each.getMessage() for each in warnings if vars(each).get("event") == "insecure"]


async def test_with_security_there_is_no_warning(
    tmp_path: Path, residents: Residents, caplog: pytest.LogCaptureFixture
) -> None:
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], contract())
    await run(layout, residents)
    assert not insecure(caplog)


async def test_trunks_in_bfloat16_with_private_heads(tmp_path: Path, residents: Residents) -> None:
    agreed = ward_contract({"rounds": ROUNDS, "preset": "abps+p+q+k1"})
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], agreed)
    await run(layout, residents)
    for center in layout.centers:
        trunk = trunk_layout(agreed).payload_bytes("bfloat16")
        for record in records(center):
            assert all(partner.bytes_received < trunk + 400 for partner in record.partners)
