"""Care units of the RHC data, as real daemons, seen while they run, after a kill, at the end."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from launch.layout import FederationLayout, write_federation
from launch.summary import summarize
from tests.support.center_processes import wait_until
from tests.support.command_line import abps

RHC = Path(__file__).parents[2] / "examples" / "rhc"
UNITS = ("chf", "cirrhosis", "coma")
ROUNDS = 8
WAIT_S = 120.0


def units(directory: Path) -> FederationLayout:
    """The three smallest units of the demo, for a few rounds."""
    prepare = runpy.run_path(str(RHC / "prepare.py"))
    tables = prepare["split_by_unit"](prepare["read_table"]())
    contract = tomllib.loads((RHC / "contract.toml").read_text(encoding="utf-8"))
    contract["policy"] |= {"rounds": ROUNDS, "kappa": 1}
    contract["pacing"] |= {"min_peers": 2, "linger_s": 4.0}
    return write_federation(directory, contract, {unit: tables[unit] for unit in UNITS})


def seen(layout: FederationLayout) -> dict[str, Any]:
    outcome = abps("launch", "status", layout.directory, "--json")
    assert outcome.code == 0, outcome.err
    found: dict[str, Any] = json.loads(outcome.out)
    return found


def least_round(layout: FederationLayout) -> int:
    return min(center.get("last_round", 0) for center in seen(layout)["centers"])


@pytest.mark.slow
def test_a_federation_while_it_runs_after_a_kill_and_at_its_end(tmp_path: Path) -> None:
    layout = units(tmp_path / "fed")
    assert seen(layout)["states"] == {"not started": 3}
    command = [sys.executable, "-m", "abps_node", "launch", "local", str(layout.directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: least_round(layout) >= 2, "two rounds of all", WAIT_S)
        found = seen(layout)
        assert found["states"] == {"running": 3}
        assert all(center["seen"] is not None for center in found["centers"])
        (victim,) = [center for center in found["centers"] if center["id"] == "coma"]
        os.kill(victim["pid"], signal.SIGKILL)
        wait_until(
            lambda: _center(layout, "coma").get("incarnation") == 2, "coma started again", WAIT_S
        )
        said, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, said
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    check_end(layout)


def _center(layout: FederationLayout, name: str) -> dict[str, Any]:
    (found,) = [center for center in seen(layout)["centers"] if center["id"] == name]
    return dict(found)


def check_end(layout: FederationLayout) -> None:
    """All commands agree with each other and with the table of the launcher."""
    found = seen(layout)
    assert (found["states"], found["needs_somebody"]) == ({"finished": 3}, 0)
    rows = {row.id: row for row in summarize(layout)}
    for center in found["centers"]:
        row = rows[center["id"]]
        assert center["last_round"] == row.rounds
        assert center["isolated"] == row.isolated
        assert row.federated is not None
        assert center["test"]["federated"]["auroc"] == row.federated.value
    alone = json.loads(abps("launch", "isolation", layout.directory, "--json").out)
    assert alone["rounds"] == sum(row.rounds for row in rows.values())
    assert alone["isolated"] == sum(sum(row.isolated.values()) for row in rows.values())
    logs = abps("launch", "logs", layout.directory, "--grep", "listening on").out.splitlines()
    assert len(logs) == 4, "one center was started twice"
    assert [line[:19] for line in logs] == sorted(line[:19] for line in logs)
    outcome = abps("launch", "report", layout.directory)
    assert outcome.code == 0
    page = (layout.directory / "report.html").read_text(encoding="utf-8")
    assert page.count("<svg") >= 5
    for row in rows.values():
        assert row.federated is not None and row.federated.value is not None
        assert f"{row.federated.value:.3f} (" in page
    assert abps("launch", "stop", layout.directory).out == "Nothing of this federation runs here.\n"
