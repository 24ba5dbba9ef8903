"""Federations as jobs of a real Slurm: to the end, without a node, broken off, and begun anew."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from abps_node.errors import StoreError
from abps_node.store.reader import Reader
from abps_node.store.views import Status
from launch.layout import FederationLayout, write_federation
from launch.summary import summarize
from protocol.contract import Pacing
from tests.support.command_line import abps
from tests.support.layouts import patients
from tests.support.records import make_contract
from tests.support.slurm_cluster import Cluster, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PLAIN = Path(__file__).parents[2] / "launch" / "federation.sbatch"
UP_S = 100.0
"""From the submission to a few rounds: four times torch on few cores."""
ENDED_S = 150.0


def federation(directory: Path, centers: int, rounds: int) -> FederationLayout:
    pacing = Pacing(round_min_s=0.5, linger_s=8.0)
    contract = make_contract(rounds=rounds).model_copy(update={"pacing": pacing})
    names = [f"c{number:02d}" for number in range(1, centers + 1)]
    return write_federation(directory, contract, dict.fromkeys(names, patients()))


def submit(layout: FederationLayout, *options: str) -> str:
    """By `abps launch slurm`; the job's number."""
    outcome = abps("launch", "slurm", layout.directory, "--interface", "lo", *options)
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.out.removeprefix("Job ").partition(":")[0]


def statuses(layout: FederationLayout) -> dict[str, Status | None]:
    found: dict[str, Status | None] = {}
    for center in layout.centers:
        try:
            found[center.id] = Reader(center.state_dir).status()
        except StoreError:
            found[center.id] = None  # not begun
    return found


def every(layout: FederationLayout, holds: Callable[[Status], bool]) -> bool:
    return all(status is not None and holds(status) for status in statuses(layout).values())


def finished(layout: FederationLayout) -> bool:
    return every(layout, lambda status: status.condition == "finished")


def reach(layout: FederationLayout, rounds: int) -> None:
    """Wait until every center has committed so many rounds."""
    what = f"not every center has {rounds} rounds; {printed(layout)}"
    wait_until(lambda: every(layout, lambda status: status.last_round >= rounds), UP_S, what)


def printed(layout: FederationLayout) -> str:
    return "\n".join(path.read_text() for path in sorted(layout.directory.glob("slurm/*.txt")))


def check_whole_rounds(layout: FederationLayout) -> None:
    """Whatever happened: rounds without gaps and beliefs that follow from them."""
    for center in layout.centers:
        reader = Reader(center.state_dir)
        rounds = [entry.record.round for entry in reader.rounds()]
        assert rounds == list(range(1, len(rounds) + 1)), center.id
        assert reader.beliefs() == reader.folded_beliefs(), center.id


def test_twelve_centers_on_four_nodes_run_to_the_end(tmp_path: Path, cluster: Cluster) -> None:
    layout = federation(tmp_path / "fed", 12, rounds=4)
    job = submit(layout, "--nodes", "4", "--centers-per-node", "3")
    assert cluster.wait(job, ENDED_S) == "COMPLETED", printed(layout)
    for row in summarize(layout):
        assert (row.finished, row.rounds) == (True, 4), row.id
        assert row.alone is not None and row.federated is not None
    nodes = [(layout.directory / "slurm" / f"job-{job}-task-{t}.txt").read_text() for t in range(4)]
    assert "on 127.0.0.1: c03, c07, c11" in nodes[2]
    assert any(len(row.partners) > 2 for row in summarize(layout)), "beyond the own node"
    assert not list((layout.directory / "cards").iterdir()), "cards are withdrawn"
    assert not list((layout.directory / "slurm").glob("start-*"))
    check_whole_rounds(layout)


def test_a_lost_node_costs_its_own_centers_only(tmp_path: Path, cluster: Cluster) -> None:
    layout = federation(tmp_path / "fed", 8, rounds=12)
    job = submit(layout, "--nodes", "4")
    reach(layout, 2)
    cluster.cut_power("n3")
    lost = {"c03", "c07"}
    rest = FederationLayout(layout.directory, tuple(c for c in layout.centers if c.id not in lost))
    wait_until(lambda: finished(rest), ENDED_S, "the others have not finished")
    assert cluster.wait(job, ENDED_S) == "FAILED"
    assert "Not finished: c03, c07." in printed(layout)
    for name, status in statuses(layout).items():
        assert status is not None
        assert (status.condition == "dead") == (name in lost)
    assert cluster.job(job)["Restarts"] == "0"
    check_whole_rounds(layout)


def test_with_the_first_node_goes_the_script_and_the_job_begins_anew(
    tmp_path: Path, cluster: Cluster
) -> None:
    layout = federation(tmp_path / "fed", 4, rounds=8)
    job = submit(layout, "--nodes", "2")
    reach(layout, 2)
    cluster.cut_power(cluster.job(job)["BatchHost"])
    assert cluster.wait(job, ENDED_S) == "COMPLETED", printed(layout)
    assert cluster.job(job)["Restarts"] == "1"
    assert finished(layout)
    assert "the node of the job's script is lost; the job begins anew" in printed(layout)
    check_whole_rounds(layout)


def test_a_job_that_is_requeued_goes_on_where_it_was(tmp_path: Path, cluster: Cluster) -> None:
    layout = federation(tmp_path / "fed", 4, rounds=10)
    program = Path(sys.executable).with_name("abps")
    job = cluster.sbatch(
        "--nodes=2",
        f"--export=ALL,ABPS={program}",
        f"--output={tmp_path}/job.txt",
        str(PLAIN),
        str(layout.directory),
        "--interface",
        "lo",
    )
    reach(layout, 2)
    cluster.requeue(job)
    assert cluster.wait(job, ENDED_S) == "COMPLETED", printed(layout)
    assert cluster.job(job)["Restarts"] == "1"
    assert every(layout, lambda status: status.incarnation == 2 and status.last_round == 10)
    text = printed(layout)
    assert "Going on after the last committed rounds (c01 " in text
    assert f"job {job}, restart 1, task 1 on 127.0.0.1: c02, c04" in text
    check_whole_rounds(layout)


def test_a_cancelled_job_leaves_whole_rounds_and_is_submitted_again(
    tmp_path: Path, cluster: Cluster
) -> None:
    layout = federation(tmp_path / "fed", 4, rounds=8)
    job = submit(layout, "--nodes", "2")
    reach(layout, 2)
    cluster.cancel(job)
    assert cluster.wait(job, ENDED_S) == "CANCELLED"
    assert every(layout, lambda status: status.condition in ("stopped", "dead"))
    assert "once more" not in printed(layout), "Slurm repeats its signals"
    check_whole_rounds(layout)
    again = submit(layout, "--centers-per-node", "4")
    assert cluster.wait(again, ENDED_S) == "COMPLETED", printed(layout)
    assert every(layout, lambda status: status.condition == "finished" and status.last_round == 8)
    check_whole_rounds(layout)


def test_stop_cancels_the_job_however_it_was_submitted(tmp_path: Path, cluster: Cluster) -> None:
    layout = federation(tmp_path / "fed", 4, rounds=500)
    by_command = submit(layout, "--nodes", "2")
    reach(layout, 2)
    check_stopped(layout, cluster, by_command)
    program = Path(sys.executable).with_name("abps")
    by_hand = cluster.sbatch(
        "--nodes=2",
        f"--export=ALL,ABPS={program}",
        f"--output={tmp_path}/job.txt",
        str(PLAIN),
        str(layout.directory),
        "--interface",
        "lo",
    )
    wait_until(
        lambda: every(layout, lambda status: status.incarnation == 2 and status.phase_round > 0),
        UP_S,
        "not every center goes on",
    )
    check_stopped(layout, cluster, by_hand)
    assert abps("launch", "stop", layout.directory).out == "Nothing of this federation runs here.\n"


def check_stopped(layout: FederationLayout, cluster: Cluster, job: str) -> None:
    """`abps launch stop` ends the job, and every center says goodbye."""
    outcome = abps("launch", "stop", layout.directory)
    assert outcome.code == 0, outcome.out
    assert outcome.out.splitlines() == [
        f"job {job}: cancelled, was RUNNING",
        "4 centers were running; now: 4 stopped",
    ]
    assert cluster.state(job) == "CANCELLED"
    check_whole_rounds(layout)


def test_before_the_time_limit_all_say_goodbye(tmp_path: Path, cluster: Cluster) -> None:
    layout = federation(tmp_path / "fed", 4, rounds=500)
    job = submit(layout, "--nodes", "2")
    reach(layout, 2)
    cluster.warn(job)
    assert cluster.wait(job, ENDED_S) == "FAILED", "not all rounds are done"
    assert every(layout, lambda status: status.condition == "stopped")
    assert not list((layout.directory / "cards").iterdir()), "cards are withdrawn"
    check_whole_rounds(layout)
