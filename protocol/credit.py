"""Who earned what: Shapley values of a round's partners, and their clip to [0, 1].

Paper section 4.2. ``plan`` says which coalitions a center must measure (with its own validation
split, elsewhere), ``shapley`` divides the gain among the partners. A utility is any finite number,
higher is better; a coalition is a set of partners, ∅ being the own trunk alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import TypeVar

from protocol.contract import Policy

Coalition = frozenset[str]
_Player = TypeVar("_Player", str, int)


@dataclass(frozen=True)
class CreditPlan:
    """The coalitions to measure, and how to read the Shapley values off them."""

    players: tuple[str, ...]
    """Sorted."""
    coalitions: tuple[Coalition, ...]
    """Without repetition; ∅ first, the coalition of all players always among them."""
    permutations: tuple[tuple[str, ...], ...] | None
    """The sampled orders of arrival; none means exact, over all subsets."""

    @property
    def grand(self) -> Coalition:
        """The coalition of all players."""
        return frozenset(self.players)


def plan(
    players: Sequence[str], exact_max: int, permutations: int, draw: Callable[[], random.Random]
) -> CreditPlan:
    """All 2^n coalitions for up to ``exact_max`` players, else those of sampled permutations.

    ``draw`` gives the generator, if one is needed. The same players (in any order) and the same
    generator give the same plan. Raises ``ValueError`` if a player stands there twice or there is
    not one permutation.
    """
    ordered = tuple(sorted(players))
    if len(set(ordered)) != len(ordered):
        raise ValueError(f"players: found {', '.join(ordered)}, allowed: each once")
    if permutations < 1:
        raise ValueError(f"permutations: found {permutations}, allowed: at least 1")
    if len(ordered) <= exact_max:
        return CreditPlan(ordered, _subsets(ordered), None)
    rng = draw()
    orders = tuple(tuple(rng.sample(ordered, len(ordered))) for _ in range(permutations))
    prefixes = (frozenset(order[:end]) for order in orders for end in range(len(order) + 1))
    return CreditPlan(ordered, tuple(dict.fromkeys(prefixes)), orders)


def shapley(
    plan: CreditPlan, utilities: Mapping[Coalition, float], tolerance: float = 0.0
) -> dict[str, float]:
    """φ of every player, in units of the utility.

    Exact: the sum over all subsets of section 4.2. Sampled: the mean marginal over the plan's
    permutations; with ``tolerance`` > 0 the marginals of a permutation count as 0 from the first
    prefix whose utility lies within ``tolerance`` of the grand coalition's (truncation). Exact and
    untruncated values sum to U(all) − U(∅); truncated ones no longer telescope, their sum may miss
    it by up to ``tolerance``. Raises ``ValueError`` for a missing or non-finite utility.
    """
    for coalition in plan.coalitions:
        if not math.isfinite(utilities.get(coalition, math.nan)):
            name = ",".join(sorted(coalition)) or "∅"
            raise ValueError(f"U({name}): found {utilities.get(coalition)}, allowed: a number")
    if plan.permutations is None:
        return _exact(plan, utilities)
    return _sampled(plan, plan.permutations, utilities, tolerance)


def _exact(plan: CreditPlan, utilities: Mapping[Coalition, float]) -> dict[str, float]:
    n = len(plan.players)
    values = [utilities[coalition] for coalition in _subsets(plan.players)]
    # Integer weights and one division: equal players get equal credit to the last bit.
    return {
        player: math.fsum(
            weight * (values[joined] - values[without]) for weight, joined, without in terms
        )
        / math.factorial(n)
        for player, terms in zip(plan.players, _marginals(n), strict=True)
    }


def _subsets(players: Sequence[_Player]) -> tuple[frozenset[_Player], ...]:
    sizes = range(len(players) + 1)
    return tuple(frozenset(some) for size in sizes for some in combinations(players, size))


@lru_cache(maxsize=16)
def _marginals(n: int) -> tuple[tuple[tuple[int, int, int], ...], ...]:
    """For each of n players: weight of a marginal, places of the subsets with and without it."""
    subsets = _subsets(range(n))
    place = {subset: number for number, subset in enumerate(subsets)}
    factorial = [math.factorial(number) for number in range(n + 1)]
    return tuple(
        tuple(
            (
                factorial[len(subset)] * factorial[n - len(subset) - 1],
                place[subset | {player}],
                place[subset],
            )
            for subset in subsets
            if player not in subset
        )
        for player in range(n)
    )


def _sampled(
    plan: CreditPlan,
    permutations: tuple[tuple[str, ...], ...],
    utilities: Mapping[Coalition, float],
    tolerance: float,
) -> dict[str, float]:
    marginals: dict[str, list[float]] = {player: [] for player in plan.players}
    everybody = utilities[plan.grand]
    for order in permutations:
        prefix: Coalition = frozenset()
        for player in order:
            if tolerance > 0 and abs(everybody - utilities[prefix]) <= tolerance:
                break
            longer = prefix | {player}
            marginals[player].append(utilities[longer] - utilities[prefix])
            prefix = longer
    return {name: math.fsum(values) / len(permutations) for name, values in marginals.items()}


def clip(phi: float, phi_min: float, phi_max: float) -> float:
    """φ̄ = clip to [0, 1] of (φ − φ_min) / (φ_max − φ_min); raises ``ValueError`` if not finite."""
    if not math.isfinite(phi):
        raise ValueError(f"phi: found {phi}, allowed: a finite number")
    return min(1.0, max(0.0, (phi - phi_min) / (phi_max - phi_min)))


def is_clipped(phi: float, phi_min: float, phi_max: float) -> bool:
    """Whether the clip cut something off; a φ on the bound itself is whole."""
    return not phi_min <= phi <= phi_max


def clip_bounds(policy: Policy, metric: str) -> tuple[float, float]:
    """(φ_min, φ_max) on the scale of the utility's metric: log-loss has its own."""
    if metric == "logloss":
        return policy.phi_min_logloss, policy.phi_max_logloss
    return policy.phi_min, policy.phi_max
