"""The methods of FedCARE's tables against what their papers say, on made-up clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from abps_node.learning.min_norm import min_norm
from abps_node.learning.objective_step import gradients
from sim.multi.base import Settings, names, net_of
from sim.multi.methods import METHODS
from sim.multi.methods.fedavg import FedAvg
from sim.multi.methods.fedcare import FedCare
from sim.multi.methods.fedprox import FedProx
from sim.multi.methods.fsmgda import Fsmgda
from sim.multi.methods.pafnet import PafNet
from sim.multi.runner import assess
from sim.multi.steps import mini_batches, walk
from tests.support.task_data import made_up_clients

QUICK = Settings(rounds=3, local_steps=2, batch_size=32, tuning_steps=4, optimizer="adam")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a run: networks this small only wait for each other on several."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def played(name: str, settings: Settings = QUICK, **options: Any) -> tuple[Any, Any, Any]:
    clients, method = made_up_clients(**options), METHODS[name].make()
    state = method.init(clients, settings)
    for t in range(1, method.rounds(clients, settings) + 1):
        method.round(clients, settings, state, t)
    method.finish(clients, settings, state)
    return clients, method, state


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("tasks", [1, 2])
def test_every_method_runs_twice_alike(name: str, tasks: int) -> None:
    found = []
    for _ in range(2):
        clients, method, state = played(name, clients=3, tasks_per_client=tasks)
        found.append([method.model(clients, QUICK, state, place) for place in range(3)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.weights, other.weights)
        assert one.weights.isfinite().all()
        assert one.weights.numel() == one.net.size


@pytest.mark.parametrize("name", ["local-only", "fedavg+tune", "pafnet", "fedcare", "abps+pareto"])
def test_what_can_be_learned_is_learned(name: str) -> None:
    settings = Settings(
        rounds=12,
        batch_size=64,
        local_rate=0.01,
        tuning_rate=0.01,
        tuning_steps=40,
        optimizer="adam",
    )
    clients, method, state = played(name, settings, clients=3)
    tasks = assess(clients, settings, method, state)["tasks"]
    assert tasks["early"]["mean"] > 0.7
    assert tasks["back"]["mean"] > 0.7
    days = np.concatenate(
        [m.data.objectives.test.y[:, 0] for m in clients.members if names(m) == ("stay",)]
    )
    assert tasks["stay"]["mean"] < np.abs(days - np.median(days)).mean()


def test_one_round_of_fsmgda_is_the_algorithm_step_by_step() -> None:
    clients, settings = made_up_clients(clients=4), Settings(local_steps=2, batch_size=32)
    method = Fsmgda()
    state = method.init(clients, settings)
    before = state.shared.weights.clone()
    stats = method.round(clients, settings, state, 1)
    deltas = {task.name: torch.zeros_like(before) for task in clients.tasks}
    rows = {task.name: 0 for task in clients.tasks}
    for client in clients.members:
        (task,) = client.tasks
        net, weights = state.shared.net_for(client), torch.zeros(0)
        weights = torch.cat([before[: net.trunk_size], before[state.shared.head(task.name)]])
        summed = torch.zeros_like(weights)
        drawn = mini_batches(net, client.train["padded"], 2, 32, clients.seed, client.id, 1)
        for batch, masks in drawn:
            found = gradients(net, client.losses, weights, batch, masks)
            gradient = torch.cat([found.trunk[0], found.heads])
            summed += gradient
            weights = weights - 0.001 * gradient
        deltas[task.name] += client.size * state.shared.spread(summed, task.name)
        rows[task.name] += client.size
    table = torch.stack([deltas[t.name] / rows[t.name] for t in clients.tasks]).double()
    weights_of = min_norm((table @ table.T).numpy()).weights
    assert stats.weights == pytest.approx(weights_of, abs=1e-4)
    expected = before - 0.01 * (torch.from_numpy(weights_of) @ table).float()
    assert torch.allclose(state.shared.weights, expected, atol=1e-6)


def test_min_norm_neglects_the_longest_gradient_and_unit_length_mends_it() -> None:
    clients = made_up_clients(clients=3)
    settings = Settings(local_steps=2, batch_size=32)
    found = {}
    for kind in ("none", "unit"):
        changed = settings.model_copy(update={"normalization": kind})
        method = Fsmgda()
        stats = method.round(clients, changed, method.init(clients, changed), 1)
        assert stats.weights is not None and stats.gram is not None
        found[kind] = stats.weights[int(stats.gram.diagonal().argmax())]
    assert found["unit"] > found["none"]


def test_the_servers_trunk_ignores_private_features_in_stage_one() -> None:
    clients = made_up_clients(clients=3)
    method = FedCare(stage2=False)
    state = method.init(clients, QUICK)
    method.round(clients, QUICK, state, 1)
    trunk = state.trunk.clone()
    for client in clients.members:
        client.train["private"].private.zero_()
    again = method.init(clients, QUICK)
    method.round(clients, QUICK, again, 1)
    assert torch.equal(again.trunk, trunk)
    # The columns of a head for private features see zeros, and get no gradient.
    model = method.model(clients, QUICK, state, 0)
    start = model.net.initial(clients.contract.model.init_seed)
    first = slice(model.net.trunk_size, model.net.trunk_size + 64 * model.net.head_widths[0])
    moved = (model.weights - start)[first].view(64, -1)
    assert not moved[:, 64:].any()
    assert moved[:, :64].any()


def test_stage_two_starts_where_stage_one_ended() -> None:
    settings = QUICK.model_copy(update={"tuning_steps": 0})
    clients, method, state = played("fedcare", settings, clients=3)
    _, plain, other = played("fedcare-b", settings, clients=3)
    one, two = method.model(clients, settings, state, 1), plain.model(clients, settings, other, 1)
    assert torch.equal(one.weights, two.weights)
    assert (one.view, two.view) == ("private", "common")


def test_fedavg_is_the_mean_by_rows_and_heads_belong_to_their_tasks() -> None:
    # Not by Adam, which makes a whole step of a gradient's last bit.
    settings = QUICK.model_copy(update={"optimizer": "sgd", "local_rate": 0.05})
    clients = made_up_clients(clients=4)
    method = FedAvg()
    state = method.init(clients, settings)
    start = {m.id: state.shared.of(m) for m in clients.members}
    method.round(clients, settings, state, 1)
    trained = {}
    for client in clients.members:
        net = state.shared.net_for(client)
        drawn = mini_batches(net, client.train["padded"], 2, 32, clients.seed, client.id, 1)
        trained[client.id] = walk(net, client.losses, start[client.id], drawn, settings).weights
    size, total = state.shared.net.trunk_size, sum(m.size for m in clients.members)
    mean = sum(m.size / total * trained[m.id][:size].double() for m in clients.members)
    assert torch.allclose(state.shared.trunk.double(), mean, atol=1e-6)
    for task in clients.tasks:
        mine = [clients.members[place] for place in clients.with_task(task)]
        rows = sum(m.size for m in mine)
        head = sum(m.size / rows * trained[m.id][size:].double() for m in mine)
        assert torch.allclose(
            state.shared.weights[state.shared.head(task.name)].double(), head, atol=1e-6
        )


def test_a_step_of_the_servers_rate_is_fedavg_where_both_rates_are_one() -> None:
    settings = Settings(rounds=1, local_steps=3, batch_size=32, local_rate=0.05, global_rate=0.05)
    clients = made_up_clients(clients=4)
    found = []
    for method in (FedAvg(), FedAvg(server="global-rate")):
        state = method.init(clients, settings)
        method.round(clients, settings, state, 1)
        found.append(state.shared.weights)
    assert torch.allclose(found[0], found[1], atol=1e-6)


def test_fedprox_stays_closer_than_fedavg() -> None:
    clients = made_up_clients(clients=3)
    settings = Settings(rounds=1, local_steps=20, batch_size=32, local_rate=0.05)
    far = []
    for method in (FedAvg(), FedProx(mu=10.0)):
        state = method.init(clients, settings)
        before = state.shared.weights.clone()
        method.round(clients, settings, state, 1)
        far.append(float((state.shared.weights - before).norm()))
    assert far[1] < far[0]


def test_one_output_for_all_tasks_is_one_head() -> None:
    settings = QUICK.model_copy(update={"heads": "one"})
    clients, method, state = played("fedavg", settings, clients=3)
    heads = {
        tuple(method.model(clients, settings, state, place).weights[-1:].tolist())
        for place in range(3)
    }
    assert len(heads) == 1


def test_pafnets_folded_model_predicts_what_its_parts_do() -> None:
    clients, method, state = played("pafnet", clients=3)
    for place, client in enumerate(clients.members):
        model = method.model(clients, QUICK, state, place)
        rows = client.test["joined"]
        statistics = model.net.statistics(model.weights, client.train["joined"].x)
        outputs = model.net.outputs(model.weights, rows.x, rows.private, statistics)
        latent = net_of(clients.common, 0, names(client))
        size, own = latent.trunk_size, state.own[place]
        inputs = rows.x.shape[1]
        projection = own[: clients.common * inputs].view(clients.common, inputs)
        mask = own[clients.common * inputs :][:size]
        weights = torch.cat(
            [
                state.common[place] * 2 * torch.sigmoid(mask),
                own[clients.common * inputs + size :],
            ]
        )
        seen = latent.statistics(weights, client.train["joined"].x @ projection.T)
        apart = latent.outputs(weights, rows.x @ projection.T, rows.private, seen)
        assert torch.allclose(outputs, apart, atol=1e-4)
    assert isinstance(method, PafNet)
