"""Cards, small-cell suppression, goal scores, and the threshold that calibrates the filter."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.contract import Contract, Goal, Policy
from protocol.goal import (
    CardCounts,
    build_card,
    card_length,
    card_names,
    passes,
    score,
    threshold,
)
from protocol.messages import MAX_CARD, CardMessage
from tests.support.contracts import contract_values, small_contract
from tests.support.strategies import center_ids

GOALS: tuple[Goal, ...] = ("homogeneity", "diversity", "alignment")
CARD = {"features": ["diabetes", "cancer"]}
ENRICHED = small_contract({"card": "enriched"}, date="admitted", card=CARD)
BASE = small_contract()
COUNTS = CardCounts(
    patients=200, positives=50, mean_year=2018.5, dated=180, prevalence=((40, 160), (20, 200))
)

_components = st.floats(-1e6, 1e6, allow_nan=False)


def cards_of(length: int) -> st.SearchStrategy[tuple[float, ...]]:
    return st.tuples(*[_components] * length)


card_pairs = st.integers(1, 15).flatmap(lambda n: st.tuples(cards_of(n), cards_of(n)))
federations = st.integers(1, 4).flatmap(
    lambda n: st.dictionaries(center_ids, cards_of(n), min_size=1, max_size=12)
)
# As in practice: many centers with the very same suppressed card.
tied_federations = st.dictionaries(
    center_ids, st.sampled_from([(0.1, 5.0), (0.1, 6.0), (0.3, 5.0)]), min_size=1, max_size=12
)


def test_a_card_has_the_components_that_the_contract_names() -> None:
    assert card_names(BASE) == ("positive_rate", "log_n")
    assert card_names(small_contract(date="admitted")) == ("positive_rate", "log_n", "year/2030")
    assert card_names(ENRICHED) == (
        "positive_rate",
        "log_n",
        "year/2030",
        "prevalence:diabetes",
        "prevalence:cancer",
    )
    assert card_names(small_contract({"card": "base"}, card=CARD)) == ("positive_rate", "log_n")


def test_a_card_in_numbers() -> None:
    expected = (0.25, math.log(200), 2018.5 / 2030, 0.25, 0.1)
    assert build_card(ENRICHED, COUNTS) == pytest.approx(expected)
    assert build_card(BASE, COUNTS) == pytest.approx(expected[:2])


@pytest.mark.parametrize(
    ("change", "suppressed"),
    [
        ({}, {}),
        ({"positives": 5}, {}),
        ({"positives": 4}, {"positive_rate": 0.1}),
        ({"positives": 0}, {"positive_rate": 0.1}),
        ({"positives": 195}, {}),
        ({"positives": 196}, {"positive_rate": 0.1}),
        ({"positives": 200}, {"positive_rate": 0.1}),
        ({"dated": 10}, {}),
        ({"dated": 9}, {"year/2030": 2015 / 2030}),
        ({"dated": 0, "mean_year": None}, {"year/2030": 2015 / 2030}),
        ({"prevalence": ((5, 10), (20, 200))}, {}),
        ({"prevalence": ((5, 9), (20, 200))}, {"prevalence:diabetes": 0.1}),
        ({"prevalence": ((40, 160), (4, 200))}, {"prevalence:cancer": 0.1}),
        ({"prevalence": ((40, 160), (196, 200))}, {"prevalence:cancer": 0.1}),
        ({"prevalence": ((0, 0), (0, 0))}, {"prevalence:diabetes": 0.1, "prevalence:cancer": 0.1}),
    ],
)
def test_small_cells_are_suppressed_one_by_one(
    change: dict[str, object], suppressed: dict[str, float]
) -> None:
    counts = replace(COUNTS, **change)
    card = dict(zip(card_names(ENRICHED), build_card(ENRICHED, counts), strict=True))
    expected = {
        "positive_rate": counts.positives / 200,
        "log_n": math.log(200),
        "year/2030": 2018.5 / 2030,
        **{
            name: events / known if known else 0.0
            for name, (events, known) in zip(
                card_names(ENRICHED)[3:], counts.prevalence, strict=True
            )
        },
        **suppressed,
    }
    assert card == pytest.approx(expected)


@pytest.mark.parametrize("patients", range(10))
def test_a_tiny_center_tells_nothing_but_that_it_is_tiny(patients: int) -> None:
    half = patients // 2
    counts = CardCounts(
        patients, half, 2020.0 if patients else None, patients, ((half, patients),) * 2
    )
    card = build_card(ENRICHED, counts)
    assert card == (0.1, math.log(10), 2015 / 2030, 0.1, 0.1), "the same for all ten sizes"


def test_limits_and_defaults_are_the_contracts_own() -> None:
    limits = {
        **CARD,
        "min_patients": 300,
        "min_events": 1,
        "default_positive_rate": 0.2,
        "default_prevalence": 0.3,
        "default_year": 2000.0,
    }
    contract = small_contract({"card": "enriched"}, date="admitted", card=limits)
    assert build_card(contract, COUNTS) == (0.2, math.log(300), 2000 / 2030, 0.3, 0.3)


def test_other_prevalences_than_asked_for_are_refused() -> None:
    with pytest.raises(ValueError, match="found 1 columns, the contract asks for 2"):
        build_card(ENRICHED, replace(COUNTS, prevalence=((1, 2),)))


@pytest.mark.parametrize(
    "change",
    [
        {"positives": 201},
        {"positives": -1},
        {"dated": 201},
        {"dated": 0},
        {"mean_year": None},
        {"prevalence": ((3, 2),)},
    ],
)
def test_counts_that_cannot_be_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="card counts"):
        replace(COUNTS, **change)


@given(
    st.integers(0, 10**7), st.floats(0, 1), st.floats(1900, 2300), st.sampled_from([BASE, ENRICHED])
)
def test_every_card_may_travel(n: int, share: float, year: float, contract: Contract) -> None:
    part = int(n * share)
    counts = CardCounts(n, part, year if n else None, n, ((part, n),) * 2)
    card = build_card(contract, counts)
    assert len(card) == card_length(contract)
    assert CardMessage(1, card).values == card


def test_the_longest_card_that_a_contract_allows_may_travel() -> None:
    names = [f"f{i}" for i in range(MAX_CARD - 3)]
    values = contract_values(date="admitted")
    values["data"]["features"] = [{"name": name, "kind": "binary"} for name in [*names, "extra"]]
    values["policy"] = {"card": "enriched"}
    values["data"]["card"] = {"features": names}
    assert card_length(Contract.model_validate(values)) == MAX_CARD
    values["data"]["card"] = {"features": [*names, "extra"]}
    with pytest.raises(ValueError, match="at most 253 items"):
        Contract.model_validate(values)


def test_scores_are_those_of_section_4_1() -> None:
    own, other = (0.2, 3.0), (0.5, 4.0)
    cosine = (0.1 + 12) / (math.hypot(0.2, 3.0) * math.hypot(0.5, 4.0))
    assert score("homogeneity", own, other) == pytest.approx(cosine)
    assert score("diversity", own, other) == pytest.approx(-cosine)
    assert score("alignment", own, other) == pytest.approx(-0.3)


@settings(max_examples=300)
@given(card_pairs, st.sampled_from(GOALS))
def test_a_score_is_the_same_float_from_both_sides(
    pair: tuple[tuple[float, ...], tuple[float, ...]], goal: Goal
) -> None:
    own, other = pair
    assert score(goal, own, other) == score(goal, other, own)
    if goal != "alignment":
        assert -1.0 <= score(goal, own, other) <= 1.0


@given(card_pairs)
def test_nobody_fits_better_than_oneself(pair: tuple[tuple[float, ...], tuple[float, ...]]) -> None:
    own, other = pair
    assert score("alignment", own, own) == 0.0 >= score("alignment", own, other)
    if max(map(abs, own)) > 1e-100:
        assert score("homogeneity", own, own) == pytest.approx(1.0)


def test_a_zero_card_has_cosine_zero() -> None:
    for goal in ("homogeneity", "diversity"):
        assert math.copysign(1, score(goal, (0.0, 0.0), (1.0, 2.0))) == 1.0
        assert score(goal, (0.0, 0.0), (1.0, 2.0)) == 0.0
        assert score(goal, (5e-324, 0.0), (5e-324, 0.0)) == 0.0


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(ValueError, match="goal: found 'none'"):
        score("none", (1.0,), (1.0,))
    with pytest.raises(ValueError, match="found lengths 1 and 2"):
        score("homogeneity", (1.0,), (1.0, 2.0))
    with pytest.raises(ValueError, match="allowed: equal, not 0"):
        score("homogeneity", (), ())


def least(fraction: float, whole: int) -> int:
    """How many of ``whole`` must be kept at least, by the decimal that the file shows."""
    return math.ceil(Fraction(str(fraction)) * whole)


@settings(max_examples=200)
@given(
    federations | tied_federations,
    st.sampled_from(GOALS),
    st.floats(0.001, 1),
    st.sampled_from(["per-center", "pairs"]),
)
def test_at_least_the_fraction_is_kept(
    cards: dict[str, tuple[float, ...]], goal: Goal, fraction: float, keep: str
) -> None:
    policy = Policy(keep_fraction=fraction, keep=keep)
    own_id = min(cards)
    own = cards[own_id]
    limit = threshold(policy, goal, own_id, own, cards)
    if len(cards) == 1:
        assert limit is None
        return
    assert limit is not None
    peers = [(own, card) for name, card in cards.items() if name != own_id]
    pairs = peers if keep == "per-center" else list(combinations(cards.values(), 2))
    scores = [score(goal, *pair) for pair in pairs]
    kept = [value for value in scores if passes(value, limit)]
    assert len(kept) >= least(fraction, len(scores))
    # No more than that many lie strictly above: whatever is kept beyond it is a tie.
    assert sum(value > limit for value in scores) < least(fraction, len(scores))
    assert limit in scores


@given(federations, st.sampled_from(GOALS), st.sampled_from(["per-center", "pairs"]))
def test_neither_the_order_of_cards_nor_the_own_card_among_them_matters(
    cards: dict[str, tuple[float, ...]], goal: Goal, keep: str
) -> None:
    policy = Policy(keep_fraction=0.25, keep=keep)
    own_id = min(cards)
    others = {name: card for name, card in reversed(cards.items()) if name != own_id}
    one = threshold(policy, goal, own_id, cards[own_id], cards)
    assert one == threshold(policy, goal, own_id, cards[own_id], others)


@given(federations, st.sampled_from(GOALS))
def test_all_centers_agree_on_the_threshold_over_pairs(
    cards: dict[str, tuple[float, ...]], goal: Goal
) -> None:
    policy = Policy(keep_fraction=0.25, keep="pairs")
    limits = {threshold(policy, goal, name, card, cards) for name, card in cards.items()}
    assert len(limits) == 1


def test_the_fraction_counts_as_the_decimal_that_was_written() -> None:
    cards = {f"c{i:03}": (float(i),) for i in range(101)}
    limit = threshold(Policy(keep_fraction=0.07), "alignment", "c000", (0.0,), cards)
    assert 0.07 * 100 > 7, "in binary the seven percent of a hundred are a little more than seven"
    assert limit == -7.0


def test_per_center_and_pairs_differ_as_the_paper_says_in_two_places() -> None:
    cards = {"a": (0.0,), "b": (0.1,), "c": (0.2,), "outlier": (9.0,)}
    per_center = Policy(keep_fraction=0.34, keep="per-center")
    pairs = Policy(keep_fraction=0.34, keep="pairs")
    alone = threshold(per_center, "alignment", "outlier", cards["outlier"], cards)
    shared = threshold(pairs, "alignment", "outlier", cards["outlier"], cards)
    best = score("alignment", cards["outlier"], cards["c"])
    assert passes(best, alone), "per center everybody keeps somebody"
    assert not passes(best, shared), "over pairs an outlier keeps nobody"


def test_without_goal_or_calibration_nothing_is_filtered() -> None:
    cards = {"b": (0.5,)}
    assert threshold(Policy(tau_sim=0.9), "none", "a", (0.1,), cards) is None
    assert threshold(Policy(), "homogeneity", "a", (0.1,), cards) is None
    assert threshold(Policy(keep_fraction=0.5), "homogeneity", "a", (0.1,), {}) is None
    assert passes(-1e9, None)


def test_a_fixed_threshold_is_taken_as_it_is() -> None:
    assert threshold(Policy(tau_sim=0.9), "homogeneity", "a", (0.1,), {}) == 0.9
    assert passes(0.9, 0.9) and not passes(math.nextafter(0.9, 0), 0.9)
