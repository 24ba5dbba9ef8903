"""Made-up centers: the same for the same options, as many and as different as asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sim.datasets import load, mimic
from sim.datasets.base import CENTER
from sim.datasets.synthetic import Options, _hierarchy


def sizes(table: pa.Table) -> list[int]:
    return [int(count) for count in table[CENTER].value_counts().field("counts").to_numpy()]


def test_the_schema_is_that_of_mimic() -> None:
    dataset = load("synthetic")
    assert dataset.data.features == [column.feature for column in mimic.COLUMNS]
    assert dataset.data.card.features == list(mimic.CARD)
    table = dataset.table
    for vital in mimic.VITALS:
        low, mean, high = (table[f"{vital}_{part}"].to_numpy() for part in ("min", "mean", "max"))
        known = ~np.isnan(low + mean + high)
        assert (low[known] < mean[known]).all() and (mean[known] < high[known]).all()
        assert 0.01 < np.isnan(mean).mean() < 0.03


def test_the_same_options_give_the_same_table() -> None:
    first, again, other = (load("synthetic", None, {"seed": seed}).table for seed in (7, 7, 8))
    assert first.drop_columns(["age"]).num_rows == again.num_rows
    for name in first.column_names:
        if pa.types.is_dictionary(first[name].type):
            assert first[name].equals(again[name])
        else:
            np.testing.assert_array_equal(first[name].to_numpy(), again[name].to_numpy())
    assert not np.array_equal(first["age"].to_numpy()[:50], other["age"].to_numpy()[:50])


def test_sizes_and_rate_are_as_asked() -> None:
    fixed = load("synthetic", None, {"centers": 7, "rows": 50, "spread": 0.0, "rate": 0.3})
    assert sizes(fixed.table) == [50] * 7
    many = load("synthetic", None, {"centers": 400, "rows": 100, "spread": 0.8, "rate": 0.3}).table
    assert np.median(sizes(many)) == pytest.approx(100, rel=0.15)
    assert np.log(sizes(many)).std() == pytest.approx(0.8, rel=0.15)
    assert many["died_in_hospital"].to_numpy().mean() == pytest.approx(0.3, abs=0.02)


@pytest.mark.parametrize("alpha", [0.0, 1.0, 4.0])
def test_alpha_is_how_much_the_true_models_differ(alpha: float) -> None:
    options = Options(centers=300, alpha=alpha, beta=0.0)
    weights, shifts = _hierarchy(options, np.random.default_rng(1), 39)
    unit = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    alike = (unit @ unit.T)[np.triu_indices(300, 1)]
    assert alike.mean() == pytest.approx(1 / (1 + alpha), abs=0.12)
    assert not shifts.any()


def test_beta_is_how_much_the_patients_differ() -> None:
    def spread_of_rates(beta: float) -> float:
        options = {"centers": 200, "rows": 200, "spread": 0.0, "alpha": 0.0, "beta": beta}
        died = load("synthetic", None, options).table["died_in_hospital"].to_numpy()
        return float(died.reshape(200, 200).mean(axis=1).std())

    assert spread_of_rates(0.0) == pytest.approx((0.12 * 0.88 / 200) ** 0.5, rel=0.2)  # chance
    assert spread_of_rates(2.0) > 5 * spread_of_rates(0.0)


def test_many_centers_are_made_in_memory() -> None:
    dataset = load("synthetic", None, {"centers": 2000, "rows": 30, "spread": 0.0})
    federation = dataset.federation()
    assert len(federation.centers) == 2000
    assert federation.centers[-1].id == "center-1999"
    assert {center.data.train.x.shape[1] for center in federation.centers} == {66}
