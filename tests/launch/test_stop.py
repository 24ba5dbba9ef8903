"""`abps launch stop`: the very process that is recorded, on this host, and nobody else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from abps_node.store.process import start_mark, this_host
from launch import running
from launch.layout import FederationLayout
from launch.slurm_queue import Queued
from launch.stop import Stop
from launch.supervisor import LaunchError
from tests.support import half_dead as made
from tests.support.center_processes import last_round, wait_until
from tests.support.command_line import abps
from tests.support.layouts import small_federation

Start = Callable[[str], "subprocess.Popen[str]"]
WAIT_S = 60.0
OBEDIENT = "signal.signal(15, lambda *_: sys.exit(0)); "
DEAF = "signal.signal(15, signal.SIG_IGN); "


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    return small_federation(tmp_path / "fed", rounds=9)


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[subprocess.Popen[str]] = []

    def run(code: str) -> subprocess.Popen[str]:
        script = f"import signal, sys, time; {code}print('up', flush=True); time.sleep(600)"
        process = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
        )
        begun.append(process)
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        return process

    yield run
    for process in begun:
        process.kill()
        process.communicate()


def record(layout: FederationLayout, pid: int, **more: object) -> Path:
    values = {"host": this_host(), "pid": pid, "mark": start_mark(pid), "job": None, **more}
    path = layout.directory / running.FOLDER / f"{values['host']}-{pid}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(values))
    return path


def stop(layout: FederationLayout, wait_s: float = WAIT_S) -> tuple[bool, str]:
    said: list[str] = []
    return Stop(layout, said.append, wait_s).run(), "\n".join(said)


def test_nothing_runs(layout: FederationLayout) -> None:
    outcome = abps("launch", "stop", layout.directory)
    assert (outcome.code, outcome.out) == (0, "Nothing of this federation runs here.\n")


def test_a_supervisor_is_asked_to_end_and_awaited(layout: FederationLayout, start: Start) -> None:
    process = start(OBEDIENT)
    record(layout, process.pid)
    assert stop(layout) == (
        True,
        f"supervisor {process.pid}: ended\n0 centers were running; now: none has a state",
    )
    assert process.wait(WAIT_S) == 0


def test_one_that_does_not_end_is_told_and_left_alive(
    layout: FederationLayout, start: Start
) -> None:
    process = start(DEAF)
    record(layout, process.pid)
    ended, said = stop(layout, wait_s=0.3)
    assert not ended
    assert said == f"supervisor {process.pid}: still runs 0 s after SIGTERM"
    assert process.poll() is None


def test_a_stranger_with_its_id_is_left_alone(layout: FederationLayout, start: Start) -> None:
    process = start("")
    path = record(layout, process.pid, mark="1")
    ended, said = stop(layout)
    assert ended
    assert said.splitlines()[0] == f"supervisor {process.pid}: was gone already, without a word"
    assert process.poll() is None and not path.exists()


def test_a_supervisor_elsewhere_is_only_named(layout: FederationLayout) -> None:
    path = record(layout, 1, host="far-away")
    outcome = abps("launch", "stop", layout.directory)
    assert outcome.code == 1
    assert outcome.out == (
        f"supervisor 1: runs on far-away, if at all; this is {this_host()}: "
        "give the same command there\n"
    )
    assert path.exists()


def test_a_center_without_a_supervisor_is_ended_too(layout: FederationLayout, start: Start) -> None:
    process = start(OBEDIENT)
    far, near = layout.centers
    made.write(far, made.some(far, 2), pid=process.pid)
    made.write(near, made.some(near, 2))
    ended, said = stop(layout)
    assert ended
    assert said.splitlines() == [
        f"far, process {process.pid}: ended",
        "1 center was running; now: 1 dead, 1 stopped",
    ]
    assert process.wait(WAIT_S) == 0


# Records ----------------------------------------------------------------------------------------


def test_a_supervisor_is_recorded_while_it_runs_and_clears_up_after_the_dead(
    layout: FederationLayout,
) -> None:
    stale, elsewhere = record(layout, 1, mark="0"), record(layout, 1, host="far-away")
    with running.recorded(layout.directory, None):
        (mine,) = [
            each for _, each in running.supervisors(layout.directory) if each.host != "far-away"
        ]
        assert (mine.pid, mine.liveness(), mine.job) == (os.getpid(), "alive", None)
        assert elsewhere.exists() and not stale.exists()
    assert [path for path, _ in running.supervisors(layout.directory)] == [elsewhere]


def test_a_torn_record_is_none(layout: FederationLayout) -> None:
    path = record(layout, 1)
    path.write_text('{"host": "x"')
    running.note_job(layout.directory, "17")
    assert running.supervisors(layout.directory) == []
    assert [each.job for _, each in running.jobs(layout.directory)] == ["17"]


def test_a_directory_that_cannot_be_written_is_named(layout: FederationLayout) -> None:
    (layout.directory / running.FOLDER).write_text("")
    with pytest.raises(LaunchError, match=r"supervisors/.*: cannot be written"):
        running.note_job(layout.directory, "17")


# Jobs -------------------------------------------------------------------------------------------

SQUEUE = """#!/bin/sh
[ -e "$HERE/gone" ] && { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
cat "$HERE/queue"
"""
SCANCEL = """#!/bin/sh
[ -e "$HERE/refuse" ] && { echo "scancel: error: Access denied" >&2; exit 1; }
echo "$1" >> "$HERE/cancelled"; touch "$HERE/gone"
"""


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a made-up squeue and scancel look; the real ones are asked in ``tests/slurm``."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in (("squeue", SQUEUE), ("scancel", SCANCEL)):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HERE", str(folder))
    return folder


def test_a_job_is_cancelled_by_its_number(layout: FederationLayout, queue: Path) -> None:
    running.note_job(layout.directory, "17")
    (queue / "queue").write_text(f"RUNNING|{layout.directory.resolve()}|x.sbatch\n")
    ended, said = stop(layout)
    assert ended
    assert said.splitlines()[0] == "job 17: cancelled, was RUNNING"
    assert (queue / "cancelled").read_text() == "17\n"
    assert running.jobs(layout.directory) == []


def test_the_tasks_of_a_job_that_was_submitted_by_hand_lead_to_it(
    layout: FederationLayout, queue: Path
) -> None:
    record(layout, 1, host="node-1", job="18")
    script = f"RUNNING|/home/me|/opt/launch/federation.sbatch {layout.directory} --interface lo\n"
    (queue / "queue").write_text(script)
    ended, said = stop(layout)
    assert (ended, said.splitlines()[0]) == (True, "job 18: cancelled, was RUNNING")


def test_a_job_of_others_with_its_number_is_left_alone(
    layout: FederationLayout, queue: Path
) -> None:
    running.note_job(layout.directory, "17")
    (queue / "queue").write_text("RUNNING|/home/you|/home/you/train.sh 3\n")
    ended, said = stop(layout)
    assert not ended
    assert said == "job 17: runs /home/you/train.sh 3 in /home/you, which is not this federation"
    assert not (queue / "cancelled").exists()


def test_a_job_that_is_over_is_forgotten(layout: FederationLayout, queue: Path) -> None:
    running.note_job(layout.directory, "17")
    (queue / "gone").touch()
    assert stop(layout) == (True, "Nothing of this federation runs here.")
    assert running.jobs(layout.directory) == []


def test_a_refused_cancellation_is_told(layout: FederationLayout, queue: Path) -> None:
    running.note_job(layout.directory, "17")
    (queue / "queue").write_text(f"PENDING|{layout.directory.resolve()}|x.sbatch\n")
    (queue / "refuse").touch()
    assert stop(layout) == (False, "job 17: not cancelled: scancel: error: Access denied")


def test_where_slurm_does_not_answer(
    layout: FederationLayout, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    running.note_job(layout.directory, "17")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert stop(layout) == (
        False,
        "job 17: Slurm does not answer here; on a login node: scancel 17",
    )


@pytest.mark.parametrize(
    ("folder", "command", "ours"),
    [
        ("/fed", "/x/y.sh", True),
        ("/home", "/x/federation.sbatch /fed", True),
        ("/", "/x/federation.sbatch fed --interface lo", True),
        ("/home", "/x/federation.sbatch /other", False),
        ("/home", "/x/train.sh /fed", False),
        ("/home", "", False),
    ],
)
def test_whose_job_it_is(folder: str, command: str, ours: bool) -> None:
    assert Queued("RUNNING", folder, command).belongs_to(Path("/fed")) == ours


# Real -------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_running_federation_ends_with_whole_rounds(tmp_path: Path) -> None:
    from abps_node.store.reader import Reader

    layout = small_federation(tmp_path / "fed", rounds=500)
    command = [sys.executable, "-m", "abps_node", "launch", "local", str(layout.directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_until(lambda: _rounds(layout) >= 2, "two rounds of both")
        outcome = abps("launch", "stop", layout.directory)
        assert outcome.code == 0, outcome.out
        lines = outcome.out.splitlines()
        assert lines == [
            f"supervisor {process.pid}: ended",
            "2 centers were running; now: 2 stopped",
        ]
        said, _ = process.communicate(timeout=WAIT_S)
        assert process.returncode == 1
        assert "Stopped. The same command goes on where the centers stopped." in said
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    for center in layout.centers:
        assert Reader(center.state_dir).condition() == "stopped"
    assert not list((layout.directory / running.FOLDER).iterdir())


def _rounds(layout: FederationLayout) -> int:
    return min(last_round(center) for center in layout.centers)
