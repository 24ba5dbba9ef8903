"""The contract's features as they were read, before anything is fitted or filled in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from abps_node.data.table import FloatArray, Table
from protocol.contract import Feature


@dataclass(frozen=True)
class RawFeatures:
    """Every feature of the schema as one float64 column of shape ``(rows,)``; NaN is missing.

    Continuous: the number. Binary: 0 or 1. Categorical: the number of the level in the schema,
    ``len(levels)`` for a level that the schema does not declare.
    """

    values: Mapping[str, FloatArray]
    unknown: Mapping[str, Mapping[str, int]]
    """Categorical feature to its undeclared levels and their row counts; only where there are."""

    def missing(self) -> dict[str, int]:
        """Rows without a value, per feature."""
        return {name: int(np.isnan(values).sum()) for name, values in self.values.items()}


def read_features(table: Table, features: Sequence[Feature]) -> RawFeatures:
    """Read every feature as its kind says; raises ``DataError`` at the first impossible value."""
    values: dict[str, FloatArray] = {}
    unknown: dict[str, Mapping[str, int]] = {}
    for feature in features:
        if feature.kind == "continuous":
            values[feature.name] = table.numbers(feature.name)
        elif feature.kind == "binary":
            values[feature.name] = table.flags(feature.name, feature.levels)
        else:
            values[feature.name], other = table.levels(feature.name, feature.levels or ())
            if other:
                unknown[feature.name] = other
    return RawFeatures(values, unknown)
