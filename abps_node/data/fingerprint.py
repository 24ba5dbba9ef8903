"""Which patients a state was trained on: digests by which a changed table is recognized.

They cover what the contract reads, as it was understood, and nothing else: the same patients as CSV
or as Parquet, with other unused columns or another spelling of a number, are the same. A digest
says whether something changed, never what a patient's value was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict

from abps_node.data.encode import Encoder
from abps_node.data.patients import Patients
from abps_node.data.split import SplitRows
from protocol.contract import Data

_SHOWN: Final = 5
_DIGITS: Final = 16


class ColumnDigest(BaseModel):
    """One column: its cells in their order, and sorted, which tells a mere change of order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    ordered: str
    sorted: str


class Fingerprint(BaseModel):
    """What a state remembers of the table it was begun with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: int
    columns: Mapping[str, ColumnDigest]
    splits: str
    """Which rows train, validate and test."""
    encoding: str
    """What was fitted on the training rows."""

    def other_columns(self, now: Fingerprint) -> str | None:
        """What is asked of the table otherwise ``now``; None if it is the same.

        A state has one contract, so it is the center's own objectives and features that differ.
        """
        gone, new = (
            self.columns.keys() - now.columns.keys(),
            now.columns.keys() - self.columns.keys(),
        )
        told = [f"no longer {name!r}" for name in sorted(gone)[:_SHOWN]]
        told += [f"now {name!r}" for name in sorted(new)[:_SHOWN]]
        return ", ".join(told) or None

    def changes(self, now: Fingerprint) -> str | None:
        """What is different ``now``, in words that quote no cell; None if nothing is.

        Both are of the same columns.
        """
        if self == now:
            return None
        if self.rows != now.rows:
            return f"it had {self.rows} rows, now {now.rows}"
        columns = [name for name in self.columns if self.columns[name] != now.columns[name]]
        if not columns:
            return "the rows are dealt to train, validation and test, or encoded, in another way"
        moved = [name for name in columns if self.columns[name].sorted == now.columns[name].sorted]
        if moved == columns:
            return f"the same {self.rows} rows stand in another order"
        more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
        named = ", ".join(map(repr, columns[:_SHOWN])) + more
        return f"values changed in {named}"


def fingerprint(data: Data, patients: Patients, rows: SplitRows, encoder: Encoder) -> Fingerprint:
    """The fingerprint of one center's patients, as they were read, dealt and encoded."""
    splits = b"/".join(part.astype("<i8").tobytes() for part in _parts(rows))
    encoding = json.dumps(encoder.to_dict(), sort_keys=True).encode()
    return Fingerprint(
        rows=int(patients.labels.size),
        columns={name: _column(values) for name, values in _columns(data, patients)},
        splits=_digest(splits),
        encoding=_digest(encoding),
    )


def with_columns(found: Fingerprint, columns: Mapping[str, Any]) -> Fingerprint:
    """The fingerprint of a table of which more columns count, as arrays by name."""
    more = {name: _column(values) for name, values in columns.items()}
    return found.model_copy(update={"columns": {**found.columns, **more}})


def _column(values: Any) -> ColumnDigest:
    """Of numbers or texts, shape ``(rows,)``."""
    if values.dtype == object:
        cells = [repr(value).encode() for value in values]
        return ColumnDigest(
            ordered=_digest(b"\0".join(cells)), sorted=_digest(b"\0".join(sorted(cells)))
        )
    return ColumnDigest(ordered=_digest(_bytes(values)), sorted=_digest(_bytes(np.sort(values))))


def _columns(data: Data, patients: Patients) -> Iterator[tuple[str, Any]]:
    yield data.label, patients.labels
    if data.group is not None and patients.groups is not None:
        yield data.group, patients.groups
    if data.date is not None and patients.years is not None:
        # A column may be patient and date at once; it must not stand under one name twice.
        yield data.date if data.date != data.group else f"{data.date} (year)", patients.years
    for name in patients.features.names:
        yield name, patients.features.column(name)


def _parts(rows: SplitRows) -> tuple[Any, Any, Any]:
    return rows.train, rows.validation, rows.test


def _bytes(values: Any) -> bytes:
    """Of numbers; every NaN alike, and no difference between 0 and −0."""
    plain = np.where(np.isnan(values), np.nan, values + 0.0)
    return bytes(plain.astype("<f8").tobytes())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_DIGITS]
