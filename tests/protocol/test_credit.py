"""Shapley credit: against brute force, by its axioms, sampled and truncated; then the clip."""

from __future__ import annotations

import math
import random
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.contract import Policy
from protocol.credit import CreditPlan, clip, clip_bounds, is_clipped, plan, shapley
from tests.support.strategies import all_coalitions, center_ids, games

Game = tuple[tuple[str, ...], dict[frozenset[str], float]]
EVERYBODY = 12


def exact(players: tuple[str, ...]) -> CreditPlan:
    return plan(players, EVERYBODY, 1, lambda: random.Random(0))


def sampled(players: tuple[str, ...], count: int, seed: int = 0) -> CreditPlan:
    return plan(players, 0, count, lambda: random.Random(seed))


def brute_force(players: tuple[str, ...], u: dict[frozenset[str], float]) -> dict[str, float]:
    """The definition by orders of arrival: the mean marginal over all n! permutations."""
    phi = dict.fromkeys(players, 0.0)
    for order in permutations(players):
        for position, player in enumerate(order):
            before = frozenset(order[:position])
            phi[player] += u[before | {player}] - u[before]
    return {player: total / math.factorial(len(players)) for player, total in phi.items()}


@given(games())
def test_exact_values_are_those_of_all_permutations(game: Game) -> None:
    players, u = game
    assert shapley(exact(players), u) == pytest.approx(brute_force(players, u), abs=1e-12)


@given(games(min_players=1, max_players=4))
def test_sampling_every_permutation_once_is_exact(game: Game) -> None:
    players, u = game
    orders = tuple(permutations(sorted(players)))
    everything = CreditPlan(tuple(sorted(players)), tuple(u), orders)
    assert shapley(everything, u) == pytest.approx(shapley(exact(players), u), abs=1e-12)


@given(games(max_players=7), st.integers(1, 8), st.integers(0, 2**32))
def test_credit_adds_up_to_the_gain(game: Game, count: int, seed: int) -> None:
    players, u = game
    gain = u[frozenset(players)] - u[frozenset()]
    for credit_plan in (exact(players), sampled(players, count, seed)):
        assert sum(shapley(credit_plan, u).values()) == pytest.approx(gain, abs=1e-12)


@given(games(min_players=2), st.data())
def test_players_that_are_alike_earn_alike(game: Game, data: st.DataObject) -> None:
    players, u = game
    one, two = data.draw(st.permutations(players))[:2]
    swap = {one: two, two: one}
    alike = {c: u[min(c, frozenset(swap.get(p, p) for p in c), key=sorted)] for c in u}
    phi = shapley(exact(players), alike)
    assert phi[one] == phi[two], "to the last bit: no order of summation favors anybody"


@given(games(min_players=1), st.data())
def test_a_player_that_changes_nothing_earns_nothing(game: Game, data: st.DataObject) -> None:
    players, u = game
    null = data.draw(st.sampled_from(players))
    game_without = {c: u[c - {null}] for c in u}
    assert shapley(exact(players), game_without)[null] == 0.0
    assert shapley(sampled(players, 3), game_without)[null] == 0.0


@given(games(max_players=4), games(max_players=4), st.floats(-3, 3))
def test_credit_is_linear(game: Game, other: Game, factor: float) -> None:
    players, u = game
    values = list(other[1].values())
    v = {c: values[i % len(values)] for i, c in enumerate(u)}
    mixed = {c: u[c] + factor * v[c] for c in u}
    phi_u, phi_v = shapley(exact(players), u), shapley(exact(players), v)
    expected = {p: phi_u[p] + factor * phi_v[p] for p in players}
    assert shapley(exact(players), mixed) == pytest.approx(expected, abs=1e-12)


def test_a_known_game() -> None:
    """Gloves: one left glove (a), two right ones; a pair is worth 1."""
    u = {c: float("a" in c and len(c) >= 2) for c in all_coalitions("abc")}
    assert shapley(exact(("a", "b", "c")), u) == pytest.approx({"a": 2 / 3, "b": 1 / 6, "c": 1 / 6})


def test_sampling_is_unbiased() -> None:
    players = tuple("abcdef")
    rng = random.Random(4)
    u = {c: rng.random() for c in all_coalitions(players)}
    truth = shapley(exact(players), u)
    plans = (sampled(players, 8, seed) for seed in range(1500))
    runs = [shapley(credit_plan, u) for credit_plan in plans]
    for player in players:
        values = [phi[player] for phi in runs]
        mean = math.fsum(values) / len(values)
        spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))
        assert spread > 0.01, "no spread: nothing was sampled"
        assert abs(mean - truth[player]) < 4 * spread / math.sqrt(len(values))


@given(games(min_players=1), st.integers(1, 8), st.floats(1e-6, 1), st.integers(0, 999))
def test_truncated_credit_misses_the_gain_by_no_more_than_the_tolerance(
    game: Game, count: int, tolerance: float, seed: int
) -> None:
    players, u = game
    total = sum(shapley(sampled(players, count, seed), u, tolerance).values())
    gain = u[frozenset(players)] - u[frozenset()]
    assert abs(total - gain) <= tolerance + 1e-12


def test_truncation_gives_late_arrivals_nothing() -> None:
    u = {c: 0.7 + 0.01 * len(c) if "a" in c else 0.5 for c in all_coalitions("abc")}
    orders = (("a", "b", "c"), ("b", "a", "c"))
    credit_plan = CreditPlan(("a", "b", "c"), tuple(u), orders)
    full = shapley(credit_plan, u)
    assert full == pytest.approx({"a": 0.215, "b": 0.005, "c": 0.01})
    # Within 0.02 of U(all) = 0.73 lies U({a}) = 0.71, then U({a, b}).
    assert shapley(credit_plan, u, 0.0201) == pytest.approx({"a": 0.215, "b": 0.0, "c": 0.0})
    # A tolerance that covers U(∅) already leaves no credit at all.
    assert shapley(credit_plan, u, 0.5) == {"a": 0.0, "b": 0.0, "c": 0.0}


def test_a_utility_exactly_at_the_tolerance_is_truncated() -> None:
    u = {c: 0.5 + 0.25 * len(c) for c in all_coalitions("ab")}
    credit_plan = CreditPlan(("a", "b"), tuple(u), (("a", "b"),))
    assert shapley(credit_plan, u, 0.25) == {"a": 0.25, "b": 0.0}
    assert shapley(credit_plan, u, 0.24) == {"a": 0.25, "b": 0.25}


def test_exact_values_know_no_truncation() -> None:
    u = {c: 0.5 + 0.01 * len(c) for c in all_coalitions("ab")}
    assert shapley(exact(("a", "b")), u, 0.4) == shapley(exact(("a", "b")), u)


@given(st.lists(center_ids, unique=True, max_size=7), st.integers(0, 6), st.integers(1, 8))
def test_a_plan_holds_what_credit_needs_and_nothing_twice(
    players: list[str], exact_max: int, count: int
) -> None:
    made = plan(players, exact_max, count, lambda: random.Random(1))
    assert made == plan(players[::-1], exact_max, count, lambda: random.Random(1)), (
        "any order of players"
    )
    assert made.players == tuple(sorted(players))
    assert len(set(made.coalitions)) == len(made.coalitions)
    assert made.coalitions[0] == frozenset()
    assert made.grand == frozenset(players) and made.grand in made.coalitions
    if len(players) <= exact_max:
        assert made.permutations is None
        assert set(made.coalitions) == set(all_coalitions(players))
    else:
        assert made.permutations is not None and len(made.permutations) == count
        assert all(tuple(sorted(order)) == made.players for order in made.permutations)
        assert len(made.coalitions) <= count * (len(players) - 1) + 2
    assert shapley(made, dict.fromkeys(made.coalitions, 0.5)) == dict.fromkeys(players, 0.0)


def test_nobody_came() -> None:
    for exact_max in (0, 5):
        made = plan([], exact_max, 8, lambda: random.Random(0))
        assert made.coalitions == (frozenset(),)
        assert shapley(made, {frozenset(): 0.7}) == {}


def test_what_makes_no_plan_is_refused() -> None:
    with pytest.raises(ValueError, match="found a, a, allowed: each once"):
        plan(["a", "a"], 5, 8, lambda: random.Random(0))
    with pytest.raises(ValueError, match="found 0, allowed: at least 1"):
        plan(["a"], 5, 0, lambda: random.Random(0))


@pytest.mark.parametrize("bad", [None, math.nan, math.inf])
def test_a_missing_or_absurd_utility_is_named(bad: float | None) -> None:
    u: dict[frozenset[str], float] = dict.fromkeys(all_coalitions("ab"), 0.5)
    if bad is None:
        del u[frozenset("ab")]
    else:
        u[frozenset("ab")] = bad
    with pytest.raises(ValueError, match=r"U\(a,b\): found"):
        shapley(exact(("a", "b")), u)
    with pytest.raises(ValueError, match="U\\(∅\\): found None"):
        shapley(exact(("a", "b")), {})


@pytest.mark.parametrize(
    ("phi", "expected", "cut"),
    [
        (0.0, 0.5, False),
        (0.1, 1.0, False),
        (-0.1, 0.0, False),
        (0.05, 0.75, False),
        (0.100001, 1.0, True),
        (-0.100001, 0.0, True),
        (7.0, 1.0, True),
    ],
)
def test_the_clip_of_section_4_2(phi: float, expected: float, cut: bool) -> None:
    assert clip(phi, -0.1, 0.1) == pytest.approx(expected)
    assert is_clipped(phi, -0.1, 0.1) is cut


@given(st.floats(-2, 2), st.floats(-2, 2), st.floats(-1, -0.01), st.floats(0.01, 1))
def test_the_clip_is_a_monotonic_map_into_0_to_1(a: float, b: float, lo: float, hi: float) -> None:
    low, high = sorted((a, b))
    assert 0.0 <= clip(low, lo, hi) <= clip(high, lo, hi) <= 1.0
    if not is_clipped(a, lo, hi):
        assert lo + clip(a, lo, hi) * (hi - lo) == pytest.approx(a, abs=1e-12)


@pytest.mark.parametrize("phi", [math.nan, math.inf, -math.inf])
def test_a_credit_that_is_no_number_is_refused(phi: float) -> None:
    with pytest.raises(ValueError, match="allowed: a finite number"):
        clip(phi, -0.1, 0.1)


def test_no_gain_stands_exactly_at_tau_acc() -> None:
    """Lemma 1: c_neg = −φ_min / (φ_max − φ_min) = 0.5 = τ_acc on both scales."""
    policy = Policy()
    for metric in ("auroc", "brier", "logloss"):
        assert clip(0.0, *clip_bounds(policy, metric)) == policy.tau_acc == 0.5


@given(games(min_players=1, max_players=3))
def test_lemma_1_below_c_neg_resting_is_better(game: Game) -> None:
    """On unclipped credit: every φ̄ below c_neg means that the partners together cost utility."""
    players, u = game
    phi = shapley(exact(players), u)
    if all(clip(value, -1.0, 1.0) < 0.5 for value in phi.values()):
        assert u[frozenset(players)] < u[frozenset()]
    if all(clip(value, -1.0, 1.0) > 0.5 for value in phi.values()):
        assert u[frozenset(players)] > u[frozenset()]


def test_log_loss_has_its_own_scale() -> None:
    policy = Policy(phi_min=-0.2, phi_max=0.3, phi_min_logloss=-0.02, phi_max_logloss=0.03)
    assert clip_bounds(policy, "logloss") == (-0.02, 0.03)
    assert clip_bounds(policy, "auroc") == clip_bounds(policy, "brier") == (-0.2, 0.3)
