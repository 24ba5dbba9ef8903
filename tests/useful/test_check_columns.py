"""`abps check` on a table that does not fit: every column, what is wrong, and what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.errors import DataError
from abps_node.preflight import Finding
from abps_node.preflight.columns import check_columns
from abps_node.preflight.values import coded_missing, far_away
from protocol.contract import Data, Feature
from tests.support.command_line import abps
from tests.support.made_center import made_rows, make_center, write_rows
from tests.support.toml_files import federation_tables

SCHEMA = Data(
    label="died",
    group="patient",
    date="admitted",
    features=[
        Feature(name="age", kind="continuous"),
        Feature(name="sex", kind="binary", levels=["Female", "Male"]),
        Feature(name="diabetes", kind="binary"),
        Feature(name="ward", kind="categorical", levels=["icu", "surgery"]),
    ],
)
GOOD = {
    "patient": "P1",
    "admitted": "2020-01-02",
    "age": "50",
    "sex": "Male",
    "diabetes": "0",
    "ward": "icu",
    "died": "0",
}


def found(tmp_path: Path, *changes: dict[str, str], drop: str = "") -> list[Finding]:
    rows = [{**GOOD, **change} for change in changes] + [GOOD] * 10
    path = tmp_path / "patients.csv"
    write_rows(path, [{k: row[k] for k in row if k != drop} for row in rows])
    return check_columns(SCHEMA, path)


@pytest.mark.parametrize(
    ("column", "cells", "finding", "fix"),
    [
        ("age", ["1,5", "2,5"], "'1,5' (1), '2,5' (1) in 2 of 12 rows, first in row 2", "a point"),
        ("age", ["2020-01-02"], "allowed: a number", "a date is no number"),
        ("age", ["1,234.5"], "found '1,234.5'", "without separators of thousands"),
        ("age", ["> 89"], "found '> 89'", "the limit itself"),
        ("age", ["50 years"], "found '50 years'", "the number alone"),
        ("age", ["not done"], "found 'not done'", "leave the cell empty"),
        ("age", ["1e40"], "allowed: a finite number", "correct it, or leave the cell empty"),
        ("sex", ["male", "male"], "found 'male' (2) in 2 of 12 rows", "'male' is probably 'Male'"),
        ("sex", ["1"], "allowed: 'Female' or 'Male'", "write 'Female' and 'Male'"),
        ("diabetes", ["none", "type 2"], "found 'none'", 'levels = [\'none\', \'type 2\']'),
        ("diabetes", ["a", "b", "c"], "in 3 of 13 rows", "need kind categorical"),
        ("died", ["dead", "alive"], "allowed: 0/1, true/false or yes/no", "of 'dead' or 'alive'"),
        ("died", [""], "found no value in 1 of 11 rows", "leave rows without a known outcome out"),
        ("patient", [""], "found no value in 1 of 11 rows", "every row needs its patient"),
        ("admitted", ["02.01.2020"], "found '02.01.2020'", "write dates as 2020-12-31"),
    ],
)  # fmt: skip
def test_each_misfit_is_explained(
    tmp_path: Path, column: str, cells: list[str], finding: str, fix: str
) -> None:
    (line,) = found(tmp_path, *({column: cell} for cell in cells))
    assert line.severity == "problem"
    assert line.finding.startswith(f"{column}: ")
    assert finding in line.finding
    assert fix in line.fix


def test_a_table_that_fits_has_no_finding(tmp_path: Path) -> None:
    assert found(tmp_path, {"died": "yes", "ward": "elsewhere", "age": ""}) == []


def test_all_columns_are_heard_at_once(tmp_path: Path) -> None:
    lines = found(tmp_path, {"age": "x", "died": "dead", "admitted": "x"}, drop="ward")
    assert [line.finding.split(":")[0] for line in lines] == [
        "column 'ward' is missing; found 6 columns, none has a similar name",
        "died",
        "admitted",
        "age",
    ]


@pytest.mark.parametrize(
    ("header", "finding", "fix"),
    [
        ("patient;admitted;age;sex;diabetes;ward;died", "its header has semicolons", "with commas"),
        ("patient\tadmitted\tage\tsex\tdiabetes\tward\tdied", "its header has tabs", "with commas"),
        ("patient,admitted,Age,sex,diabetes,ward,died", "nearest: 'Age'", "rename it"),
        ("patient,admitted,age,sex,diabetes,died", "'ward' is missing", "add it to the export"),
        ("patient,admitted,age,age,sex,diabetes,ward,died", "found 2 times", "keep one of them"),
    ],
)
def test_names_are_explained(tmp_path: Path, header: str, finding: str, fix: str) -> None:
    path = tmp_path / "patients.csv"
    cells = {**GOOD, "Age": "50"}
    mark = next(mark for mark in ";\t," if mark in header)
    line = mark.join(cells[name] for name in header.split(mark))
    path.write_text(f"{header}\n{line}\n", encoding="utf-8")
    (found,) = check_columns(SCHEMA, path)
    assert finding in found.finding and fix in found.fix


def test_a_broken_line_is_named_without_its_cells(tmp_path: Path) -> None:
    path = tmp_path / "patients.csv"
    write_rows(path, [GOOD] * 3)
    path.write_text(path.read_text(encoding="utf-8") + "secret-47,1\n", encoding="utf-8")
    with pytest.raises(DataError, match="row 5: found 2 cells, allowed: 7") as caught:
        check_columns(SCHEMA, path)
    assert "secret-47" not in str(caught.value)


def test_types_of_parquet_are_explained(tmp_path: Path) -> None:
    path = tmp_path / "patients.parquet"
    columns: dict[str, Any] = {name: [value] * 3 for name, value in GOOD.items()}
    pq.write_table(pa.table({**columns, "age": [[1.0]] * 3}), path)
    (line,) = check_columns(SCHEMA, path)
    assert "column 'age', has type list" in line.finding


def test_the_command_lists_them(tmp_path: Path) -> None:
    rows = [{**row, "died": "dead" if row["died"] else "alive"} for row in made_rows()]
    path = make_center(tmp_path, rows=[{**row, "age": f"{row['age']},0"} for row in rows])
    outcome = abps("check", path, "--json")
    assert outcome.code == 1
    text = outcome.out
    assert "the rest of the table was not looked at" in text
    assert "in place of" in text and "with a point" in text


def warnings(path: Path) -> str:
    outcome = abps("check", path, "--json")
    assert outcome.code == 0
    return "\n".join(each["finding"] + each["fix"] for each in json.loads(outcome.out)["findings"])


def test_values_that_are_hardly_meant(tmp_path: Path) -> None:
    rows = made_rows()
    for number in (3, 5, 7, 12, 15):
        rows[number] = {**rows[number], "age": 999}
    rows[20] = {**rows[20], "age": 6100}
    federation = federation_tables()
    federation["contract"]["data"]["features"][0]["unit"] = "fill in"
    text = warnings(make_center(tmp_path, rows=rows, federation=federation))
    assert "age: 6 values lie very far from the others, for instance 6100" in text
    assert "«fill in» is still the unit of age" in text


def test_a_code_for_missing_is_recognized(tmp_path: Path) -> None:
    rows = [{**row, "age": -1} if n % 20 == 1 else row for n, row in enumerate(made_rows())]
    assert "age: -1 in 10 rows, far from all others" in warnings(make_center(tmp_path, rows=rows))


def test_misspelled_levels_are_recognized(tmp_path: Path) -> None:
    rows = [{**row, "ward": str(row["ward"]).upper()} for row in made_rows()]
    text = warnings(make_center(tmp_path, rows=rows))
    assert '"ICU" is perhaps "icu"' in text and "no row has one of those declared" in text


@given(st.lists(st.floats(0, 100), min_size=1, max_size=60))
def test_ordinary_numbers_are_no_codes(numbers: list[float]) -> None:
    known = np.array(numbers)
    assert coded_missing(known) in (None, 99.0)
    known = np.random.default_rng(1).normal(120, 15, 300)
    assert coded_missing(known) is None and far_away(known).size == 0
    assert coded_missing(np.r_[known, [-9] * 4]) == -9
    assert far_away(np.r_[known, 1200.0]).tolist() == [1200.0]
