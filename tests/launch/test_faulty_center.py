"""A center whose file is faulty: who looks is told, sees the others; nothing starts with it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from abps_node.errors import ConfigError
from abps_node.exits import ExitCode
from abps_node.logs import LOG_NAME
from abps_node.store.reader import Reader
from abps_node.store.schema import STATE_FILE
from launch.layout import FederationLayout, LayoutError, look_into, read_layout
from tests.support import half_dead as made
from tests.support.command_line import abps
from tests.support.layouts import small_federation


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    """«done» has finished; the file of «torn» is cut off in the middle of a line."""
    layout = small_federation(tmp_path / "fed", ["done", "idle", "torn"])
    done, _, torn = layout.centers
    made.write(done, made.finished(done), reports=("federated", "alone"))
    torn.path.write_text("seed = 1\nstate_dir = [\n")
    return layout


def test_the_others_are_shown_and_the_fault_is_one_line(layout: FederationLayout) -> None:
    file = str(layout.directory / "centers" / "torn" / "center.toml")
    told = abps("launch", "status", layout.directory)
    assert told.code == 0, told
    assert sum(file in line for line in told.out.splitlines()) == 1
    assert "unreadable" in told.out and "done" in told.out and "Traceback" not in told.err
    rows = json.loads(abps("launch", "status", layout.directory, "--json").out)["centers"]
    assert {row["id"] for row in rows} == {"done", "idle", "torn"}


def test_every_other_view_goes_on_without_it(layout: FederationLayout) -> None:
    file = str(layout.directory / "centers" / "torn" / "center.toml")
    found = abps("launch", "isolation", layout.directory, "--json")
    assert found.code == 0 and file in json.loads(found.out)["unreadable"]["torn"]
    logged = abps("launch", "logs", layout.directory)
    assert logged.code == 0 and file in logged.err
    report = abps("launch", "report", layout.directory)
    assert report.code == 0
    assert "torn" in (layout.directory / "report.html").read_text()
    results = abps("launch", "results", layout.directory)
    assert results.code == 1 and "done" in results.out and file in results.err
    stopped = abps("launch", "stop", layout.directory)
    assert stopped.code == 0 and file in stopped.out


def test_who_asks_for_it_by_name_is_told_why_not(layout: FederationLayout) -> None:
    asked = abps("launch", "logs", layout.directory, "--center", "torn")
    assert asked.code != ExitCode.OK
    assert "torn/center.toml" in asked.err and "Traceback" not in asked.err


def test_nothing_is_started_with_it(layout: FederationLayout) -> None:
    with pytest.raises(ConfigError, match=r"torn/center\.toml"):
        read_layout(layout.directory)
    assert not layout.centers[1].state_dir.exists()
    assert Reader(layout.centers[0].state_dir).status().finished


def test_an_id_that_another_center_has_is_a_fault_of_the_second(layout: FederationLayout) -> None:
    layout.centers[2].path.write_text(layout.centers[0].path.read_text())
    found = look_into(layout.directory)
    assert [center.id for center in found.centers] == ["done", "idle"]
    assert "id: found 'done'" in found.broken["torn"]


def hide(path: Path) -> None:
    """As from another user, also for root: nobody can look into a link that leads to itself."""
    shutil.rmtree(path, ignore_errors=True)
    path.symlink_to(path)


def test_a_folder_that_may_not_be_looked_into_is_named(layout: FederationLayout) -> None:
    hide(layout.centers[2].path.parent)
    assert "torn/center.toml: cannot be read" in look_into(layout.directory).broken["torn"]
    with pytest.raises(ConfigError, match=r"torn/center\.toml: cannot be read"):
        read_layout(layout.directory)
    hide(layout.directory / "centers")
    with pytest.raises(LayoutError, match="centers: cannot be read"):
        look_into(layout.directory)


def test_a_state_that_may_not_be_looked_into_is_named(layout: FederationLayout) -> None:
    idle = layout.centers[1]
    idle.state_dir.mkdir()
    for name in (STATE_FILE, LOG_NAME):
        hide(idle.state_dir / name)
    line = f"{idle.state_dir}: cannot be read"
    for command in ("results", "logs", "status"):
        outcome = abps("launch", command, layout.directory)
        assert line in outcome.out + outcome.err, command
    assert "no log yet" not in abps("launch", "logs", layout.directory, "--center", "idle").err
    for command in ("status", "logs", "outbound"):
        outcome = abps(command, idle.path.parent)
        assert outcome.code == ExitCode.STORE
        assert outcome.err.startswith(f"abps: {line}")


def test_where_no_center_is_left_the_first_fault_is_the_answer(layout: FederationLayout) -> None:
    for center in layout.centers:
        center.path.write_text("id = ")
    with pytest.raises(ConfigError, match=r"done/center\.toml"):
        look_into(layout.directory)
    layout.federation.write_text("[contract]\n")
    with pytest.raises(ConfigError, match=r"federation\.toml"):
        look_into(layout.directory)
    layout.federation.unlink()
    with pytest.raises(LayoutError, match="not a federation directory"):
        look_into(layout.directory)
