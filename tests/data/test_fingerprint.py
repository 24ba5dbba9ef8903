"""A changed table is recognized and named; the same patients in another form are the same."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from abps_node.data import Fingerprint, load_center
from protocol.contract import Contract, Data, Feature

CONTRACT = Contract(
    name="test",
    data=Data(
        label="died",
        group="patient",
        date="day",
        features=[
            Feature(name="age", kind="continuous"),
            Feature(name="sex", kind="binary", levels=["F", "M"]),
            Feature(name="ward", kind="categorical", levels=["a", "b"]),
        ],
    ),
)
ROWS = [
    {
        "patient": f"p{number % 50}",
        "day": f"20{number % 20:02d}-01-02",
        "age": str(20 + number % 60) if number % 7 else "",
        "sex": "FM"[number % 2],
        "ward": "abc"[number % 3],
        "died": str(int(number % 4 == 0)),
        "unused": str(number),
    }
    for number in range(80)
]


def of(path: Path, rows: Sequence[dict[str, str]] = ROWS) -> Fingerprint:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    found = load_center(CONTRACT, "north", path).fingerprint
    assert found is not None
    return found


def changed(column: str, value: str, row: int = 5) -> list[dict[str, str]]:
    return [{**each, column: value} if number == row else each for number, each in enumerate(ROWS)]


def test_the_same_patients_in_another_form_are_the_same(tmp_path: Path) -> None:
    before = of(tmp_path / "a.csv")
    without = [{key: row[key] for key in reversed(row) if key != "unused"} for row in ROWS]
    assert before.changes(of(tmp_path / "b.csv", without)) is None
    pq.write_table(pacsv.read_csv(tmp_path / "a.csv"), tmp_path / "a.parquet")
    parquet = load_center(CONTRACT, "north", tmp_path / "a.parquet").fingerprint
    assert parquet is not None and before.changes(parquet) is None
    again = Fingerprint.model_validate_json(before.model_dump_json())
    assert before.changes(again) is None


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (ROWS[:-1], "it had 80 rows, now 79"),
        (changed("age", "99.5"), "values changed in 'age'"),
        (changed("died", "1"), "values changed in 'died'"),
        (changed("day", "1999-05-05"), "values changed in 'day'"),
        (changed("sex", ""), "values changed in 'sex'"),
        (changed("ward", ""), "values changed in 'ward'"),
        (changed("patient", "new"), "values changed in 'patient'"),
        (ROWS[::-1], "the same 80 rows stand in another order"),
    ],
)
def test_what_changed_is_named_without_its_value(
    tmp_path: Path, rows: list[dict[str, str]], told: str
) -> None:
    before = of(tmp_path / "before.csv")
    assert before.changes(of(tmp_path / "after.csv", rows)) == told


def test_another_deal_of_the_same_rows_is_a_change(tmp_path: Path) -> None:
    before = of(tmp_path / "a.csv")
    dealt = before.model_copy(update={"splits": "0" * 16})
    found = before.changes(dealt)
    assert found is not None and "dealt to train" in found
