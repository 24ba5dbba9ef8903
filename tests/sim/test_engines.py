"""The batched engine is the sequential one, up to rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from abps_node.data import Split
from abps_node.learning import Learner, TrainingDiverged
from sim.engine import BatchedEngine, Engine, Mix, SequentialEngine, Stack
from tests.support.centers import SIZES, made_up_centers, made_up_federation, made_up_seeds
from tests.support.learning import learning_contract

TOLERANCE = 2e-5
"""Largest difference of any parameter after one local step from the same weights. Adam divides by
the gradient's own size, so that rounding can show as up to some percent of one step of 1e-3."""


def engines(**parts: Any) -> tuple[SequentialEngine, BatchedEngine]:
    contract = learning_contract(**parts)
    centers = made_up_centers(contract)
    seeds = made_up_seeds(centers)
    return (
        SequentialEngine(contract, centers, seeds),
        BatchedEngine(contract, centers, seeds),
    )


def assert_alike(a: Stack, b: Stack, tolerance: float = TOLERANCE) -> None:
    torch.testing.assert_close(a.weights, b.weights, rtol=0, atol=tolerance)
    torch.testing.assert_close(a.exp_avg, b.exp_avg, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(a.exp_avg_sq, b.exp_avg_sq, rtol=1e-3, atol=1e-8)
    assert torch.equal(a.steps, b.steps)


def trained(engine: Engine, rounds: int = 1) -> Stack:
    stack = engine.start()
    for t in range(1, rounds + 1):
        engine.train(stack, t)
    return stack


SHAPES: list[dict[str, Any]] = [
    {},
    {"model": {"dropout": 0.0}},
    {"model": {"hidden": [128, 64]}},
    {"model": {"hidden": [7]}},
    {"model": {"hidden": [9, 8, 7], "dropout": 0.5}},
    {"training": {"batch_size": 1000, "epochs": 3}},
]


@pytest.mark.parametrize("parts", SHAPES)
def test_a_local_step_differs_by_rounding_alone(parts: dict[str, Any]) -> None:
    sequential, batched = engines(**parts)
    assert [c.data.train.y.size for c in batched.centers] == sorted(SIZES)
    start = trained(sequential, 2)  # optimizers that have seen something
    ours, theirs = start.clone(), start.clone()
    losses = batched.train(ours, 3)
    np.testing.assert_allclose(losses, sequential.train(theirs, 3), rtol=1e-5)
    assert_alike(ours, theirs)
    moved = (ours.weights - start.weights).abs().max(1).values
    assert float(moved.min()) > 20 * TOLERANCE  # every center moved by far more than that


def test_several_chunks_and_buckets_are_at_work() -> None:
    _, batched = engines(model={"hidden": [128, 64]})
    parts = batched._chunks
    assert len(parts) > 4
    assert max(len(part) for part in parts) > 1
    assert [place for part in parts for place in range(part.first, part.end)] == list(range(12))
    steps = [-(-size // 32) for size in batched.sizes]
    assert all(len({steps[p] for p in range(part.first, part.end)}) == 1 for part in parts)
    uneven = [batched.sizes[part.places] for part in parts]
    assert any(sizes.min() < sizes.max() for sizes in uneven)


def test_dropout_is_really_on_and_the_masks_are_the_same() -> None:
    with_dropout, without = engines()[1], engines(model={"dropout": 0.0})[1]
    apart = (trained(with_dropout).weights - trained(without).weights).abs().max()
    assert float(apart) > 20 * TOLERANCE


def test_only_some_train() -> None:
    sequential, batched = engines()
    start = trained(sequential)
    who = np.array([0, 1, 2, 5, 7, 11])
    ours, theirs = start.clone(), start.clone()
    losses, expected = batched.train(ours, 2, who), sequential.train(theirs, 2, who)
    assert_alike(ours, theirs)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    rest = [n for n in range(12) if n not in who]
    assert np.isnan(losses[rest]).all()
    assert torch.equal(ours.weights[rest], start.weights[rest])
    assert torch.equal(ours.steps[rest], start.steps[rest])
    # Then all, with different numbers of steps behind them within one chunk.
    batched.train(ours, 3)
    sequential.train(theirs, 3)
    assert_alike(ours, theirs, 2 * TOLERANCE)


def test_neither_threads_nor_repetition_nor_company_change_a_bit() -> None:
    federation = made_up_federation()
    seeds = made_up_seeds(federation.centers)
    one = BatchedEngine(federation.contract, federation.centers, seeds)
    three = BatchedEngine(federation.contract, federation.centers[::-1], seeds, threads=3)
    torch.manual_seed(3)
    before = torch.get_rng_state(), torch.get_num_threads()
    first, second, third = trained(one, 3), trained(three, 3), trained(one, 3)
    assert torch.equal(first.weights, second.weights)
    assert torch.equal(first.weights, third.weights)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.get_num_threads() == before[1]


def test_the_sequential_engine_is_the_daemons_learner() -> None:
    federation = made_up_federation({"preset": "abps+p+q"})
    seeds = made_up_seeds(federation.centers)
    engine = SequentialEngine(federation.contract, federation.centers, seeds)
    stack, sent = trained(engine), engine.start().weights[:, : engine.model.trunk.size]
    center = 7
    name, data = engine.ids[center], engine.centers[center].data
    learner = Learner(federation.contract, data, seeds[name])
    result = learner.train(1)
    assert result.trunk.tobytes() == stack.weights[center, : sent.shape[1]].numpy().tobytes()
    pairs = [frozenset({2}), frozenset({2, 4}), frozenset[int]()]
    values = engine.merge(stack, sent, [Mix(center, (2, 4), (0.25, 0.5), tuple(pairs))])[0]
    names = {2: engine.ids[2], 4: engine.ids[4]}
    merged = learner.merge(
        1,
        {name: sent[place].numpy() for place, name in names.items()},
        {names[2]: 0.25, names[4]: 0.5},
        [frozenset(names[place] for place in pair) for pair in pairs],
    )
    assert list(merged.utilities.values()) == values.tolist()
    assert merged.validation.value == engine.measure(stack.weights)[center]
    after = torch.cat([t.flatten() for k, t in learner.state_tensors().items() if "model." in k])
    assert torch.equal(after, stack.weights[center])


def some_mixes(count: int) -> list[Mix]:
    """Zero to three partners, uniform and other weights, all coalitions."""
    mixes = []
    for center in range(0, count, 1):
        partners = tuple((center + 1 + 3 * n) % count for n in range(center % 4))
        weights = tuple((n + 1) / (2 * len(partners) + 2) / 2 for n in range(len(partners)))
        subsets = [
            frozenset(p for bit, p in enumerate(partners) if number >> bit & 1)
            for number in range(2 ** len(partners))
        ]
        mixes.append(Mix(center, partners, weights, tuple(subsets)))
    return mixes


@pytest.mark.parametrize("head_layers", [0, 1, 2])
@pytest.mark.parametrize("utility", ["auroc", "logloss"])
def test_merges_and_their_credit_are_the_same(head_layers: int, utility: str) -> None:
    sequential, batched = engines(policy={"head_layers": head_layers, "utility": utility})
    assert sequential.metrics == batched.metrics
    assert set(batched.metrics) == ({"auroc", "brier"} if utility == "auroc" else {"logloss"})
    start = trained(sequential, 2)
    size = sequential.model.trunk.size
    sent = start.weights[:, :size].to(torch.bfloat16).to(torch.float32)
    ours, theirs = start.clone(), start.clone()
    mixes = some_mixes(12)
    found, expected = batched.merge(ours, sent, mixes), sequential.merge(theirs, sent, mixes)
    assert [len(values) for values in found] == [2 ** len(mix.partners) for mix in mixes]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), atol=1e-6)
    torch.testing.assert_close(ours.weights, theirs.weights, rtol=0, atol=1e-6)
    alone = [mix.center for mix in mixes if not mix.partners]
    assert torch.equal(ours.weights[alone], start.weights[alone])
    assert torch.equal(ours.weights[:, size:], start.weights[:, size:])
    assert torch.equal(ours.exp_avg, start.exp_avg)


def test_predictions_measures_and_representations_are_the_same() -> None:
    sequential, batched = engines()
    stack = trained(sequential, 3)
    for weights in (stack.weights, stack.weights[4]):
        for split in ("train", "validation", "test"):
            ours, theirs = batched.predict(weights, split), sequential.predict(weights, split)
            np.testing.assert_allclose(ours.logits, theirs.logits, atol=1e-5)
            np.testing.assert_array_equal(ours.y, theirs.y)
        torch.testing.assert_close(
            batched.represent(weights), sequential.represent(weights), rtol=0, atol=1e-5
        )
        found = batched.measure(weights)
        np.testing.assert_allclose(found, sequential.measure(weights), atol=1e-6)
        who = np.array([3, 8])
        assert np.isnan(np.delete(batched.measure(weights, who), who)).all()
        np.testing.assert_array_equal(batched.measure(weights, who)[who], found[who])
    center = batched.metrics.index("auroc")
    logits, y = batched.predict(stack.weights[4], "validation").of(center)
    assert found[center] == pytest.approx(roc_auc_score(y, logits))


def test_pooled_is_everybody_in_one_center() -> None:
    for engine in engines():
        pooled = engine.pooled()
        assert pooled.ids == ["pooled"]
        assert pooled.sizes.tolist() == [sum(SIZES)]
        assert torch.equal(pooled.tables["test"].x, engine.tables["test"].x)
        stack = pooled.start()
        assert float(pooled.train(stack, 1)[0]) > 0


def test_divergence_names_the_center() -> None:
    contract = learning_contract(training={"learning_rate": 10.0})
    centers = made_up_centers(contract)
    train = centers[1].data.train
    object.__setattr__(centers[1].data, "train", Split(train.x * np.float32(1e37), train.y))
    for kind in (SequentialEngine, BatchedEngine):
        engine = kind(contract, centers, made_up_seeds(centers))
        with pytest.raises(TrainingDiverged, match=r"round 7: found loss"):
            engine.train(engine.start(), 7)


def test_data_of_another_width_is_refused() -> None:
    centers = made_up_centers(learning_contract())
    other = learning_contract()
    wider = other.model_copy(
        update={"data": other.data.model_copy(update={"features": other.data.features[:5]})}
    )
    with pytest.raises(ValueError, match="data: found 6 inputs, allowed: 5"):
        BatchedEngine(wider, centers, made_up_seeds(centers))
