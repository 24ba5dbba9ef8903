"""The daemons' core in the simulator's schedule takes the simulator's decisions, one for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from abps_node.learning import Learner
from protocol.contract import Contract
from protocol.record import RoundRecord
from sim.engine import SequentialEngine
from sim.federation import Federation
from sim.in_step import InStep, identity_of
from sim.lockstep import Lockstep
from sim.methods.abps import Abps
from sim.stopping import EarlyStop
from tests.support.centers import made_up_federation, made_up_seeds

SIZES = (20, 35, 36, 40, 66, 70, 33, 97)


def federation_of(policy: dict[str, Any], sizes: Sequence[int] = SIZES) -> Federation:
    made = made_up_federation(policy, sizes)
    # Round 1 waits for everybody, as in the simulator.
    pacing = {"min_peers": len(sizes) - 1, "messages_per_s": 100_000.0}
    contract = Contract.model_validate({**made.contract.model_dump(), "pacing": pacing})
    return Federation(contract, made.centers, made.name)


def daemons(made: Federation, seeds: Mapping[str, int], seed: int) -> Lockstep:
    contract = made.contract
    identities = [
        identity_of(contract, each.id, seeds[each.id], each.data, each.goal)
        for each in made.centers
    ]
    learning = {
        each.id: InStep(Learner(contract, each.data, seeds[each.id])) for each in made.centers
    }
    return Lockstep(contract, identities, learning, seed)


def told_by_daemons(records: Mapping[str, RoundRecord]) -> dict[str, Any]:
    return {
        name: {
            "partners": sorted(partner.peer for partner in record.partners),
            "credit": {partner.peer: partner.phi_bar for partner in record.partners},
            "beliefs": {peer: (b.alpha, b.beta, b.n) for peer, b in record.beliefs.items()},
            "validation": record.validation.value,
        }
        for name, record in records.items()
    }


CASES: dict[str, dict[str, Any]] = {
    "base": {"preset": "abps", "rounds": 6, "kappa": 2},
    "live": {"preset": "abps-live", "rounds": 12, "kappa": 2, "gamma": 0.05},
    "live, often exploring": {"preset": "abps-live", "rounds": 8, "epsilon": 0.5},
    "diversity": {"preset": "abps+p+q+k1+div", "rounds": 6},
    "homogeneity, log-loss": {"preset": "abps+p+q+k1+hom", "rounds": 6, "utility": "logloss"},
    "early stop": {"preset": "abps-x", "rounds": 12, "patience": 1},
    "by size, sampled credit": {
        "preset": "abps",
        "rounds": 4,
        "kappa": 4,
        "merge_weights": "size",
        "shapley_exact_max": 2,
    },
}


@pytest.mark.parametrize("policy", CASES.values(), ids=list(CASES))
def test_daemons_and_simulator_decide_alike(policy: dict[str, Any]) -> None:
    made = federation_of(policy)
    contract = made.contract
    seeds = made_up_seeds(made.centers)
    network = daemons(made, seeds, seed=7)
    engine = SequentialEngine(contract, made.centers, seeds)
    method = Abps()
    state = method.init(engine, 7)
    stop = EarlyStop("center", contract.policy.patience, engine.metrics, contract.policy.utility)
    field = state.rules.field
    exchanges = rests = 0
    changed = choices = 0
    for t in range(1, contract.policy.rounds + 1):
        active = {engine.ids[row] for row in state.who}
        stats = method.round(engine, state, t)
        records = network.round(t)
        assert set(records) == active
        told = told_by_daemons(records)
        for place, row in enumerate(field.rows):
            name = field.ids[place]
            if name not in active:
                continue
            assert stats.partners[row] == len(told[name]["partners"]), (t, name)
            held = {
                field.ids[peer]: (belief.alpha, belief.beta, belief.n)
                for peer, belief in beliefs_of(state, place).items()
            }
            # Who met whom, and what each exchange earned, to the last bit.
            assert held == told[name]["beliefs"], (t, name)
            assert stats.validation is not None
            assert stats.validation[row] == told[name]["validation"], (t, name)
        causes = [record.rest.cause.value for record in records.values() if record.rest]
        assert {cause: causes.count(cause) for cause in causes} == dict(stats.rests), t
        assert stats.credits.changed == sum(r.belief_changed_order for r in records.values()), t
        exchanges += int(stats.partners.sum())
        rests += len(causes)
        changed += stats.credits.changed
        choices += stats.credits.choices
        stop.judge(t, stats.validation, method.models(engine, state))
        state.active[:] = stop.active
        if stop.over:
            break
    assert exchanges > 0
    if policy["preset"] == "abps-live":
        assert changed > 0  # the posterior had something to say
    if "div" in policy["preset"]:
        assert rests > 0


def beliefs_of(state: Any, place: int) -> dict[int, Any]:
    return dict(state.beliefs[place].items())


def test_lockstep_needs_no_luck_the_same_seed_tells_the_same_story() -> None:
    made = federation_of({"preset": "abps-live", "rounds": 3}, SIZES[:5])
    seeds = made_up_seeds(made.centers)
    stories = []
    for _ in range(2):
        network = daemons(made, seeds, seed=7)
        stories.append([told_by_daemons(network.round(t)) for t in range(1, 4)])
    assert stories[0] == stories[1]
    other = daemons(made, seeds, seed=8)
    assert [told_by_daemons(other.round(t)) for t in range(1, 4)] != stories[0]


def test_nothing_is_lost_or_late_in_lockstep() -> None:
    made = federation_of({"preset": "abps", "rounds": 3}, SIZES[:5])
    network = daemons(made, made_up_seeds(made.centers), seed=7)
    for t in range(1, 4):
        for record in network.round(t).values():
            assert not record.failed
            assert all(partner.lag == partner.staleness == 0 for partner in record.partners)
            assert all(p.outcome in ("accepted", "rejected") for p in record.proposals_sent)
    assert not np.isnan([r.record.u_partners for c in network.commits.values() for r in c]).any()
