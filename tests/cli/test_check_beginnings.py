"""`abps check` where a center only just begins, or where roster and bind disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

from abps_node.preflight import check_center
from abps_node.store.schema import STATE_FILE
from tests.support.made_center import make_center
from tests.support.wards import edit_toml


def finding(path: Path, name: str, level: str) -> list[str]:
    return [f.finding for f in check_center(path) if f.check == name and f.severity == level]


def test_an_empty_state_file_is_a_beginning_and_no_problem(tmp_path: Path) -> None:
    path = make_center(tmp_path)
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / STATE_FILE).touch()
    assert not finding(path, "state", "problem")
    assert "a start has just begun it" in finding(path, "state", "ok")[0]


@pytest.mark.parametrize(
    ("bind", "address", "warned"),
    [
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5557", True),
        ("tcp://127.0.0.1:5555", "tcp://127.0.0.1:5555", False),
        ("tcp://127.0.0.1:5555", "tcp://192.0.2.7:5555", True),
        ("tcp://127.0.0.1:0", "tcp://127.0.0.1:5555", True),
    ],
)
def test_a_roster_that_sends_the_others_elsewhere_is_noticed(
    tmp_path: Path, bind: str, address: str, warned: bool
) -> None:
    path = make_center(tmp_path)
    edit_toml(path, lambda tables: tables.update(bind=bind))
    edit_toml(
        tmp_path / "federation.toml", lambda tables: tables["roster"][0].update(address=address)
    )
    told = [text for text in finding(path, "port", "warning") if "the roster says" in text]
    assert bool(told) == warned, check_center(path)
