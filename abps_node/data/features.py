"""The contract's features as they were read, before anything is fitted or filled in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from abps_node.data.table import FloatArray, Table, Texts
from protocol.contract import Feature


@dataclass(frozen=True)
class RawFeatures:
    """Every feature of the schema as one row of a matrix; NaN is missing.

    Continuous: the number. Binary: 0 or 1. Categorical: the number of the level in the schema,
    ``len(levels)`` for a level that the schema does not declare.
    """

    names: tuple[str, ...]
    values: FloatArray
    """Shape ``(features, patients)``: one matrix, since thousands of small centers are prepared in
    one go and a numpy call costs more than its work on a column of a hundred."""
    undeclared: Mapping[str, Texts]
    """Categorical feature to the text of its undeclared levels, None in all other rows, shape
    ``(patients,)``; only features which have any."""

    def column(self, name: str) -> FloatArray:
        """One feature, shape ``(patients,)``."""
        return np.asarray(self.values[self.names.index(name)])

    def take(self, rows: NDArray[np.intp]) -> RawFeatures:
        """These rows alone, as if nothing else had been read."""
        undeclared = {name: texts[rows] for name, texts in self.undeclared.items()}
        present = {name: texts for name, texts in undeclared.items() if any(_present(texts))}
        return RawFeatures(self.names, self.values[:, rows], present)

    def missing(self, among: NDArray[np.bool_] | None = None) -> dict[str, int]:
        """Rows without a value, per feature; ``among`` is a mask ``(patients,)`` of those meant."""
        values = self.values if among is None else self.values[:, among]
        counts = np.isnan(values).sum(axis=1).tolist()
        return dict(zip(self.names, counts, strict=True))

    def constant(self, rows: NDArray[np.intp]) -> tuple[str, ...]:
        """Features with one and the same value, or none, in all of these rows."""
        values = self.values[:, rows]
        least, most = np.fmin.reduce(values, axis=1), np.fmax.reduce(values, axis=1)
        varies = least < most  # False where there is no value at all
        return tuple(name for name, many in zip(self.names, varies, strict=True) if not many)

    def unknown(self) -> dict[str, dict[str, int]]:
        """Undeclared levels and their row counts, per categorical feature that has any."""
        return {name: dict(Counter(_present(texts))) for name, texts in self.undeclared.items()}


def _present(texts: Texts) -> list[str]:
    return [text for text in texts if text is not None]


def read_features(table: Table, features: Sequence[Feature]) -> RawFeatures:
    """Read every feature as its kind says; raises ``DataError`` at the first impossible value."""
    values = np.empty((len(features), table.rows), dtype=np.float64)
    undeclared: dict[str, Texts] = {}
    for number, feature in enumerate(features):
        if feature.kind == "continuous":
            values[number] = table.numbers(feature.name)
        elif feature.kind == "binary":
            values[number] = table.flags(feature.name, feature.levels)
        else:
            values[number], texts = table.levels(feature.name, feature.levels or ())
            if any(_present(texts)):
                undeclared[feature.name] = texts
    return RawFeatures(tuple(feature.name for feature in features), values, undeclared)
