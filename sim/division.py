"""One table, many centers: whose row is whose, and which centers are too small to take part.

A center that cannot take part is left out *by name, with its reason*; no row vanishes silently. The
least demand is the daemon's own: each of the three splits must get a row. More can be asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from abps_node.data import Patients, column_names, read_patients, split_rows, table_in_memory
from abps_node.errors import DataError
from protocol.contract import CENTER_ID_PATTERN, Contract

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Least:
    """What a center must bring beside three splits that are not empty."""

    rows: int = 1
    """Rows in all."""
    per_class: int = 0
    """Rows of either class; 0 admits centers with one class (their utility is 1 − Brier)."""


Cause = Literal["not-largest", "few-rows", "few-of-a-class", "empty-split"]


@dataclass(frozen=True)
class LeftOut:
    """A center that does not take part."""

    id: str
    rows: int
    cause: Cause
    reason: str
    """In words, with the numbers."""


@dataclass(frozen=True)
class Division:
    """A table's rows by center, in order of the center ids."""

    patients: Patients
    """All rows of the table, also those that are left out."""
    rows: Mapping[str, Rows]
    """Center id to its row numbers, ascending; only centers that take part."""
    left_out: tuple[LeftOut, ...]

    def patients_of(self, center_id: str) -> Patients:
        """One center's rows, as if read from a file of its own."""
        source = f"{self.patients.source}, center {center_id!r}"
        return self.patients.take(self.rows[center_id], source)


def divide(
    contract: Contract,
    table: pa.Table,
    center_column: str,
    *,
    source: str | None = None,
    least: Least | None = None,
) -> Division:
    """Check ``table`` against the contract and give every row to the center that its column names.

    ``source`` is what messages call the table (default: the contract's name). Raises ``DataError``
    for a table that does not fit the contract, for a row without a center, for two names that
    become one center id, and if no center can take part.
    """
    source = source or contract.name
    names = column_names(contract.data)
    if center_column in names:
        raise DataError(
            f"{source}: column {center_column!r}: found as center and in the contract, allowed: "
            "one of the two, or the model would learn where instead of who"
        )
    read = table_in_memory(table, [*names, center_column], source)
    patients = read_patients(contract.data, read)
    by_center = _rows_by_center(read.groups(center_column, "a center"), source)
    taking_part: dict[str, Rows] = {}
    left_out: list[LeftOut] = []
    for center, rows in by_center.items():
        reason = _why_not(contract, center, patients, rows, least or Least())
        if reason is None:
            taking_part[center] = rows
        else:
            left_out.append(LeftOut(center, int(rows.size), *reason))
    if not taking_part:
        first = left_out[0]
        raise DataError(
            f"{source}: none of {len(left_out)} centers can take part; {first.id!r}: {first.reason}"
        )
    return Division(patients, taking_part, tuple(left_out))


def center_id(name: str) -> str:
    """A center's id made of its name: ``MOSF w/ Sepsis`` becomes ``mosf-w-sepsis``.

    Raises ``DataError`` for a name without a single letter or digit.
    """
    made = re.sub(r"[^a-z0-9._]+", "-", name.lower()).strip("-._")[:63]
    if re.fullmatch(CENTER_ID_PATTERN, made) is None:
        raise DataError(f"center: found {name!r}, allowed: a name with letters a-z or digits")
    return made


def _rows_by_center(names: NDArray[np.object_], source: str) -> dict[str, Rows]:
    """Center id to row numbers, both ascending."""
    encoded = pa.array(names, type=pa.string()).dictionary_encode()
    distinct, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(codes))[:-1])
    name_of: dict[str, str] = {}
    found: dict[str, Rows] = {}
    for name, rows in sorted(zip(distinct, parts, strict=True), key=itemgetter(0)):
        center = center_id(name)
        if center in found:
            raise DataError(
                f"{source}: centers {name_of[center]!r} and {name!r} both become {center!r}, "
                "allowed: names that differ in more than case and punctuation"
            )
        name_of[center], found[center] = name, rows
    return dict(sorted(found.items()))


def _why_not(
    contract: Contract, center: str, patients: Patients, rows: Rows, least: Least
) -> tuple[Cause, str] | None:
    """Why a center of these rows cannot take part, or None if it can."""
    if rows.size < least.rows:
        return "few-rows", f"{_rows(rows.size)}, fewer than {least.rows}"
    labels = patients.labels[rows]
    positives = int(labels.sum())
    if min(positives, rows.size - positives) < least.per_class:
        found = f"{positives} of {_rows(rows.size)} positive"
        return "few-of-a-class", f"{found}, fewer than {least.per_class} of each class"
    groups = None if patients.groups is None else patients.groups[rows]
    split = split_rows(contract.data, center, labels, groups)
    sizes = (split.train.size, split.validation.size, split.test.size)
    if 0 in sizes:
        gave = "{} train, {} validation, {} test".format(*sizes)
        return "empty-split", f"{_rows(rows.size)} gave {gave}"
    return None


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def rows_of(table: pa.Table, rows: Rows) -> pa.Table:
    """These rows of a table, their columns in one chunk each."""
    return pc.take(table, pa.array(rows))
