"""One node's task: who it is, where its centers are found, and its waiting for the others."""

from __future__ import annotations

import platform
import socket
import threading
from pathlib import Path

import pytest

from abps_node.addresses import with_real_port
from launch import muster, slurm_task
from launch.muster import mustered
from launch.slurm_task import Task, address_of, node_host, run_task
from launch.supervisor import LaunchError
from tests.support.command_line import abps
from tests.support.layouts import small_federation

SRUN = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "2", "SLURM_NTASKS": "3"}


def test_who_am_i() -> None:
    assert Task.here(SRUN) == Task("7", 0, 2, 3)
    assert Task.here({**SRUN, "SLURM_RESTART_COUNT": "1"}).restarts == 1


def test_outside_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SRUN:
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(LaunchError, match="SLURM_PROCID, SLURM_NTASKS: not set; srun starts this"):
        Task.here({"SLURM_JOB_ID": "7"})
    outcome = abps("launch", "slurm-task", tmp_path)
    assert outcome.code == 1 and "not set" in outcome.err


def test_a_task_too_many_has_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = small_federation(tmp_path / "fed")
    assert run_task(layout, Task("7", 0, 2, 3), gather_s=0) == 0
    assert capsys.readouterr().out == "task 2: no center is left for it\n"


def test_a_center_is_placed_where_others_reach_it(tmp_path: Path) -> None:
    center = small_federation(tmp_path / "fed").centers[0]
    by_name = slurm_task._placed(center, "node7", None)
    assert (by_name.bind, by_name.advertise) == ("tcp://*:0", "tcp://node7:0")
    by_network = slurm_task._placed(center, "10.1.0.7", "ib0")
    assert (by_network.bind, by_network.advertise) == ("tcp://10.1.0.7:0", "tcp://10.1.0.7:0")


def test_port_0_stands_for_the_real_one() -> None:
    assert with_real_port("tcp://node7:0", "tcp://0.0.0.0:4711") == "tcp://node7:4711"
    assert with_real_port("tcp://node7:5555", "tcp://0.0.0.0:4711") == "tcp://node7:5555"


def test_the_address_of_a_network() -> None:
    assert address_of("lo") == "127.0.0.1"
    with pytest.raises(LaunchError, match=r"--interface: found 'ib7', allowed on .*: .*\blo\b"):
        address_of("ib7")


def test_a_name_that_leads_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: [])
    assert node_host() == platform.node()
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(LaunchError, match=r"Name or service not known.*--interface ib0"):
        node_host()


def test_tasks_wait_for_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(muster, "POLL_S", 0.01)
    folder, together = tmp_path / "start-7-0", threading.Barrier(3)
    seen: list[int] = []

    def task(name: str) -> None:
        with mustered(folder, name, 3, 60.0, lambda text: None) as here:
            seen.append(here)
            together.wait(60.0)  # nobody signs out before all have seen all

    threads = [threading.Thread(target=task, args=(name,)) for name in "012"]
    threads[0].start()
    threads[1].start()
    assert seen == []
    threads[2].start()
    for thread in threads:
        thread.join()
    assert seen == [3, 3, 3]
    assert not folder.exists()


def test_who_looks_late_knows_that_all_were_there(tmp_path: Path) -> None:
    folder = tmp_path / "start-7-0"
    with mustered(folder, "1", 1, 60.0, lambda text: None):
        with mustered(folder, "0", 2, 60.0, lambda text: None) as here:
            assert here == 2
        with mustered(folder, "0", 3, 0.0, lambda text: None) as here:
            assert here == 3, "more would have been awaited, were they not known to have come"
    assert not folder.exists()


def test_who_never_comes_is_not_awaited_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(muster, "POLL_S", 0.01)
    monkeypatch.setattr(muster, "SIGN_OF_LIFE_S", 0.05)
    said: list[str] = []
    with mustered(tmp_path / "start", "0", 2, 0.2, said.append) as here:
        assert here == 1
    assert said[0] == "waiting for 1 of 2 tasks"
    assert said[-1] == "1 of 2 tasks came within 0.2 s; starting without the others"
