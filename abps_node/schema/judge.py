"""What a column probably is, and whether a model may have it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from abps_node.schema.column import Column

Role = Literal["feature", "near copy", "identifier", "patient", "date", "left out"]

MAX_LEVELS: Final = 30
RARE: Final = 5
"""A level of fewer rows is not written into a file that goes to others."""
INDICATOR_FROM: Final = 0.05
"""From this share of missing values on, that a value is missing gets an input of its own."""
NEAR_COPY: Final = 0.98
"""AUROC against the label from which on a single column tells it almost by itself."""
SUSPICIOUS: Final = 0.85
"""…and from which on somebody should look."""
_LEAST_FOR_COPY: Final = 20
_FEW_NUMBERS: Final = 6
_MOST_OF_A_NAME: Final = 128

_LABEL: Final = re.compile(
    r"label|outcome|target|event|death|dead|died|mortal|surviv|readmi|relapse|expire|^y$", re.I
)
_IDENTIFIER: Final = re.compile(
    r"(^|[_\W])(id|ids|nr|no|mrn|uuid|guid|key|number|code|case|record)($|[_\W\d])|id$|^id|(?<=[a-z])ID",
)
_PATIENT: Final = re.compile(r"patient|subject|person|mrn|pseudonym|pat_?id", re.I)
_YEAR: Final = re.compile(r"year|jahr|ann[eé]e|anno|yr$", re.I)
_UNKNOWN: Final = (
    "?",
    "-",
    ".",
    "unknown",
    "Unknown",
    "UNKNOWN",
    "missing",
    "None",
    "NULL",
    "null",
)
_POSITIVE: Final = ("yes", "ja", "oui", "si", "true", "positive", "pos", "present", "1", "dead")


@dataclass(frozen=True)
class Judged:
    """One column and what is proposed for it."""

    column: Column
    role: Role
    reason: str = ""
    """Why it is no feature, or what to look at if it is one."""
    kind: Literal["continuous", "binary", "categorical"] = "continuous"
    levels: tuple[str, ...] | None = None


def guess_label(columns: Sequence[Column]) -> tuple[Column | None, str]:
    """The outcome: a flag with a name that says so, and why it was chosen."""
    two = [column for column in columns if len(column.counts) == 2 and column.name]
    named = [column for column in two if _LABEL.search(column.name)]
    flags = [column for column in named if column.is_flag]
    if flags or named:
        chosen = (flags or named)[0]
        others = [column.name for column in named if column is not chosen]
        more = f"; {', '.join(map(repr, others[:3]))} could be meant as well" if others else ""
        return chosen, f"guessed from its name{more}"
    others = [column.name for column in columns if _LABEL.search(column.name)]
    if others:
        return None, f"{others[0]!r} is named like an outcome, but has not two values"
    return None, "no column with two values is named like an outcome"


def judge(column: Column, label: NDArray[np.float64] | None) -> Judged:
    """What a column is for; ``label`` is 0, 1, NaN per row, None if nobody knows it."""
    if reason := _unusable(column):
        return Judged(column, "left out", reason)
    identifier = _identifier(column)
    if identifier is not None:
        return identifier
    if column.is_date or column.is_other_date or _is_year(column):
        form = "" if column.is_date or _is_year(column) else ", and not written as 2020-12-31"
        return Judged(column, "date", f"a date{form}; the time since another event would do")
    judged = _feature(column)
    if label is not None and judged.role == "feature":
        told = tells(judged, label)
        if told >= NEAR_COPY:
            reason = f"tells the label almost by itself (AUROC {told:.3f}); recorded afterwards?"
            return replace(judged, role="near copy", reason=reason)
        if told >= SUSPICIOUS:
            reason = f"alone it reaches AUROC {told:.2f}: known before the outcome?"
            return replace(judged, reason="; ".join(filter(None, [judged.reason, reason])))
    return judged


def _unusable(column: Column) -> str | None:
    if not column.name:
        return "has no name"
    if len(column.name) > _MOST_OF_A_NAME:
        return f"has a name of more than {_MOST_OF_A_NAME} characters"
    if not column.counts:
        return "has no value in any row"
    if len(column.counts) == 1:
        return "has one and the same value in all rows"
    return None


def _identifier(column: Column) -> Judged | None:
    different, present = len(column.counts), column.present
    named = _IDENTIFIER.search(column.name) is not None or _PATIENT.search(column.name) is not None
    whole = column.is_whole or not column.is_number
    if _PATIENT.search(column.name) and whole and different > present / 20:
        if different < present:
            return Judged(column, "patient", "patients with several rows")
        return Judged(column, "identifier", "an identifier: another value in every row")
    if named and whole and different > present / 2:
        return Judged(column, "identifier", "an identifier, by its name")
    if different == present > MAX_LEVELS and not column.mostly_number and not column.is_date:
        return Judged(
            column, "identifier", "an identifier or free text: another value in every row"
        )
    if different == present > MAX_LEVELS and column.is_whole and _is_running(column):
        return Judged(column, "identifier", "a running number")
    return None


def _is_running(column: Column) -> bool:
    numbers = column.numbers()
    steps = np.diff(numbers[~np.isnan(numbers)])
    return bool(np.all(steps == 1) or np.all(steps == -1))


def _is_year(column: Column) -> bool:
    if not (_YEAR.search(column.name) and column.is_whole):
        return False
    return all(1900 <= float(text) <= 2300 for text in column.counts)


def _feature(column: Column) -> Judged:
    if column.is_flag:
        return Judged(column, "feature", kind="binary")
    code = column.is_whole and _IDENTIFIER.search(column.name) is not None
    if column.is_number and len(column.counts) > 2 and not (code and _levels(column)):
        few = column.is_whole and len(column.counts) <= _FEW_NUMBERS
        reason = f"only {len(column.counts)} different numbers: a code? then categorical"
        return Judged(column, "feature", reason if few else "")
    if column.mostly_number and len(column.counts) > 2 and not code:
        reason = "some values are no numbers; abps check shows them"
        if column.has_decimal_commas:
            reason = "has decimal commas; the table needs decimal points"
        return Judged(column, "feature", reason)
    if len(column.counts) == 2:
        if min(column.counts.values()) < RARE:
            reason = f"one of its two values stands in fewer than {RARE} rows"
            return Judged(column, "left out", reason)
        return Judged(column, "feature", "the second level is 1", "binary", _two(column))
    levels = _levels(column)
    if not levels:
        reason = f"free text, or too many levels ({len(column.counts)}) of few rows each"
        return Judged(column, "left out", reason)
    rest = len(column.counts) - len(levels)
    remarks = ["numbers that look like a code"] if code else []
    if rest:
        remarks.append(f"{rest} rarer {'level counts' if rest == 1 else 'levels count'} as «other»")
    remarks += [
        f"is {text!r} a missing value? then leave the cell empty"
        for text in levels
        if text in _UNKNOWN
    ]
    return Judged(column, "feature", "; ".join(remarks), "categorical", levels)


def _levels(column: Column) -> tuple[str, ...]:
    """Those worth an input of their own; none, if most of what is there would be left over."""
    frequent = [text for text, rows in column.counts.items() if rows >= RARE]
    if len(column.counts) > max(MAX_LEVELS, 3 * len(frequent)):
        return ()
    return tuple(sorted(frequent[:MAX_LEVELS], key=_natural))


def _two(column: Column) -> tuple[str, ...]:
    first, second = sorted(column.counts, key=_natural)
    if first.lower() in _POSITIVE and second.lower() not in _POSITIVE:
        first, second = second, first
    return first, second


def _natural(text: str) -> tuple[float, str]:
    try:
        number = float(text)
    except ValueError:
        return float("inf"), text
    return number, text


def tells(judged: Judged, label: NDArray[np.float64]) -> float:
    """AUROC of one column against the label, or of whether it is missing; the larger, from 0.5.

    A categorical column is ranked by the share of events in each level. 0.5 where either class has
    too few rows to say.
    """
    column = judged.column
    known = ~np.isnan(label)
    y = label[known] == 1
    if min(y.sum(), (~y).sum()) < RARE or y.size < _LEAST_FOR_COPY:
        return 0.5
    if judged.kind == "continuous" and column.is_number:
        values = column.numbers()[known]
    elif judged.kind == "continuous":
        return 0.5
    else:
        codes = {text: float(number) for number, text in enumerate(column.counts)}
        values = _by_share(column.mapped(codes)[known], y)
    missing = np.isnan(values)
    return max(_auroc(missing.astype(np.float64), y), _auroc(values[~missing], y[~missing]))


def _by_share(codes: NDArray[np.float64], y: NDArray[np.bool_]) -> NDArray[np.float64]:
    ranked = codes.copy()
    for code in np.unique(codes[~np.isnan(codes)]):
        ranked[codes == code] = y[codes == code].mean()
    return ranked


def _auroc(values: NDArray[np.float64], y: NDArray[np.bool_]) -> float:
    """In whichever direction it is larger; 0.5 where a class has too few rows."""
    events, others = int(y.sum()), int((~y).sum())
    if min(events, others) < RARE:
        return 0.5
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    found = (ranks[y].sum() - events * (events + 1) / 2) / (events * others)
    return float(max(found, 1 - found))
