"""Who notices that a job has lost its script, with a Slurm that answers as told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launch import batch_host
from launch.batch_host import has_script, outlive_script


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose file ``answer`` is what squeue prints; calls of scontrol are written down."""
    commands = tmp_path / "bin"
    commands.mkdir()
    squeue, scontrol = commands / "squeue", commands / "scontrol"
    squeue.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\n")
    scontrol.write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n[ "$1" = show ] && echo "$3" | tr , "\\n"\n'
    )
    for program in (squeue, scontrol):
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")
    monkeypatch.setattr(batch_host, "POLL_S", 0.01)
    monkeypatch.setattr(batch_host, "ASK_S", 0.0)
    return tmp_path


@pytest.mark.parametrize(
    ("answer", "there"), [("n1 n1,n2", True), ("n1 n2,n3", False), ("", True), ("n1", True)]
)
def test_a_job_without_its_first_node_has_no_script(slurm: Path, answer: str, there: bool) -> None:
    (slurm / "answer").write_text(answer)
    assert has_script("7") is there


def test_nobody_answers(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert has_script("7"), "squeue has failed"
    monkeypatch.setenv("PATH", str(slurm))
    assert has_script("7"), "there is no squeue"


def test_the_first_task_has_left(slurm: Path) -> None:
    said: list[str] = []
    outlive_script("7", slurm / "start-7-0", said.append)
    assert said == [] and not (slurm / "asked").exists()


def test_a_job_without_a_script_begins_anew(slurm: Path) -> None:
    (slurm / "answer").write_text("n1 n2")
    (slurm / "0").touch()
    said: list[str] = []
    outlive_script("7", slurm, said.append)
    assert (slurm / "asked").read_text() == "show hostnames n2\nrequeue 7\n"
    assert said == ["the node of the job's script is lost; the job begins anew"]


def test_a_first_task_that_stays_is_not_awaited_for_ever(
    slurm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_host, "LIMIT_S", 0.1)
    (slurm / "answer").write_text("n1 n1,n2")
    (slurm / "0").touch()
    outlive_script("7", slurm, pytest.fail)
    assert "requeue" not in (slurm / "asked").read_text()
