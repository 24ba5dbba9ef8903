"""On a file system that several machines share the store does without a write-ahead log."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
from pathlib import Path

import pytest

from abps_node.errors import StoreError
from abps_node.store import Store, connection
from abps_node.store.reader import Reader
from abps_node.store.schema import STATE_FILE
from tests.support.mounts import pretend
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract()
FORK = multiprocessing.get_context("fork")
JOURNAL = f"{STATE_FILE}-journal"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state directory on a network disk."""
    pretend(monkeypatch, tmp_path, "lustre")
    return tmp_path / "state"


def pragma(store: Store, name: str) -> object:
    return store._db.execute(f"PRAGMA {name}").fetchone()[0]


def local_state(tmp_path: Path) -> Store:
    """One round, on a local disk."""
    store = Store.open(tmp_path / "state", "here", CONTRACT)
    store.begin_incarnation()
    store.commit_round(Chronicle().with_partners({"near": 0.05}))
    return store


def test_every_write_waits_for_the_disk_and_there_is_no_log(shared: Path) -> None:
    with Store.open(shared, "here", CONTRACT) as store:
        store.begin_incarnation()
        store.commit_round(Chronicle().with_partners({"near": 0.05}))
        store.seen("near")
        store.add_traffic({("near", "in", "ping"): (1, 2, 3)})
        assert (pragma(store, "journal_mode"), pragma(store, "synchronous")) == ("truncate", 2)
        names = {path.name for path in shared.iterdir()}
        assert names == {STATE_FILE, JOURNAL}
        assert Reader(shared).status().last_round == 1
    assert Reader(shared).status().condition == "stopped"


def test_a_state_moves_to_a_network_disk_and_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_state(tmp_path).close()
    for kind, mode in (("nfs4", "truncate"), ("ext4", "wal")):
        pretend(monkeypatch, tmp_path, kind)
        with Store.open(tmp_path / "state", "here", CONTRACT) as store:
            assert pragma(store, "journal_mode") == mode
            assert store.recover().last_round == 1
        assert Reader(tmp_path / "state").status().last_round == 1


def test_a_log_that_is_in_use_is_not_taken_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.05)
    running = local_state(tmp_path)
    pretend(monkeypatch, tmp_path, "nfs4")
    with pytest.raises(StoreError, match="another process has held the file"):
        Store.open(tmp_path / "state", "here", CONTRACT)
    running.close()


def _killed_in_the_middle_of_a_write(state_dir: Path) -> None:
    """A process that has already written into the file itself, but not to the end."""
    store = Store.open(state_dir, "here", CONTRACT)
    store.begin_incarnation()
    store.commit_round(Chronicle().with_partners({"near": 0.05}))
    store._db.execute("PRAGMA cache_size = 1")
    with store._transaction() as db:
        for number in range(400):
            db.execute("INSERT INTO reports VALUES (?, 0, ?)", (f"half {number}", "x" * 500))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_write_that_was_broken_off_is_undone_by_who_looks_first(shared: Path) -> None:
    process = FORK.Process(target=_killed_in_the_middle_of_a_write, args=(shared,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (shared / JOURNAL).stat().st_size > 0, "there is something to undo"
    assert b"half 1" in (shared / STATE_FILE).read_bytes(), "in the file itself"

    reader = Reader(shared)
    assert reader.status().condition == "dead"
    assert (reader.status().last_round, reader.report("half 1")) == (1, None)
    with reader._snapshot() as db, pytest.raises(sqlite3.OperationalError, match="readonly"):
        db.execute("DELETE FROM meta")
    with Store.open(shared, "here", CONTRACT) as store:
        assert store.begin_incarnation() == 2
