"""ABPS: each center chooses its partners by what their trunks brought it (the paper's algorithm 1).

Seidi, Roy, Das: «Adaptive Bayesian Partner Selection for Federated Clinical Centers»,
arXiv 2609.16446. All presets are this method under another policy. Filter, ranking, acceptance,
credit and beliefs are the daemon's functions; training, merging and measuring are the engine's.

``RandomMatching`` is the control: the same policy, schedule and bytes, partners drawn uniformly
among those who pass the filter, no belief.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from protocol import credit
from protocol.beliefs import Belief
from protocol.merging import merge_weights
from protocol.randomness import derive_rng
from protocol.trunk import norm_is_plausible
from sim.engine import Engine, Mix
from sim.engine.stack import Floats
from sim.methods.base import (
    Credits,
    Method,
    RoundStats,
    State,
    begin,
    mean_loss,
    norms,
    travelled,
    trunk_bytes,
)
from sim.methods.beliefs import Beliefs
from sim.methods.matching import Field, Matching, Rules, match


@dataclass
class Peers(State):
    """What the centers keep beside their models."""

    rules: Rules
    beliefs: list[Beliefs]
    """By place in the order of ids; sparse, who is not in it stands at the prior."""
    previous: torch.Tensor
    """Trunks after each center's last merge, ``(C, trunk size)``; empty without momentum."""
    merges: np.ndarray
    """Merges with at least one partner so far, ``(C,)``."""


@dataclass(frozen=True)
class Round:
    """One round as it unfolds."""

    t: int
    sent: torch.Tensor
    """Trunks as they travel, ``(C, trunk size)``."""
    mixes: list[Mix]
    plans: list[credit.CreditPlan]
    refused: list[tuple[int, int]]
    """(receiver, sender), places in the order of ids, of trunks that failed their checks."""


@dataclass(frozen=True)
class Abps(Method[Peers]):
    """Partners by beliefs over what their trunks brought, the paper's method.

    Without belief the control of random matching.
    """

    believes: bool = True

    def init(self, engine: Engine, seed: int) -> Peers:
        """See ``Method.init``."""
        stack, active = begin(engine)
        field = Field.of(engine)
        seeds = [engine.seeds[row] for row in field.rows]
        momentum = engine.contract.policy.momentum is not None
        size = engine.model.trunk.size if momentum else 0
        return Peers(
            stack,
            seed,
            active,
            rules=Rules(engine.contract.policy, field, seeds, self.believes),
            beliefs=[Beliefs() for _ in engine.centers],
            previous=torch.zeros(len(engine.centers), size),
            merges=np.zeros(len(engine.centers), dtype=np.int64),
        )

    def round(self, engine: Engine, state: Peers, t: int) -> RoundStats:
        """See ``Method.round``."""
        losses = engine.train(state.stack, t, state.who)
        field = state.rules.field
        made = match(state.rules, state.beliefs, state.active[field.rows], t, state.seed)
        gathered = self._gather(engine, state, made, t)
        utilities = engine.merge(state.stack, gathered.sent, gathered.mixes)
        validation = _after_merge(gathered.mixes, utilities, len(engine.centers))
        earned = Counter[str]()
        if self.believes:
            earned = _credit(engine, state, gathered, utilities)
        self._momentum(engine, state, gathered.mixes, validation)
        partners = np.zeros(len(engine.centers), dtype=np.int64)
        partners[field.rows] = [len(found) for found in made.partners]
        return RoundStats(
            t,
            mean_loss(losses),
            int(partners.sum()) * trunk_bytes(engine),
            partners,
            {cause.value: count for cause, count in sorted(made.rests.items())},
            Credits(
                made.choices,
                made.changed,
                earned["earned"],
                earned["clipped"],
                len(gathered.refused),
            ),
            validation,
        )

    def _gather(self, engine: Engine, state: Peers, made: Matching, t: int) -> Round:
        """Exchange trunks, check them, and plan merge and credit of every active center."""
        policy, field = engine.contract.policy, state.rules.field
        own = state.stack.weights[:, : engine.model.trunk.size]
        sent = travelled(own, engine)
        mine, theirs = norms(own), norms(sent)
        mixes, plans, refused = [], [], []
        for place in np.flatnonzero(state.active[field.rows]).tolist():
            row = int(field.rows[place])
            good = []
            for peer in sorted(made.partners[place]):
                norm = float(theirs[field.rows[peer]])
                if norm_is_plausible(norm, float(mine[row]), policy.max_norm_ratio):
                    good.append(peer)
                else:
                    refused.append((place, peer))
            mix, plan = _mix(engine, state, place, good, t, self.believes)
            mixes.append(mix)
            plans.append(plan)
        return Round(t, sent, mixes, plans, refused)

    def _momentum(
        self, engine: Engine, state: Peers, mixes: Sequence[Mix], validation: Floats
    ) -> None:
        """Move merged trunks back towards where the last merge left them (section 6.5)."""
        beta, size = engine.contract.policy.momentum, engine.model.trunk.size
        if beta is None:
            return
        merged = np.array(sorted(mix.center for mix in mixes if mix.partners), dtype=np.int64)
        again = merged[state.merges[merged] > 0]
        trunks = state.stack.weights[:, :size]
        rows = torch.from_numpy(again)
        trunks[rows] = beta * state.previous[rows] + (1.0 - beta) * trunks[rows]
        state.merges[merged] += 1
        rows = torch.from_numpy(merged)
        state.previous[rows] = trunks[rows]
        if again.size:
            validation[again] = engine.measure(state.stack.weights, again)[again]


class RandomMatching(Abps):
    """Uniform partners among the filter's survivors, no belief, no credit."""

    def __init__(self) -> None:
        super().__init__(believes=False)


def _mix(
    engine: Engine, state: Peers, place: int, partners: list[int], t: int, believes: bool
) -> tuple[Mix, credit.CreditPlan]:
    """Weights of the merge and coalitions of its credit; without belief only the merge counts."""
    policy, field = engine.contract.policy, state.rules.field
    names = {field.ids[peer]: int(field.rows[peer]) for peer in partners}
    row = int(field.rows[place])
    weights = merge_weights(
        policy, int(engine.sizes[row]), {name: int(engine.sizes[r]) for name, r in names.items()}
    )
    draw = partial(derive_rng, engine.seeds[row], field.ids[place], t, "shapley")
    plan = credit.plan(tuple(names), policy.shapley_exact_max, policy.shapley_permutations, draw)
    asked = plan.coalitions if believes else (plan.grand,)
    coalitions = tuple(frozenset(names[name] for name in coalition) for coalition in asked)
    return Mix(row, tuple(names.values()), tuple(weights.values()), coalitions), plan


def _after_merge(mixes: Sequence[Mix], utilities: Sequence[Floats], centers: int) -> Floats:
    """U of each center's merged model, before momentum; NaN for who did not take part."""
    values = np.full(centers, np.nan)
    for mix, values_of in zip(mixes, utilities, strict=True):
        values[mix.center] = values_of[mix.coalitions.index(frozenset(mix.partners))]
    return values


def _credit(
    engine: Engine, state: Peers, gathered: Round, utilities: Sequence[Floats]
) -> Counter[str]:
    """Shapley values of all partners, clipped, into beliefs (paper section 4.2)."""
    policy, field = engine.contract.policy, state.rules.field
    place_of = {int(row): place for place, row in enumerate(field.rows)}
    tally = Counter[str]()
    for mix, plan, values in zip(gathered.mixes, gathered.plans, utilities, strict=True):
        if not mix.partners:
            continue
        measured = dict(zip(plan.coalitions, values.tolist(), strict=True))
        phis = credit.shapley(plan, measured, policy.shapley_tolerance)
        low, high = credit.clip_bounds(policy, engine.metrics[mix.center])
        held = state.beliefs[place_of[mix.center]]
        for name, phi in phis.items():
            peer = place_of[engine.place[name]]
            _update(held, peer, credit.clip(phi, low, high), state.rules.prior)
            tally["earned"] += 1
            tally["clipped"] += credit.is_clipped(phi, low, high)
    for receiver, sender in gathered.refused:
        _update(state.beliefs[receiver], sender, 0.0, state.rules.prior)
    return tally


def _update(held: Beliefs, peer: int, phi_bar: float, prior: Belief) -> None:
    held.put(peer, held.about(peer, prior).updated(phi_bar))
