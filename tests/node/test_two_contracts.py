"""A center whose contract differs in one value: refused by name on both sides, and told so."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from abps_node.exits import ExitCode
from tests.support.residents import WAIT_S, Resident, Residents
from tests.support.soundness import check_state, disagreements, records
from tests.support.wards import ward_contract, ward_federation, with_own_federation


def refusals(resident: Resident) -> dict[str, str]:
    """Peer to what was said when it refused or was refused."""
    kinds = ("peer-refused", "refused-by-peer")
    events = [event for event in resident.reader.events() if event.kind in kinds]
    assert all(event.level == "error" for event in events)
    return {event.peer or "": event.text for event in events}


def statuses(resident: Resident) -> dict[str, str]:
    return {peer.peer: peer.status for peer in resident.reader.peers()}


async def test_another_contract(tmp_path: Path, residents: Residents) -> None:
    agreed = ward_contract({"rounds": 8})
    layout = ward_federation(tmp_path / "f", ["amber", "birch", "cedar"], agreed)
    amber_center, birch_center, cedar_center = layout.centers

    def differ(tables: dict[str, Any]) -> None:
        tables["contract"]["policy"].update(rounds=9)
        tables["contract"]["pacing"].update(start_wait_s=2.0)

    other = with_own_federation(cedar_center, differ)
    cedar = residents.start(other)
    amber, birch = residents.start(amber_center), residents.start(birch_center)
    async with asyncio.timeout(WAIT_S):
        codes = await asyncio.gather(amber.task, birch.task, cedar.task)
    assert [*codes] == [ExitCode.OK, ExitCode.OK, ExitCode.REFUSED]

    hashes = (agreed.digest()[:12], other.federation.contract.digest()[:12])
    assert set(refusals(cedar)) == {"amber", "birch"}
    assert statuses(cedar) == {"amber": "refused", "birch": "refused"}
    for text in refusals(cedar).values():
        assert "contract hash" in text and all(digest in text for digest in hashes)
    assert cedar.last_round() == 0
    (last,) = cedar.reader.events(kind="refused-by-all")
    assert "every peer that answered (2)" in last.text

    for resident, peer in ((amber, "birch"), (birch, "amber")):
        assert set(refusals(resident)) == {"cedar"}
        assert all(digest in refusals(resident)["cedar"] for digest in hashes)
        assert statuses(resident) == {peer: "finished", "cedar": "refused"}
        check_state(resident.center)
        met = {partner.peer for record in records(resident.center) for partner in record.partners}
        assert met == {peer}
    assert disagreements(layout.centers[:2]) == []
