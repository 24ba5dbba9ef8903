"""A learner with heads of its own: the plain one as its special case, credit, memory, stage 2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from abps_node.aims import Aims, Objective, Stage2, label_alone
from abps_node.data.objectives import NO_GROUP, ObjectiveData, ObjectiveSplit
from abps_node.errors import StoreError
from abps_node.learning import (
    Learner,
    ObjectiveLearner,
    TrainingDiverged,
    initial_trunk,
    make_learner,
    trunk_layout,
)
from abps_node.learning.objective_utility import ObjectiveUtility, mae_gain
from protocol.contract import Contract
from protocol.trunk import Vector
from tests.support.learning import made_up_center
from tests.support.objectives import (
    CAREFUL,
    FAIR,
    MORTALITY,
    STAY,
    THREE,
    contract_of,
    made_objectives,
)

KINDS = ["mlp", "fedcare"]
NOBODY: frozenset[str] = frozenset()


def learner(
    objectives: tuple[Objective, ...] = THREE,
    kind: str = "mlp",
    missing: float = 0.0,
    seed: int = 1,
    **aims: Any,
) -> ObjectiveLearner:
    contract = contract_of(kind)
    center = made_up_center(contract)
    own = made_objectives(objectives, center, missing=missing)
    return ObjectiveLearner(
        contract, replace(center, objectives=own), seed, Aims(objectives, **aims)
    )


def partner(contract: Contract, seed: int) -> Vector:
    """A trunk near the common start, as partners' are."""
    start = initial_trunk(contract)
    noise = np.random.default_rng(seed).normal(0, 0.05, start.size)
    return (start + noise).astype(np.float32)


def test_one_objective_learns_and_credits_like_the_plain_learner() -> None:
    contract = contract_of()
    center = made_up_center(contract)
    aims = Aims((label_alone(contract),))

    def own(split: Any) -> ObjectiveSplit:
        rows = len(split.y)
        return ObjectiveSplit(
            np.zeros((rows, 0), np.float32), split.y[:, None], np.full((rows, 1), NO_GROUP)
        )

    data = replace(
        made_objectives(aims.objectives, center, private=0),
        train=own(center.train),
        validation=own(center.validation),
        test=own(center.test),
    )
    plain = make_learner(contract, center, 3, None)
    ours = make_learner(contract, replace(center, objectives=data), 3, aims)
    assert type(plain) is Learner and isinstance(ours, ObjectiveLearner)
    received = {"a": partner(contract, 1), "b": partner(contract, 2)}
    weights = dict.fromkeys(received, 1 / 3)
    asked = [NOBODY, frozenset("a"), frozenset("b"), frozenset("ab")]
    for number in range(1, 4):
        first, second = plain.train(number), ours.train(number)
        assert np.array_equal(first.trunk, second.trunk)
        assert first.loss == second.loss
        one = plain.merge(number, received, weights, asked)
        other = ours.merge(number, received, weights, asked)
        assert one.utilities == other.utilities
        assert one.validation == other.validation
    before, after = plain.test_report(), ours.test_report()
    own_words = {"objectives"}
    assert before == {key: value for key, value in after.items() if key not in own_words}


@pytest.mark.parametrize("kind", KINDS)
def test_rounds_merge_and_record(kind: str) -> None:
    ours, contract = learner(kind=kind, missing=0.1), contract_of(kind)
    trained = ours.train(1)
    assert trained.trunk.shape == (trunk_layout(contract).size,)
    told = trained.objectives
    assert told is not None and told.step == "pareto" and told.epochs == 2
    assert [each.name for each in told.objectives] == ["mortality", "stay", "fair"]
    assert sum(each.mu for each in told.objectives) == pytest.approx(1.0)
    assert sum(each.mu_batches for each in told.objectives) == pytest.approx(1.0)
    assert told.conflicts is not None and 0.0 <= told.conflicts <= 1.0
    assert [row[number] for number, row in enumerate(told.cosines)] == pytest.approx([1.0] * 3)
    merged = ours.merge(1, {"a": partner(contract, 1)}, {"a": 0.5}, [NOBODY, frozenset("a")])
    assert merged.validation.metric == "mean"
    assert merged.validation.value == pytest.approx(np.mean(merged.parts))
    assert merged.validation.value == pytest.approx(merged.utilities[frozenset("a")])
    assert set(ours.test_report()["objectives"]) == {"mortality", "stay", "fair"}


def test_a_duration_begins_near_its_median() -> None:
    ours = learner((MORTALITY, STAY))
    report = made_objectives((MORTALITY, STAY), made_up_center(contract_of())).reports[1]
    bias = ours.state_tensors()["model.heads.stay.0.bias"]
    assert torch.expm1(torch.nn.functional.softplus(bias)).item() == pytest.approx(report.median)
    untouched = learner((MORTALITY,)).state_tensors()["model.heads.mortality.0.bias"]
    assert torch.equal(ours.state_tensors()["model.heads.mortality.0.bias"], untouched)


def test_centers_with_disjoint_objectives_exchange_trunks() -> None:
    contract = contract_of()
    deaths, stays = learner((MORTALITY,)), learner((STAY,), seed=2)
    first, second = deaths.train(1).trunk, stays.train(1).trunk
    assert first.shape == second.shape and not np.array_equal(first, second)
    assert np.array_equal(
        learner((MORTALITY,)).state_tensors()["model.layers.0.weight"],
        learner((STAY, FAIR)).state_tensors()["model.layers.0.weight"],
    )
    merged = deaths.merge(1, {"s": second}, {"s": 0.5}, [NOBODY, frozenset("s")])
    assert merged.validation.metric == "auroc"
    assert stays.merge(1, {"d": first}, {"d": 0.5}, [NOBODY]).validation.metric == "mae-gain"
    assert contract.policy.head_layers == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_comes_back_bit_for_bit(kind: str) -> None:
    first, second = learner(kind=kind), learner(kind=kind)
    first.train(1)
    first.merge(1, {}, {}, [NOBODY])
    tensors = first.state_tensors()
    second.load_state_tensors(tensors)
    assert {name: part.tolist() for name, part in second.state_tensors().items()} == {
        name: part.tolist() for name, part in tensors.items()
    }
    assert np.array_equal(first.train(2).trunk, second.train(2).trunk)
    assert ("statistics.0" in tensors) == (kind == "fedcare")


def test_statistics_are_the_centers_own_and_no_part_of_the_trunk() -> None:
    ours = learner(kind="fedcare")
    names = [name for name, _ in trunk_layout(contract_of("fedcare")).tensors]
    assert not any("running" in name or "statistics" in name for name in names)
    tensors = ours.state_tensors()
    x = torch.from_numpy(made_up_center(contract_of("fedcare")).train.x)
    linear = x @ tensors["model.layers.0.weight"].T + tensors["model.layers.0.bias"]
    assert torch.allclose(tensors["statistics.0"], linear.mean(0), atol=1e-6)
    assert torch.allclose(tensors["statistics.1"], linear.var(0, unbiased=False), atol=1e-5)


def test_another_models_state_is_refused() -> None:
    with pytest.raises(StoreError, match="model state"):
        learner(THREE).load_state_tensors(learner((MORTALITY,)).state_tensors())
    with pytest.raises(StoreError, match="for this model"):
        learner(kind="mlp").load_state_tensors(learner(kind="fedcare").state_tensors())


def test_outcomes_of_other_objectives_are_refused() -> None:
    contract = contract_of()
    with pytest.raises(ValueError, match="found no outcomes"):
        ObjectiveLearner(contract, made_up_center(contract), 1, Aims(THREE))


# Credit.


def utility(objectives: tuple[Objective, ...], validation: ObjectiveSplit) -> ObjectiveUtility:
    center = made_up_center(contract_of())
    data: ObjectiveData = made_objectives(objectives, center)
    return ObjectiveUtility.of(Aims(objectives), replace(data, validation=validation))


def split_of(*columns: list[float]) -> ObjectiveSplit:
    y = np.array(columns, dtype=np.float32).T
    return ObjectiveSplit(np.zeros((len(y), 0), np.float32), y, np.full(y.shape, NO_GROUP))


def test_utility_is_the_weighted_mean_of_what_each_objective_reaches() -> None:
    heavy = STAY.model_copy(update={"credit_weight": 3.0})
    found = utility((MORTALITY, heavy), split_of([0, 1, 1, 0], [1.0, 2.0, 3.0, 4.0]))
    stays = torch.log(torch.expm1(torch.log1p(torch.tensor([1.0, 2.0, 3.0, 4.0]))))
    outputs = torch.stack([torch.tensor([-1.0, 1.0, 2.0, -2.0]), stays])
    parts = found.parts(outputs)
    assert parts == pytest.approx([1.0, 1.0], abs=1e-6)
    assert found.mean(np.array([0.5, 1.0])) == pytest.approx(0.875)
    assert found.metric == "mean" and found.record(0.5).events == 2


def test_a_row_without_an_outcome_counts_in_its_objective_only() -> None:
    found = utility((MORTALITY, STAY), split_of([0, 1, np.nan, 0], [1.0, np.nan, 3.0, 4.0]))
    assert [len(y) for y in found.y] == [3, 3]
    outputs = torch.zeros(2, 4)
    assert np.isfinite(found.parts(outputs)).all()


def test_one_class_gives_way_to_brier() -> None:
    found = utility((CAREFUL,), split_of([0, 0, 0]))
    assert found.metric == "brier"
    assert found.parts(torch.full((1, 3), -50.0))[0] == pytest.approx(1.0)


def test_mae_gain_is_cut_to_the_unit_interval() -> None:
    y = np.array([1.0, 3.0])
    assert mae_gain(y, y, 2.0) == 1.0
    assert mae_gain(np.array([2.0, 2.0]), y, 2.0) == 0.0
    assert mae_gain(np.array([90.0, 90.0]), y, 2.0) == 0.0
    assert mae_gain(np.array([1.5, 2.5]), y, 2.0) == pytest.approx(0.5)
    assert mae_gain(np.array([2.0]), np.array([2.0]), 2.0) == 1.0


# Private features and stage 2.


def test_private_features_can_wait_for_stage_2() -> None:
    """Zeros until then: what private columns hold changes nothing in the rounds."""
    contract = contract_of()
    center = made_up_center(contract)
    own = made_objectives(THREE, center)
    doubled = replace(own, train=replace(own.train, private=own.train.private * 2))
    late = {"private_features": "stage2", "stage2": Stage2(epochs=1)}

    def trunk(data: ObjectiveData, **aims: Any) -> Vector:
        whole = replace(center, objectives=data)
        return ObjectiveLearner(contract, whole, 1, Aims(THREE, **aims)).train(1).trunk

    assert np.array_equal(trunk(own, **late), trunk(doubled, **late))
    assert not np.array_equal(trunk(own), trunk(doubled))


@pytest.mark.parametrize("private_features", ["always", "stage2"])
def test_stage_2_keeps_the_better_model_and_tells_both(private_features: str) -> None:
    ours = learner(private_features=private_features, stage2=Stage2(epochs=15, learning_rate=0.01))
    ours.train(1)
    before = ours.merge(1, {}, {}, [NOBODY]).validation
    found = ours.fine_tune(lambda: False)
    assert found is not None
    assert found.before == before
    assert found.kept == ("after" if found.after.value > found.before.value else "before")
    assert found.kept == "after", "made outcomes can be learned"
    assert found.epochs == 15 and not found.stationary
    assert found.document()["validation_after"] == found.after.value


def test_stage_2_keeps_what_was_there_where_it_makes_things_worse() -> None:
    ours = learner(stage2=Stage2(epochs=3, learning_rate=10.0))
    for number in range(1, 15):
        ours.train(number)
        ours.merge(number, {}, {}, [NOBODY])
    tensors = ours.state_tensors()
    found = ours.fine_tune(lambda: False)
    assert found is not None and found.kept == "before"
    assert all(torch.equal(part, tensors[name]) for name, part in ours.state_tensors().items())


def test_stage_2_that_diverges_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = learner(stage2=Stage2(), private_features="stage2")
    tensors = ours.state_tensors()

    def diverge(*_: object) -> None:
        raise TrainingDiverged("found infinite weights")

    monkeypatch.setattr("abps_node.learning.objective_learner.objective_step", diverge)
    found = ours.fine_tune(lambda: False)
    assert found is not None and found.diverged and found.kept == "before"
    assert all(torch.equal(part, tensors[name]) for name, part in ours.state_tensors().items())
    assert ours.fine_tunes


def test_stage_2_ends_as_stationary_or_when_told() -> None:
    at_rest = learner(stage2=Stage2(stationarity=1e9)).fine_tune(lambda: False)
    assert at_rest is not None and at_rest.stationary and at_rest.epochs == 0
    assert learner(stage2=Stage2()).fine_tune(lambda: True) is None


def test_a_report_tells_every_objective() -> None:
    ours = learner((MORTALITY, STAY, FAIR, CAREFUL), missing=0.1)
    found = ours.test_report()["objectives"]
    assert {"mae", "mae_low", "mae_high", "mae_of_median"} <= set(found["stay"])
    assert found["stay"]["mae_low"] <= found["stay"]["mae"] <= found["stay"]["mae_high"]
    assert 0.0 <= found["fair"]["true_positive_rate_gap"] <= 1.0
    assert 0.0 <= found["careful"]["sensitivity"] <= 1.0
    assert "auroc" in found["mortality"]
