from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import (
    average_precision_score,
    brier_score_loss,
    log_loss,
    roc_auc_score,
)

from abps_node.learning.metrics import bootstrap_auroc, calibration_slope, report
from abps_node.learning.utility import (
    Utility,
    auroc,
    negative_brier,
    negative_log_loss,
    probability,
)


@st.composite
def predictions(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Few distinct log-odds, so that many tie, and both classes."""
    scores = draw(st.lists(st.integers(-8, 8), min_size=2, max_size=60))
    labels = draw(st.lists(st.booleans(), min_size=len(scores), max_size=len(scores)))
    y = np.array(labels, dtype=np.float64)
    y[:2] = [0, 1]
    return np.array(scores, dtype=np.float64) / 3, y


@given(predictions())
def test_utilities_are_those_of_scikit_learn(case: tuple[np.ndarray, np.ndarray]) -> None:
    logits, y = case
    p = 1 / (1 + np.exp(-logits))
    assert auroc(logits, y) == pytest.approx(roc_auc_score(y, logits), abs=1e-12)
    assert negative_brier(logits, y) == pytest.approx(1 - brier_score_loss(y, p), abs=1e-12)
    assert negative_log_loss(logits, y) == pytest.approx(-log_loss(y, p), abs=1e-12)


@given(predictions())
def test_the_report_is_that_of_scikit_learn(case: tuple[np.ndarray, np.ndarray]) -> None:
    logits, y = case
    found = report(logits, y, seed=1)
    assert found["rows"] == y.size
    assert found["events"] == y.sum()
    assert found["auroc"] == pytest.approx(roc_auc_score(y, logits), abs=1e-12)
    assert found["auprc"] == pytest.approx(average_precision_score(y, logits), abs=1e-12)
    assert found["brier"] == pytest.approx(brier_score_loss(y, probability(logits)))
    assert 0 <= found["auroc_low"] <= found["auroc_high"] <= 1


def test_huge_log_odds_do_not_overflow() -> None:
    logits, y = np.array([-1e4, 1e4, 1e4]), np.array([0.0, 1.0, 0.0])
    assert probability(logits).tolist() == [0, 1, 1]
    assert negative_log_loss(logits, y) == pytest.approx(-1e4 / 3)
    assert negative_brier(logits, y) == pytest.approx(2 / 3)


@settings(max_examples=25)
@given(predictions(), st.integers(0, 2**63 - 1))
def test_the_bootstrap_is_that_of_a_plain_loop(
    case: tuple[np.ndarray, np.ndarray], seed: int
) -> None:
    scores, y = case
    order = np.argsort(scores, kind="stable")
    ranked, labels = scores[order], y[order]
    draws = np.random.default_rng(seed).integers(0, y.size, (40, y.size))
    plain = [
        roc_auc_score(labels[draw], ranked[draw]) for draw in draws if 0 < labels[draw].mean() < 1
    ]
    if plain:
        expected = np.percentile(plain, [2.5, 97.5])
        np.testing.assert_allclose(bootstrap_auroc(scores, y, seed, 40), expected, atol=1e-12)


def test_the_bootstrap_covers_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    y = (rng.random(500) < 0.3).astype(np.float64)
    scores = rng.normal(size=500) + y
    low, high = bootstrap_auroc(scores, y, 1)
    assert low < auroc(scores, y) < high
    # The standard error of Hanley and McNeil for these numbers is about 0.022.
    assert 0.06 < high - low < 0.12
    assert (low, high) == bootstrap_auroc(scores, y, 1)
    assert (low, high) != bootstrap_auroc(scores, y, 2)
    monkeypatch.setattr("abps_node.learning.metrics._CELLS", 500 * 7)  # 142 chunks of 7, one of 6
    np.testing.assert_allclose(bootstrap_auroc(scores, y, 1), (low, high))


def test_the_calibration_slope_is_the_maximum_likelihood_one() -> None:
    rng = np.random.default_rng(1)
    for scale in (1e-3, 1.0, 50.0):
        true = rng.normal(size=400)
        y = (rng.random(400) < probability(true)).astype(np.float64)
        logits = scale * true + 2.0
        found = calibration_slope(logits, y)

        def loss(b: np.ndarray, y: np.ndarray = y, true: np.ndarray = true) -> float:
            return -negative_log_loss(b[0] + b[1] * true, y)

        slope = minimize(loss, [0.0, 1.0], tol=1e-12).x[1]
        assert found == pytest.approx(slope / scale, rel=1e-4)
        assert found == pytest.approx(1 / scale, rel=0.3)


@settings(max_examples=50)
@given(predictions())
def test_the_calibration_slope_is_that_of_scikit_learn(case: tuple[np.ndarray, np.ndarray]) -> None:
    logits, y = case
    found = calibration_slope(logits, y)
    if found is not None:
        model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=200)
        expected = model.fit(logits.reshape(-1, 1), y).coef_[0, 0]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(
    ("logits", "y"),
    [
        ([1.0, 1.0, 1.0], [0.0, 1.0, 0.0]),
        ([0.0, 1.0, 2.0], [0.0, 0.0, 1.0]),
        ([0.0, 1.0, 2.0], [1.0, 0.0, 0.0]),
        ([0.0, 1.0, 1.0], [0.0, 0.0, 1.0]),
    ],
)
def test_no_slope_where_none_exists(logits: list[float], y: list[float]) -> None:
    assert calibration_slope(np.array(logits), np.array(y)) is None
    assert report(np.array(logits), np.array(y), 0)["calibration_slope"] is None


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_one_class_leaves_only_brier(label: float) -> None:
    found = report(np.array([0.0, 1.0]), np.array([label, label]), 0)
    undefined = {"auroc", "auroc_low", "auroc_high", "auprc", "calibration_slope"}
    assert {key for key, value in found.items() if value is None} == undefined
    expected = np.square(probability(np.array([0.0, 1.0])) - label).mean()
    assert found["brier"] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("wanted", "y", "metric"),
    [
        ("auroc", [0, 1], "auroc"),
        ("auroc", [0, 0], "brier"),
        ("auroc", [1, 1], "brier"),
        ("logloss", [0, 1], "logloss"),
        ("logloss", [0, 0], "logloss"),
    ],
)
def test_the_metric_falls_back_where_a_class_is_missing(
    wanted: str, y: list[int], metric: str
) -> None:
    utility = Utility.choose(wanted, np.array(y, dtype=np.float32))  # type: ignore[arg-type]
    assert utility.metric == metric
    record = utility.record(0.25)
    assert (record.metric, record.value) == (metric, 0.25)
    assert (record.events, record.rows) == (sum(y), 2)
