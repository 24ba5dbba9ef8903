"""The min-norm solver against SciPy's SLSQP, on thousands of ordinary and degenerate matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from abps_node.learning.min_norm import FloatArray, kkt_residual, min_norm

CASES = 250
"""Per kind; with ten kinds more than two thousand matrices."""
GAP = 1e-8
RESIDUAL = 1e-11
Gradients = Callable[[np.random.Generator, int, int], FloatArray]


def slsqp(gram: FloatArray) -> FloatArray:
    """What the paper uses, as exact as it gets; started in the middle, its answer made feasible."""
    size = gram.shape[0]
    found = minimize(
        lambda mu: mu @ gram @ mu,
        np.full(size, 1.0 / size),
        jac=lambda mu: 2.0 * gram @ mu,
        bounds=[(0.0, 1.0)] * size,
        constraints={"type": "eq", "fun": lambda mu: mu.sum() - 1.0, "jac": np.ones_like},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    weights = np.clip(found.x, 0.0, None)
    return np.asarray(weights / weights.sum())


def ordinary(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    return rng.normal(size=(size, width))


def scaled(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    scales: FloatArray = 10.0 ** rng.uniform(-6, 6, (size, 1))
    return rng.normal(size=(size, width)) * scales


def some_parallel(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    rows = ordinary(rng, size, width)
    rows[1] = rows[0] * rng.uniform(0.1, 3.0)
    return rows


def some_opposite(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    rows = ordinary(rng, size, width)
    rows[1] = -rows[0] * rng.uniform(0.1, 3.0)
    return rows


def one_zero(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    rows = ordinary(rng, size, width)
    rows[rng.integers(size)] = 0.0
    return rows


def on_one_line(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    return rng.normal(size=(1, width)) * rng.normal(size=(size, 1))


def agreeing(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    return ordinary(rng, size, width) + 5.0 * rng.normal(size=width)


def all_but_equal(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    return rng.normal(size=(1, width)) + 1e-9 * ordinary(rng, size, width)


def pairs_all_but_equal(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    """Each twice, the second time a little longer: the shorter one of the two is the answer."""
    rows = np.repeat(ordinary(rng, (size + 1) // 2, width), 2, axis=0)[:size]
    rows[1::2] *= 1.0 + 10.0 ** rng.uniform(-14, -6, (size // 2, 1))
    return rows


def equal(rng: np.random.Generator, size: int, width: int) -> FloatArray:
    return np.repeat(rng.normal(size=(1, width)), size, axis=0)


KINDS: list[Gradients] = [
    ordinary,
    scaled,
    some_parallel,
    some_opposite,
    one_zero,
    on_one_line,
    agreeing,
    all_but_equal,
    pairs_all_but_equal,
    equal,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_as_good_as_slsqp_and_optimal(kind: Gradients) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(CASES):
        rows = kind(rng, int(rng.integers(2, 9)), int(rng.integers(1, 12)))
        gram = rows @ rows.T
        found = min_norm(gram)
        assert found.weights.min() >= 0.0
        assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
        other = slsqp(gram)
        trace = np.trace(gram)
        assert found.norm2 - other @ gram @ other <= GAP * trace
        assert kkt_residual(gram, found.weights) <= RESIDUAL


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_common_descent(data: Any) -> None:
    size, width = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 8))
    cell = st.floats(-1e3, 1e3, allow_subnormal=False)
    cells = data.draw(st.lists(cell, min_size=size * width, max_size=size * width))
    rows = np.array(cells).reshape(size, width)
    gram = rows @ rows.T
    found = min_norm(gram)
    direction = found.weights @ rows
    tolerance = GAP * max(float(np.trace(gram)), 1e-300)
    assert (rows @ direction >= direction @ direction - tolerance).all()
    assert found.norm2 <= gram.diagonal().min() + tolerance


@pytest.mark.parametrize("digits", [4, 7])
def test_no_objective_gets_worse_beside_a_gradient_that_is_far_longer(digits: int) -> None:
    """In its own units, not in those of the longest."""
    rng = np.random.default_rng(digits)
    for _ in range(CASES):
        size = int(rng.integers(3, 7))
        rows = ordinary(rng, size, 30) * 10.0 ** rng.choice([0, -digits], (size, 1))
        direction = min_norm(rows @ rows.T).weights @ rows
        slopes = rows @ direction / np.linalg.norm(rows, axis=1) / np.linalg.norm(direction)
        assert slopes.min() > -1e-6


def test_a_zero_gradient_is_the_answer() -> None:
    rows = np.array([[1e6, 0.0], [0.0, 1e-3], [0.0, 0.0]])
    assert min_norm(rows @ rows.T).weights.tolist() == [0.0, 0.0, 1.0]


def test_two_in_closed_form() -> None:
    rows = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert min_norm(rows @ rows.T).weights == pytest.approx([0.2, 0.8])
    longer = np.array([[1.0, 0.0], [3.0, 1.0]])
    assert min_norm(longer @ longer.T).weights.tolist() == [1.0, 0.0]


def test_of_two_that_are_all_but_equal_the_shorter_one() -> None:
    short, long = np.array([1.0, 2.0]), np.array([1.0, 2.0]) * (1.0 + 1e-9)
    rows = np.stack([long, short])
    assert min_norm(rows @ rows.T).weights.tolist() == [0.0, 1.0]
    assert min_norm(np.full((2, 2), 5.0)).weights.tolist() == [0.5, 0.5]


def test_zero_gradients_and_one_gradient() -> None:
    assert min_norm(np.zeros((3, 3))).weights == pytest.approx([1 / 3] * 3)
    assert min_norm(np.zeros((3, 3))).norm2 == 0.0
    assert min_norm(np.array([[4.0]])).norm2 == 4.0


def test_the_residual_sees_what_is_not_optimal() -> None:
    rows = np.array([[2.0, 0.0], [0.0, 1.0]])
    assert kkt_residual(rows @ rows.T, np.array([0.5, 0.5])) > 0.1


@pytest.mark.parametrize("bad", [np.ones((2, 3)), np.ones(2), np.full((2, 2), np.nan)])
def test_refuses_what_is_no_gram_matrix(bad: FloatArray) -> None:
    with pytest.raises(ValueError, match="gram: found"):
        min_norm(bad)
