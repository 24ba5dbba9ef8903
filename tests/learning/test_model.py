from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from abps_node.learning import initial_trunk, initial_trunk_digest, trunk_layout
from abps_node.learning.model import Mlp, dropout_mask
from protocol.contract import Contract
from protocol.presets import PRESETS
from tests.support.learning import INPUTS, learning_contract, made_up, reference_network

HIDDEN_1 = (("layers.0.weight", (8, INPUTS)), ("layers.0.bias", (8,)))
HIDDEN_2 = (("layers.1.weight", (5, 8)), ("layers.1.bias", (5,)))
OUTPUT = (("layers.2.weight", (1, 5)), ("layers.2.bias", (1,)))
TRUNK_BY_HEAD = {0: HIDDEN_1 + HIDDEN_2 + OUTPUT, 1: HIDDEN_1 + HIDDEN_2, 2: HIDDEN_1}


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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


def test_dropout_follows_its_generator_and_no_other() -> None:
    model = Mlp.of(learning_contract())
    weights, x = model.initial(1), torch.from_numpy(made_up(20, 1).x)
    torch.manual_seed(1)
    first = model.logits(weights, x, generator(5))
    torch.manual_seed(2)
    assert torch.equal(first, model.logits(weights, x, generator(5)))
    assert not torch.equal(first, model.logits(weights, x, generator(6)))
    assert not torch.equal(first, model.logits(weights, x))
    undropped = Mlp.of(learning_contract(model={"dropout": 0.0}))
    assert torch.equal(undropped.logits(weights, x, generator(5)), undropped.logits(weights, x))


@pytest.mark.parametrize("p", [0.0, 0.2, 0.5, 0.9])
def test_masks_drop_the_right_share_and_keep_the_mean(p: float) -> None:
    mask = dropout_mask(401, 501, p, generator(1))
    assert mask.shape == (401, 501)
    np.testing.assert_allclose(float((mask == 0).float().mean()), p, atol=0.005)
    np.testing.assert_allclose(float(mask.mean()), 1, rtol=0.02)
    assert set(mask.unique().tolist()) <= {0.0, float(mask.max())}
    # Four elements come from one draw: each of the four lanes must be as fair as the others.
    lanes = mask.flatten()[: 401 * 501 // 4 * 4].view(-1, 4)
    np.testing.assert_allclose((lanes == 0).float().mean(0).numpy(), p, atol=0.01)


def test_masks_at_the_ends_of_the_range_are_finite() -> None:
    for p in (1e-9, 1 - 1e-9):
        assert bool(dropout_mask(3, 5, p, generator(1)).isfinite().all())
