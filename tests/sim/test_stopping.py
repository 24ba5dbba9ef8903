from __future__ import annotations

import numpy as np
import torch

from sim.stopping import EarlyStop

METRICS = ["auroc", "brier", "auroc"]


def models(t: int) -> torch.Tensor:
    return torch.full((3, 2), float(t))


def played(scope: str, values: list[list[float]], patience: int | None = 2) -> EarlyStop:
    stop = EarlyStop(scope, patience, METRICS, "auroc")  # type: ignore[arg-type]
    for t, row in enumerate(values, 1):
        if not stop.over:
            stop.judge(t, np.array(row), models(t))
    return stop


def test_the_network_stops_together_by_the_mean_over_who_has_the_metric() -> None:
    # The second center, measured otherwise, would have gone on for ever.
    rows = [[0.6, 0.1, 0.6], [0.9, 0.2, 0.5], [0.5, 0.3, 0.5], [0.5, 0.4, 0.5], [1, 1, 1]]
    stop = played("network", rows)
    assert stop.over
    assert stop.best_rounds == [2, 2, 2]
    assert torch.equal(stop.chosen(models(9)), models(2))


def test_centers_stop_one_by_one_and_keep_their_own_best() -> None:
    rows = [[0.6, 0.1, 0.7], [0.5, 0.2, 0.8], [0.5, 0.3, 0.8], [0.9, 0.4, 0.8]]
    stop = played("center", rows)
    assert stop.active.tolist() == [False, True, False]
    assert stop.best_rounds == [1, 4, 2]
    assert stop.chosen(models(9))[:, 0].tolist() == [1.0, 4.0, 2.0]
    assert not stop.over


def test_without_patience_the_last_model_counts() -> None:
    for scope in ("network", "center"):
        stop = played(scope, [[0.9, 0.9, 0.9], [0.1, 0.1, 0.1]] * 20, None)
        assert not stop.over
        assert torch.equal(stop.chosen(models(9)), models(9))
