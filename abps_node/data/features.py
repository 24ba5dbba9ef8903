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
    """Every feature of the schema as one float64 column of shape ``(rows,)``; NaN is missing.

    Continuous: the number. Binary: 0 or 1. Categorical: the number of the level in the schema,
    ``len(levels)`` for a level that the schema does not declare.
    """

    values: Mapping[str, FloatArray]
    undeclared: Mapping[str, Texts]
    """Categorical feature to the text of its undeclared levels, None in all other rows, shape
    ``(rows,)``; only features which have any."""

    def take(self, rows: NDArray[np.intp]) -> RawFeatures:
        """These rows alone, as if nothing else had been read."""
        undeclared = {name: texts[rows] for name, texts in self.undeclared.items()}
        return RawFeatures(
            {name: values[rows] for name, values in self.values.items()},
            {name: texts for name, texts in undeclared.items() if any(_present(texts))},
        )

    def missing(self) -> dict[str, int]:
        """Rows without a value, per feature."""
        return {name: int(np.isnan(values).sum()) for name, values in self.values.items()}

    def unknown(self) -> dict[str, dict[str, int]]:
        """Undeclared levels and their row counts, per categorical feature that has any."""
        return {name: dict(Counter(_present(texts))) for name, texts in self.undeclared.items()}


def _present(texts: Texts) -> list[str]:
    return [text for text in texts if text is not None]


def read_features(table: Table, features: Sequence[Feature]) -> RawFeatures:
    """Read every feature as its kind says; raises ``DataError`` at the first impossible value."""
    values: dict[str, FloatArray] = {}
    undeclared: dict[str, Texts] = {}
    for feature in features:
        if feature.kind == "continuous":
            values[feature.name] = table.numbers(feature.name)
        elif feature.kind == "binary":
            values[feature.name] = table.flags(feature.name, feature.levels)
        else:
            values[feature.name], texts = table.levels(feature.name, feature.levels or ())
            if any(_present(texts)):
                undeclared[feature.name] = texts
    return RawFeatures(values, undeclared)
