"""All that the contract asks of a table, as arrays: what every center's preparation starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from abps_node.data.features import RawFeatures, read_features
from abps_node.data.table import FloatArray, Table, Texts
from protocol.contract import Data


@dataclass(frozen=True)
class Patients:
    """Checked rows, before they are split and encoded; arrays of shape ``(rows,)``."""

    source: str
    """What messages name: the file, or what the table in memory is called."""
    labels: FloatArray
    """The outcome, 0 or 1."""
    years: FloatArray | None
    """Admission year, NaN where missing; None where the contract names no date column."""
    groups: Texts | None
    """The patient of each row; None where the contract names no patient column."""
    features: RawFeatures
    ignored: tuple[str, ...]
    """Columns of the source that the contract does not use."""

    def take(self, rows: NDArray[np.intp], source: str) -> Patients:
        """These rows alone, in this order, as one center of its own that ``source`` names."""
        return Patients(
            source=source,
            labels=self.labels[rows],
            years=None if self.years is None else self.years[rows],
            groups=None if self.groups is None else self.groups[rows],
            features=self.features.take(rows),
            ignored=self.ignored,
        )


def column_names(data: Data) -> list[str]:
    """Columns to read, each once: roles may share one (a group that is also the date is odd)."""
    roles = [role for role in (data.label, data.group, data.date) if role is not None]
    return list(dict.fromkeys([*roles, *(feature.name for feature in data.features)]))


def read_patients(data: Data, table: Table) -> Patients:
    """Read every column as the contract says; ``DataError`` at the first impossible value."""
    return Patients(
        source=table.source,
        labels=table.labels(data.label),
        years=table.years(data.date) if data.date is not None else None,
        groups=table.groups(data.group) if data.group is not None else None,
        features=read_features(table, data.features),
        ignored=table.ignored,
    )
