"""Clients walked abreast go where each would go alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from sim import runner
from sim.multi.abreast import Way, tune_all, walk_all
from sim.multi.base import Settings, names, net_of
from sim.multi.clients import Clients
from sim.multi.steps import mini_batches, pareto_walk, walk
from tests.support.task_data import made_up_clients

SETTINGS = Settings(local_steps=4, batch_size=32, local_rate=0.05, tuning_rate=0.05, tuning_steps=5)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in a run: networks this small only wait for each other on several."""
    with runner.one_thread():
        yield


def ways(clients: Clients, view: str = "padded") -> list[Way]:
    found = []
    for place, client in enumerate(clients.members):
        rows = client.train[view]  # type: ignore[index]
        net = net_of(rows.x.shape[1], rows.private.shape[1], names(client))
        pull = (lambda weights: 0.1 * weights) if place == 1 else None
        start = net.initial(place)
        found.append(Way(net, client.losses, rows, start, (client.id, 1), pull))
    return found


def alone(
    way: Way, settings: Settings, seed: int, size: int | None = 32
) -> tuple[torch.Tensor, torch.Tensor, np.ndarray]:
    drawn = mini_batches(way.net, way.rows, settings.local_steps, size, seed, *way.purpose)
    went = walk(way.net, way.losses, way.start, drawn, settings, way.pull)
    return went.weights, went.summed, went.losses


@pytest.mark.parametrize(
    ("view", "size", "groups"),
    [("padded", 32, 1), ("common", 32, 2), ("private", 32, 2), ("padded", None, None)],
)
def test_a_walk_abreast_is_that_of_each_alone(
    view: str, size: int | None, groups: int | None
) -> None:
    clients = made_up_clients(clients=6)
    group = ways(clients, view)
    shapes = {way.shape(size) for way in group}
    assert None not in shapes
    assert groups in (None, len(shapes))
    for way, went in zip(group, walk_all(group, SETTINGS, clients.seed, size), strict=True):
        weights, summed, losses = alone(way, SETTINGS, clients.seed, size)
        assert torch.allclose(went.weights, weights, atol=2e-5)
        assert torch.allclose(went.summed, summed, atol=2e-4)
        assert went.losses == pytest.approx(losses, abs=1e-5)
        assert went.steps == 4
        assert not torch.equal(went.weights, way.start)


def test_rows_without_an_outcome_count_for_nothing_abreast_either() -> None:
    clients = made_up_clients(clients=3)
    group = ways(clients)
    known = torch.ones(1, group[0].rows.count)
    known[:, ::3] = 0.0
    rows = group[0].rows
    group[0] = replace(group[0], rows=replace(rows, known=known, weight=rows.weight * known))
    nothing = torch.zeros(1, group[2].rows.count)
    empty = replace(group[2].rows, known=nothing, weight=nothing)
    group[2] = replace(group[2], rows=empty)
    walks = walk_all(group, SETTINGS, clients.seed, 32)
    for way, went in zip(group[:2], walks[:2], strict=True):
        weights, _, losses = alone(way, SETTINGS, clients.seed)
        assert torch.allclose(went.weights, weights, atol=2e-5)
        assert went.losses == pytest.approx(losses, abs=1e-5)
    assert torch.equal(walks[2].weights, group[2].start)


def test_in_stage_two_each_stops_where_it_is_stationary() -> None:
    clients = made_up_clients(clients=6)
    group = [replace(way, pull=None) for way in ways(clients)]
    lengths = []
    for way in group:
        drawn = mini_batches(way.net, way.rows, 1, 32, clients.seed, *way.purpose)
        lengths.append(walk(way.net, way.losses, way.start, drawn, SETTINGS).summed)
    firsts = sorted(
        float(each[: way.net.trunk_size].square().sum())
        for each, way in zip(lengths, group, strict=True)
    )
    low, high = max(pairwise(firsts), key=lambda pair: pair[1] - pair[0])
    settings = SETTINGS.model_copy(update={"stationarity": (low + high) / 2})
    walks = tune_all(group, settings, clients.seed)
    assert {went.steps for went in walks} >= {0}
    assert max(went.steps for went in walks) > 0
    for way, went in zip(group, walks, strict=True):
        drawn = mini_batches(way.net, way.rows, 5, 32, clients.seed, *way.purpose)
        one = pareto_walk(way.net, way.losses, way.start, drawn, settings, "none")
        assert went.steps == one.steps
        assert torch.allclose(went.weights, one.weights, atol=5e-5)


def test_who_cannot_march_goes_alone() -> None:
    clients = made_up_clients(clients=3, tasks_per_client=2)
    group = ways(clients)
    assert [way.shape(32) for way in group] == [None] * 3
    for way, went in zip(group, walk_all(group, SETTINGS, clients.seed, 32), strict=True):
        assert torch.equal(went.weights, alone(way, SETTINGS, clients.seed)[0])
