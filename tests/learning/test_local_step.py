from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from abps_node.data import Split
from abps_node.learning import TrainingDiverged
from abps_node.learning.adam import Adam
from abps_node.learning.local_step import LocalResult, local_step
from abps_node.learning.model import Mlp
from protocol.contract import Contract
from protocol.randomness import derive_seed
from tests.support.learning import learning_contract, made_up, reference_network


def run(
    contract: Contract,
    split: Split,
    seed: int = 0,
    round: int = 1,
    start: LocalResult | None = None,
) -> LocalResult:
    model = Mlp.of(contract)
    weights = start.weights if start else model.initial(1)
    adam = start.adam if start else Adam.fresh(model.size)
    x, y = torch.from_numpy(split.x), torch.from_numpy(split.y)
    return local_step(model, weights, adam, x, y, contract.training, seed, round)


def assert_same(a: LocalResult, b: LocalResult) -> None:
    assert torch.equal(a.weights, b.weights)
    assert a.adam.step == b.adam.step
    assert torch.equal(a.adam.exp_avg, b.adam.exp_avg)
    assert torch.equal(a.adam.exp_avg_sq, b.adam.exp_avg_sq)
    assert a.loss == b.loss


def test_adam_is_torchs_adam_bit_for_bit() -> None:
    draw = torch.Generator().manual_seed(1)
    weights = torch.randn(500, generator=draw)
    theirs = weights.clone().requires_grad_()
    optimizer = torch.optim.Adam([theirs], lr=1e-2, weight_decay=1e-3, foreach=False)
    adam = Adam.fresh(500)
    for step in range(50):
        gradient = torch.randn(500, generator=draw) * 10 ** (step % 7 - 3)
        theirs.grad = gradient.clone()
        optimizer.step()
        adam.update(weights, gradient, rate=1e-2, decay=1e-3)
        assert torch.equal(weights, theirs.detach())


def test_a_step_is_that_of_a_plain_torch_loop() -> None:
    contract, split = learning_contract(model={"dropout": 0.0}), made_up(97, 1)
    model, training = Mlp.of(contract), contract.training
    network = reference_network(model, model.initial(1))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, weight_decay=1e-5)
    shuffle = torch.Generator().manual_seed(derive_seed(4, 9, "shuffle"))
    x, y = torch.from_numpy(split.x), torch.from_numpy(split.y)
    for _ in range(training.epochs):
        losses = 0.0
        for index in torch.randperm(97, generator=shuffle).split(training.batch_size):
            optimizer.zero_grad()
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                network(x[index]).squeeze(-1), y[index]
            )
            loss.backward()
            optimizer.step()
            losses += loss.item() * len(index)
    result = run(contract, split, seed=4, round=9)
    expected = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    torch.testing.assert_close(result.weights, expected, rtol=1e-4, atol=1e-6)
    assert result.loss == pytest.approx(losses / 97, rel=1e-5)


def test_a_redo_repeats_itself_bit_for_bit_and_other_rounds_do_not() -> None:
    contract, split = learning_contract(), made_up(97, 1)
    first = run(contract, split, seed=5, round=3)
    torch.manual_seed(99)  # the common generator plays no part, and is left alone
    before = torch.get_rng_state()
    assert_same(first, run(contract, split, seed=5, round=3))
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first.weights, run(contract, split, seed=5, round=4).weights)
    assert not torch.equal(first.weights, run(contract, split, seed=6, round=3).weights)


def test_the_start_is_left_as_it_was() -> None:
    contract, split = learning_contract(), made_up(97, 1)
    start = run(contract, split)
    kept = LocalResult(start.weights.clone(), start.adam.clone(), start.loss)
    later = run(contract, split, round=2, start=start)
    assert_same(start, kept)
    assert later.adam.step == 2 * start.adam.step == 16  # two epochs of four batches, twice


def test_neighbors_in_other_threads_change_nothing() -> None:
    contract, splits = learning_contract(), [made_up(97, seed) for seed in range(6)]
    expected = [run(contract, split, seed=n) for n, split in enumerate(splits)]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda n: run(contract, splits[n], seed=n), range(6)))
    for a, b in zip(expected, found, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("rows", [1, 31, 32, 33])
def test_any_number_of_rows_trains(rows: int) -> None:
    result = run(learning_contract(), made_up(rows, 1))
    assert bool(result.weights.isfinite().all())
    assert result.adam.step == 2 * -(-rows // 32)


def test_it_learns() -> None:
    contract, split = (
        learning_contract(training={"epochs": 60, "learning_rate": 0.01}),
        made_up(300, 1),
    )
    result = run(contract, split)
    assert run(learning_contract(), split).loss > 0.65  # ln 2 is where it starts
    assert result.loss < 0.5


def test_divergence_is_said() -> None:
    contract, split = learning_contract(training={"learning_rate": 10.0}), made_up(64, 1)
    absurd = Split(split.x * 1e38, split.y)
    with pytest.raises(TrainingDiverged, match=r"round 7: found loss .*learning_rate is 10, try"):
        run(contract, absurd, round=7)
