"""In which order a center asks its candidates: ε-greedy over upper confidence bounds.

Paper section 4.3, schedules of ε from appendix C.2. All randomness comes from the generator given,
which is drawn from in the same way in greedy and in exploratory rounds.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from protocol.beliefs import Belief, ucb
from protocol.contract import Policy


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
    exploratory = rng.random() < epsilon
    names = sorted(set(candidates))
    shuffled = rng.sample(names, len(names))
    held = {name: beliefs.get(name, prior) for name in names}
    bounds = {name: ucb(belief, t, policy.gamma) for name, belief in held.items()}
    greedy = _descending(shuffled, bounds, policy.tau_acc)
    changed = False
    if not exploratory:
        level = {
            name: ucb(replace(belief, alpha=prior.alpha, beta=prior.beta), t, policy.gamma)
            for name, belief in held.items()
        }
        indifferent = _descending(shuffled, level, policy.tau_acc)
        changed = set(greedy[: policy.kappa]) != set(indifferent[: policy.kappa])
    return Ranking(
        order=tuple(shuffled if exploratory else greedy),
        ucb=bounds,
        exploratory=exploratory,
        epsilon=epsilon,
        belief_changed_order=changed,
        admissible=tuple(sorted(greedy)),
    )


def _descending(shuffled: list[str], bounds: Mapping[str, float], tau_acc: float) -> list[str]:
    # The sort is stable, so equal bounds stay in shuffled order: the seeded tie-break.
    admissible = [name for name in shuffled if bounds[name] >= tau_acc]
    return sorted(admissible, key=lambda name: -bounds[name])


def _check_round(t: int) -> None:
    if t < 1:
        raise ValueError(f"t: found {t}, allowed: 1 or more")
