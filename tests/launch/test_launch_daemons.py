"""The launcher with real daemons: two commands, and a table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from abps_node.store.reader import Reader
from launch.layout import FederationLayout
from launch.summary import summarize
from tests.support.layouts import small_federation


def launch(layout: FederationLayout) -> subprocess.CompletedProcess[str]:
    """In a process of its own: this one has too many threads to be forked from."""
    command = [sys.executable, "-m", "abps_node", "launch", "local", str(layout.directory)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=100)


@pytest.mark.slow
def test_a_federation_runs_to_its_end_and_is_not_run_twice(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", ["far", "near"], rounds=3)
    done = launch(layout)
    assert done.returncode == 0, done.stdout + done.stderr
    for center, row in zip(layout.centers, summarize(layout), strict=True):
        assert (row.finished, row.rounds, row.patients) == (True, 3, 40)
        assert row.alone is not None and row.federated is not None
        assert set(row.partners) <= {"far", "near"} - {row.id}
        assert row.sent_bytes > 0 and row.received_bytes > 0
        status = Reader(center.state_dir).status()
        assert (status.condition, status.incarnation) == ("finished", 1)
        assert not list((layout.directory / "cards").glob("*.json")), "cards are withdrawn"

    again = launch(layout)
    assert again.returncode == 0
    assert again.stdout.startswith("All 2 centers have finished; nothing to start.\n")
    assert Reader(layout.centers[0].state_dir).status().incarnation == 1
