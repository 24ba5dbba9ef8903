"""How good the model of a center with objectives is on the test split, objective by objective."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch

from abps_node.aims import Aims, Objective
from abps_node.data.objectives import NO_GROUP, ObjectiveData
from abps_node.learning import metrics
from abps_node.learning.objective_losses import durations
from abps_node.learning.utility import FloatArray
from protocol.contract import Contract

_LEVELS: Final = (2.5, 97.5)
BINARY_KEYS: Final = (
    "auroc",
    "auroc_low",
    "auroc_high",
    "auprc",
    "brier",
    "calibration_slope",
)


def report(aims: Aims, data: ObjectiveData, outputs: torch.Tensor, seed: int) -> dict[str, Any]:
    """Objective to its metrics, from raw outputs ``(S, n)`` on the test split."""
    found = {}
    for number, objective in enumerate(aims.objectives):
        y = data.test.y[:, number].astype(np.float64)
        known = np.logical_not(np.isnan(y))
        chosen = outputs[number][torch.from_numpy(known)]
        if objective.binary:
            logits = chosen.numpy().astype(np.float64)
            values = _binary(objective, logits, y[known], seed)
            if objective.group is not None:
                codes = data.test.groups[known, number]
                values["true_positive_rate_gap"] = _gap(logits, y[known], codes)
        else:
            median = data.reports[number].median
            values = _duration(durations(chosen).numpy(), y[known], median, seed)
        found[objective.name] = {"kind": objective.kind, "column": objective.column, **values}
    return found


def headline(contract: Contract, aims: Aims, found: dict[str, Any]) -> dict[str, Any]:
    """The keys that every center's report has: those of the first objective on the contract's
    label, so that centers can be compared; without one, nothing but the number of rows."""
    for objective in aims.objectives:
        if objective.binary and objective.column == contract.data.label:
            values = found[objective.name]
            return {key: values[key] for key in ("rows", "events", *BINARY_KEYS)}
    rows = max(values["rows"] for values in found.values())
    return {"rows": rows, "events": 0, **dict.fromkeys(BINARY_KEYS)}


def _binary(objective: Objective, logits: FloatArray, y: FloatArray, seed: int) -> dict[str, Any]:
    if y.size == 0:
        return {"rows": 0, "events": 0, **dict.fromkeys(BINARY_KEYS)}
    values = metrics.report(logits, y, seed)
    if objective.kind == "sensitivity":
        values["sensitivity"] = _share(logits[y == 1] > 0)
        values["specificity"] = _share(logits[y == 0] <= 0)
    return values


def _duration(days: FloatArray, y: FloatArray, median: float, seed: int) -> dict[str, Any]:
    keys = ("mae", "mae_low", "mae_high", "mae_of_median")
    if y.size == 0:
        return {"rows": 0, **dict.fromkeys(keys)}
    errors = np.abs(days - y)
    rng = np.random.default_rng(seed)
    means = [
        errors[rng.integers(0, y.size, y.size)].mean() for _ in range(metrics.BOOTSTRAP_RESAMPLES)
    ]
    low, high = np.percentile(means, _LEVELS)
    values = (errors.mean(), low, high, np.abs(median - y).mean())
    return {"rows": int(y.size), **dict(zip(keys, map(float, values), strict=True))}


def _gap(logits: FloatArray, y: FloatArray, codes: Any) -> float | None:
    """Largest minus least true-positive rate of all groups at probability one half."""
    rates = [
        float((logits[(codes == group) & (y == 1)] > 0).mean())
        for group in np.unique(codes[(codes != NO_GROUP) & (y == 1)])
    ]
    return max(rates) - min(rates) if len(rates) > 1 else None


def _share(hits: Any) -> float | None:
    return float(hits.mean()) if hits.size else None
