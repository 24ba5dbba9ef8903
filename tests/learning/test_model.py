from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from abps_node.learning import initial_trunk, initial_trunk_digest, trunk_layout
from abps_node.learning.draws import Draws, by_layer, dropped_levels, mask
from abps_node.learning.model import Mlp
from protocol.contract import Contract
from protocol.presets import PRESETS
from tests.support.learning import INPUTS, learning_contract, made_up, reference_network

HIDDEN_1 = (("layers.0.weight", (8, INPUTS)), ("layers.0.bias", (8,)))
HIDDEN_2 = (("layers.1.weight", (5, 8)), ("layers.1.bias", (5,)))
OUTPUT = (("layers.2.weight", (1, 5)), ("layers.2.bias", (1,)))
ORDER_AND_LEVELS = ([2, 0, 1, 3], [197, 187, 79, 236, 221, 178, 113, 116, 50, 6, 36, 92])
TRUNK_BY_HEAD = {0: HIDDEN_1 + HIDDEN_2 + OUTPUT, 1: HIDDEN_1 + HIDDEN_2, 2: HIDDEN_1}


@pytest.mark.parametrize("preset", PRESETS)
def test_the_trunk_of_every_preset(preset: str) -> None:
    contract = learning_contract({"preset": preset})
    layout = trunk_layout(contract)
    assert layout.tensors == TRUNK_BY_HEAD[contract.policy.head_layers]
    model = Mlp.of(contract)
    assert model.size == sum(math.prod(shape) for _, shape in TRUNK_BY_HEAD[0])
    assert initial_trunk(contract).shape == (layout.size,)
    # A trunk is a prefix of the flat vector, so that its tensors are the model's first ones.
    weights = model.initial(3)
    first = torch.cat([part.flatten() for part in model.split(weights)[: len(layout.tensors)]])
    torch.testing.assert_close(weights[: layout.size], first, rtol=0, atol=0)


def test_the_model_of_the_paper() -> None:
    features = [{"name": f"x{number}", "kind": "continuous"} for number in range(60)]
    contract = Contract.model_validate({"name": "t", "data": {"label": "y", "features": features}})
    model = Mlp.of(contract)
    assert model.widths == (60, 128, 64, 1)
    assert model.size == 60 * 128 + 128 + 128 * 64 + 64 + 64 + 1


def test_the_start_comes_from_the_seed_alone() -> None:
    model = Mlp.of(learning_contract())
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = model.initial(7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(first, model.initial(7))
    assert not torch.equal(first, model.initial(8))
    for layer, fan_in in enumerate(model.widths[:-1]):
        for part in model.split(first)[2 * layer : 2 * layer + 2]:
            assert float(part.abs().max()) <= 1 / math.sqrt(fan_in)
    widest = model.split(first)[0]
    assert float(widest.abs().max()) > 0.9 / math.sqrt(INPUTS)
    assert abs(float(widest.mean())) < 0.3 / math.sqrt(INPUTS)


def test_the_digest_names_start_and_layout() -> None:
    digest = initial_trunk_digest(learning_contract())
    # A change of this value means that this version cannot federate with earlier ones.
    assert digest == "da0d48a6a9d4c567c6b1738461053051bc5be85522153e1b6dacf644cc2ba37b"
    assert digest == initial_trunk_digest(learning_contract({"gamma": 0.5}))
    others = [
        learning_contract(model={"init_seed": 2}),
        learning_contract({"head_layers": 1}),
        learning_contract(model={"hidden": [8, 6]}),
    ]
    assert len({digest, *map(initial_trunk_digest, others)}) == 4


@pytest.mark.parametrize("hidden", [[4], [8, 5], [7, 6, 5, 4]])
def test_logits_are_those_of_plain_torch_modules(hidden: list[int]) -> None:
    model = Mlp.of(learning_contract(model={"hidden": hidden}))
    weights = model.initial(1)
    x = torch.from_numpy(made_up(20, 1).x)
    logits = model.logits(weights, x)
    assert logits.shape == (20,)
    torch.testing.assert_close(logits, reference_network(model, weights)(x).squeeze(-1))


def draws(seed: int, rows: int = 20, hidden: tuple[int, ...] = (8, 5), p: float = 0.2) -> Draws:
    return Draws(seed, 1, rows, hidden, p)


def test_dropout_follows_its_draws_and_no_other_generator() -> None:
    model = Mlp.of(learning_contract())
    weights, x = model.initial(1), torch.from_numpy(made_up(20, 1).x)

    def dropped_out(seed: int) -> torch.Tensor:
        _, levels = draws(seed).epoch()
        return model.logits(weights, x, [mask(part, 51) for part in by_layer(levels, 20, (8, 5))])

    torch.manual_seed(1)
    first = dropped_out(5)
    torch.manual_seed(2)
    assert torch.equal(first, dropped_out(5))
    assert not torch.equal(first, dropped_out(6))
    assert not torch.equal(first, model.logits(weights, x))


def test_an_epoch_draws_anew_and_every_layer_has_its_own_bytes() -> None:
    several = draws(5, rows=300)
    (first_order, first), (second_order, second) = several.epoch(), several.epoch()
    assert sorted(first_order.tolist()) == list(range(300))
    assert not torch.equal(first_order, second_order)
    assert first.size == 300 * 13
    assert not np.array_equal(first, second)
    parts = by_layer(first, 300, (8, 5))
    assert [part.shape for part in parts] == [(300, 8), (300, 5)]
    np.testing.assert_array_equal(np.concatenate([part.ravel() for part in parts]), first)


def test_without_dropout_nothing_is_drawn() -> None:
    order, levels = draws(5, p=0.0).epoch()
    assert levels.size == 0
    assert by_layer(levels, 20, (8, 5)) == []
    assert torch.equal(order, draws(5, p=0.5).epoch()[0])  # the order is not touched by it


def test_the_draws_are_these_on_every_machine() -> None:
    order, levels = draws(7, rows=4, hidden=(3,)).epoch()
    assert (order.tolist(), levels.tolist()) == ORDER_AND_LEVELS


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9])
def test_masks_drop_the_right_share_and_keep_the_mean(p: float) -> None:
    _, levels = Draws(1, 1, 401, [501], 0.5).epoch()
    result = mask(levels.reshape(401, 501), dropped_levels(p))
    assert result.shape == (401, 501)
    np.testing.assert_allclose(float((result == 0).float().mean()), p, atol=0.005)
    np.testing.assert_allclose(float(result.mean()), 1, rtol=0.02)
    assert set(result.unique().tolist()) <= {0.0, float(result.max())}
    # Eight elements come from one draw: each of the eight lanes must be as fair as the others.
    lanes = result.flatten()[: 401 * 501 // 8 * 8].view(-1, 8)
    np.testing.assert_allclose((lanes == 0).float().mean(0).numpy(), p, atol=0.01)


def test_masks_at_the_ends_of_the_range_are_finite() -> None:
    _, levels = Draws(1, 1, 30, [50], 0.5).epoch()
    assert bool((mask(levels, dropped_levels(1e-9)) == 1).all())
    assert bool(mask(levels, dropped_levels(1 - 1e-9)).isfinite().all())
