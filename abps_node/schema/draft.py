"""The draft as TOML: features to edit, everything else behind a # with the reason.

Names of columns and levels stand in it, and no value of a single patient: the file is made to be
given to the other centers.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from abps_node.config_text import FILL_IN
from abps_node.data.table import read_all_columns
from abps_node.errors import DataError
from abps_node.schema.column import Column, column_of
from abps_node.schema.judge import INDICATOR_FROM, Judged, guess_label, judge

_HEAD: Final = """\
# The table that every center brings: a draft, made from {source}. Read every line.
# «{fill}» marks what a table cannot tell. What stands behind a # is no feature, with the reason.
# Which columns are known before the outcome is yours to judge, not a program's.
"""
_CARD: Final = """\
# Names of binary features whose share of ones the other centers may learn, with an enriched card.
[contract.data.card]
features = []
"""


@dataclass(frozen=True)
class Draft:
    """A draft and what there is to say about it."""

    text: str
    label: str | None
    features: int
    left_out: int
    to_fill_in: int


def draft_schema(path: Path, label: str | None = None) -> Draft:
    """Draft ``[contract.data]`` for a table; ``label`` names the outcome if the guess is wrong.

    Raises ``DataError`` for a file that cannot be read, or without that column.
    """
    found = [(name, column_of(name, table)) for name, table in read_all_columns(path)]
    columns = [column for _, column in found if column is not None]
    outcome, why = _outcome(path, columns, label)
    flags = outcome.flags() if outcome is not None and outcome.is_flag else None
    twice = {name for name, many in Counter(name for name, _ in found).items() if many > 1}
    judged = [
        _twice(column) if column.name in twice else judge(column, flags)
        for column in columns
        if column is not outcome
    ]
    unread = [name for name, column in found if column is None]
    text = "\n".join(_lines(path, outcome, why, judged, unread)) + "\n\n" + _CARD
    features = sum(each.role == "feature" for each in judged)
    return Draft(
        text=text,
        label=None if outcome is None else outcome.name,
        features=features,
        left_out=len(judged) + len(unread) - features,
        to_fill_in=text.count(_quoted(FILL_IN)),
    )


def _outcome(path: Path, columns: list[Column], label: str | None) -> tuple[Column | None, str]:
    if label is None:
        return guess_label(columns)
    named = [column for column in columns if column.name == label]
    if len(named) != 1:
        names = ", ".join(repr(column.name) for column in columns[:20])
        raise DataError(
            f"{path}: --label: found {len(named)} columns {label!r}, allowed: one of {names}"
        )
    return named[0], "as you said"


def _twice(column: Column) -> Judged:
    return Judged(column, "left out", "there are several columns of this name")


def _lines(
    path: Path, outcome: Column | None, why: str, judged: list[Judged], unread: list[str]
) -> Iterator[str]:
    yield _HEAD.format(source=_comment(path.name), fill=FILL_IN)
    yield "[contract.data]"
    yield from _label(outcome, why)
    for each in judged:
        if each.role == "patient":
            yield f"# {_comment(each.reason)}: all rows of one patient fall into one split"
            yield f"group = {_quoted(each.column.name)}"
            break
    dates = [
        each.column for each in judged if each.role == "date" and not each.column.is_other_date
    ]
    if dates:
        yield "# with a date the others learn its mean year, and nothing else of it"
        yield f"# date = {_quoted(dates[0].name)}"
    yield "features = ["
    for each in judged:
        yield f"    {_entry(each)}"
    for name in unread:
        yield f"    # {_comment(_quoted(name))}: of a type that cannot be read"
    yield "]"
    if not any(each.role == "feature" for each in judged):
        yield f"# {FILL_IN}: no column looks like a feature; at least one is needed"


def _label(outcome: Column | None, why: str) -> Iterator[str]:
    if outcome is None:
        yield f"# {_comment(why)}: which one is the outcome?"
        yield f"label = {_quoted(FILL_IN)}"
        return
    yield f"# {_comment(why)}: 1 is the outcome, 0 is none"
    if not outcome.is_flag:
        yield (
            f"# {FILL_IN}: not written as 0/1, true/false or yes/no; change the table so that "
            "1 is the outcome"
        )
    elif outcome.present < outcome.rows:
        yield f"# {FILL_IN}: some rows have no value; leave these out of the table"
    yield f"label = {_quoted(outcome.name)}"


def _entry(judged: Judged) -> str:
    column, feature = judged.column, judged.role == "feature"
    if judged.role not in ("feature", "near copy"):
        return f"# {_comment(_quoted(column.name))}: {_comment(judged.reason)}"
    pairs = [f"name = {_quoted(column.name)}", f'kind = "{judged.kind}"']
    if judged.kind == "continuous" and feature:
        pairs.append(f"unit = {_quoted(FILL_IN)}")
    if judged.levels is not None:
        pairs.append(f"levels = [{', '.join(map(_quoted, judged.levels))}]")
    remarks = [judged.reason] if judged.reason else []
    if feature and column.missing_share >= INDICATOR_FROM:
        pairs.append("missing_indicator = true")
        remarks.append(f"{np.ceil(100 * column.missing_share):.0f} % missing")
    entry = f"{{ {', '.join(pairs)} }},"
    remark = f"  # {_comment('; '.join(remarks))}" if remarks else ""
    return entry + remark if feature else f"# {entry}{remark}"


def _quoted(text: str) -> str:
    """A basic string of TOML; JSON escapes as TOML does, but for one character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _comment(text: str) -> str:
    """In one line, without control characters, which TOML allows in no comment."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", text).split())
