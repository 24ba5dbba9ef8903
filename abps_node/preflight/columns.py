"""Where a patient table does not fit the contract, column by column, and what to do about each.

Findings may quote cells, for whoever mends the table; they are shown, never logged.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.compute as pc

from abps_node.data import column_names
from abps_node.data.table import Misfit, Table, column_problems, read_header, read_table
from abps_node.errors import DataError
from abps_node.preflight.finding import Finding, problem
from protocol.contract import Data, Feature

CHECK: Final = "data"
_SHOWN: Final = 4
_MOST_FINDINGS: Final = 40

_NUMBER: Final = re.compile(r"^[+-]?[\d.]+(e[+-]?\d+)?$|^-?inf$|^nan$", re.IGNORECASE)
_DECIMAL_COMMA: Final = re.compile(r"^[+-]?\d+,\d+$")
_DATE: Final = re.compile(r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T].*)?$")
_LIMIT: Final = re.compile(r"^[<>≤≥]\s*=?\s*[\d.,]+")
_WITH_UNIT: Final = re.compile(r"^[+-]?[\d.,]+\s*[^\d\s.,].*$")
_THOUSANDS: Final = re.compile(r"^[+-]?\d{1,3}([,.' ]\d{3})+([.,]\d+)?$")


def check_columns(data: Data, path: Path) -> list[Finding]:
    """A problem for each thing that does not fit; none if the table can be read as it is.

    Raises ``DataError`` if the file as a whole cannot be read.
    """
    names = column_names(data)
    present = read_header(path)
    wrong = column_problems(present, names)
    if any("its header has" in text for text in wrong.values()):
        (text,) = wrong.values()
        return [problem(CHECK, text, "export the table again as CSV with commas, or as Parquet")]
    findings = [problem(CHECK, text, _about_name(text)) for text in wrong.values()]
    readable = [name for name in names if name not in wrong]
    if readable:
        table = read_table(path, readable).lenient()
        for name in readable:
            findings += _look(table, data, name)
    if len(findings) > _MOST_FINDINGS:
        rest = len(findings) - _MOST_FINDINGS
        more = problem(CHECK, f"and {rest} more", "is it the right table?")
        findings = [*findings[:_MOST_FINDINGS], more]
    return findings


def _about_name(text: str) -> str:
    if "times" in text:
        return "keep one of them"
    if "nearest" in text:
        return "rename it in the table; names must be equal to the letter"
    return "add it to the export; who cannot needs a contract without it, agreed on by all"


def _look(table: Table, data: Data, name: str) -> Iterator[Finding]:
    """Read one column in every role that it has, and explain what cannot be read."""
    feature = next((each for each in data.features if each.name == name), None)
    before = len(table.misfits or ())
    try:
        for read in _readers(table, data, name, feature):
            read()
    except DataError as error:
        text = str(error).removeprefix(f"{table.source}: ")
        yield problem(CHECK, text, "write it as text, numbers or dates")
    for misfit in (table.misfits or ())[before:]:
        texts = _texts(misfit)
        yield problem(CHECK, _what(table, misfit, texts), _advice(data, feature, name, texts))


def _readers(
    table: Table, data: Data, name: str, feature: Feature | None
) -> Iterator[Callable[[], Any]]:
    if name == data.label:
        yield lambda: table.labels(name)
    if name == data.group:
        yield lambda: table.groups(name)
    if name == data.date:
        yield lambda: table.years(name)
    if feature is None:
        return
    if feature.kind == "continuous":
        yield lambda: table.numbers(name)
    elif feature.kind == "binary":
        yield lambda: table.flags(name, feature.levels)
    else:
        yield lambda: table.levels(name, feature.levels or ())


def _texts(misfit: Misfit) -> dict[str, int]:
    """What stands in the cells, the most frequent first; empty for missing ones."""
    found = pc.value_counts(misfit.found.filter(misfit.rows).drop_null()).to_pylist()
    found.sort(key=lambda pair: -pair["counts"])
    return {str(pair["values"]): pair["counts"] for pair in found}


def _what(table: Table, misfit: Misfit, texts: dict[str, int]) -> str:
    rows = int(misfit.rows.sum())
    first = table.first_row + int(misfit.rows.argmax())
    shown = ", ".join(f"{text!r} ({count})" for text, count in list(texts.items())[:_SHOWN])
    more = f" and {len(texts) - _SHOWN} others" if len(texts) > _SHOWN else ""
    found = f"found {shown}{more}" if texts else "found no value"
    allowed = f"allowed: {misfit.allowed}"
    return (
        f"{misfit.column}: {found} in {rows} of {table.rows} rows, first in row {first}; {allowed}"
    )


def _advice(data: Data, feature: Feature | None, name: str, texts: dict[str, int]) -> str:
    if name == data.label:
        return _about_label(texts)
    if name == data.group:
        return "every row needs its patient; drop rows without one"
    if name == data.date:
        return "write dates as 2020-12-31, or the year alone"
    if feature is not None and feature.kind == "continuous":
        return _about_number(list(texts))
    return _about_flag(feature, list(texts))


def _about_label(texts: dict[str, int]) -> str:
    if not texts:
        return "leave rows without a known outcome out of the table"
    named = " or ".join(map(repr, list(texts)[:2])) if len(texts) == 2 else "the others"
    return f"write 1 for the outcome and 0 for none, in place of {named}"


def _about_number(texts: Sequence[str]) -> str:
    if texts and all(map(_NUMBER.match, texts)):
        return "correct it, or leave the cell empty"
    hints: list[tuple[re.Pattern[str], str]] = [
        (_DECIMAL_COMMA, "write decimal numbers with a point, 1.5 and not 1,5"),
        (_DATE, "a date is no number: bring the days or years since another event"),
        (_THOUSANDS, "write numbers without separators of thousands"),
        (_LIMIT, "write the limit itself, or leave the cell empty"),
        (_WITH_UNIT, "write the number alone; its unit belongs into the contract"),
    ]
    for pattern, hint in hints:
        if any(pattern.match(text) for text in texts):
            return hint
    return "leave the cell empty where there is no value; text needs another kind in the contract"


def _about_flag(feature: Feature | None, texts: Sequence[str]) -> str:
    levels = (feature.levels if feature is not None else None) or []
    if levels:
        near = near_spelling(texts[0], levels) if texts else None
        hint = f"; {texts[0]!r} is probably {near!r}" if near else ""
        return f"write {levels[0]!r} and {levels[1]!r}, as the contract does{hint}"
    if len(texts) == 2:
        first, second = sorted(texts)
        return (
            f"write 0 and 1, or agree on levels = [{first!r}, {second!r}] in the contract, of "
            "which the second is 1"
        )
    return "write 0 and 1; more than two values need kind categorical in the contract"


def near_spelling(text: str, levels: Sequence[str]) -> str | None:
    """The level that somebody may have meant."""
    lowered = {level.lower(): level for level in levels}
    near = difflib.get_close_matches(text.lower(), lowered, n=1, cutoff=0.75)
    return lowered[near[0]] if near else None
