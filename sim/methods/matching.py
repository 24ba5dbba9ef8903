"""Who meets whom in one round of ABPS: proposals in seeded random order, slots that fill at once.

Paper sections 4.1 and 4.3. Every decision is the daemon's own function: goal score and threshold
(``protocol.goal``), bounds and order (``protocol.ranking``), acceptance, the cause of a rest
(``protocol.rest``). Only the schedule is the simulator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protocol import goal as goal_filter
from protocol import ranking
from protocol.beliefs import Belief, ucb, ucbs
from protocol.contract import Policy
from protocol.randomness import derive_rng
from protocol.record import RestCause
from protocol.rest import RestFacts, cause_of
from sim.engine import Engine
from sim.engine.stack import Index
from sim.methods.beliefs import Beliefs

_FIRST = 32
"""Candidates that are put in order at first; seldom does a center get further down its list."""


@dataclass(frozen=True)
class Field:
    """What is fixed for a run: who passes whose goal filter. Centers count in order of ids."""

    ids: tuple[str, ...]
    rows: Index
    """Row of each center in the engine."""
    candidates: tuple[Index | None, ...]
    """Peers that pass the center's own filter, ascending; none where everybody does."""
    filtered: tuple[bool, ...]

    @classmethod
    def of(cls, engine: Engine) -> Field:
        """Scores and thresholds over the cards of all centers."""
        policy = engine.contract.policy
        rows = np.argsort(np.array(engine.ids), kind="stable")
        centers = [engine.centers[row] for row in rows]
        ids = tuple(center.id for center in centers)
        cards = {center.id: center.data.card for center in centers}
        found: list[Index | None] = []
        for place, center in enumerate(centers):
            goal = center.goal or policy.goal
            card = center.data.card
            limit = goal_filter.threshold(policy, goal, center.id, card, cards)
            if limit is None:
                found.append(None)
                continue
            passing = [
                other
                for other, name in enumerate(ids)
                if other != place
                and goal_filter.passes(goal_filter.score(goal, card, cards[name]), limit)
            ]
            found.append(np.array(passing, dtype=np.int64))
        return cls(ids, rows, tuple(found), tuple(part is not None for part in found))

    def peers(self, center: int, active: NDArray[np.bool_]) -> Index:
        """Whom this center may ask, ascending: the ``active`` that pass its filter."""
        chosen = self.candidates[center]
        if chosen is not None:
            passing: Index = chosen[active[chosen]]
            return passing
        everybody: Index = np.flatnonzero(active)
        others: Index = everybody[everybody != center]
        return others

    def admits(self, center: int, peer: int) -> bool:
        """Whether ``peer`` passes the filter of ``center``."""
        chosen = self.candidates[center]
        if chosen is None:
            return True
        at = int(np.searchsorted(chosen, peer))
        return at < chosen.size and int(chosen[at]) == peer


@dataclass
class Matching:
    """The outcome of one round's proposals; centers by place in the order of their ids."""

    partners: list[list[int]]
    choices: int = 0
    changed: int = 0
    """Choices in which the posterior changed who comes first."""
    rests: dict[RestCause, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """The policy and what it needs to decide."""

    policy: Policy
    field: Field
    seeds: Sequence[int]
    """Each center's own seed, in order of ids."""
    believes: bool = True
    """Without belief partners are drawn uniformly: the control of random matching."""

    @property
    def prior(self) -> Belief:
        """Beta(α₀, β₀)."""
        return Belief(self.policy.prior_alpha, self.policy.prior_beta, 0)


def match(
    rules: Rules,
    beliefs: Sequence[Beliefs],
    active: NDArray[np.bool_],
    t: int,
    seed: int,
) -> Matching:
    """Let the ``active`` centers propose in random order, each until κ accept or its list ends.

    Greedy proposals go to peers with UCB ≥ τ_acc; exploratory ones skip that test, not the
    acceptor's.
    """
    count = len(rules.field.ids)
    made = Matching([[] for _ in range(count)])
    order = [int(place) for place in np.flatnonzero(active)]
    derive_rng(seed, t, "order").shuffle(order)
    asked: dict[int, _Asked] = {}
    for center in order:
        asked[center] = _propose(rules, beliefs, active, made, center, t)
    for center in order:
        if not made.partners[center]:
            cause = _why_alone(rules, beliefs, active, center, t, asked[center])
            made.rests[cause] = made.rests.get(cause, 0) + 1
    return made


@dataclass(frozen=True)
class _Asked:
    """What one center did: whom it asked in vain, how its candidates stood."""

    refused: tuple[int, ...]
    exploratory: bool
    candidates: int
    admissible: int


def _propose(
    rules: Rules,
    beliefs: Sequence[Beliefs],
    active: NDArray[np.bool_],
    made: Matching,
    center: int,
    t: int,
) -> _Asked:
    policy, mine = rules.policy, made.partners[center]
    peers = rules.field.peers(center, active)
    rng = derive_rng(rules.seeds[center], rules.field.ids[center], t, "ranking")
    epsilon = ranking.epsilon_at(policy, t) if rules.believes else 1.0
    chance = ranking.Chance.draw(peers.size, epsilon, rng)
    bounds, level = _bounds(rules, beliefs[center], peers, t)
    made.choices += 1
    first: int | None = max(_FIRST, policy.kappa)
    places = ranking.order(bounds, chance, policy.tau_acc, first)
    made.changed += ranking.changes_order(places, level, chance, policy)
    refused: list[int] = []
    done = 0
    while len(mine) < policy.kappa:
        for peer in peers[places[done:]].tolist():
            if len(mine) >= policy.kappa:
                break
            if peer in mine:
                continue
            if _accepts(rules, beliefs, made, peer, center, t):
                mine.append(peer)
                made.partners[peer].append(center)
            else:
                refused.append(peer)
        if first is None or places.size < first:
            break
        done, first = places.size, None
        places = ranking.order(bounds, chance, policy.tau_acc)
    admissible = int(np.count_nonzero(bounds >= policy.tau_acc))
    return _Asked(tuple(refused), chance.exploratory, peers.size, admissible)


def _bounds(
    rules: Rules, held: Beliefs, peers: Index, t: int
) -> tuple[ranking.Bounds, ranking.Bounds]:
    """UCB of all peers, and what it would be at the prior's mean; unknown peers share one value."""
    gamma, prior = rules.policy.gamma, rules.prior
    bounds = np.full(peers.size, ucb(prior, t, gamma))
    level = bounds.copy()
    known = held.peers
    if known.size:
        at = np.searchsorted(peers, known)
        inside = at < peers.size
        inside[inside] = peers[at[inside]] == known[inside]
        counts = held.counts[inside]
        bounds[at[inside]] = ucbs(held.means[inside], counts, t, gamma)
        level[at[inside]] = ucbs(np.full(counts.size, prior.mean), counts, t, gamma)
    return bounds, level


def _accepts(
    rules: Rules,
    beliefs: Sequence[Beliefs],
    made: Matching,
    acceptor: int,
    proposer: int,
    t: int,
) -> bool:
    """A free slot, the own filter, the own belief."""
    if len(made.partners[acceptor]) >= rules.policy.kappa:
        return False
    return _objection(rules, beliefs, acceptor, proposer, t) is None


def _objection(
    rules: Rules, beliefs: Sequence[Beliefs], acceptor: int, proposer: int, t: int
) -> str | None:
    """What the acceptor has against the proposer, slots aside: «filter», «belief» or nothing."""
    if not rules.field.admits(acceptor, proposer):
        return "filter"
    held = beliefs[acceptor].about(proposer, rules.prior)
    if rules.believes and not ranking.acceptable(held, t, rules.policy):
        return "belief"
    return None


def _why_alone(
    rules: Rules,
    beliefs: Sequence[Beliefs],
    active: NDArray[np.bool_],
    center: int,
    t: int,
    asked: _Asked,
) -> RestCause:
    known = len(rules.field.ids) - 1
    finished = known - (int(active.sum()) - int(active[center]))
    # Filter and beliefs stand still within a round; whoever had nothing against it was busy.
    outcomes = tuple(
        _objection(rules, beliefs, peer, center, t) or "busy" for peer in asked.refused
    )
    facts = RestFacts(
        roster=known,
        known=known,
        unavailable=0,
        finished=finished,
        refused=0,
        before_filter=known - finished,
        after_filter=asked.candidates,
        admissible=asked.admissible,
        exploratory=asked.exploratory,
        outcomes=outcomes,
        goal=rules.policy.goal,
        threshold=None,
        scores={},
        tau_acc=rules.policy.tau_acc,
        ucb={},
    )
    return cause_of(facts)
