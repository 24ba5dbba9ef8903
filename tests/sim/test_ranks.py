from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss, log_loss, roc_auc_score

from abps_node.learning import utility
from sim.engine import ranks
from sim.engine.stack import offsets


@st.composite
def segments(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits with many ties (also of both zeros), labels, sizes."""
    sizes = np.array(draw(st.lists(st.integers(1, 30), min_size=1, max_size=8)))
    n = int(sizes.sum())
    levels = st.sampled_from([-2.5, -1.0, -0.0, 0.0, 1e-30, 0.25, 1.0, 3.5, np.inf, -np.inf])
    logits = draw(st.lists(levels, min_size=n, max_size=n))
    y = draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    return np.array(logits, dtype=np.float32), np.array(y, dtype=np.float32), sizes


@given(segments())
def test_auroc_is_scikit_learns_and_the_daemons(
    case: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    logits, y, sizes = case
    start = offsets(sizes)
    found = ranks.auroc(logits, y, start)
    for place, (first, end) in enumerate(itertools.pairwise(start)):
        scores, labels = np.clip(logits[first:end], -1e30, 1e30), y[first:end]
        if labels.min() == labels.max():
            assert np.isnan(found[place])
            continue
        assert found[place] == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)
        wide, outcome = logits[first:end].astype(np.float64), labels.astype(np.float64)
        assert found[place] == utility.auroc(wide, outcome)  # to the last bit


def test_brier_and_log_loss_are_scikit_learns() -> None:
    rng = np.random.default_rng(1)
    sizes = np.array([1, 40, 7, 300])
    logits = rng.normal(0, 3, sizes.sum()).astype(np.float32)
    y = (rng.random(sizes.sum()) < 0.3).astype(np.float32)
    start = offsets(sizes)
    brier = ranks.negative_brier(logits, y, start)
    loss = ranks.negative_log_loss(logits, y, start)
    for place in range(4):
        rows = slice(start[place], start[place + 1])
        p = utility.probability(logits[rows].astype(np.float64))
        assert 1 - brier[place] == pytest.approx(brier_score_loss(y[rows], p, pos_label=1))
        assert -loss[place] == pytest.approx(log_loss(y[rows], p, labels=[0, 1]), rel=1e-9)


def test_what_is_no_number_is_refused() -> None:
    one = np.ones(2, dtype=np.float32)
    with pytest.raises(ValueError, match="logits: found NaN"):
        ranks.auroc(one * np.nan, one, offsets([2]))
