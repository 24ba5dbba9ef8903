"""Reading by SQL: text columns, empty cells, progress, and an end when it is no longer wanted."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from abps_node.errors import DataError
from sim.datasets.files import query


def a_file(folder: Path) -> Path:
    path = folder / "it's.csv.gz"
    path.write_bytes(gzip.compress(b'id,name\n007,"a, b"\n2,\n3,""\n4,"a ""b"""\n'))
    return path


def test_cells_are_text_and_empty_ones_are_missing(tmp_path: Path) -> None:
    table = query("SELECT * FROM it", {"it": a_file(tmp_path)})
    assert table.to_pydict() == {
        "id": ["007", "2", "3", "4"],
        "name": ["a, b", None, None, 'a "b"'],
    }


def test_progress_is_told_and_ends_at_one(tmp_path: Path) -> None:
    told: list[tuple[str, float | None]] = []
    query(
        "SELECT count(*) FROM it", {"it": a_file(tmp_path)}, lambda *now: told.append(now), "rows"
    )
    assert told[-1] == ("rows", 1.0)
    assert all(what == "rows" and (share is None or 0 <= share <= 1) for what, share in told)


def test_errors_come_through_with_the_file_whether_watched_or_not(tmp_path: Path) -> None:
    path = a_file(tmp_path)
    for progress in (None, lambda *_: None):
        with pytest.raises(DataError, match=r"it's.csv.gz: Conversion Error: .*a, b") as caught:
            query("SELECT name::INTEGER FROM it", {"it": path}, progress)
        assert "Possible solutions" not in str(caught.value)


def test_ctrl_c_ends_a_query_that_would_run_for_days() -> None:
    def pressed(what: str, share: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        query(
            "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b", {}, pressed
        )
