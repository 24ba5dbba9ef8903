"""Every bad table gives one error that names the file, the column, the row and what is allowed."""

from __future__ import annotations

import datetime
import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abps_node.data.table import Table, read_table
from abps_node.errors import DataError


def csv(tmp_path: Path, text: str | bytes, name: str = "patients.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def column(array: pa.Array) -> Table:
    return Table("patients.parquet", len(array), {"x": array}, ())


def one(tmp_path: Path, *values: str) -> Table:
    """A CSV with the column ``x`` beside another."""
    text = "x,other\n" + "".join(f'"{value}",0\n' for value in values)
    return read_table(csv(tmp_path, text), ["x"])


NUMBER = "a number, or empty for missing"
FINITE = "a finite number of at most ±1e+30"
FLAG = "0/1, true/false or yes/no, or empty for missing"
YEAR = "an ISO date or a year from 1900 to 2300, or empty for missing"


@pytest.mark.parametrize(
    ("read", "bad", "allowed"),
    [
        *[
            ("numbers", bad, NUMBER)
            for bad in ("abc", "inf", "-inf", "1,5", "0x1F", "1_000", "--1", "12 mg", "> 89")
        ],
        *[("numbers", bad, FINITE) for bad in ("1e31", "-1e31", "1e999")],
        *[("flags", bad, FLAG) for bad in ("2", "maybe", "-1", "0.5")],
        *[("labels", bad, FLAG) for bad in ("2", "dead")],
        ("labels", "", "0/1, true/false or yes/no in every row"),
        ("groups", "NA", "a patient identifier in every row"),
        *[("years", bad, YEAR) for bad in ("12/03/2008", "2010-02-30", "1850", "2301", "08")],
    ],
)
def test_impossible_values_are_named(tmp_path: Path, read: str, bad: str, allowed: str) -> None:
    good = {"years": "2008-01-02"}.get(read, "1")
    table = one(tmp_path, good, bad, bad)
    with pytest.raises(DataError) as caught:
        getattr(table, read)("x")
    message = str(caught.value)
    assert message.startswith(f"{table.source}: column 'x', row 3: found ")  # the header is row 1
    assert message.endswith(f"allowed: {allowed}")
    assert (repr(bad) if bad not in ("", "NA") else "a missing value (2 in all)") in message


def test_a_binary_value_that_is_neither_level_is_named(tmp_path: Path) -> None:
    table = one(tmp_path, "Female", "Male", "1")
    with pytest.raises(DataError, match=r"'x', row 4: found '1', allowed: 'Female' or 'Male'"):
        table.flags("x", ["Female", "Male"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("patients.csv", "age,sex\n1,2\n", "'agee' is missing; found 2 columns, nearest: 'age'"),
        ("patients.csv", "foo,sex\n1,2\n", "'agee' is missing; found 2 columns, none has a sim"),
        ("patients.csv", "agee;sex\n1;2\n", "its header has semicolons, allowed: commas"),
        ("patients.csv", "agee,agee\n1,2\n", "'agee': found 2 times, allowed: once"),
        ("patients.csv", "agee,sex\n", "found no rows, allowed: at least one patient"),
        ("patients.csv", "", "cannot be read: Empty CSV file"),
        (
            "patients.csv",
            "agee,sex\n1,2\n3\n",
            "row 3: found 1 cells, allowed: 2, as in the header",
        ),
        ("patients.csv", b"agee,sex\n1,2\n\xff,2\n", "Row #3: CSV conversion error to string"),
        ("patients.csv", b"agee,\xff\n1,2\n", "can't decode byte 0xff"),
        ("patients.csv.gz", b"agee\n1\n", "cannot be read"),
        ("patients.parquet", b"agee\n1\n", "cannot be read"),
        ("patients.xlsx", b"PK", "found '.xlsx', allowed: .csv, .csv.gz, .parquet, .pq"),
    ],
)
def test_unreadable_files_are_named(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = csv(tmp_path, content, name)
    with pytest.raises(DataError) as caught:
        read_table(path, ["agee"])
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"patients\.csv: no such file"):
        read_table(tmp_path / "patients.csv", ["age"])
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DataError, match=r"folder\.csv: cannot be read"):
        read_table(tmp_path / "folder.csv", ["age"])


def test_a_parquet_lacking_a_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "patients.parquet"
    pq.write_table(pa.table({"age": [1]}), path)
    with pytest.raises(DataError, match=r"column 'ages' is missing; found 1 columns, nearest: 'a"):
        read_table(path, ["ages"])


@pytest.mark.parametrize(
    ("read", "array", "found"),
    [
        ("numbers", pa.array([[1.0]]), "has type list<item: double>, allowed: numbers"),
        ("numbers", pa.array([datetime.date(2008, 1, 1)]), "has type date32"),
        ("groups", pa.array([{"id": 1}]), "has type struct<id: int64>, allowed: text, numbers"),
        ("numbers", pa.array([1.0, float("inf")]), "row 2: found inf, allowed: a finite number"),
        ("flags", pa.array([0, 1, 2]), "row 3: found '2', allowed: 0/1"),
    ],
)
def test_impossible_parquet_columns_are_named(read: str, array: pa.Array, found: str) -> None:
    with pytest.raises(DataError) as caught:
        getattr(column(array), read)("x")
    assert str(caught.value).startswith("patients.parquet: column 'x', ")
    assert found in str(caught.value)


def test_numbers_in_text(tmp_path: Path) -> None:
    table = one(tmp_path, "1", " +2.5e3 ", "NA", "NaN", "", "  ", "-.5", "7.")
    expected = [1, 2500, np.nan, np.nan, np.nan, np.nan, -0.5, 7]
    np.testing.assert_array_equal(table.numbers("x"), expected)


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, 0]),
        pa.array([1.0, float("nan"), 0.0]),
        pa.array([True, None, False]),
        pa.array(["1", None, "0"]),
        pa.array(["1", "", "0"], type=pa.large_string()),
        pa.array([1, None, 0]).cast(pa.decimal128(19)),
    ],
)
def test_typed_columns_are_read_alike(array: pa.Array) -> None:
    np.testing.assert_array_equal(column(array).numbers("x"), [1, np.nan, 0])
    np.testing.assert_array_equal(column(array).flags("x"), [1, np.nan, 0])


def test_dictionary_columns_and_chunks_are_read(tmp_path: Path) -> None:
    path = tmp_path / "patients.parquet"
    values = pa.chunked_array([["a", None], ["b"]]).dictionary_encode()
    pq.write_table(pa.table({"x": values, "unused": [1, 2, 3]}), path)
    table = read_table(path, ["x"])
    assert table.ignored == ("unused",)
    codes, unknown = table.levels("x", ["b"])
    np.testing.assert_array_equal(codes, [1, np.nan, 0])
    assert unknown.tolist() == ["a", None, None]


def test_levels_and_missing_markers(tmp_path: Path) -> None:
    table = one(tmp_path, "red", "NA", "", "blue", "blue ", "Red")
    codes, unknown = table.levels("x", ["blue", "red"])
    np.testing.assert_array_equal(codes, [1, np.nan, np.nan, 0, 0, 2])
    assert unknown.tolist() == [None] * 5 + ["Red"]
    codes, unknown = table.levels("x", ["NA", "blue"])  # declared, so it is no missing marker here
    np.testing.assert_array_equal(codes, [2, 0, np.nan, 1, 1, 2])
    assert unknown.tolist() == ["red", None, None, None, None, "Red"]


def test_an_empty_level_may_be_declared(tmp_path: Path) -> None:
    np.testing.assert_array_equal(one(tmp_path, "", "Yes").flags("x", ["", "Yes"]), [0, 1])


def test_integers_that_became_floats_keep_their_level() -> None:
    codes, unknown = column(pa.array([1.0, None, 3.0])).levels("x", ["1", "2"])
    np.testing.assert_array_equal(codes, [0, np.nan, 2])
    assert unknown.tolist() == [None, None, "3"]
    # …whatever stands in other rows, or a part of the table would read otherwise than the whole.
    assert column(pa.array([10012345.0, 0.5])).groups("x").tolist() == ["10012345", "0.5"]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["2008-03-01", None]),
        pa.array(["2008-03-01T10:00:00Z", " "]),
        pa.array(["2008-03-01 10:00", ""]),
        pa.array(["2008", "NA"]),
        pa.array(["2008.0", None]),
        pa.array([2008, None]),
        pa.array([2008.0, float("nan")]),
        pa.array([datetime.date(2008, 3, 1), None]),
        pa.array([datetime.datetime(2008, 3, 1, 10), None]),
    ],
)
def test_years(array: pa.Array) -> None:
    np.testing.assert_array_equal(column(array).years("x"), [2008, np.nan])


def test_csv_with_compression_byte_order_mark_and_line_breaks(tmp_path: Path) -> None:
    text = 'age,note\r\n1,"two\r\nlines"\r\n2,\r\n'
    path = tmp_path / "patients.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    table = read_table(path, ["age"])
    np.testing.assert_array_equal(table.numbers("age"), [1, 2])
    assert table.ignored == ("note",)
