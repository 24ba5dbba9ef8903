"""Made-up ICU stays with the schema of MIMIC-IV, any number of centers.

After FedProx-Synthetic(α, β) (Li et al., MLSys 2020, section 5.1): α is how much the centers' true
models differ, β how much their patients do. Three things are otherwise than there. The outcome has
two classes. Weights are w_k ∝ w + √α · N(0, 1) around a common w, so that two centers' models
correlate by 1/(1 + α): the original draws every device's weights independently, also at α = 0, and
then no device could help another. Patients are N(v_k, 1) in latent units with v_k ~ N(B_k, β) and
B_k ~ N(0, β), so that (0, 0) is IID. As there, the j-th feature weighs in with j^-0.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import Field
from scipy.special import expit, ndtr, ndtri

from protocol.contract import Feature, Strict
from protocol.randomness import derive_seed
from sim.datasets.base import CENTER, Dataset, Progress, schema
from sim.datasets.mimic import CARD, COLUMNS, LABEL
from sim.division import Least

__all__ = ["Options", "load"]

FloatArray = NDArray[np.float32]

SIGNAL: Final = 2.0
"""Standard deviation of the true log-odds: the best possible AUROC is about 0.85."""
DATE: Final = "year"
_FIRST_YEAR: Final = 2008
_WINDOWS: Final = 6

TYPICAL: Final = {
    "heart_rate": (86.0, 14.0),
    "systolic": (119.0, 16.0),
    "diastolic": (63.0, 11.0),
    "mean_pressure": (78.0, 11.0),
    "respiratory_rate": (19.5, 3.8),
    "temperature": (36.9, 0.5),
    "spo2": (96.5, 1.8),
}
"""Mean and standard deviation of the daily means."""
PREVALENCE: Final = (0.18, 0.3, 0.12, 0.15, 0.05, 0.26, 0.04, 0.15, 0.3, 0.22, 0.14, 0.01)
"""Of the twelve conditions, in their order."""


class Options(Strict):
    """How many centers, how large, how different."""

    centers: int = Field(default=20, ge=1, le=1_000_000)
    rows: int = Field(default=300, ge=4, le=1_000_000, description="the median size of a center")
    spread: float = Field(
        default=0.5, ge=0, le=3, description="log-normal spread of the sizes; 0: all equal"
    )
    alpha: float = Field(default=0.5, ge=0, description="how much the true models differ")
    beta: float = Field(default=0.5, ge=0, description="how much the patients differ")
    rate: float = Field(default=0.12, gt=0, lt=1, description="deaths, over all centers")
    missing: float = Field(default=0.02, ge=0, lt=1, description="vital signs without a value")
    seed: int = Field(default=0, ge=0)
    split_seed: int = Field(default=0, ge=0, lt=2**63, description="of the 70/15/15 split")
    min_rows: int = Field(default=1, ge=1, description="centers with fewer are left out")
    min_per_class: int = Field(default=0, ge=0, description="…with fewer rows of either class")


def load(_: None, options: Options, progress: Progress | None = None) -> Dataset:
    """Draw all patients of all centers; the same options give the same table."""
    if progress is not None:
        progress("drawing", None)
    rng = np.random.Generator(np.random.PCG64(derive_seed(options.seed, "synthetic")))
    center = np.repeat(np.arange(options.centers), _sizes(options, rng))
    columns, log_odds = _features(options, rng, center)
    died = rng.random(center.size) < expit(log_odds + _intercept(log_odds, options.rate))
    # Two calendar years each, as a center of MIMIC-IV.
    year = _FIRST_YEAR + 2 * (center % _WINDOWS) + rng.integers(0, 2, center.size)
    digits = len(str(options.centers - 1))
    names = [f"center-{number:0{digits}d}" for number in range(options.centers)]
    table = pa.table(
        {
            CENTER: pa.DictionaryArray.from_arrays(center.astype(np.int32), names),
            LABEL: died.astype(np.int8),
            DATE: year.astype(np.int16),
            **columns,
        }
    )
    how = f"α={options.alpha:g}, β={options.beta:g}, seed {options.seed}"
    return Dataset(
        name="synthetic",
        title=f"Synthetic ({how})",
        table=table,
        data=schema(COLUMNS, split_seed=options.split_seed, label=LABEL, date=DATE, card=CARD),
        notes=(f"{table.num_rows} made-up stays in {options.centers} centers ({how})",),
        least=Least(options.min_rows, options.min_per_class),
        options=options.model_dump(exclude_unset=True),
    )


def _sizes(options: Options, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of each center, at least four."""
    drawn = options.rows * np.exp(options.spread * rng.standard_normal(options.centers))
    sizes: NDArray[np.int64] = np.maximum(np.rint(drawn), 4).astype(np.int64)
    return sizes


def _features(
    options: Options, rng: np.random.Generator, center: NDArray[np.int64]
) -> tuple[dict[str, Any], FloatArray]:
    """Columns of the schema, and each row's true log-odds without their intercept."""
    features = [column.feature for column in COLUMNS]
    weights, shifts = _hierarchy(options, rng, len(features))
    log_odds = np.zeros(center.size, dtype=np.float32)
    columns: dict[str, Any] = {}
    make = _makers(options, rng)
    for place, feature in enumerate(features):
        latent = rng.standard_normal(center.size, dtype=np.float32)
        latent += shifts[center, place]
        log_odds += weights[center, place] * latent
        columns[feature.name] = make(feature, latent, columns)
    return columns, log_odds


def _hierarchy(
    options: Options, rng: np.random.Generator, features: int
) -> tuple[FloatArray, FloatArray]:
    """Each center's weights and the mean of its patients, both ``(centers, features)``."""
    shape = (options.centers, features)
    decay = np.arange(1, features + 1, dtype=np.float32) ** np.float32(-0.6)
    common = rng.standard_normal(features, dtype=np.float32) * decay
    common *= np.linalg.norm(decay) / np.linalg.norm(common)
    own = rng.standard_normal(shape, dtype=np.float32) * decay
    weights = common + np.float32(options.alpha**0.5) * own
    weights *= SIGNAL / np.linalg.norm(weights, axis=1, keepdims=True)
    spread = np.float32(options.beta**0.5)
    means = spread * rng.standard_normal((options.centers, 1), dtype=np.float32)
    return weights, means + spread * rng.standard_normal(shape, dtype=np.float32)


def _intercept(log_odds: FloatArray, rate: float) -> float:
    """What must be added for this rate of deaths, by bisection."""
    low, high = -30.0, 30.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if expit(log_odds + middle).mean() > rate else (middle, high)
    return 0.5 * (low + high)


def _makers(options: Options, rng: np.random.Generator) -> Callable[..., Any]:
    """How a latent normal variable becomes a column of each kind."""
    prevalence = dict(zip(CARD, PREVALENCE, strict=True))

    def make(feature: Feature, latent: FloatArray, made: dict[str, Any]) -> Any:
        if feature.kind == "categorical" or feature.levels is not None:
            levels = feature.levels or []
            codes = np.minimum(ndtr(latent) * len(levels), len(levels) - 1).astype(np.int8)
            return pa.DictionaryArray.from_arrays(codes, levels)
        if feature.kind == "binary":
            return (latent > -ndtri(prevalence[feature.name])).astype(np.int8)
        if feature.name == "age":
            return np.clip(np.rint(64 + 16 * latent), 18, 95).astype(np.float32)
        values = _vital(feature.name, latent, made)
        values[rng.random(values.size, dtype=np.float32) < options.missing] = np.nan
        return values

    return make


def _vital(name: str, latent: FloatArray, made: dict[str, Any]) -> FloatArray:
    """The day's mean, or its minimum or maximum, a distance below or above the mean."""
    vital, _, summary = name.rpartition("_")
    typical, deviation = TYPICAL[vital]
    if summary == "mean":
        values = typical + deviation * latent
    else:
        mean: FloatArray = made[f"{vital}_mean"]
        sign = -1.0 if summary == "min" else 1.0
        values = np.where(np.isnan(mean), typical, mean)
        values = values + sign * deviation * np.exp(0.4 * sign * latent)
    return values.astype(np.float32)
