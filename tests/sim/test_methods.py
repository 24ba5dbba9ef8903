"""Every method, in mirror: what it must be equal to, and what its account must say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from protocol import trunk as wire
from protocol.beliefs import Belief
from protocol.contract import Contract
from protocol.randomness import derive_seed
from sim.bandwidth import bandwidth_ratio, bandwidth_ratio_vs_50
from sim.engine import BatchedEngine, Engine, SequentialEngine, Stack
from sim.federation import Federation, SimCenter
from sim.methods import METHODS, RoundStats, find
from sim.methods.abps import Abps, RandomMatching
from sim.methods.base import travelled
from sim.methods.bnn import BnnFL
from sim.methods.fedavg import FedAvg
from sim.methods.feddyn import FedDyn
from sim.methods.fedprox import FedProx
from sim.methods.local_only import LocalOnly
from sim.methods.moon import Moon
from sim.methods.wpfed import WPFed
from tests.support.centers import made_up_federation, made_up_seeds

SIZES = (20, 35, 36, 40, 66, 70, 33, 97, 50, 64)


def federation_for(
    name: str, changes: dict[str, Any] | None = None, sizes: tuple[int, ...] = SIZES
) -> Federation:
    policy = find(name).policy_with({"rounds": 10, **(changes or {})})
    return made_up_federation(policy.model_dump(exclude_none=True) | {"preset": None}, sizes)


def engine_of(federation: Federation, kind: type[Engine] = BatchedEngine) -> Engine:
    return kind(federation.contract, federation.centers, made_up_seeds(federation.centers))


def run(method: Any, engine: Engine, rounds: int = 3) -> tuple[Any, list[RoundStats]]:
    state = method.init(engine, 1)
    return state, [method.round(engine, state, t) for t in range(1, rounds + 1)]


def local_only(engine: Engine, rounds: int = 3) -> Stack:
    stack: Stack = run(LocalOnly(), engine, rounds)[0].stack
    return stack


@pytest.mark.parametrize("name", METHODS)
def test_both_engines_tell_the_same_story(name: str) -> None:
    federation = federation_for(name)
    method = find(name).make()
    ends, stories = [], []
    for kind in (BatchedEngine, SequentialEngine):
        engine = engine_of(federation, kind)
        state, stats = run(method, engine)
        models = method.models(engine, state)
        assert models.shape == (len(SIZES), engine.model.size)
        ends.append(models)
        told = [(s.bytes, s.partners.tolist(), s.rests, s.credits) for s in stats]
        stories.append((told, [s.loss for s in stats]))
    assert stories[0][0] == stories[1][0]
    np.testing.assert_allclose(stories[0][1], stories[1][1], rtol=1e-3)
    torch.testing.assert_close(ends[0], ends[1], rtol=0, atol=5e-4)
    assert float((ends[0] - engine.start().weights).abs().max()) > 5e-3


@pytest.mark.parametrize("name", METHODS)
def test_the_same_seed_gives_the_same_bits(name: str) -> None:
    federation, method = federation_for(name), find(name).make()
    first, second = (
        method.models(engine, run(method, engine, 2)[0])
        for engine in (engine_of(federation), engine_of(federation))
    )
    assert torch.equal(first, second)


OBJECTIVES: list[Any] = [FedProx(mu=5.0), FedDyn(alpha=3.0), Moon(mu=8.0), BnnFL()]


@pytest.mark.parametrize("method", OBJECTIVES, ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("head_layers", [0, 1])
def test_gradients_by_hand_are_those_of_autograd(method: Any, head_layers: int) -> None:
    federation = federation_for("fedavg", {"head_layers": head_layers})
    sequential, batched = engine_of(federation, SequentialEngine), engine_of(federation)
    state, _ = run(method, sequential, 2)
    ours, theirs = state.stack.clone(), state.stack.clone()
    plain = state.stack.clone()
    batched.train(ours, 3, objective=method.objective(batched, state))
    sequential.train(theirs, 3, objective=method.objective(sequential, state))
    # Adam's first moment is the gradients themselves, ten times smaller.
    torch.testing.assert_close(ours.exp_avg, theirs.exp_avg, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(ours.weights, theirs.weights, rtol=0, atol=2e-5)
    if not isinstance(method, BnnFL):
        sequential.train(plain, 3)
        changed = (plain.exp_avg - theirs.exp_avg).abs().max()
        assert float(changed) > 1e-3  # the further terms are really there


def test_the_distillations_gradient_is_that_of_autograd() -> None:
    federation = federation_for("wpfed")
    sequential, batched = engine_of(federation, SequentialEngine), engine_of(federation)
    method = WPFed(share=0.9)
    state, _ = run(method, sequential, 2)
    objective = method._learn_from(batched, state, method._choose(batched, state))
    ours, theirs = state.stack.clone(), state.stack.clone()
    batched.train(ours, 3, objective=objective)
    sequential.train(theirs, 3, objective=objective)
    torch.testing.assert_close(ours.exp_avg, theirs.exp_avg, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(ours.weights, theirs.weights, rtol=0, atol=2e-5)


def twins(contract: Contract, count: int = 4) -> Engine:
    """Centers that differ in name only."""
    first = made_up_federation(sizes=(70,)).centers[0]
    centers = [SimCenter(f"twin-{n}", first.data) for n in range(count)]
    return BatchedEngine(contract, centers, {center.id: 5 for center in centers})


def test_fedavg_of_identical_centers_is_local_training() -> None:
    engine = twins(federation_for("fedavg").contract)
    state, _ = run(FedAvg(), engine)
    torch.testing.assert_close(state.stack.weights, local_only(engine).weights, rtol=0, atol=1e-6)


def test_fedavg_is_the_mean_weighted_by_rows() -> None:
    engine = engine_of(federation_for("fedavg"))
    state, stats = run(FedAvg(), engine, 1)
    alone = local_only(engine, 1).weights.to(torch.float64)
    shares = torch.from_numpy(engine.sizes / engine.sizes.sum())
    for row in state.stack.weights:
        torch.testing.assert_close(row, (shares @ alone).to(torch.float32), rtol=0, atol=1e-7)
    assert bandwidth_ratio(stats[0].bytes, len(SIZES), engine.model.size, 1) == 1.0


def test_a_private_head_stays_and_the_wire_rounds() -> None:
    engine = engine_of(federation_for("fedavg+p+q"))
    state, stats = run(FedAvg(), engine, 1)
    size = engine.model.trunk.size
    assert size < engine.model.size
    alone = local_only(engine, 1).weights
    assert torch.equal(state.stack.weights[:, size:], alone[:, size:])
    trunk = state.stack.weights[0, :size].numpy()
    np.testing.assert_array_equal(trunk, wire.from_bfloat16(wire.to_bfloat16(trunk)))
    ratio = bandwidth_ratio(stats[0].bytes, len(SIZES), engine.model.size, 1)
    assert ratio == 0.5 * size / engine.model.size


def test_what_travels_is_rounded_as_on_the_wire() -> None:
    engine = engine_of(federation_for("abps+q"))
    trunks = torch.randn(50, 40, generator=torch.Generator().manual_seed(1)) * 10
    trunks[0, :3] = torch.tensor([1.00390625, 1.01171875, -0.0])  # ties, to even; minus zero
    received = travelled(trunks, engine).numpy()
    for sent, got in zip(trunks.numpy(), received, strict=True):
        packed = wire.pack(sent, "bfloat16")
        layout = wire.TrunkLayout((("w", (40,)),))
        assert wire.unpack(packed, layout, "bfloat16").tobytes() == got.tobytes()
    plain = engine_of(federation_for("abps"))
    copy = travelled(trunks, plain)
    assert torch.equal(copy, trunks) and copy.data_ptr() != trunks.data_ptr()


def test_momentum_of_the_server_acts_from_the_second_round_on() -> None:
    changes = {"momentum": 0.25, "wire_dtype": "float32", "head_layers": 0}
    engine = engine_of(federation_for("fedavg-x", changes))
    method = FedAvg()
    state, _ = run(method, engine, 1)
    first = state.server.clone()
    plain = engine_of(federation_for("fedavg"))
    other, _ = run(FedAvg(), plain, 1)
    assert torch.equal(first, other.server)
    method.round(engine, state, 2)
    FedAvg().round(plain, other, 2)
    torch.testing.assert_close(state.server, 0.25 * first + 0.75 * other.server)


@pytest.mark.parametrize("method", [FedProx(mu=0.0), Moon(mu=0.0)], ids=["fedprox", "moon"])
def test_without_its_term_a_method_is_fedavg_bit_for_bit(method: FedAvg) -> None:
    engine = engine_of(federation_for("fedavg"))
    found, expected = run(method, engine)[0], run(FedAvg(), engine)[0]
    assert torch.equal(found.stack.weights, expected.stack.weights)


def test_moon_begins_as_fedavg_since_nothing_came_before() -> None:
    engine = engine_of(federation_for("fedavg"))
    found, expected = run(Moon(), engine, 1)[0], run(FedAvg(), engine, 1)[0]
    torch.testing.assert_close(found.stack.weights, expected.stack.weights, rtol=0, atol=1e-6)
    later = run(Moon(mu=5.0), engine, 2)[0], run(FedAvg(), engine, 2)[0]
    assert float((later[0].server - later[1].server).abs().max()) > 1e-4


def test_feddyns_corrections_follow_their_recursion() -> None:
    engine = engine_of(federation_for("feddyn"))
    method = FedDyn(alpha=0.5)
    state = method.init(engine, 1)
    linear = torch.zeros_like(state.extra["linear"])
    drift = torch.zeros_like(state.extra["drift"])
    for t in (1, 2, 3):
        before = state.stack.clone()
        objective = method.objective(engine, state)
        engine.train(before, t, objective=objective)
        moved = before.weights - state.server
        method.round(engine, state, t)
        linear -= 0.5 * moved
        drift -= 0.5 * moved.mean(0)
        torch.testing.assert_close(state.extra["linear"], linear, rtol=0, atol=1e-5)
        torch.testing.assert_close(state.extra["drift"], drift, rtol=0, atol=1e-5)
        expected = before.weights.mean(0) - drift / 0.5
        torch.testing.assert_close(state.server, expected, rtol=0, atol=1e-5)
    # At rest, the linear terms of all centers sum to the server's.
    torch.testing.assert_close(linear.mean(0), drift, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [BatchedEngine, SequentialEngine])
@pytest.mark.parametrize("preset", ["abps", "abps-x"])
def test_abps_without_candidates_is_local_only_bit_for_bit(kind: type[Engine], preset: str) -> None:
    changes = {"goal": "homogeneity", "tau_sim": 2.0, "keep_fraction": None}
    engine = engine_of(federation_for(preset, changes), kind)
    state, stats = run(Abps(), engine)
    assert torch.equal(state.stack.weights, local_only(engine).weights)
    assert [s.bytes for s in stats] == [0, 0, 0]
    assert [dict(s.rests) for s in stats] == 3 * [{"filter-empty": len(SIZES)}]
    np.testing.assert_array_equal(stats[-1].validation, engine.measure(state.stack.weights))


def test_a_belief_below_the_threshold_isolates() -> None:
    changes = {"gamma": 0.0, "epsilon": 0.0, "tau_acc": 0.51}
    engine = engine_of(federation_for("abps", changes))
    state, stats = run(Abps(), engine, 2)
    assert [dict(s.rests) for s in stats] == 2 * [{"below-threshold": len(SIZES)}]
    assert torch.equal(state.stack.weights, local_only(engine, 2).weights)


@pytest.mark.parametrize("kappa", [1, 3])
def test_partners_are_mutual_few_and_paid_for(kappa: int) -> None:
    engine = engine_of(federation_for("abps", {"kappa": kappa}))
    method = Abps()
    state = method.init(engine, 1)
    seen: list[set[int]] = [set() for _ in SIZES]
    for t in range(1, 5):
        known = [dict(held.items()) for held in state.beliefs]
        stats = method.round(engine, state, t)
        met = [
            {p for p, b in held.items() if b.n > (before[p].n if p in before else 0)}
            for held, before in zip(state.beliefs, known, strict=True)
        ]
        assert all(place in met[peer] for place, peers in enumerate(met) for peer in peers)
        assert max(map(len, met)) <= kappa
        rows = state.rules.field.rows
        assert stats.partners[rows].tolist() == [len(peers) for peers in met]
        assert stats.bytes == stats.partners.sum() * engine.model.size * 4
        assert stats.credits.choices == len(SIZES)
        assert stats.credits.earned == stats.partners.sum()
        assert sum(stats.rests.values()) == (stats.partners == 0).sum()
        if t == 2:  # the bonus of the paper's gamma: whoever is new comes first
            fresh = sum(len(peers - seen[place]) for place, peers in enumerate(met))
            assert fresh >= 0.5 * sum(map(len, met))
        seen = [before | peers for before, peers in zip(seen, met, strict=True)]
    for held in state.beliefs:
        for _, belief in held.items():
            assert belief.alpha + belief.beta == pytest.approx(2 + belief.n)


def test_a_full_house_costs_what_the_paper_says() -> None:
    sizes, parameters = 20, 1000
    everybody = {3: 4, 1: 2}
    assert bandwidth_ratio(sizes * 3 * parameters * everybody[3], sizes, parameters, 1) == 1.5
    assert bandwidth_ratio(sizes * 1 * parameters * everybody[1], sizes, parameters, 1) == 0.25
    engine = engine_of(federation_for("abps"), BatchedEngine)
    _, stats = run(Abps(), engine, 4)
    moved = sum(s.bytes for s in stats)
    partners = np.mean([s.partners.mean() for s in stats])
    ratio = bandwidth_ratio(moved, len(SIZES), engine.model.size, 4)
    assert ratio == pytest.approx(partners / 2)
    assert 1.2 < ratio <= 1.5
    assert bandwidth_ratio_vs_50(moved, len(SIZES), engine.model.size) == pytest.approx(
        ratio * 4 / 50
    )
    half = engine_of(federation_for("abps+p+q+k1"), BatchedEngine)
    _, stats = run(Abps(), half, 4)
    ratio = bandwidth_ratio(sum(s.bytes for s in stats), len(SIZES), half.model.size, 4)
    assert ratio <= 0.25 * half.model.trunk.size / half.model.size


def test_momentum_pulls_a_merged_trunk_back() -> None:
    engine = engine_of(federation_for("abps-x", {"goal": "none", "keep_fraction": None}))
    plain = engine_of(
        federation_for("abps-x", {"goal": "none", "keep_fraction": None, "momentum": None})
    )
    size = engine.model.trunk.size
    (state, stats), (other, _) = run(Abps(), engine, 1), run(Abps(), plain, 1)
    assert torch.equal(state.stack.weights, other.stack.weights)
    previous = state.previous.clone()
    merged = stats[0].partners > 0
    again = Abps().round(engine, state, 2).partners
    assert Abps().round(plain, other, 2).partners.tolist() == again.tolist()
    both = np.flatnonzero(merged & (again > 0))
    assert both.size > 2
    expected = 0.5 * previous[both] + 0.5 * other.stack.weights[both, :size]
    torch.testing.assert_close(state.stack.weights[both, :size], expected, rtol=0, atol=1e-6)
    rested = np.flatnonzero(again == 0)
    assert torch.equal(state.stack.weights[rested], other.stack.weights[rested])


def test_a_trunk_with_an_absurd_norm_is_not_merged_and_costs_belief() -> None:
    engine = engine_of(federation_for("abps", {"rounds": 3}))
    method = Abps()
    state = method.init(engine, 1)
    bad = 4
    state.stack.weights[bad] *= 1000.0
    stats = method.round(engine, state, 1)
    place = int(np.flatnonzero(state.rules.field.rows == bad)[0])
    assert stats.partners[bad] > 0
    assert stats.credits.refused == 2 * stats.partners[bad]  # either finds the other's absurd
    for held in state.beliefs[:place] + state.beliefs[place + 1 :]:
        if place in held:
            found = held.about(place, Belief())
            assert (found.alpha, found.beta, found.n) == (1.0, 2.0, 1)
    assert float(state.stack.weights[np.arange(10) != bad].abs().max()) < 10


def test_the_control_meets_as_many_and_believes_nothing() -> None:
    changes = {"keep_fraction": 0.5, "goal": "homogeneity", "kappa": 2}
    engine = engine_of(federation_for("abps", changes))
    state, stats = run(RandomMatching(), engine, 30)
    assert all(len(held) == 0 for held in state.beliefs)
    assert all(s.credits == replace(s.credits, earned=0, changed=0) for s in stats)
    field = state.rules.field
    _, theirs = run(Abps(), engine, 30)
    mine = np.mean([s.partners.mean() for s in stats])
    assert mine == pytest.approx(np.mean([s.partners.mean() for s in theirs]), rel=0.1)
    assert all(part is not None and part.size >= 5 for part in field.candidates)
    assert np.isfinite(stats[-1].validation).all()


def test_who_has_stopped_is_left_alone() -> None:
    for name in METHODS:
        if name == "centralized":
            continue
        engine = engine_of(federation_for(name))
        method = find(name).make()
        state, _ = run(method, engine, 2)
        state.active[[2, 5, 6]] = False
        before = state.stack.clone()
        stats = method.round(engine, state, 3)
        for row in (2, 5, 6):
            assert torch.equal(state.stack.weights[row], before.weights[row]), name
            assert stats.partners[row] == 0, name
        if stats.partners.any():
            assert set(np.flatnonzero(stats.partners)) <= {0, 1, 3, 4, 7, 8, 9}, name


def test_decefl_preserves_the_mean_and_costs_what_fedavg_does() -> None:
    engine = engine_of(federation_for("decefl"))
    method = find("decefl").make()
    state, stats = run(method, engine, 1)
    torch.testing.assert_close(
        state.stack.weights.mean(0), local_only(engine, 1).weights.mean(0), rtol=0, atol=1e-6
    )
    for name in ("decefl", "defta", "wpfed"):
        state, stats = run(find(name).make(), engine, 2)
        assert [bandwidth_ratio(s.bytes, 10, engine.model.size, 1) for s in stats] == [1.0, 1.0]


def test_bnn_sends_two_moments_and_uses_the_mean() -> None:
    engine = engine_of(federation_for("bnn+fl"))
    method = BnnFL()
    state, stats = run(method, engine, 1)
    size = engine.model.size
    assert bandwidth_ratio(stats[0].bytes, 10, size, 1) == 2.0
    alone = method.init(engine, 1)
    engine.train(alone.stack, 1, objective=method.objective(engine, alone))
    shares = torch.from_numpy(engine.sizes / engine.sizes.sum()).to(torch.float32)
    mean, rho = alone.stack.weights[:, :size], alone.stack.weights[:, size:]
    variance = torch.nn.functional.softplus(rho).square()
    torch.testing.assert_close(method.models(engine, state)[3], shares @ mean, rtol=0, atol=1e-6)
    found = torch.nn.functional.softplus(state.stack.weights[3, size:]).square()
    torch.testing.assert_close(found, shares @ variance, rtol=1e-4, atol=1e-9)


def test_gossip_weighs_by_age() -> None:
    from sim.methods.gossip import _weights

    ages = np.array([10, 30, 40])
    first, second = _weights(ages, 0, [1, 2])
    # 10 with 30 is 3/4, age 30; then 40 of 70.
    assert second == pytest.approx(40 / 70)
    assert first == pytest.approx(0.75 * 30 / 70)


def test_braintorrent_fetches_what_is_newer() -> None:
    engine = engine_of(federation_for("braintorrent"))
    method = find("braintorrent").make()
    state, stats = run(method, engine, 2)
    assert sorted(stats[0].partners) == list(range(10))  # the first finds nothing, the last all
    assert state.version.tolist() == [2] * 10
    assert stats[0].bytes == 45 * engine.model.size * 4


def test_seeds_derive_from_the_centers_own() -> None:
    federation = federation_for("abps")
    seeds = made_up_seeds(federation.centers)
    assert seeds["center-03"] == derive_seed(0, "center-03")
    engine = BatchedEngine(federation.contract, federation.centers, seeds)
    assert [engine.seeds[engine.place[name]] for name in sorted(seeds)] == [
        seeds[name] for name in sorted(seeds)
    ]


def test_an_unknown_method_is_named_with_all_that_exist() -> None:
    with pytest.raises(ValueError, match=r"method: found 'fedavgg', allowed: local-only, "):
        find("fedavgg")
