"""From a patient table to what a center learns from: three splits, a card, and a report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from abps_node.aims import Aims
from abps_node.data.card import card_counts
from abps_node.data.encode import Encoder
from abps_node.data.fingerprint import Fingerprint, fingerprint, with_columns
from abps_node.data.objectives import ObjectiveData, absent_columns, objective_data
from abps_node.data.patients import Patients, column_names, read_patients
from abps_node.data.split import Rows, SplitRows, split_by_class, split_by_group
from abps_node.data.table import FloatArray, Table, Texts, read_header, read_table
from abps_node.errors import DataError
from protocol.contract import Contract, Data
from protocol.goal import CardCounts, build_card

_EXAMPLES: Final = 5


@dataclass(frozen=True)
class Split:
    """Encoded rows of one split: ``x`` float32 ``(n, d)``, ``y`` float32 ``(n,)`` of 0 and 1."""

    x: NDArray[np.float32]
    y: NDArray[np.float32]


@dataclass(frozen=True)
class SplitCounts:
    """Size of one split."""

    rows: int
    positives: int


@dataclass(frozen=True)
class UnknownLevels:
    """Levels of a categorical column that the schema does not declare; they became «other»."""

    rows: int
    levels: int
    examples: Mapping[str, int]
    """The most frequent ones, at most five, with their row counts."""


@dataclass(frozen=True)
class DataReport:
    """What ``abps check`` tells of the table. Stays at the center: it shows single values."""

    rows: int
    positives: int
    train: SplitCounts
    validation: SplitCounts
    test: SplitCounts
    inputs: int
    """Model inputs after encoding, d."""
    missing: Mapping[str, int]
    """Feature to rows without a value; every feature of the schema is there."""
    unknown_levels: Mapping[str, UnknownLevels]
    """Only columns that have any."""
    constant: tuple[str, ...]
    """Features with one and the same value (or none) in the whole training split."""
    groups: int | None
    """Distinct patients; None where the contract names no patient column."""
    dated: int | None
    """Rows with a date; None where the contract names no date column."""
    ignored: tuple[str, ...]
    """Columns of the file that the contract does not use."""


@dataclass(frozen=True)
class CenterData:
    """All that the rest of the node knows of the patients."""

    train: Split
    validation: Split
    test: Split
    card: tuple[float, ...]
    counts: CardCounts
    """What the card was built from; another policy may ask for another card."""
    report: DataReport
    encoder: Encoder
    """The fitted preprocessing, for whoever applies the model to new patients."""
    fingerprint: Fingerprint | None = None
    """Of the table that was read; None where centers are made in memory."""
    objectives: ObjectiveData | None = None
    """What the center's own objectives need; None for a center without any."""


def load_center(
    contract: Contract, center_id: str, path: Path, aims: Aims | None = None
) -> CenterData:
    """Read, check, split and encode one center's table; raises ``DataError``.

    ``aims`` are the center's own, for which further columns of the table are read.
    """
    return load_with_patients(contract, center_id, path, aims)[0]


def load_with_patients(
    contract: Contract, center_id: str, path: Path, aims: Aims | None = None
) -> tuple[CenterData, Patients]:
    """The same, and the rows as they were read."""
    data = contract.data
    own = () if aims is None else aims.columns
    if aims is not None and (absent := absent_columns(aims, read_header(path))):
        raise DataError("\n".join(f"{path}: {text}" for text in absent))
    table = read_table(path, list(dict.fromkeys([*column_names(data), *own])))
    patients, rows, center = prepare_table(contract, center_id, table, aims)
    found = fingerprint(data, patients, rows, center.encoder)
    if aims is not None and center.objectives is not None:
        found = with_columns(found, center.objectives.columns(aims))
    return replace(center, fingerprint=found), patients


def prepare_table(
    contract: Contract, center_id: str, table: Table, aims: Aims | None = None
) -> tuple[Patients, SplitRows, CenterData]:
    """The same from a table that has been read, with the columns that contract and aims name."""
    data = contract.data
    patients = read_patients(data, table)
    center = prepare_center(contract, center_id, patients)
    rows = split_rows(data, center_id, patients.labels, patients.groups)
    if aims is not None:
        center = replace(center, objectives=objective_data(aims, table, rows))
    return patients, rows, center


def prepare_center(contract: Contract, center_id: str, patients: Patients) -> CenterData:
    """Split and encode one center's patients; raises ``DataError`` if a split stays empty."""
    data = contract.data
    rows = split_rows(data, center_id, patients.labels, patients.groups)
    _require_nonempty(patients.source, rows)
    encoder = Encoder.fit(data, patients.features, rows.train)
    x, y = encoder.transform(patients.features), patients.labels.astype(np.float32)
    counts = card_counts(contract, patients, rows.train)
    return CenterData(
        train=Split(x[rows.train], y[rows.train]),
        validation=Split(x[rows.validation], y[rows.validation]),
        test=Split(x[rows.test], y[rows.test]),
        card=build_card(contract, counts),
        counts=counts,
        report=_report(patients, rows, inputs=x.shape[1]),
        encoder=encoder,
    )


def split_rows(data: Data, center_id: str, labels: FloatArray, groups: Texts | None) -> SplitRows:
    """Which of a center's rows train, validate and test; a split may come out empty.

    ``groups`` is the patient of each row where the contract names a patient column, else None.
    """
    if groups is not None:
        return split_by_group(groups, data.split_seed)
    return split_by_class(labels, data.split_seed, center_id)


def _require_nonempty(source: str, rows: SplitRows) -> None:
    sizes = {name: getattr(rows, name).size for name in ("train", "validation", "test")}
    for name, size in sizes.items():
        if size == 0:
            found = ", ".join(f"{count} {split}" for split, count in sizes.items())
            raise DataError(
                f"{source}: the {name} split is empty: {sum(sizes.values())} rows gave {found}; "
                "allowed: at least one row in each, so bring more patients"
            )


def _report(patients: Patients, rows: SplitRows, inputs: int) -> DataReport:
    raw, labels = patients.features, patients.labels
    groups, years = patients.groups, patients.years
    return DataReport(
        rows=int(labels.size),
        positives=int(labels.sum()),
        train=_counts(labels, rows.train),
        validation=_counts(labels, rows.validation),
        test=_counts(labels, rows.test),
        inputs=inputs,
        missing=raw.missing(),
        unknown_levels={name: unknown_levels(found) for name, found in raw.unknown().items()},
        constant=raw.constant(rows.train),
        groups=None if groups is None else len(set(groups)),
        dated=None if years is None else int((~np.isnan(years)).sum()),
        ignored=patients.ignored,
    )


def _counts(labels: FloatArray, rows: Rows) -> SplitCounts:
    return SplitCounts(int(rows.size), int(labels[rows].sum()))


def unknown_levels(levels: Mapping[str, int]) -> UnknownLevels:
    """Undeclared levels and their row counts, as they are told of."""
    by_count = sorted(levels.items(), key=lambda item: (-item[1], item[0]))
    return UnknownLevels(sum(levels.values()), len(levels), dict(by_count[:_EXAMPLES]))
