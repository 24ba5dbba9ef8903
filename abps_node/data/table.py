"""The patient table of a center: CSV, Parquet or a table in memory in, checked columns out.

Only the named columns are read. Every complaint is one ``DataError`` with the source, the column,
the row, what was found and what is allowed. What a cell means never depends on other rows. Rows are
numbered from 1; the header of a CSV file is its row 1, as in a spreadsheet.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from abps_node.errors import DataError

FloatArray = NDArray[np.float64]
Texts = NDArray[np.object_]
"""Strings or None."""

MISSING: Final = ("", "NA", "NaN", "nan")
"""Texts that mean «missing», unless the schema declares one of them as a level."""
MAX_MAGNITUDE: Final = 1e30
"""Numbers beyond it are no measurement; their variance would overflow."""
_PARQUET: Final = (".parquet", ".pq")
_CSV: Final = (".csv", ".csv.gz")
_NUMBER: Final = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_YEAR: Final = re.compile(r"^([0-9]{4})(\.[0-9]+)?$")
_YEARS: Final = (1900, 2300)
_NO: Final = ("0", "0.0", "false", "no", "n")
_YES: Final = ("1", "1.0", "true", "yes", "y")
PLAIN_FLAGS: Final = {**dict.fromkeys(_NO, 0.0), **dict.fromkeys(_YES, 1.0)}
"""What a binary column may hold without declaring levels; case does not matter."""
_FLAGS_ALLOWED: Final = "0/1, true/false or yes/no"


@dataclass(frozen=True)
class Misfit:
    """Cells of one column that mean nothing there."""

    column: str
    rows: NDArray[np.bool_]
    """Which rows, ``(rows,)``."""
    found: Any
    """The column as ``pyarrow.Array``, for whoever mends the table; its cells are patients'."""
    allowed: str


@dataclass(frozen=True)
class Table:
    """The columns that were asked for, as they stand in the file."""

    source: str
    """What messages name: the file, or what the table in memory is called."""
    rows: int
    columns: Mapping[str, Any]
    """Column name to ``pyarrow.Array`` of length ``rows``."""
    ignored: tuple[str, ...]
    """Columns of the file that nobody asked for."""
    first_row: int = 1
    """Number of the first patient's row in messages: 1, or 2 below a header."""
    misfits: list[Misfit] | None = None
    """None: the first impossible cell is an error. A list: such cells are read as missing, and the
    columns in which there are any are added here."""

    def lenient(self) -> Table:
        """The same table, which lists impossible cells in ``misfits`` instead of refusing them."""
        return replace(self, misfits=[])

    def numbers(self, name: str) -> FloatArray:
        """A continuous column, shape ``(rows,)``; missing values are NaN."""
        column = self.columns[name]
        if _is_text(column.type):
            text = self._text(name)
            bad = pc.invert(pc.match_substring_regex(text, _NUMBER))
            text = self._screened(name, bad, text, "a number, or empty for missing")
            column = pc.utf8_ltrim(text, characters="+")
        elif not _is_numeric(column.type):
            self._fail(name, f"has type {column.type}, allowed: numbers")
        values = np.array(_to_float(column).to_numpy(zero_copy_only=False), dtype=np.float64)
        absurd = np.abs(values) > MAX_MAGNITUDE
        allowed = f"a finite number of at most ±{MAX_MAGNITUDE:g}"
        self._screened(name, pa.array(absurd), self.columns[name], allowed)
        values[absurd] = np.nan
        return values

    def at_least(self, name: str, least: float, what: str) -> FloatArray:
        """A continuous column without a value below ``least``; missing values are NaN."""
        values = self.numbers(name)
        low = values < least
        self._screened(name, pa.array(low), self.columns[name], f"{what}, or empty for missing")
        values[low] = np.nan
        return values

    def flags(self, name: str, levels: Sequence[str] | None = None) -> FloatArray:
        """A binary column as 0 and 1, shape ``(rows,)``; missing values are NaN.

        With ``levels`` the two texts are [level of 0, level of 1] and nothing else is allowed.
        """
        text = self._text(name, keep=levels or ())
        known = PLAIN_FLAGS if levels is None else {levels[0]: 0.0, levels[1]: 1.0}
        codes = pc.index_in(text if levels else pc.utf8_lower(text), pa.array(list(known)))
        allowed = _FLAGS_ALLOWED if levels is None else " or ".join(map(repr, levels))
        bad = pc.and_(pc.is_valid(text), pc.is_null(codes))
        self._screened(name, bad, text, f"{allowed}, or empty for missing")
        return _look_up(codes, list(known.values()))

    def labels(self, name: str) -> FloatArray:
        """The outcome as 0 and 1, shape ``(rows,)``; none may be missing."""
        values = self.flags(name)
        self._refuse_missing(name, np.isnan(values), f"{_FLAGS_ALLOWED} in every row")
        return values

    def levels(self, name: str, levels: Sequence[str]) -> tuple[FloatArray, Texts]:
        """A categorical column as level numbers, and the text of every undeclared level.

        Undeclared levels get the number ``len(levels)``, missing values NaN. Both ``(rows,)``; the
        text is None where the level is declared or missing.
        """
        text = self._text(name, keep=levels)
        codes = pc.index_in(text, pa.array(list(levels), type=pa.string()))
        unknown = pc.and_(pc.is_valid(text), pc.is_null(codes))
        undeclared = pc.if_else(unknown, text, pa.scalar(None, pa.string()))
        codes = pc.if_else(unknown, pa.scalar(len(levels), pa.int32()), codes)
        numbers = _look_up(codes, [float(code) for code in range(len(levels) + 1)])
        return numbers, undeclared.to_numpy(zero_copy_only=False)

    def categories(self, name: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
        """Any column as numbers of its distinct texts, −1 where missing ``(rows,)``; the texts."""
        text = self._text(name)
        names = sorted(pc.unique(text).drop_null().to_pylist())
        codes = pc.index_in(text, pa.array(names, type=pa.string())).fill_null(-1)
        return codes.to_numpy(zero_copy_only=False).astype(np.int64), tuple(names)

    def groups(self, name: str, what: str = "a patient identifier") -> Texts:
        """The patient of every row, as text, shape ``(rows,)``; none may be missing."""
        text = self._text(name)
        allowed = f"{what} in every row"
        self._refuse_missing(name, pc.is_null(text).to_numpy(zero_copy_only=False), allowed)
        return np.asarray(text.to_numpy(zero_copy_only=False))

    def years(self, name: str) -> FloatArray:
        """The year of a date column (ISO date, datetime, or a plain year); missing ones are NaN."""
        text = self._text(name)
        distinct = pc.unique(text).drop_null().to_pylist()
        year_of = {value: _year(value) for value in distinct}
        good = [value for value in distinct if year_of[value] is not None]
        codes = pc.index_in(text, pa.array(good, type=pa.string()))
        bad = pc.and_(pc.is_valid(text), pc.is_null(codes))
        allowed = f"an ISO date or a year from {_YEARS[0]} to {_YEARS[1]}, or empty for missing"
        self._screened(name, bad, text, allowed)
        return _look_up(codes, [float(year_of[value] or 0) for value in good])

    def texts(self, name: str) -> Any:
        """Any column as trimmed strings, null for missing, as a ``pyarrow.Array``."""
        return self._text(name)

    def _text(self, name: str, keep: Collection[str] = ()) -> Any:
        """The column as trimmed strings with nulls for missing; texts in ``keep`` are never."""
        column = self.columns[name]
        if pa.types.is_floating(column.type):
            column = _spelled(column)
        if not (_is_text(column.type) or _is_numeric(column.type) or _is_time(column.type)):
            self._fail(name, f"has type {column.type}, allowed: text, numbers, dates")
        text = pc.utf8_trim_whitespace(column.cast(pa.string()))
        markers = pa.array([marker for marker in MISSING if marker not in keep], type=pa.string())
        return pc.if_else(pc.is_in(text, markers), pa.scalar(None, pa.string()), text)

    def _refuse_missing(self, name: str, missing: NDArray[np.bool_], allowed: str) -> None:
        if self.misfits is not None:
            # What could not be read as anything has been listed before.
            listed = [misfit.rows for misfit in self.misfits if misfit.column == name]
            absent = missing & ~np.logical_or.reduce(listed) if listed else missing
            if absent.any():
                blank = pa.nulls(missing.size, pa.string())
                self.misfits.append(Misfit(name, absent, blank, allowed))
        elif missing.any():
            row = self.first_row + int(missing.argmax())
            count = int(missing.sum())
            self._fail(
                name, f"row {row}: found a missing value ({count} in all), allowed: {allowed}"
            )

    def _screened(self, name: str, bad: Any, found: Any, allowed: str) -> Any:
        """``found`` with null for bad cells, if those may be listed; else the first is named."""
        index = pc.index(bad, True).as_py()
        if index < 0:
            return found
        if self.misfits is not None:
            self.misfits.append(Misfit(name, _mask(bad), found, allowed))
            return pc.if_else(bad.fill_null(False), pa.scalar(None, found.type), found)
        cell = repr(found[index].as_py())
        what = f"row {self.first_row + index}: found {cell}, allowed: {allowed}"
        self._fail(name, what, f"found {cell}, allowed")

    def _fail(self, name: str, what: str, cell: str = "") -> NoReturn:
        raise DataError(f"{self.source}: column {name!r}, {what}", cell)


def read_table(path: Path, names: Sequence[str]) -> Table:
    """Read the named columns of a ``.csv``, ``.csv.gz`` or ``.parquet`` file; extra ones stay out.

    Raises ``DataError`` if the file cannot be read, lacks a column, or has no rows.
    """
    present, table, first_row = _read(path, names)
    return _checked(str(path), table, present, names, first_row)


def _read(path: Path, names: Sequence[str] | None) -> tuple[list[str], Any, int]:
    """All names of the file, the wanted columns (None: all of them), and its first row's number."""
    with _readable(path) as parquet:
        present, table = (_read_parquet if parquet else _read_csv)(path, names)
        return present, table, 1 if parquet else 2


@contextmanager
def _readable(path: Path) -> Iterator[bool]:
    """Whether it is Parquet; turns all that goes wrong with a file into one ``DataError``."""
    lowered = path.name.lower()
    if not lowered.endswith(_PARQUET + _CSV):
        raise DataError(f"{path}: found {path.suffix!r}, allowed: {', '.join(_CSV + _PARQUET)}")
    try:
        yield lowered.endswith(_PARQUET)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        text = str(error)
        hint = "; save it as UTF-8" if re.search(r"utf-?8", text, re.IGNORECASE) else ""
        raise DataError(f"{path}: cannot be read: {text}{hint}") from error


def read_header(path: Path) -> list[str]:
    """Names of all columns, in their order; raises ``DataError`` if the file cannot be read."""
    with _readable(path) as parquet:
        if parquet:
            return list(pq.read_schema(pa.BufferReader(path.read_bytes())).names)
        parse = _parse_options(lambda _: None)  # whoever reads the rows names those
        return _csv_names(path, pacsv.ReadOptions(use_threads=False), parse)


def read_all_columns(path: Path) -> list[tuple[str, Table]]:
    """Every column, also those of one name, as a table of its own in which it is called ``""``.

    For whoever does not know yet what is in the file. Raises ``DataError`` as ``read_table`` does.
    """
    present, table, first_row = _read(path, None)
    if table.num_rows == 0:
        raise DataError(f"{path}: found no rows, allowed: at least one patient")
    arrays = [_one_array(column) for column in table.columns]
    return [
        (name, Table(str(path), table.num_rows, {"": array}, (), first_row))
        for name, array in zip(present, arrays, strict=True)
    ]


def table_in_memory(table: pa.Table, names: Sequence[str], source: str) -> Table:
    """The named columns of a table in memory, read as a Parquet file of it would be.

    ``source`` is what messages call it. Raises ``DataError`` as ``read_table`` does.
    """
    _require_columns(source, table.column_names, names)
    return _checked(source, table, table.column_names, names, first_row=1)


def _checked(
    source: str, table: pa.Table, present: Sequence[str], names: Sequence[str], first_row: int
) -> Table:
    if table.num_rows == 0:
        raise DataError(f"{source}: found no rows, allowed: at least one patient")
    columns = {name: _one_array(table.column(name)) for name in names}
    ignored = tuple(name for name in present if name not in columns)
    return Table(source, table.num_rows, columns, ignored, first_row)


def _parse_options(on_broken: Callable[[pacsv.InvalidRow], None]) -> pacsv.ParseOptions:
    """Rows with too few or too many cells are handed over, and left out."""

    def skip(row: pacsv.InvalidRow) -> str:
        on_broken(row)
        return "skip"

    return pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip)


def _csv_names(path: Path, read: Any, parse: Any) -> list[str]:
    with pacsv.open_csv(str(path), read_options=read, parse_options=parse) as reader:
        return list(reader.schema.names)


def _read_csv(path: Path, names: Sequence[str] | None) -> tuple[list[str], Any]:
    # Everything as text: what a column means is the contract's business, not that of guessing.
    # One thread, since only then does pyarrow know the row of a malformed line.
    broken: list[pacsv.InvalidRow] = []
    parse, read = _parse_options(broken.append), pacsv.ReadOptions(use_threads=False)
    present = _csv_names(path, read, parse)
    if names is not None:
        _require_columns(path, present, names)
    elif separator := other_separator(present):
        raise DataError(f"{path}: {_WRONG_SEPARATOR.format(separator)}")
    convert = pacsv.ConvertOptions(
        include_columns=None if names is None else list(names),
        column_types=dict.fromkeys(present if names is None else names, pa.string()),
        strings_can_be_null=False,
    )
    broken.clear()
    table = pacsv.read_csv(
        str(path), read_options=read, parse_options=parse, convert_options=convert
    )
    if broken:
        first, more = broken[0], f", and {len(broken) - 1} more such rows" if broken[1:] else ""
        raise DataError(
            f"{path}: row {first.number}: found {first.actual_columns} cells{more}, allowed: "
            f"{first.expected_columns}, as in the header; a cell with a comma in it needs quotes"
        )
    return present, table


def _read_parquet(path: Path, names: Sequence[str] | None) -> tuple[list[str], Any]:
    # From memory: out of a file pyarrow reads with a thread, which then stays for good.
    with pq.ParquetFile(pa.BufferReader(path.read_bytes())) as file:
        present = list(file.schema_arrow.names)
        if names is None:
            return present, file.read(use_threads=False)
        _require_columns(path, present, names)
        return present, file.read(columns=list(names), use_threads=False)


def _require_columns(source: str | Path, present: Sequence[str], names: Sequence[str]) -> None:
    """Name all that is missing or ambiguous at once."""
    problems = column_problems(present, names)
    if problems:
        raise DataError("\n".join(f"{source}: {problem}" for problem in problems.values()))


def column_problems(present: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """What is wrong with the names alone: wanted column to one line about it."""
    missing = [name for name in names if name not in present]
    if missing and (separator := other_separator(present)):
        return {missing[0]: _WRONG_SEPARATOR.format(separator)}
    problems = {name: _missing(name, present) for name in missing}
    for name in names:
        if (times := present.count(name)) > 1:
            problems[name] = f"column {name!r}: found {times} times, allowed: once"
    return problems


_WRONG_SEPARATOR: Final = (
    "its header has {}, allowed: commas between columns, and a point in decimal numbers"
)


def other_separator(present: Sequence[str]) -> str | None:
    """What separates the columns, if all of them were read as one."""
    known = {";": "semicolons", "\t": "tabs", "|": "bars"}
    return next(
        (word for mark, word in known.items() if len(present) == 1 and mark in present[0]), None
    )


def _missing(name: str, present: Sequence[str]) -> str:
    lowered = {other.strip().lower(): other for other in reversed(present)}
    near = [lowered[key] for key in difflib.get_close_matches(name.lower(), lowered, n=3)]
    hint = f"nearest: {', '.join(map(repr, near))}" if near else "none has a similar name"
    return f"column {name!r} is missing; found {len(present)} columns, {hint}"


def _mask(flags: Any) -> NDArray[np.bool_]:
    """A boolean column as numpy array, null as False."""
    return np.asarray(flags.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _one_array(column: Any) -> Any:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # what pyarrow gives for columns without any chunk
        array = pa.concat_arrays(array.chunks)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_numeric(kind: Any) -> bool:
    tests = (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_decimal,
        pa.types.is_boolean,
        pa.types.is_null,
    )
    return any(test(kind) for test in tests)


def _is_time(kind: Any) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def _to_float(column: Any) -> Any:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return column.cast(pa.float64(), safe=False)


def _spelled(column: Any) -> Any:
    """Floats as text; integers that became floats because some were missing are spelled plainly."""
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    whole = (np.abs(values) < 2**53) & (values == np.floor(values))
    plain = pa.array(np.where(whole, values, 0).astype(np.int64)).cast(pa.string())
    return pc.if_else(pa.array(whole), plain, column.cast(pa.string()))


def _look_up(codes: Any, values: Sequence[float]) -> FloatArray:
    """Level numbers to values; null becomes NaN."""
    table = np.array([*values, np.nan], dtype=np.float64)
    index = codes.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return np.asarray(table[index], dtype=np.float64)


def _year(text: str) -> int | None:
    """Year of an ISO date, an ISO datetime or a plain year; None for anything else."""
    match = _YEAR.match(text)
    if match is not None:
        year = int(match[1])
    else:
        try:
            year = datetime.fromisoformat(text).year
        except ValueError:
            return None
    return year if _YEARS[0] <= year <= _YEARS[1] else None
