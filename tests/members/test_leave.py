"""A center leaves: it ends at once, the others record that, and none of them waits for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.center_processes import CenterProcesses, wait_until
from tests.support.command_line import abps
from tests.support.wards import ward_contract, ward_federation

pytestmark = pytest.mark.timeout(600)


def test_the_others_record_it_and_finish_without_it(
    tmp_path: Path, processes: CenterProcesses
) -> None:
    # Whoever waited for the one that left would do so for an hour.
    contract = ward_contract({"rounds": 25, "kappa": 2}, {"linger_s": 3600.0})
    layout = ward_federation(tmp_path, ["amber", "birch", "cedar"], contract)
    amber, birch, cedar = processes.start_all(layout.centers)
    for process in (amber, birch, cedar):
        process.wait_for_round(2)
    told = abps("leave", cedar.center.path)
    assert told.code == 0 and "cedar has left after round" in told.out, told
    assert cedar.wait_for_end() == 0
    assert "asked to leave" in cedar.said()
    assert "left for good on" in abps("status", cedar.center.path).out
    seen = json.loads(abps("launch", "status", layout.directory, "--json").out)["centers"]
    entry = next(each for each in seen if each["id"] == "cedar")
    assert (entry["state"], entry["needs_somebody"]) == ("left", False)
    for process in (amber, birch):
        process.wait_for_event("member-left", "cedar")
        assert process.wait_for_end() == 0
        lines = json.loads(abps("peers", process.center.path, "--json").out)["peers"]
        assert {line["peer"]: line["status"] for line in lines}["cedar"] == "left"
    assert abps("leave", cedar.center.path).code == 1

    again = processes.start(cedar.center)
    wait_until(lambda: again.last_round() > 0 and again.reader.condition() == "running", "back")
