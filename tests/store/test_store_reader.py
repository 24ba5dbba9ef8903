"""Looking never disturbs: while the daemon writes, after it was killed, when it has ended."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import sqlite3
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from abps_node.errors import StoreError
from abps_node.store import Store
from abps_node.store.process import liveness, start_mark, this_host
from abps_node.store.reader import NoState, Reader
from abps_node.store.schema import STATE_FILE
from abps_node.store.views import RoundHead
from protocol.effects import PhaseChanged, SessionRow
from protocol.record import RestCause
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract()
FORK = multiprocessing.get_context("fork")


def files(state_dir: Path) -> list[str]:
    return sorted(path.name for path in state_dir.iterdir())


@pytest.mark.usefixtures("journal")
def test_views_of_the_rounds(tmp_path: Path) -> None:
    chronicle = Chronicle()
    commits = [
        chronicle.with_partners({"near": 0.05}),
        chronicle.resting(RestCause.ALL_BUSY, "Both peers were busy."),
        chronicle.with_partners({"far": 0.01, "near": 0.02}),
    ]
    with Store.open(tmp_path, "here", CONTRACT, clock=lambda: 5.0) as store:
        store.begin_incarnation()
        for commit in commits:
            store.commit_round(commit)
    reader = Reader(tmp_path)
    assert [entry.record for entry in reader.rounds()] == [commit.record for commit in commits]
    assert [entry.record.round for entry in reader.rounds(since=1)] == [2, 3]
    assert [entry.record.round for entry in reader.rounds(limit=2)] == [2, 3]
    assert reader.rounds(since=3) == []
    (isolated,) = reader.isolation()
    assert (isolated.round, isolated.at) == (2, 5.0)
    assert isolated.rest.explanation == "Both peers were busy."
    status = reader.status()
    assert (status.last_round, status.rounds_planned) == (3, 50)
    assert status.isolated == {"all-busy": 1}
    assert status.partners_last == ("far", "near")
    assert reader.contract == CONTRACT


def test_partners_now_are_those_of_the_round_under_way(tmp_path: Path) -> None:
    chronicle = Chronicle()
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        store.commit_round(chronicle.with_partners({"near": 0.05}))
        assert Reader(tmp_path).status().partners_now == ()
        store.phase(PhaseChanged("gathering", 2))
        states = {"near": "accepted", "far": "rejected", "third": "complete", "next": "accepted"}
        store.save_sessions(
            SessionRow(
                chronicle.session(peer), peer, 3 if peer == "next" else 2, state, False, False
            )
            for peer, state in states.items()
        )
        assert Reader(tmp_path).status().partners_now == ("near", "third")


def test_a_diverged_loss_is_kept_as_it_is(tmp_path: Path) -> None:
    commit = Chronicle().with_partners({"near": 0.05})
    record = commit.record.model_copy(update={"training_loss": float("nan")})
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        store.commit_round(type(commit)(**{**vars(commit), "record": record}))
    (entry,) = Reader(tmp_path).rounds()
    assert entry.record.training_loss != entry.record.training_loss


@pytest.mark.usefixtures("journal")
def test_a_reader_in_the_middle_of_a_write_sees_the_state_before(tmp_path: Path) -> None:
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        reader = Reader(tmp_path)
        with store._transaction() as db:
            db.execute("INSERT INTO reports VALUES ('half', 0, '{}')")
            assert reader.report("half") is None
        assert reader.report("half") == {}


def test_looking_at_an_ended_center_leaves_no_files(tmp_path: Path) -> None:
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
    assert files(tmp_path) == [STATE_FILE]
    assert Reader(tmp_path).status().condition == "stopped"
    assert files(tmp_path) == [STATE_FILE]


@pytest.mark.usefixtures("journal")
def test_a_reader_cannot_write(tmp_path: Path) -> None:
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        reader = Reader(tmp_path)
        with reader._snapshot() as db, pytest.raises(sqlite3.OperationalError, match="readonly"):
            db.execute("DELETE FROM meta")


def _commit_and_wait(state_dir: Path, pipe: Connection) -> None:
    store = Store.open(state_dir, "here", CONTRACT)
    store.begin_incarnation()
    store.commit_round(Chronicle().with_partners({"near": 0.05}))
    store.phase(PhaseChanged("training", 2))
    pipe.send("ready")
    signal.pause()


def _killed(state_dir: Path) -> int:
    """Run a center as a process, kill it with −9 once it has said something; its process id."""
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=_commit_and_wait, args=(state_dir, theirs))
    process.start()
    assert ours.recv() == "ready"
    assert process.pid is not None
    assert Reader(state_dir).alive()
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    return process.pid


def test_a_killed_center_is_read_from_its_hot_log(tmp_path: Path) -> None:
    pid = _killed(tmp_path)
    assert f"{STATE_FILE}-wal" in files(tmp_path)
    reader = Reader(tmp_path)
    status = reader.status()
    assert (status.condition, status.phase, status.phase_round) == ("dead", "training", 2)
    assert (status.pid, status.last_round) == (pid, 1)
    assert not reader.alive()
    assert reader.folded_beliefs() == reader.beliefs()

    with Store.open(tmp_path, "here", CONTRACT) as store:
        assert store.begin_incarnation() == 2
        assert store.recover().last_round == 1


def test_a_copy_of_a_killed_center_can_be_read_without_its_shared_memory(tmp_path: Path) -> None:
    _killed(tmp_path / "state")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (STATE_FILE, f"{STATE_FILE}-wal"):
        shutil.copy(tmp_path / "state" / name, copy / name)
    assert Reader(copy).status().last_round == 1


def test_a_later_process_with_the_same_id_is_another() -> None:
    pid, host = os.getpid(), this_host()
    mark = start_mark(pid)
    assert mark is not None
    assert liveness(pid, mark, host) == "alive"
    assert liveness(pid, str(int(mark) + 1), host) == "dead"
    assert liveness(pid, mark, "another-machine") == "elsewhere"


def test_a_zombie_is_dead() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{pid}").exists()
    assert liveness(pid, start_mark(pid), this_host()) == "dead"
    os.waitpid(pid, 0)
    assert liveness(pid, None, this_host()) == "dead"


# What whoever looks at hundreds reads ------------------------------------------------------------


def test_rounds_at_a_glance(tmp_path: Path) -> None:
    chronicle = Chronicle()
    commits = [
        chronicle.with_partners({"near": 0.05, "far": None}, validation=0.61),
        chronicle.resting(RestCause.ALL_BUSY, "first"),
        chronicle.resting(RestCause.BELOW_THRESHOLD, "second"),
        chronicle.resting(RestCause.ALL_BUSY, "third"),
        chronicle.with_partners({"near": 0.02}, validation=0.72),
    ]
    with Store.open(tmp_path, "here", CONTRACT, clock=lambda: 5.0) as store:
        store.begin_incarnation()
        for commit in commits:
            store.commit_round(commit)
    reader = Reader(tmp_path)
    busy, below = RestCause.ALL_BUSY, RestCause.BELOW_THRESHOLD
    assert reader.heads() == [
        RoundHead(1, 5.0, 1, None),
        RoundHead(2, 5.0, 0, busy),
        RoundHead(3, 5.0, 0, below),
        RoundHead(4, 5.0, 0, busy),
        RoundHead(5, 5.0, 1, None),
    ]
    assert reader.validations() == {1: 0.61, 2: 0.7, 3: 0.7, 4: 0.7, 5: 0.72}
    assert [entry.record for entry in reader.newest_rests()] == [
        commits[2].record,
        commits[3].record,
    ]
    assert reader.merges() == {"near": 2}


def test_a_lock_is_waited_for_as_long_as_one_says(tmp_path: Path) -> None:
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
    holder = sqlite3.connect(tmp_path / STATE_FILE, isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match=r"has held the file for more than 0\.05 s"):
        Reader(tmp_path, patience_s=0.05)
    holder.close()
    assert Reader(tmp_path, patience_s=0.05).condition() == "stopped"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE rounds SET record = '{\"round\": 1'",
        "UPDATE rounds SET record = '{}'",
        "UPDATE meta SET contract = 'no contract'",
        "DELETE FROM meta",
    ],
)
def test_a_text_that_is_not_what_was_written_is_damage(tmp_path: Path, damage: str) -> None:
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        store.commit_round(Chronicle().with_partners({"near": 0.05}))
    with sqlite3.connect(tmp_path / STATE_FILE) as database:
        database.execute(damage)
    database.close()
    with pytest.raises(StoreError, match="is damaged or not a state file"):
        Reader(tmp_path).status()


def test_a_center_that_has_not_begun_is_nothing_to_worry_about(tmp_path: Path) -> None:
    with pytest.raises(NoState):
        Reader(tmp_path)
    (tmp_path / STATE_FILE).touch()
    with pytest.raises(NoState):
        Reader(tmp_path)
