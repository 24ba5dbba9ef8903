"""Two copies of one center at once, as after a requeued job: the older one ends, nothing breaks."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from abps_node.errors import Superseded
from abps_node.exits import ExitCode, exit_code_for
from abps_node.learning import Learner
from tests.support.center_processes import CenterProcesses
from tests.support.residents import WAIT_S, Residents, eventually
from tests.support.soundness import check_state, records
from tests.support.wards import ward_contract, ward_federation, with_static_discovery

pytestmark = pytest.mark.timeout(600)

FOREVER = 100_000


def test_the_older_process_ends(tmp_path: Path, processes: CenterProcesses) -> None:
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], ward_contract({"rounds": FOREVER}))
    older, birch = processes.start_all(layout.centers)
    older.wait_for_round(2)
    newer = processes.start(layout.centers[0])
    assert older.wait_for_end() == ExitCode.SUPERSEDED
    assert "incarnation 2" in older.said()
    assert "Traceback" not in older.said()

    committed = newer.last_round()
    newer.wait_for_round(committed + 2)
    birch.wait_for_event("peer-restarted", "amber")
    for process in (newer, birch):
        process.send(signal.SIGTERM)
    for process in (newer, birch):
        assert process.wait_for_end() == ExitCode.STOPPED
    for center in layout.centers:
        check_state(center)
    assert {record.incarnation for record in records(layout.centers[0])} == {1, 2}


async def test_the_newer_copy_takes_over_the_port(tmp_path: Path, residents: Residents) -> None:
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], ward_contract({"rounds": FOREVER}))
    layout = with_static_discovery(layout)
    older, birch = (residents.start(center) for center in layout.centers)
    await eventually(lambda: older.last_round() >= 2)
    newer = residents.start(layout.centers[0])
    with pytest.raises(Superseded, match="incarnation 2") as caught:
        async with asyncio.timeout(WAIT_S):
            await older.task
    assert exit_code_for(caught.value) == ExitCode.SUPERSEDED
    residents.forget(older)
    committed = newer.last_round()
    await eventually(lambda: newer.last_round() >= committed + 2)
    assert birch.has_event("peer-restarted", "amber")
    check_state(layout.centers[0])


async def test_the_older_copy_ends_also_while_it_reports(
    tmp_path: Path, residents: Residents
) -> None:
    """Its rounds are done, its test report takes long: the newer copy must get the port anyway."""
    reporting, release = threading.Event(), threading.Event()

    class Thorough(Learner):
        """Its report takes until it is released."""

        def test_report(self) -> dict[str, Any]:
            reporting.set()
            assert release.wait(60)
            return super().test_report()

    agreed = ward_contract({"rounds": 1}, {"start_wait_s": 0.1, "linger_s": 0.1})
    layout = with_static_discovery(ward_federation(tmp_path / "f", ["amber", "birch"], agreed))
    try:
        older = residents.start(layout.centers[0], Thorough)
        await eventually(lambda: older.has_phase("stopped") and reporting.is_set())
        newer = residents.start(layout.centers[0])
        await eventually(lambda: newer.endpoint)
        assert not release.is_set()
    finally:
        release.set()
    with pytest.raises(Superseded):
        await older.task
    residents.forget(older)
    assert await newer.task == ExitCode.OK
    assert newer.reader.report("federated") is not None
