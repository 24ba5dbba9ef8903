"""The launcher with real daemons: two commands, and a table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from abps_node.store.reader import Reader
from launch.local import launch_local
from launch.summary import summarize
from tests.support.layouts import small_federation


@pytest.mark.slow
def test_a_federation_runs_to_its_end_and_is_not_run_twice(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", ["far", "near"], rounds=3)
    said = io.StringIO()
    console = Console(file=said, width=200)
    assert launch_local(layout.directory, console=console) == 0, said.getvalue()
    for center, row in zip(layout.centers, summarize(layout), strict=True):
        assert (row.finished, row.rounds, row.patients) == (True, 3, 40)
        assert row.alone is not None and row.federated is not None
        assert set(row.partners) <= {"far", "near"} - {row.id}
        assert row.sent_bytes > 0 and row.received_bytes > 0
        status = Reader(center.state_dir).status()
        assert (status.condition, status.incarnation) == ("finished", 1)
        assert not list((layout.directory / "cards").glob("*.json")), "cards are withdrawn"

    again = io.StringIO()
    assert launch_local(layout.directory, console=Console(file=again, width=200)) == 0
    assert again.getvalue() == "All 2 centers have finished; nothing to start.\n"
    assert Reader(layout.centers[0].state_dir).status().incarnation == 1
