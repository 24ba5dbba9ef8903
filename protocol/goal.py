"""The goal-aware filter before any weight moves: cards, scores, thresholds.

Paper sections 4.1 (scores), 6.3 and 6.5 (card components, calibration of the threshold). A card is
a short vector of aggregates, fixed for one run; every center holds the cards of its peers and
decides alone whom its goal admits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from operator import mul

from protocol.contract import Contract, Goal, Policy

CardVector = tuple[float, ...]
YEAR_SCALE = 2030.0


@dataclass(frozen=True)
class CardCounts:
    """What a center counts in its training split in order to fill its card."""

    patients: int
    """Training rows."""
    positives: int
    """Rows whose label is 1."""
    mean_year: float | None
    """Mean admission year of the dated rows; none where no row has a date."""
    dated: int
    """Rows with a usable date."""
    prevalence: tuple[tuple[int, int], ...]
    """(events, rows with a known value) per ``contract.data.card.features``."""

    def __post_init__(self) -> None:
        pairs = ((self.positives, self.patients), (self.dated, self.patients), *self.prevalence)
        if not all(0 <= part <= whole for part, whole in pairs):
            raise ValueError(f"card counts: found {self}, allowed: parts of at most their whole")
        if (self.mean_year is None) != (self.dated == 0):
            raise ValueError(f"card counts: mean_year {self.mean_year} over {self.dated} rows")


def card_names(contract: Contract) -> tuple[str, ...]:
    """Name of each card component, in order; the first is what the alignment goal compares."""
    names = ["positive_rate", "log_n"]
    if contract.data.date is not None:
        names.append("year/2030")
    if contract.policy.card == "enriched":
        names += [f"prevalence:{name}" for name in contract.data.card.features]
    return tuple(names)


def card_length(contract: Contract) -> int:
    """Components of every card under this contract; a card of another length is refused."""
    return len(card_names(contract))


def build_card(contract: Contract, counts: CardCounts) -> CardVector:
    """The card of a center, small cells suppressed to the contract's defaults.

    - A rate (positive rate, prevalence) is suppressed if it describes fewer than ``min_patients``
      rows, fewer than ``min_events`` events, or fewer than ``min_events`` *non*-events: with the
      size known from the card, a rate of 99 % singles out the few others just as well.
    - ``log_n`` describes patients only; below ``min_patients`` it becomes ln(``min_patients``),
      which says «few» and no more.
    - The mean year describes the dated rows only; fewer than ``min_patients`` give the default.

    Raises ``ValueError`` if the prevalences counted are not those the contract asks for.
    """
    limits = contract.data.card

    def rate(events: int, rows: int, default: float) -> float:
        enough = rows >= limits.min_patients
        enough = enough and min(events, rows - events) >= limits.min_events
        return events / rows if enough else default

    values = [
        rate(counts.positives, counts.patients, limits.default_positive_rate),
        math.log(max(counts.patients, limits.min_patients)),
    ]
    if contract.data.date is not None:
        dated = counts.mean_year is not None and counts.dated >= limits.min_patients
        year = counts.mean_year if dated and counts.mean_year is not None else limits.default_year
        values.append(year / YEAR_SCALE)
    if contract.policy.card == "enriched":
        found, asked = len(counts.prevalence), len(limits.features)
        if found != asked:
            raise ValueError(f"prevalence: found {found} columns, the contract asks for {asked}")
        values += [rate(*cell, limits.default_prevalence) for cell in counts.prevalence]
    return tuple(values)


def score(goal: Goal, own: CardVector, other: CardVector) -> float:
    """How well a peer's card fits the goal (paper section 4.1); higher is better.

    Homogeneity: cosine; diversity: minus the cosine; alignment: minus the distance of the first
    components. Cosines lie in [-1, 1], that of a zero vector is 0. Symmetric to the last bit, so
    that a threshold taken from the scores admits the very pair it was taken from. Raises
    ``ValueError`` for goal «none», which filters nothing, and for cards of different length.
    """
    if len(own) != len(other) or not own:
        raise ValueError(f"cards: found lengths {len(own)} and {len(other)}, allowed: equal, not 0")
    if goal == "alignment":
        return 0.0 - abs(own[0] - other[0])
    if goal == "homogeneity":
        return _cosine(own, other)
    if goal == "diversity":
        return 0.0 - _cosine(own, other)
    raise ValueError(f"goal: found {goal!r}, allowed: homogeneity, diversity, alignment")


def _cosine(own: CardVector, other: CardVector) -> float:
    length = math.hypot(*own) * math.hypot(*other)
    if length == 0.0:
        return 0.0
    # fsum rounds once, whatever the order of its terms: both sides get the same float.
    return max(-1.0, min(1.0, math.fsum(map(mul, own, other)) / length))


def threshold(
    policy: Policy,
    goal: Goal,
    own_id: str,
    own_card: CardVector,
    cards: Mapping[str, CardVector],
) -> float | None:
    """τ_sim of this round, over the cards held now; none if nothing is filtered.

    A fixed ``tau_sim`` is taken as it is. ``keep_fraction`` asks for the k-th largest score, k =
    ⌈keep_fraction · number of scores⌉: over the own scores (``keep = "per-center"``, paper section
    6.5), or over all unordered pairs of known cards, the own included (``"pairs"``, section 6.3).
    Equal scores pass together, so at least the fraction is kept. With no peer there is nothing to
    calibrate and nothing to filter: none. ``cards`` may or may not hold the own card.
    """
    if goal == "none":
        return None
    if policy.tau_sim is not None:
        return policy.tau_sim
    peers = [card for center, card in cards.items() if center != own_id]
    if policy.keep_fraction is None or not peers:
        return None
    if policy.keep == "pairs":
        return _pairs_threshold(goal, policy.keep_fraction, tuple(sorted([own_card, *peers])))
    return _kth_largest([score(goal, own_card, card) for card in peers], policy.keep_fraction)


# Cards are fixed for one run, and in a simulation all centers hold the same ones.
@lru_cache(maxsize=16)
def _pairs_threshold(goal: Goal, fraction: float, cards: tuple[CardVector, ...]) -> float:
    return _kth_largest([score(goal, *pair) for pair in combinations(cards, 2)], fraction)


def _kth_largest(scores: list[float], fraction: float) -> float:
    # Counted as the decimal that stands in the file: 0.07 of 100 is 7, not ⌈7.000000000000001⌉.
    kept = math.ceil(Fraction(repr(fraction)) * len(scores))
    return sorted(scores, reverse=True)[kept - 1]


def passes(score: float, threshold: float | None) -> bool:
    """Whether a peer with this score is a candidate: ``score >= threshold``, or no threshold."""
    return threshold is None or score >= threshold
