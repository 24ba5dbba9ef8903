"""Of two copies of a center that run at once only the newer can write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from abps_node.errors import Superseded
from abps_node.store import Store
from abps_node.store.reader import Reader
from protocol.effects import Note, PeerChanged, PhaseChanged, SessionRow
from protocol.messages import SessionId
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract()
pytestmark = pytest.mark.usefixtures("journal")
ROW = SessionRow(SessionId("here", 1, "near", 1, 1), "near", 1, "accepted", False, False)
OTHER = SessionRow(SessionId("far", 1, "here", 1, 1), "far", 1, "accepted", False, False)

WRITES: dict[str, Callable[[Store], None]] = {
    "session": lambda store: store.save_sessions([ROW]),
    "sessions": lambda store: store.save_sessions([ROW, OTHER]),
    "round": lambda store: store.commit_round(Chronicle().with_partners({"near": 0.1})),
    "note": lambda store: store.note(Note("x", "info", None, "text"), 1),
    "phase": lambda store: store.phase(PhaseChanged("training", 7)),
    "peer": lambda store: store.peer(PeerChanged("near", "met", 1, (0.1,), "")),
    "traffic": lambda store: store.add_traffic({("near", "in", "ping"): (1, 2, 3)}),
    "report": lambda store: store.save_report("alone", {"auroc": 0.5}),
    "runtime": lambda store: store.set_runtime("tcp://127.0.0.1:1", 1),
}


def content(state_dir: Path) -> object:
    reader = Reader(state_dir)
    views = (reader.rounds(), reader.sessions(), reader.credits(), reader.peers(), reader.events())
    return reader.status(), views, reader.traffic(), reader.report("alone")


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_the_older_copy_is_refused_and_changes_nothing(
    tmp_path: Path, write: Callable[[Store], None]
) -> None:
    older = Store.open(tmp_path, "here", CONTRACT)
    older.begin_incarnation()
    newer = Store.open(tmp_path, "here", CONTRACT)
    assert newer.begin_incarnation() == 2
    before = content(tmp_path)

    older.seen("near")
    with pytest.raises(Superseded, match="found incarnation 2, this copy is 1"):
        write(older)
    assert older.current_incarnation() == 2
    assert content(tmp_path) == before
    older.close()
    assert content(tmp_path) == before

    write(newer)
    assert content(tmp_path) != before
    newer.close()


def test_a_copy_is_superseded_by_the_start_not_by_the_opening(tmp_path: Path) -> None:
    with Store.open(tmp_path, "here", CONTRACT) as running:
        running.begin_incarnation()
        with Store.open(tmp_path, "here", CONTRACT):
            running.save_sessions([ROW])
        assert running.recover().sessions == (ROW,)
