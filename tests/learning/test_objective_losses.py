"""The losses of the objectives, against what they are defined to be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from abps_node.aims import Aims, Objective
from abps_node.data.encode import Encoder
from abps_node.data.objectives import NO_GROUP, ObjectiveData, ObjectiveSplit
from abps_node.learning.objective_losses import Losses, Rows, durations, gap, losses_of, rows_of
from tests.support.objectives import CAREFUL, FAIR, MORTALITY, STAY


def prepared(
    objective: Objective, y: list[float], groups: list[int] | None = None
) -> tuple[Losses, Rows]:
    column = np.array(y, dtype=np.float32)[:, None]
    codes = np.full(column.shape, NO_GROUP) if groups is None else np.array(groups)[:, None]
    split = ObjectiveSplit(np.zeros((len(y), 0), np.float32), column, codes)
    levels = (("f", "m"),) if objective.group else ((),)
    data = ObjectiveData(split, split, split, Encoder((), ()), levels, (), ())
    aims = Aims((objective,))
    rows = rows_of(aims, torch.zeros(len(y), 1), split, data, with_private=True)
    return losses_of(aims, split), rows


def loss_of(objective: Objective, y: list[float], output: list[float]) -> float:
    losses, rows = prepared(objective, y)
    (found,), _ = losses.of(torch.tensor([output]), rows)
    assert found is not None
    return found.item()


def test_balanced_classes_weigh_the_same() -> None:
    """One positive of four: it weighs 4/(2·1) = 2, each negative 4/(2·3)."""
    each = functional.binary_cross_entropy_with_logits(
        torch.tensor([0.3, -0.2, 0.1, 0.4]), torch.tensor([1.0, 0, 0, 0]), reduction="none"
    )
    expected = (each * torch.tensor([2.0, 2 / 3, 2 / 3, 2 / 3])).mean().item()
    assert loss_of(MORTALITY, [1, 0, 0, 0], [0.3, -0.2, 0.1, 0.4]) == pytest.approx(expected)


def test_a_missed_event_costs_more_where_sensitivity_is_wanted() -> None:
    plain = CAREFUL.model_copy(update={"class_weight": "none", "false_negative_cost": 4.0})
    free = plain.model_copy(update={"false_negative_cost": 1.0})
    missed, alarm = [-3.0, 0.0], [0.0, 3.0]
    assert loss_of(plain, [1, 1], missed) == pytest.approx(4 * loss_of(free, [1, 1], missed))
    assert loss_of(plain, [0, 0], alarm) == pytest.approx(loss_of(free, [0, 0], alarm))


def test_durations_are_learned_on_a_logarithmic_scale() -> None:
    output, days = [1.0, 2.0, -1.0], [1.0, 40.0, 0.0]
    expected = functional.huber_loss(
        functional.softplus(torch.tensor(output)), torch.log1p(torch.tensor(days)), delta=1.0
    )
    assert loss_of(STAY, days, output) == pytest.approx(expected.item())


def test_raw_outputs_become_days() -> None:
    days = torch.tensor([0.5, 3.0, 70.0], dtype=torch.float64)
    assert torch.allclose(durations(torch.log(days)), days)
    assert bool(durations(torch.tensor([1e30])).isfinite().all())


def test_the_gap_is_the_mean_squared_difference_of_true_positive_rates() -> None:
    rates = torch.tensor([0.9, 0.7, 0.2, 0.5])
    events = torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]])
    means = [0.8, 0.2, 0.5]
    pairs = [(means[a] - means[b]) ** 2 for a in range(3) for b in range(a)]
    assert gap(torch.logit(rates), events).item() == pytest.approx(np.mean(pairs), rel=1e-5)


def test_one_group_with_events_has_no_gap() -> None:
    events = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    output = torch.tensor([0.3, 2.0], requires_grad=True)
    found = gap(output, events)
    assert found.item() == 0.0
    (gradient,) = torch.autograd.grad(found, output)
    assert gradient.tolist() == [0.0, 0.0]


def test_fairness_adds_the_gap_to_the_loss() -> None:
    y, groups, output = [1.0, 1.0, 0.0, 0.0], [0, 1, 0, 1], torch.tensor([[2.0, -1.0, 0.0, 0.5]])
    heavy = FAIR.model_copy(update={"gap_weight": 3.0})
    (with_gap,), _ = prepared(heavy, y, groups)[0].of(output, prepared(heavy, y, groups)[1])
    without = loss_of(MORTALITY, y, output[0].tolist())
    difference = (torch.sigmoid(output[0, 0]) - torch.sigmoid(output[0, 1])).item()
    assert with_gap is not None
    assert with_gap.item() == pytest.approx(without + 3.0 * difference**2, rel=1e-5)


def test_descending_on_the_gap_closes_it() -> None:
    losses, rows = prepared(
        FAIR.model_copy(update={"gap_weight": 50.0, "class_weight": "none"}),
        [1.0, 1.0, 1.0, 1.0],
        [0, 0, 1, 1],
    )
    output = torch.tensor([[2.0, 2.0, -2.0, -2.0]], requires_grad=True)
    for _ in range(200):
        (found,), _ = losses.of(output, rows)
        assert found is not None
        (gradient,) = torch.autograd.grad(found, output)
        output = (output - 0.5 * gradient).detach().requires_grad_()
    rates = torch.sigmoid(output[0].detach())
    assert abs(float(rates[:2].mean() - rates[2:].mean())) < 0.05


def test_rows_without_an_outcome_count_for_nothing() -> None:
    nan = float("nan")
    whole = loss_of(MORTALITY, [1, 0, 0], [0.3, -0.2, 0.1])
    assert loss_of(MORTALITY, [1, nan, 0, 0], [0.3, 9.0, -0.2, 0.1]) == pytest.approx(whole)
