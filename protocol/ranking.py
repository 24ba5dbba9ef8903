"""In which order a center asks its candidates: ε-greedy over upper confidence bounds.

Paper section 4.3, schedules of ε from appendix C.2. All randomness comes from the generator given,
which is drawn from in the same way in greedy and in exploratory rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from protocol.beliefs import Belief, ucb, ucbs
from protocol.contract import Policy

Bounds = NDArray[np.float64]
Places = NDArray[np.intp]


@dataclass(frozen=True)
class Ranking:
    """The outcome of ranking the candidates of one round."""

    order: tuple[str, ...]
    """Whom to propose to, in turn. An exploratory order holds all candidates, admissible or not."""
    ucb: Mapping[str, float]
    """Of every candidate."""
    exploratory: bool
    epsilon: float
    """Probability with which this round was to be exploratory."""
    belief_changed_order: bool
    """Whether the first κ are another set than equal posterior means would have given: the same
    bonus, the same tie-break, the same τ_acc, every mean at the prior's. False if exploratory."""
    admissible: tuple[str, ...]
    """Candidates with UCB ≥ τ_acc, sorted by name."""


def epsilon_at(policy: Policy, t: int) -> float:
    """ε of round t ≥ 1, in [0, 1]; the horizon T of the schedule c/√T is ``policy.rounds``."""
    _check_round(t)
    c = policy.epsilon
    if policy.epsilon_schedule == "c/sqrt(T)":
        c /= math.sqrt(policy.rounds)
    elif policy.epsilon_schedule == "min(1,c/t)":
        c /= t
    return min(1.0, c)


def acceptable(belief: Belief, t: int, policy: Policy) -> bool:
    """UCB ≥ τ_acc in round t ≥ 1; with the default prior and τ_acc everybody is, at t = 1."""
    _check_round(t)
    return ucb(belief, t, policy.gamma) >= policy.tau_acc


@dataclass(frozen=True)
class Chance:
    """What chance contributes to one ranking of n candidates."""

    exploratory: bool
    keys: NDArray[np.uint64]
    """One per candidate; ties, and all of an exploratory order, ascend by it. Shape ``(n,)``."""

    @classmethod
    def draw(cls, candidates: int, epsilon: float, rng: random.Random) -> Chance:
        """Draw in the same way whether the round turns out exploratory or not."""
        exploratory = rng.random() < epsilon
        # The raw stream of a bit generator is promised to be the same in every version of numpy.
        keys = np.random.SFC64(rng.getrandbits(63)).random_raw(candidates)
        return cls(exploratory, np.asarray(keys, dtype=np.uint64))


def order(bounds: Bounds, chance: Chance, tau_acc: float, first: int | None = None) -> Places:
    """Whom to ask, in turn, as places in ``bounds`` ``(n,)``; only the ``first`` ones if given.

    Exploratory: everybody by chance. Greedy: the admissible by descending bound, ties by chance.
    """
    if chance.exploratory:
        return _smallest(chance.keys, np.arange(bounds.size), first)
    if first is not None and bounds.size:
        # Nobody knows most candidates yet: often those with the highest bound are enough.
        best = bounds.max()
        top = np.flatnonzero(bounds == best)
        if best >= tau_acc and top.size >= first:
            return _smallest(chance.keys, top, first)
    places = np.flatnonzero(bounds >= tau_acc)
    if first is not None and first < places.size:
        # Else many share some other bound: these are cut down first.
        common = _most_common(bounds[places])
        same = bounds[places] == common
        few = _smallest(chance.keys, places[same], first)
        places = np.concatenate([places[~same], few])
    return places[np.lexsort((chance.keys[places], -bounds[places]))][:first]


def changes_order(asked: Places, level: Bounds, chance: Chance, policy: Policy) -> bool:
    """Whether the first κ are another set than bounds of equal posterior means give (``level``).

    ``asked`` is what ``order`` gave, or at least its first κ.
    """
    if chance.exploratory:
        return False
    indifferent = order(level, chance, policy.tau_acc, policy.kappa)
    return set(asked[: policy.kappa].tolist()) != set(indifferent.tolist())


def rank(
    candidates: Iterable[str],
    beliefs: Mapping[str, Belief],
    prior: Belief,
    t: int,
    policy: Policy,
    rng: random.Random,
) -> Ranking:
    """Order the candidates for round t ≥ 1; a candidate without a belief stands at the prior.

    With probability ε the order is a uniform permutation of all candidates, else descending UCB
    over the admissible ones, ties in uniformly random order. The order in which candidates and
    beliefs are given never matters.
    """
    epsilon = epsilon_at(policy, t)
    names = sorted(set(candidates))
    chance = Chance.draw(len(names), epsilon, rng)
    held = {name: beliefs.get(name, prior) for name in names}
    # Most candidates share one belief, the prior: each distinct one is looked at once.
    distinct = {id(belief): belief for belief in held.values()}
    bound_of = {key: ucb(belief, t, policy.gamma) for key, belief in distinct.items()}
    bounds = {name: bound_of[id(belief)] for name, belief in held.items()}
    values = np.array(list(bounds.values()), dtype=np.float64)
    counts = np.array([belief.n for belief in held.values()], dtype=np.int64)
    level = ucbs(np.full(len(names), prior.mean), counts, t, policy.gamma)
    asked = order(values, chance, policy.tau_acc)
    return Ranking(
        order=tuple(names[place] for place in asked),
        ucb=bounds,
        exploratory=chance.exploratory,
        epsilon=epsilon,
        belief_changed_order=changes_order(asked, level, chance, policy),
        admissible=tuple(name for name in names if bounds[name] >= policy.tau_acc),
    )


def _smallest(keys: NDArray[np.uint64], places: Places, first: int | None) -> Places:
    """The places with the smallest keys, ascending."""
    if first is not None and first < places.size:
        places = places[np.argpartition(keys[places], first)[:first]]
    return places[np.argsort(keys[places], kind="stable")]


def _most_common(values: Bounds) -> float:
    """Some value that occurs often, if any does: the median."""
    return float(np.partition(values, values.size // 2)[values.size // 2])


def _check_round(t: int) -> None:
    if t < 1:
        raise ValueError(f"t: found {t}, allowed: 1 or more")
