"""Test metrics of many centers against scikit-learn, center by center."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from sim.engine.stack import Scores, offsets
from sim.metrics import assess, mean_auroc


def scores_of(*centers: tuple[list[float], list[int]]) -> Scores:
    logits = np.concatenate([np.array(logits, dtype=np.float32) for logits, _ in centers])
    labels = np.concatenate([np.array(y, dtype=np.float32) for _, y in centers])
    return Scores(logits, labels, offsets([len(y) for _, y in centers]))


def drawn(seed: int, rows: int, one_class: bool = False) -> tuple[list[float], list[int]]:
    rng = np.random.default_rng(seed)
    y = np.zeros(rows, dtype=int) if one_class else rng.permutation(np.arange(rows) % 2)
    return (y + rng.normal(size=rows)).round(1).tolist(), y.tolist()


def test_every_figure_is_scikit_learns() -> None:
    centers = [drawn(1, 40), drawn(2, 7, one_class=True), drawn(3, 25), drawn(4, 1, one_class=True)]
    scores = scores_of(*centers)
    found = assess(scores)
    assert found.scored == 2
    single = [roc_auc_score(centers[place][1], centers[place][0]) for place in (0, 2)]
    np.testing.assert_allclose(found.auroc[[0, 2]], single, rtol=1e-12)
    assert np.isnan(found.auroc[[1, 3]]).all()
    assert found.mean_auroc == pytest.approx(np.mean(single), rel=1e-12)
    assert mean_auroc(scores) == found.mean_auroc
    probability = 1 / (1 + np.exp(-scores.logits.astype(float)))
    summary = found.summary()
    assert summary["scored_centers"] == 2
    assert summary["pooled_auroc"] == pytest.approx(roc_auc_score(scores.y, scores.logits))
    assert summary["pooled_auprc"] == pytest.approx(
        average_precision_score(scores.y, scores.logits)
    )
    assert summary["pooled_brier"] == pytest.approx(brier_score_loss(scores.y, probability))
    briers = [
        brier_score_loss(y, 1 / (1 + np.exp(-np.array(logits))), pos_label=1)
        for logits, y in centers
    ]
    np.testing.assert_allclose(found.brier, briers, rtol=1e-5)
    assert found.rows.tolist() == [40, 7, 25, 1]
    assert found.events.tolist() == [20, 0, 12, 0]


def test_without_both_classes_there_is_no_auroc_and_no_number_pretends_to_be_one() -> None:
    found = assess(scores_of(drawn(1, 5, one_class=True), drawn(2, 3, one_class=True)))
    assert (found.scored, found.mean_auroc, found.pooled_auroc) == (0, None, None)
    assert found.pooled_auprc is None
    assert found.pooled_brier > 0
