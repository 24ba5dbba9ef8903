"""Features to model inputs, with everything that is fitted taken from the training split alone.

Continuous: the training median where missing, then (x − mean) / std of the training split. Binary:
0/1, the training mode where missing. Categorical: one column per declared level plus «other», which
also takes missing and undeclared levels. A declared missing indicator follows its feature as 0/1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from abps_node.data.features import RawFeatures
from abps_node.data.table import FloatArray
from abps_node.errors import DataError
from protocol.contract import Data

_ENCODER_VERSION = 1
_NEGLIGIBLE_STD = 1e-8
"""A standard deviation below this share of the values' size is rounding noise: a constant."""
_FARTHEST = 1e6
"""Standardized values are cut off here. Training rows never come near it (|z| <= sqrt(n)), but one
absurd value in a validation row must not overflow the network."""


def input_names(data: Data) -> list[str]:
    """Names of the model's inputs, in their order; they follow from the contract alone."""
    names: list[str] = []
    for feature in data.features:
        if feature.kind == "categorical":
            names += [f"{feature.name}={level}" for level in (*(feature.levels or ()), "«other»")]
        else:
            names.append(feature.name)
        if feature.missing_indicator:
            names.append(f"{feature.name} missing")
    return names


def input_size(data: Data) -> int:
    """Number of model inputs, d."""
    return len(input_names(data))


@dataclass(frozen=True)
class Scale:
    """What was fitted for one continuous or binary feature (binary: mean 0, std 1)."""

    fill: float = 0.0
    """Stands in for a missing value: the training median, or the training mode."""
    mean: float = 0.0
    std: float = 1.0


@dataclass(frozen=True)
class Encoder:
    """The fitted preprocessing of one center; ``to_dict`` is exact, so it can be kept beside
    a model and applied to patients of whom the training never knew."""

    data: Data
    scales: tuple[Scale, ...]
    """One per feature of the contract, in its order; that of a categorical feature is unused."""

    @classmethod
    def fit(cls, data: Data, raw: RawFeatures, rows: NDArray[np.intp]) -> Encoder:
        """Fit on the given (training) rows only."""
        return cls(data, _fit(data, raw.values[:, rows]))

    def transform(self, raw: RawFeatures) -> NDArray[np.float32]:
        """All rows as model inputs, float32, shape ``(rows, input_size(data))``, all finite."""
        fill, mean, std = (_column(self.scales, name) for name in ("fill", "mean", "std"))
        missing = np.isnan(raw.values)
        with np.errstate(over="ignore"):
            scaled = (np.where(missing, fill, raw.values) - mean) / std
        scaled = np.clip(scaled, -_FARTHEST, _FARTHEST)
        inputs: list[FloatArray | NDArray[np.bool_]] = []
        for number, feature in enumerate(self.data.features):
            if feature.kind == "categorical":
                levels = len(feature.levels or ())
                codes = np.where(missing[number], levels, raw.values[number])
                inputs += [codes == level for level in range(levels + 1)]
            else:
                inputs.append(scaled[number])
            if feature.missing_indicator:
                inputs.append(missing[number])
        encoded = np.empty((raw.values.shape[1], len(inputs)), dtype=np.float32)
        for number, values in enumerate(inputs):
            encoded[:, number] = values
        return encoded

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, fit for JSON; floats survive it exactly."""
        return {
            "version": _ENCODER_VERSION,
            "inputs": input_names(self.data),
            "fill": [scale.fill for scale in self.scales],
            "mean": [scale.mean for scale in self.scales],
            "std": [scale.std for scale in self.scales],
        }

    @classmethod
    def from_dict(cls, data: Data, values: Mapping[str, Any]) -> Encoder:
        """Inverse of ``to_dict``; raises ``DataError`` if it was fitted for another schema."""
        if values.get("version") != _ENCODER_VERSION:
            raise DataError(
                f"encoder: version: found {values.get('version')!r}, allowed: {_ENCODER_VERSION}"
            )
        expected = input_names(data)
        if values.get("inputs") != expected:
            raise DataError(
                f"encoder: inputs: found {values.get('inputs')!r}, "
                f"allowed: those of the contract's schema, {expected!r}"
            )
        parts = [_numbers(values, key, len(data.features)) for key in ("fill", "mean", "std")]
        return cls(data, tuple(Scale(*part) for part in zip(*parts, strict=True)))


def _fit(data: Data, values: FloatArray) -> tuple[Scale, ...]:
    """Fit all features at once; ``values`` is ``(features, training rows)``, NaN is missing."""
    known = (~np.isnan(values)).sum(axis=1)
    fill = _medians(values, known)
    filled = np.where(np.isnan(values), fill[:, None], values)
    mean, std = filled.mean(axis=1), filled.std(axis=1)
    std[std <= _NEGLIGIBLE_STD * np.abs(filled).max(axis=1)] = 1.0
    mode = 2 * np.nansum(values, axis=1) > known
    scales: list[Scale] = []
    for number, feature in enumerate(data.features):
        if feature.kind == "categorical" or known[number] == 0:
            scales.append(Scale())
        elif feature.kind == "binary":
            scales.append(Scale(fill=float(mode[number])))
        else:
            scales.append(Scale(float(fill[number]), float(mean[number]), float(std[number])))
    return tuple(scales)


def _medians(values: FloatArray, known: NDArray[np.intp]) -> FloatArray:
    """Median of the known values of each row, shape ``(features,)``; 0 where there are none."""
    ordered = np.sort(values, axis=1)  # NaN last
    features = np.arange(values.shape[0])
    low, high = ordered[features, (known - 1) // 2], ordered[features, known // 2]
    return np.where(known > 0, 0.5 * low + 0.5 * high, 0.0)


def _column(scales: Sequence[Scale], name: str) -> FloatArray:
    """One fitted number of all features, shape ``(features, 1)``."""
    return np.array([[getattr(scale, name)] for scale in scales], dtype=np.float64)


def _numbers(values: Mapping[str, Any], key: str, length: int) -> Sequence[float]:
    found = values.get(key)
    if not isinstance(found, list) or len(found) != length or not np.isfinite(found).all():
        raise DataError(f"encoder: {key}: found {found!r}, allowed: {length} finite numbers")
    return [float(value) for value in found]
