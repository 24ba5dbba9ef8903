from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.metrics import roc_auc_score

from abps_node.data import Split
from abps_node.errors import StoreError
from abps_node.learning import Learner, MergeResult
from abps_node.learning.model import Mlp
from protocol.contract import Contract
from protocol.presets import PRESETS
from protocol.trunk import Vector
from tests.support.learning import (
    INPUTS,
    learning_contract,
    made_up,
    made_up_center,
    random_trunk,
    reference_network,
)

EMPTY: frozenset[str] = frozenset()


def all_coalitions(peers: list[str]) -> list[frozenset[str]]:
    sizes = range(len(peers) + 1)
    return [frozenset(chosen) for size in sizes for chosen in combinations(peers, size)]


def partners(contract: Contract, number: int, seed: int = 10) -> dict[str, Vector]:
    return {f"peer-{n}": random_trunk(contract, seed + n) for n in range(number)}


def uniform(trunks: dict[str, Vector]) -> dict[str, float]:
    return {peer: 1.0 / (len(trunks) + 1) for peer in trunks}


def learner_of(contract: Contract, seed: int = 3, **center: Any) -> Learner:
    return Learner(contract, made_up_center(contract, **center), seed)


def parameters(learner: Learner) -> torch.Tensor:
    """The flat parameter vector, from the outside."""
    tensors = learner.state_tensors()
    return torch.cat([t.flatten() for name, t in tensors.items() if name.startswith("model.")])


def merged(learner: Learner, round: int, trunks: dict[str, Vector]) -> MergeResult:
    return learner.merge(round, trunks, uniform(trunks), [EMPTY, frozenset(trunks)])


def by_hand(contract: Contract, weights: torch.Tensor, trunk: np.ndarray) -> float:
    """AUROC on validation of the own head on a trunk, by plain torch and scikit-learn."""
    whole = torch.cat([torch.tensor(trunk, dtype=torch.float32), weights[len(trunk) :]])
    validation = made_up_center(contract).validation
    with torch.no_grad():
        scores = reference_network(Mlp.of(contract), whole)(torch.from_numpy(validation.x))
    return float(roc_auc_score(validation.y, scores.squeeze(-1).numpy()))


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("sized", [False, True])
def test_every_coalition_is_the_mean_over_its_members(number: int, sized: bool) -> None:
    contract = learning_contract({"preset": "abps+p", "merge_weights": "size"})
    learner = learner_of(contract)
    own = learner.train(1).trunk
    before = parameters(learner)
    trunks = partners(contract, number)
    sizes = {"own": 100, **{peer: 50 * (n + 1) for n, peer in enumerate(trunks)}}
    if not sized:
        sizes = dict.fromkeys(sizes, 1)
    weights = {peer: sizes[peer] / sum(sizes.values()) for peer in trunks}
    result = learner.merge(1, trunks, weights, all_coalitions(list(trunks)))

    def mean(members: frozenset[str]) -> np.ndarray:
        rows = [own, *(trunks[peer] for peer in sorted(members))]
        claims = [sizes["own"], *(sizes[peer] for peer in sorted(members))]
        return np.average(np.array(rows, dtype=np.float64), axis=0, weights=claims)

    assert len(result.utilities) == 2**number
    for coalition, utility in result.utilities.items():
        assert utility == pytest.approx(by_hand(contract, before, mean(coalition)), abs=1e-12)
    assert len(set(result.utilities.values())) > 1  # the coalitions can be told apart
    after = parameters(learner).numpy()
    np.testing.assert_allclose(after[: own.size], mean(frozenset(trunks)), rtol=1e-6, atol=1e-8)
    np.testing.assert_array_equal(after[own.size :], before.numpy()[own.size :])  # the head stays
    assert result.validation.value == result.utilities[frozenset(trunks)]
    assert (result.validation.metric, result.validation.rows) == ("auroc", 40)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_keeps_its_head(preset: str) -> None:
    contract = learning_contract({"preset": preset})
    learner = learner_of(contract)
    size = learner.train(1).trunk.size
    before = parameters(learner)
    trunks = partners(contract, 1)
    merged(learner, 1, trunks)
    after = parameters(learner)
    assert torch.equal(before[size:], after[size:])
    assert before[size:].numel() == {0: 0, 1: 6, 2: 5 * 8 + 5 + 6}[contract.policy.head_layers]
    expected = (before[:size].numpy().astype(np.float64) + trunks["peer-0"]) / 2
    np.testing.assert_allclose(after[:size].numpy(), expected, rtol=1e-6, atol=1e-8)


def test_the_order_of_arrival_does_not_matter() -> None:
    contract = learning_contract()
    trunks = partners(contract, 3)
    learners = learner_of(contract), learner_of(contract)
    for learner, order in zip(learners, (list(trunks), list(trunks)[::-1]), strict=True):
        learner.train(1)
        merged(learner, 1, {peer: trunks[peer] for peer in order})
    assert torch.equal(parameters(learners[0]), parameters(learners[1]))


@pytest.mark.parametrize("policy", [{}, {"preset": "abps-x"}])
def test_alone_the_model_stays_as_it_was_trained(policy: dict[str, Any]) -> None:
    contract = learning_contract(policy)
    learner = learner_of(contract)
    learner.train(1)
    merged(learner, 1, partners(contract, 1))
    learner.train(2)
    before = learner.state_tensors()
    result = learner.merge(2, {}, {}, [EMPTY])
    after = learner.state_tensors()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert result.utilities == {EMPTY: result.validation.value}


def test_momentum_acts_from_the_second_merge_with_partners_on() -> None:
    contract = learning_contract({"head_layers": 1, "momentum": 0.25})
    learner = learner_of(contract)
    previous: np.ndarray | None = None
    for round in range(1, 6):
        own = learner.train(round).trunk.astype(np.float64)
        trunks = partners(contract, 0 if round in (1, 3) else 2, seed=100 * round)
        result = merged(learner, round, trunks)
        now = parameters(learner).numpy()[: own.size]
        if not trunks:
            np.testing.assert_array_equal(now, own.astype(np.float32))
            continue
        mean = (own + sum(trunk.astype(np.float64) for trunk in trunks.values())) / 3
        expected = mean if previous is None else 0.25 * previous + 0.75 * mean
        np.testing.assert_allclose(now, expected, rtol=1e-5, atol=1e-7)
        previous = now.astype(np.float64)
        # Credit is measured before momentum, the round's validation after it.
        all_of_them = by_hand(contract, parameters(learner), mean)
        assert result.utilities[frozenset(trunks)] == pytest.approx(all_of_them, abs=1e-12)
        after = by_hand(contract, parameters(learner), now)
        assert result.validation.value == pytest.approx(after, abs=1e-12)


def test_one_class_in_validation_makes_brier_the_utility() -> None:
    contract = learning_contract()
    learner = learner_of(contract, validation=made_up(25, 1, one_class=True))
    assert learner.metric == "brier"
    learner.train(1)
    record = merged(learner, 1, partners(contract, 1)).validation
    assert (record.metric, record.events, record.rows) == ("brier", 0, 25)
    x = torch.from_numpy(made_up(25, 1).x)
    with torch.no_grad():
        logits = reference_network(Mlp.of(contract), parameters(learner))(x)
    assert record.value == pytest.approx(1 - float(logits.sigmoid().square().mean()), rel=1e-5)


def test_logloss_is_negated_so_that_more_is_better() -> None:
    contract = learning_contract({"utility": "logloss"})
    learner = learner_of(contract)
    learner.train(1)
    record = merged(learner, 1, {}).validation
    validation = made_up_center(contract).validation
    with torch.no_grad():
        network = reference_network(Mlp.of(contract), parameters(learner))
        logits = network(torch.from_numpy(validation.x)).squeeze(-1)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, torch.from_numpy(validation.y)
    )
    assert record.metric == "logloss"
    assert record.value == pytest.approx(-float(loss), rel=1e-5)


def live(learner: Learner, contract: Contract, rounds: range) -> list[Any]:
    """Some rounds with and without partners; all that can be seen of them."""
    seen: list[Any] = []
    for round in rounds:
        trained = learner.train(round)
        trunks = partners(contract, round % 3, seed=1000 * round)
        seen += [trained.loss, trained.trunk.tobytes(), merged(learner, round, trunks)]
    return seen


def test_a_restart_goes_on_bit_for_bit(tmp_path: Path) -> None:
    contract = learning_contract({"preset": "abps-x"})
    learner = learner_of(contract)
    live(learner, contract, range(1, 4))
    path = tmp_path / "model.safetensors"
    save_file(learner.state_tensors(), path)
    expected = live(learner, contract, range(4, 8))
    restarted = learner_of(contract)
    restarted.load_state_tensors(load_file(path))
    assert live(restarted, contract, range(4, 8)) == expected
    ends = learner.state_tensors(), restarted.state_tensors()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    # An interrupted round 4 is redone from the same file.
    restarted.train(9)
    restarted.load_state_tensors(load_file(path))
    assert live(restarted, contract, range(4, 8)) == expected


def test_what_is_handed_out_is_not_touched_later() -> None:
    contract = learning_contract()
    learner = learner_of(contract)
    trunk = learner.train(1).trunk
    tensors = learner.state_tensors()
    kept = trunk.copy(), {name: tensor.clone() for name, tensor in tensors.items()}
    live(learner, contract, range(2, 4))
    np.testing.assert_array_equal(trunk, kept[0])
    assert all(torch.equal(tensors[name], kept[1][name]) for name in tensors)


def test_with_all_weight_on_the_partners_nothing_of_the_own_trunk_is_left() -> None:
    contract = learning_contract()
    learner = learner_of(contract)
    learner.train(1)
    trunks = partners(contract, 1)
    before = learner.merge(1, {}, {}, [frozenset()])
    learner.train(2)
    own = parameters(learner)
    result = learner.merge(2, trunks, {"peer-0": 1.0}, [frozenset(), frozenset({"peer-0"})])
    after, trunk = parameters(learner), torch.from_numpy(trunks["peer-0"])
    assert torch.equal(after[: trunk.shape[0]], trunk)
    assert torch.equal(after[trunk.shape[0] :], own[trunk.shape[0] :])
    assert set(result.utilities) == {frozenset(), frozenset({"peer-0"})}
    assert before.utilities.keys() == {frozenset()}


def test_merging_does_not_reset_the_optimizer() -> None:
    contract = learning_contract()
    learner = learner_of(contract)
    learner.train(1)
    before = learner.state_tensors()
    merged(learner, 1, partners(contract, 2))
    after = learner.state_tensors()
    for name in ("adam.step", "adam.exp_avg", "adam.exp_avg_sq"):
        assert torch.equal(before[name], after[name])
    learner.train(2)
    assert int(learner.state_tensors()["adam.step"]) == 2 * int(before["adam.step"])


Tensors = dict[str, torch.Tensor]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: {**t, "adam.step": t["adam.step"].float()}, "'adam.step': found torch.float32"),
        (lambda t: {**t, "adam.exp_avg": t["adam.exp_avg"][1:]}, "'adam.exp_avg': found torch.f"),
        (lambda t: {k: v for k, v in t.items() if k != "merge.count"}, "found tensors adam.exp_a"),
        (lambda t: {**t, "extra": t["adam.step"]}, "extra, merge.count"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(
    spoil: Callable[[Tensors], Tensors], message: str
) -> None:
    learner = learner_of(learning_contract())
    learner.train(1)
    before = parameters(learner)
    with pytest.raises(StoreError, match=r"^model state: ") as caught:
        learner.load_state_tensors(spoil(learner.state_tensors()))
    assert message in str(caught.value)
    assert torch.equal(before, parameters(learner))


def test_arguments_that_disagree_are_refused_and_change_nothing() -> None:
    contract = learning_contract()
    learner = learner_of(contract)
    trunks = partners(contract, 1)
    with pytest.raises(ValueError, match="merge: found round 1, allowed: the one trained, None"):
        merged(learner, 1, trunks)
    learner.train(1)
    before = parameters(learner)
    trunk = trunks["peer-0"]
    bad: list[tuple[int, dict[str, Any], dict[str, float], list[frozenset[str]], str]] = [
        (2, trunks, {"peer-0": 0.5}, [], "merge: found round 2"),
        (1, trunks, {}, [], "weights: found"),
        (1, trunks, {"peer-0": 1.1}, [], "weights: found"),
        (1, trunks, {"peer-0": 0.0}, [], "weights: found"),
        (1, trunks, {"peer-0": float("nan")}, [], "weights: found"),
        (1, {"peer-0": trunk[1:]}, {"peer-0": 0.5}, [], "trunk of peer-0: found float32"),
        (1, {"peer-0": trunk.astype(float)}, {"peer-0": 0.5}, [], "trunk of peer-0: found float64"),
        (1, trunks, {"peer-0": 0.5}, [frozenset({"stranger"})], "coalition: found"),
    ]
    for round, sent, weights, coalitions, message in bad:
        with pytest.raises(ValueError, match=message):
            learner.merge(round, sent, weights, coalitions)
        assert torch.equal(before, parameters(learner))
    whole = made_up(5, 1)
    narrow = made_up_center(contract, validation=Split(whole.x[:, 1:], whole.y))
    with pytest.raises(ValueError, match=f"data: found {INPUTS - 1} inputs, allowed: {INPUTS}"):
        Learner(contract, narrow, 0)


def test_the_report_judges_the_present_weights_on_the_test_split() -> None:
    contract = learning_contract()
    learner = learner_of(contract)
    first = learner.state_tensors()
    learner.train(1)
    report = learner.test_report()
    assert set(report) == {
        "rows",
        "events",
        "train_rows",
        "auroc",
        "auroc_low",
        "auroc_high",
        "auprc",
        "brier",
        "calibration_slope",
        "selected",
    }
    test = made_up_center(contract).test
    assert (report["rows"], report["events"]) == (50, test.y.sum())
    assert (report["train_rows"], report["selected"]) == (97, "last")
    with torch.no_grad():
        network = reference_network(Mlp.of(contract), parameters(learner))
        scores = network(torch.from_numpy(test.x)).squeeze(-1).numpy()
    assert report["auroc"] == pytest.approx(roc_auc_score(test.y, scores))
    assert report == learner.test_report()
    learner.load_state_tensors(first)
    assert learner.test_report()["brier"] != report["brier"]
    patient = learner_of(learning_contract({"patience": 3}))
    assert patient.test_report()["selected"] == "best"
