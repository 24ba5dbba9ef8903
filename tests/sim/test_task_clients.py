"""Clients with tasks: who gets what, what is private, and that no patient is in two splits."""

from __future__ import annotations

import numpy as np
import pytest

from abps_node.data import split_rows
from abps_node.errors import ConfigError
from sim.multi.clients import Options, assignment
from sim.multi.tasks import PATIENT, with_ratio
from tests.support.task_data import made_up_clients, made_up_tasks


def test_every_task_has_a_client_where_there_are_clients_enough() -> None:
    for seed in range(20):
        for clients in (3, 5, 10):
            drawn = assignment(3, Options(clients=clients), seed)
            assert {task for tasks in drawn for task in tasks} == {0, 1, 2}
            assert all(len(tasks) == 1 for tasks in drawn)
    first = [assignment(3, Options(clients=5), seed) for seed in range(8)]
    assert len({str(each) for each in first}) > 1


def test_clients_with_several_tasks_have_distinct_ones() -> None:
    for tasks in assignment(3, Options(clients=6, tasks_per_client=2), 1):
        assert len(set(tasks)) == 2
    clients = made_up_clients(tasks_per_client=3)
    assert {member.private for member in clients.members} == {8}


def test_no_patient_is_in_two_clients_or_two_splits() -> None:
    data = made_up_tasks()
    clients = made_up_clients()
    groups = np.array(data.table[PATIENT].to_pylist(), dtype=object)
    rows = split_rows(clients.contract.data, "any", np.zeros(groups.size), groups)
    parts = [set(groups[part]) for part in (rows.train, rows.validation, rows.test)]
    assert not (parts[0] & parts[1] or parts[0] & parts[2] or parts[1] & parts[2])
    # The split is a hash of the patient, so that the sizes of all clients add up to it, and no
    # patient is dealt twice.
    assert sum(member.size for member in clients.members) == rows.train.size
    tests = sum(member.test["common"].count for member in clients.members)
    assert tests == rows.test.size


def test_what_a_model_sees() -> None:
    clients = made_up_clients()
    assert clients.common == 5
    assert clients.padded == 8
    for member in clients.members:
        common, private = member.train["common"], member.train["private"]
        padded = member.train["padded"]
        assert not common.private.any()
        assert private.private.abs().sum() > 0
        assert padded.x.shape[1] == 8
        assert (padded.x[:, :5] == private.x).all()
        assert (padded.x[:, 5 : 5 + member.private] == private.private).all()
        assert not padded.x[:, 5 + member.private :].any()
        assert padded.private.shape[1] == 0


def test_the_same_seed_draws_the_same_clients() -> None:
    first, second = made_up_clients(seed=5), made_up_clients(seed=5)
    for one, other in zip(first.members, second.members, strict=True):
        assert one.tasks == other.tasks
        assert (one.train["padded"].x == other.train["padded"].x).all()
    assert made_up_clients(seed=6).members[0].size != 0


def test_the_disparity_ratio_moves_columns_and_keeps_them() -> None:
    data = made_up_tasks()
    everything = {f.name for f in data.common} | {f.name for t in data.tasks for f in t.private}
    for rho in (0.2, 0.375, 0.6):
        moved = with_ratio(data, rho)
        names = {f.name for f in moved.common} | {f.name for t in moved.tasks for f in t.private}
        assert names == everything
        assert moved.ratio == pytest.approx(rho, abs=0.05)
    # Withheld common features are private at every client, given ones are everybody's.
    assert "c4" in {f.name for f in with_ratio(data, 0.6).tasks[0].private}
    assert "early0" in {f.name for f in with_ratio(data, 0.2).common}


def test_impossible_options_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="rho"):
        with_ratio(made_up_tasks(), 0.99)
    with pytest.raises(ConfigError, match="tasks_per_client"):
        made_up_clients(tasks_per_client=4)
    with pytest.raises(ConfigError, match="patients"):
        made_up_clients(patients=10_000)
    with pytest.raises(ConfigError, match="clients: found 5000, allowed: at most one per patient"):
        made_up_clients(clients=5000)
