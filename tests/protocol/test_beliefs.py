"""Beta beliefs: the posterior of appendix C.1, its UCB, and the bound of Theorem 1."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.beliefs import Belief, ucb, ucbs
from tests.support.strategies import beliefs, probabilities


@given(st.lists(probabilities, max_size=40), st.floats(0.1, 5), st.floats(0.1, 5))
def test_the_posterior_mean_is_that_of_appendix_c1(
    credits: list[float], alpha: float, beta: float
) -> None:
    belief = Belief(alpha, beta)
    for phi_bar in credits:
        belief = belief.updated(phi_bar)
    k, total = len(credits), sum(credits)
    assert belief.n == k
    assert belief.alpha + belief.beta == pytest.approx(alpha + beta + k)
    assert belief.mean == pytest.approx((alpha + total) / (alpha + beta + k))
    assert 0 < belief.mean < 1


@given(beliefs(), probabilities, probabilities)
def test_more_credit_never_means_less_belief(belief: Belief, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert belief.updated(low).mean <= belief.updated(high).mean


@pytest.mark.parametrize("phi_bar", [-0.01, 1.01, math.nan, math.inf])
def test_a_credit_outside_0_to_1_is_refused(phi_bar: float) -> None:
    with pytest.raises(ValueError, match="allowed: 0 to 1"):
        Belief().updated(phi_bar)


@given(st.lists(probabilities, max_size=30), st.floats(0, 1), st.floats(0, 1), beliefs())
def test_a_discount_moves_a_belief_towards_the_prior(
    credits: list[float], factor: float, less: float, other: Belief
) -> None:
    prior = Belief(1.5, 0.5)
    belief = prior
    for phi_bar in credits:
        belief = belief.updated(phi_bar)
    assert belief.discounted(1.0, prior, prior).mean == pytest.approx(belief.mean)
    assert belief.discounted(0.0, prior, prior) == prior
    kept = belief.discounted(factor, prior, prior)
    low, high = sorted((prior.mean, belief.mean))
    assert low - 1e-12 <= kept.mean <= high + 1e-12
    assert kept.n <= factor * belief.n < kept.n + 1
    counted = kept.alpha + kept.beta - prior.alpha - prior.beta
    assert counted == pytest.approx(factor * belief.n)
    # Less is kept: nearer to the prior, and more in doubt.
    weaker = belief.discounted(min(less, factor), prior, prior)
    assert abs(weaker.mean - prior.mean) <= abs(kept.mean - prior.mean) + 1e-12
    assert weaker.n <= kept.n
    # Another prior of the new campaign takes the place of the former.
    moved = belief.discounted(factor, prior, other)
    assert moved.alpha - other.alpha == pytest.approx(kept.alpha - prior.alpha)
    assert moved.beta - other.beta == pytest.approx(kept.beta - prior.beta)


@pytest.mark.parametrize("factor", [-0.1, 1.1, math.nan])
def test_a_discount_outside_0_to_1_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match="allowed: 0 to 1"):
        Belief().discounted(factor, Belief(), Belief())


def test_ucb_is_that_of_section_4_3() -> None:
    belief = Belief(3.0, 1.0, 2)
    assert ucb(belief, 5, 1.5) == pytest.approx(0.75 + 1.5 * math.sqrt(2 * math.log(5) / 3))
    assert ucb(belief, 1, 1.5) == 0.75, "no bonus in the first round"
    assert ucb(belief, 1000, 0.0) == 0.75


@given(beliefs(), st.integers(2, 10_000), st.floats(0.01, 5))
def test_the_bonus_grows_with_time_and_shrinks_with_observations(
    belief: Belief, t: int, gamma: float
) -> None:
    more = Belief(belief.alpha, belief.beta, belief.n + 1)
    assert ucb(belief, t, gamma) < ucb(belief, t + 1, gamma)
    assert ucb(more, t, gamma) < ucb(belief, t, gamma)
    assert ucb(belief, t, gamma) > belief.mean


def test_with_default_gamma_the_bonus_dominates_early_rounds() -> None:
    """A fact that users must know (docs/decisions.md): no peer is inadmissible before round 73."""
    gamma = math.sqrt(2)

    def worst(t: int) -> float:
        """UCB in round t of a peer that was met in every round and never helped."""
        return ucb(Belief(1.0, 1.0 + (t - 1), t - 1), t, gamma)

    first_refusal = next(t for t in range(1, 1000) if worst(t) < 0.5)
    assert first_refusal == 73
    assert ucb(Belief(), 2, gamma) > ucb(Belief(2.0, 1.0, 1), 2, gamma), "unseen beats seen"


@pytest.mark.parametrize("k", [5, 50, 500])
@pytest.mark.parametrize("drift", [0.0, 0.05])
def test_theorem_1_bounds_the_error_of_the_posterior_mean(k: int, drift: float) -> None:
    """Hoeffding + prior + drift holds with probability 1 − δ on a bandit whose μ* is known."""
    rng, delta, repeats, mu = random.Random(2609), 0.1, 400, 0.35
    prior = Belief()
    weight = prior.alpha + prior.beta
    bound = math.sqrt(math.log(2 / delta) / (2 * k)) + weight / (weight + k) + drift
    misses = 0
    for _ in range(repeats):
        belief = prior
        for step in range(k):
            expected = mu + drift * (1 if step % 3 else -1)
            belief = belief.updated(rng.betavariate(4 * expected, 4 * (1 - expected)))
        misses += abs(belief.mean - mu) > bound
    assert misses <= delta * repeats


def test_theorem_1_is_not_vacuous() -> None:
    """Without the prior term a strong, wrong prior breaks the bound: each term is needed."""
    k, delta, mu = 50, 0.1, 0.9
    belief = Belief(1.0, 99.0)
    for _ in range(k):
        belief = belief.updated(mu)
    hoeffding = math.sqrt(math.log(2 / delta) / (2 * k))
    assert hoeffding < abs(belief.mean - mu) <= hoeffding + 100 / (100 + k)


@given(st.lists(beliefs(), max_size=20), st.integers(1, 10_000), st.floats(0, 3))
def test_many_bounds_at_once_are_the_same_to_the_last_bit(
    held: list[Belief], t: int, gamma: float
) -> None:
    means = np.array([belief.mean for belief in held], dtype=np.float64)
    counts = np.array([belief.n for belief in held], dtype=np.int64)
    assert ucbs(means, counts, t, gamma).tolist() == [ucb(belief, t, gamma) for belief in held]
