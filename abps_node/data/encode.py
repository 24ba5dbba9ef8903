"""Features to model inputs, with everything that is fitted taken from the training split alone.

Continuous: the training median where missing, then (x − mean) / std of the training split. Binary:
0/1, the training mode where missing. Categorical: one column per declared level plus «other», which
also takes missing and undeclared levels. A declared missing indicator follows its feature as 0/1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from abps_node.data.features import RawFeatures
from abps_node.data.table import FloatArray
from abps_node.errors import DataError
from protocol.contract import Data, Feature

_ENCODER_VERSION = 2
_NEGLIGIBLE_STD = 1e-8
"""A standard deviation below this share of the values' size is rounding noise: a constant."""
FARTHEST = 1e6
"""Standardized values are cut off here. Training rows never come near it (|z| <= sqrt(n)), but one
absurd value in a validation row must not overflow the network."""


def input_names(data: Data) -> list[str]:
    """Names of the model's inputs, in their order; they follow from the contract alone."""
    return _input_names(data.features)


def _input_names(features: Sequence[Feature]) -> list[str]:
    names: list[str] = []
    for feature in features:
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
    """The fitted preprocessing of one center; ``to_dict`` is exact and needs no contract, so it is
    kept beside a model and applied to patients of whom the training never knew."""

    features: tuple[Feature, ...]
    """What the columns of the table are, in the order of the model's inputs."""
    scales: tuple[Scale, ...]
    """One per feature; that of a categorical one is unused."""

    @classmethod
    def fit(cls, data: Data, raw: RawFeatures, rows: NDArray[np.intp]) -> Encoder:
        """Fit on the given (training) rows only."""
        return cls.fit_features(data.features, raw, rows)

    @classmethod
    def fit_features(
        cls, features: Sequence[Feature], raw: RawFeatures, rows: NDArray[np.intp]
    ) -> Encoder:
        """The same for features that are not the contract's; there may be none."""
        return cls(tuple(features), _fit(features, raw.values[:, rows]) if features else ())

    @property
    def inputs(self) -> list[str]:
        """Names of the model's inputs, in their order."""
        return _input_names(self.features)

    def transform(self, raw: RawFeatures) -> NDArray[np.float32]:
        """All rows as model inputs, float32, shape ``(rows, d)``, all finite."""
        if not self.features:
            return np.empty((raw.values.shape[1], 0), dtype=np.float32)
        fill, mean, std = (_column(self.scales, name) for name in ("fill", "mean", "std"))
        missing = np.isnan(raw.values)
        with np.errstate(over="ignore"):
            scaled = (np.where(missing, fill, raw.values) - mean) / std
        scaled = np.clip(scaled, -FARTHEST, FARTHEST)
        inputs: list[FloatArray | NDArray[np.bool_]] = []
        for number, feature in enumerate(self.features):
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
        """Plain numbers and texts, fit for JSON; floats survive it exactly."""
        return {
            "version": _ENCODER_VERSION,
            "inputs": self.inputs,
            "features": [
                {**feature.model_dump(exclude_none=True), **asdict(scale)}
                for feature, scale in zip(self.features, self.scales, strict=True)
            ],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Encoder:
        """Inverse of ``to_dict``; raises ``DataError`` for what ``to_dict`` did not write."""
        if values.get("version") != _ENCODER_VERSION:
            raise DataError(
                f"encoder: version: found {values.get('version')!r}, allowed: {_ENCODER_VERSION}"
            )
        entries = values.get("features")
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise DataError(f"encoder: features: found {entries!r}, allowed: a list of tables")
        pairs = [_restored(entry) for entry in entries]
        encoder = cls(tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs))
        if values.get("inputs") != encoder.inputs:
            raise DataError(
                f"encoder: inputs: found {values.get('inputs')!r}, "
                f"allowed: those of its features, {encoder.inputs!r}"
            )
        return encoder


def _restored(entry: Mapping[str, Any]) -> tuple[Feature, Scale]:
    fitted = {field.name: entry.get(field.name) for field in fields(Scale)}
    try:
        feature = Feature.model_validate({k: v for k, v in entry.items() if k not in fitted})
    except ValidationError as error:
        raise DataError(f"encoder: features: {entry.get('name')!r}: {error}") from error
    numbers = {key: _finite(feature.name, key, value) for key, value in fitted.items()}
    return feature, Scale(**numbers)


def _finite(feature: str, key: str, value: object) -> float:
    if not isinstance(value, float) or not math.isfinite(value):
        raise DataError(f"encoder: {key} of {feature!r}: found {value!r}, allowed: a finite number")
    return value


def _fit(features: Sequence[Feature], values: FloatArray) -> tuple[Scale, ...]:
    """Fit all features at once; ``values`` is ``(features, training rows)``, NaN is missing."""
    known = (~np.isnan(values)).sum(axis=1)
    fill = _medians(values, known)
    filled = np.where(np.isnan(values), fill[:, None], values)
    mean, std = filled.mean(axis=1), filled.std(axis=1)
    std[std <= _NEGLIGIBLE_STD * np.abs(filled).max(axis=1)] = 1.0
    mode = 2 * np.nansum(values, axis=1) > known
    scales: list[Scale] = []
    for number, feature in enumerate(features):
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
