"""The Pareto step: exact gradients, the plain step as its special case, descent of all objectives,
and a front that no weighted sum finds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from abps_node.aims import Aims, label_alone
from abps_node.data.objectives import NO_GROUP, ObjectiveSplit
from abps_node.learning import initial_trunk
from abps_node.learning.adam import Adam
from abps_node.learning.local_step import TrainingDiverged, local_step
from abps_node.learning.model import Mlp
from abps_node.learning.objective_losses import losses_of, rows_of
from abps_node.learning.objective_net import ObjectiveNet
from abps_node.learning.objective_step import (
    Gradients,
    StepResult,
    gradients,
    objective_step,
    pareto_direction,
    standing,
)
from tests.support.learning import made_up_center
from tests.support.objectives import (
    CAREFUL,
    FAIR,
    MORTALITY,
    STAY,
    THREE,
    contract_of,
    made_objectives,
    masks_of,
    net_and_rows,
)

KINDS = ["mlp", "fedcare"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_gradients_are_those_of_autograd(kind: str, missing: float) -> None:
    contract, aims = contract_of(kind), Aims((MORTALITY, STAY, FAIR, CAREFUL))
    net, losses, rows = net_and_rows(contract, aims, missing=missing)
    weights, masks = net.initial(3), masks_of(net, rows.count)
    found = gradients(net, losses, weights, rows, masks)

    leaf, shared = weights.clone().requires_grad_(), len(net.shared.dropped)
    representation, _ = net.shared.forward(net.trunk_parts(leaf), rows.x, masks[:shared])
    inputs = net.inputs(representation, rows.private)
    expected, _ = losses.of(net.heads(leaf[net.trunk_size :], inputs, masks[shared:]), rows)
    heads = torch.zeros_like(found.heads)
    for number, loss in enumerate(expected):
        assert loss is not None
        (whole,) = torch.autograd.grad(loss, leaf, retain_graph=True)
        trunk, own = whole[: net.trunk_size], whole[net.trunk_size :]
        assert torch.allclose(found.trunk[number], trunk, rtol=1e-4, atol=1e-7)
        assert found.losses[number] == pytest.approx(loss.item())
        heads += own
        # A head hears of its own objective alone.
        per_head = own.view(len(net.names), -1).abs().sum(1)
        assert [bool(part > 0) for part in per_head] == [n == number for n in range(4)]
    assert torch.allclose(found.heads, heads, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_a_weighted_step_takes_the_weighted_sum_of_the_same_gradients(kind: str) -> None:
    net, losses, rows = net_and_rows(contract_of(kind), Aims(THREE))
    weights, masks = net.initial(3), masks_of(net, rows.count)
    mix = np.array([0.5, 0.3, 0.2])
    apart = gradients(net, losses, weights, rows, masks)
    summed = gradients(net, losses, weights, rows, masks, mix)
    expected = torch.from_numpy(mix).to(torch.float32) @ apart.trunk
    assert torch.allclose(summed.trunk[0], expected, atol=1e-7)
    assert torch.equal(summed.heads, apart.heads)


@pytest.mark.parametrize("head_layers", [1, 2, 3])
@pytest.mark.parametrize("step", ["plain", "weighted", "pareto"])
def test_one_objective_is_the_plain_step_bit_for_bit(head_layers: int, step: str) -> None:
    contract = contract_of()
    policy = contract.policy.model_copy(update={"head_layers": min(head_layers, 2)})
    contract = contract.model_copy(update={"policy": policy})
    center = made_up_center(contract)
    model = Mlp.of(contract)
    weights, adam = model.initial(7), Adam.fresh(model.size)
    x, y = torch.from_numpy(center.train.x), torch.from_numpy(center.train.y)
    aims = Aims((label_alone(contract),), local_step=step)  # type: ignore[arg-type]
    split = ObjectiveSplit(
        np.zeros((len(y), 0), np.float32), y.numpy()[:, None], np.full((len(y), 1), NO_GROUP)
    )
    data = replace(
        made_objectives(aims.objectives, center, private=0), train=split, validation=split
    )
    net = ObjectiveNet.of(contract, 0, ["label"])
    losses, rows = losses_of(aims, split), rows_of(aims, x, split, data, with_private=True)
    assert torch.equal(net.initial(7), weights)
    ours, ours_adam = weights, adam
    for number in range(1, 4):
        plain = local_step(model, weights, adam, x, y, contract.training, 5, number)
        found = objective_step(
            net, losses, ours, ours_adam, rows, contract.training, aims, 5, number
        )
        weights, adam, ours, ours_adam = plain.weights, plain.adam, found.weights, found.adam
        assert torch.equal(ours, weights)
        assert torch.equal(ours_adam.exp_avg, adam.exp_avg)
        assert torch.equal(ours_adam.exp_avg_sq, adam.exp_avg_sq)
        assert found.losses[0] == plain.loss


@pytest.mark.parametrize("kind", KINDS)
def test_heads_and_private_features_do_not_move_the_common_start(kind: str) -> None:
    contract = contract_of(kind)
    expected = initial_trunk(contract)
    for private, names in ((0, ["a"]), (3, ["a", "b", "c"])):
        net = ObjectiveNet.of(contract, private, names)
        found = net.initial(contract.model.init_seed)[: net.trunk_size]
        assert np.array_equal(found.numpy(), expected)


def one_step(missing: float = 0.0, epochs: int = 2, **aims: object) -> StepResult:
    contract = contract_of(epochs=epochs)
    wanted = Aims(THREE, **aims)  # type: ignore[arg-type]
    net, losses, rows = net_and_rows(contract, wanted, missing=missing)
    return objective_step(
        net, losses, net.initial(1), Adam.fresh(net.size), rows, contract.training, wanted, 1, 1
    )


@pytest.mark.parametrize("step", ["pareto", "weighted"])
def test_the_same_step_gives_the_same_bits(step: str) -> None:
    first, second = (one_step(local_step=step) for _ in range(2))
    assert torch.equal(first.weights, second.weights)
    assert first.mean_weights.tolist() == second.mean_weights.tolist()


def test_a_missing_outcome_leaves_the_row_out_of_its_objective_only() -> None:
    contract, aims = contract_of(), Aims((MORTALITY, STAY))
    net, losses, rows = net_and_rows(contract, aims)
    weights = net.initial(1)
    whole = gradients(net, losses, weights, rows, [])
    known = torch.ones_like(rows.y)
    known[0, :50] = 0.0
    masked = replace(rows, known=known, weight=rows.weight * known)
    part = gradients(net, losses, weights, masked, [])
    rest = gradients(net, losses, weights, rows.between(50, rows.count), [])
    assert part.counts.tolist() == [rows.count - 50, rows.count]
    assert part.losses[0] == pytest.approx(rest.losses[0], rel=1e-5)
    assert torch.allclose(part.trunk[0], rest.trunk[0], atol=1e-6)
    assert torch.allclose(part.trunk[1], whole.trunk[1], atol=1e-6)


def test_an_objective_without_an_outcome_in_the_batch_has_no_say() -> None:
    net, losses, rows = net_and_rows(contract_of(), Aims((MORTALITY, STAY)))
    known = torch.ones_like(rows.y)
    known[0] = 0.0
    masked = replace(rows, known=known, weight=rows.weight * known)
    found = gradients(net, losses, net.initial(1), masked, [])
    direction, weights, _ = pareto_direction(found, "none")
    assert math.isnan(found.losses[0]) and weights.tolist() == [0.0, 1.0]
    assert torch.equal(direction, found.trunk[1])
    assert bool((direction != 0).any())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("normalization", ["none", "unit", "loss"])
def test_no_objective_increases_to_first_order(kind: str, normalization: str) -> None:
    net, losses, rows = net_and_rows(contract_of(kind), Aims(THREE))
    weights, masks = net.initial(2), masks_of(net, rows.count)
    for begin in range(0, 96, 32):
        batch = rows.between(begin, begin + 32)
        drawn = [part[begin : begin + 32] for part in masks]
        found = gradients(net, losses, weights, batch, drawn)
        direction, _, gram = pareto_direction(found, normalization)  # type: ignore[arg-type]
        slopes = found.trunk.double() @ direction.double()
        assert float(slopes.min()) >= -1e-6 * gram.trace()
        weights = weights.clone()
        weights[: net.trunk_size] -= 0.05 * direction


def test_a_gradient_of_another_scale_dictates_the_direction_unless_normalized() -> None:
    """The least norm favors the shortest gradient: a loss 100 times as large has hardly a say."""
    small, large = torch.tensor([1.0, 0.2]), 100.0 * torch.tensor([-0.2, 1.0])
    found = Gradients(np.array([1.0, 100.0]), np.ones(2), torch.stack([small, large]), small)
    direction, raw, _ = pareto_direction(found, "none")
    assert raw[0] > 0.999
    cosine = torch.nn.functional.cosine_similarity
    assert float(cosine(direction, large, 0)) < 0.05
    for normalization in ("unit", "loss"):
        direction, weights, _ = pareto_direction(found, normalization)  # type: ignore[arg-type]
        assert weights == pytest.approx([0.5, 0.5], abs=0.01)
        assert float(cosine(direction, large, 0)) > 0.5


def test_standing_is_the_state_on_all_rows_and_zero_where_nothing_improves_all() -> None:
    net, losses, rows = net_and_rows(contract_of(), Aims(THREE))
    weights = net.initial(1)
    found = standing(net, losses, weights, rows)
    direct = gradients(net, losses, weights, rows, [])
    assert found.gram == pytest.approx(direct.gram(), rel=1e-4, abs=1e-9)
    assert found.cosines.diagonal() == pytest.approx([1.0] * 3)
    mixed = found.weights @ found.gram @ found.weights
    assert found.stationarity == pytest.approx(mixed)


def test_stationarity_ends_the_step_after_an_epoch() -> None:
    assert one_step(epochs=5).epochs == 5
    assert one_step(epochs=5, stationarity=1e9).epochs == 1
    assert one_step(epochs=5, stationarity=0.0).epochs == 5


def test_a_single_last_row_joins_the_batch_before_it_under_batch_norm() -> None:
    """97 rows are three batches of 32 and one row, which alone has no variance."""
    contract, aims = contract_of("fedcare"), Aims(THREE)
    net, losses, rows = net_and_rows(contract, aims)
    assert rows.count == 97
    found = objective_step(
        net, losses, net.initial(1), Adam.fresh(net.size), rows, contract.training, aims, 1, 1
    )
    assert found.adam.step == 3 * contract.training.epochs


def test_divergence_is_named() -> None:
    contract, aims = contract_of(learning_rate=10.0, epochs=30), Aims(THREE)
    net, losses, rows = net_and_rows(contract, aims)
    weights = net.initial(1)
    weights[0] = math.nan
    with pytest.raises(TrainingDiverged, match="local step of round 4: found losses"):
        objective_step(
            net, losses, weights, Adam.fresh(net.size), rows, contract.training, aims, 1, 4
        )


# A front that is known: two bells around ±a, concave, so that every weighted sum ends in a corner.

WIDTH = 2
CENTER = torch.full((WIDTH,), 1.0 / math.sqrt(WIDTH), dtype=torch.float64)


def bells(point: torch.Tensor) -> tuple[Gradients, np.ndarray]:
    """Fonseca and Fleming's objectives 1 − exp(−‖x ∓ a‖²); the front is the line between ±a."""
    values, found = [], []
    for middle in (CENTER, -CENTER):
        away = point - middle
        bell = torch.exp(-(away @ away))
        values.append(float(1.0 - bell))
        found.append(2.0 * away * bell)
    return Gradients(np.array(values), np.ones(2), torch.stack(found), point), np.array(values)


def descend(start: torch.Tensor, mix: np.ndarray | None) -> torch.Tensor:
    point = start.clone()
    for _ in range(3000):
        found, _ = bells(point)
        if mix is None:
            direction, _, _ = pareto_direction(found, "none")
        else:
            direction = torch.from_numpy(mix) @ found.trunk
        point = point - 0.05 * direction
    return point


@pytest.mark.parametrize("seed", range(5))
def test_the_step_reaches_a_front_that_a_weighted_sum_misses(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Near the symmetric line, so that the nearest points of the front are compromises.
    along, across = rng.uniform(-0.3, 0.3), rng.uniform(0.4, 0.8)
    normal = torch.tensor([CENTER[0], -CENTER[1]])
    start = along * CENTER + across * normal
    reached = descend(start, None)
    found, values = bells(reached)
    # On the front: on the line between the two centers, where gradients are opposite.
    assert float((reached @ normal).abs()) < 1e-3
    assert found.gram()[0, 1] < 0 and values.max() < 0.9
    _, before = bells(start)
    assert (values <= before + 1e-9).all(), "no objective paid"
    for share in (0.2, 0.35, 0.45, 0.55, 0.65, 0.8):
        _, ended = bells(descend(start, np.array([share, 1.0 - share])))
        assert ended.max() > 0.95, "a weighted sum gives one objective up"
