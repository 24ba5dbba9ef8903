"""What must hold in the state of every center, and between the states of two."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import closing

from abps_node.config import CenterConfig
from abps_node.store.connection import connect_to_read
from abps_node.store.models import MODELS_DIR
from abps_node.store.reader import Reader
from abps_node.store.schema import STATE_FILE
from protocol.record import RoundRecord
from protocol.session import State


def records(center: CenterConfig) -> list[RoundRecord]:
    """All committed rounds."""
    return [entry.record for entry in Reader(center.state_dir).rounds()]


def check_state(center: CenterConfig) -> None:
    """No half-committed round, no partner too many or twice, beliefs that the credits explain."""
    reader = Reader(center.state_dir)
    committed = records(center)
    assert [record.round for record in committed] == list(range(1, len(committed) + 1))
    for record in committed:
        check_round(record)
    assert reader.beliefs() == reader.folded_beliefs()
    check_models(center)
    incarnations = [record.incarnation for record in committed]
    assert incarnations == sorted(incarnations)


def check_round(record: RoundRecord) -> None:
    """At most κ partners, each once; a round without has a cause that its numbers explain."""
    partners = [partner.peer for partner in record.partners]
    assert len(partners) <= record.kappa
    exchanged = partners + [partner.peer for partner in record.failed]
    assert len(set(exchanged)) == len(exchanged), f"round {record.round}: a partner twice"
    assert (record.rest is None) == bool(partners)
    if record.rest is not None:
        assert record.rest.intentional == record.rest.cause.intentional
        assert record.rest.explanation
        assert {"known", "before_filter", "after_filter", "attempts"} <= record.rest.counts.keys()


def check_models(center: CenterConfig) -> None:
    """The model files of the last and the best round are there and whole."""
    for name, sha256 in _models(center).items():
        content = (center.state_dir / MODELS_DIR / name).read_bytes()
        assert hashlib.sha256(content).hexdigest() == sha256


def check_pruned(center: CenterConfig) -> None:
    """No other model file is left, now that the center has ended in good order.

    But for the last but one, which stands in for the last should that be damaged.
    """
    found = {path.name for path in (center.state_dir / MODELS_DIR).iterdir()}
    with closing(connect_to_read(center.state_dir / STATE_FILE)) as db:
        rows = db.execute("SELECT model_name FROM rounds ORDER BY round DESC LIMIT 2")
        assert found == {*_models(center), *(row["model_name"] for row in rows)}


def _models(center: CenterConfig) -> dict[str, str]:
    """File name to SHA-256 of the last and the best committed model."""
    with closing(connect_to_read(center.state_dir / STATE_FILE)) as db:
        rows = db.execute(
            "SELECT model_name, model_sha256 FROM rounds WHERE round = (SELECT max(round) FROM "
            "rounds) OR round = (SELECT best_round FROM meta)"
        )
        return {row["model_name"]: row["model_sha256"] for row in rows}


_AGREEING = {
    State.COMPLETE: State.COMPLETE,
    State.RECEIVED_ONLY: State.SENT_ONLY,
    State.SENT_ONLY: State.RECEIVED_ONLY,
    State.ABORTED: State.ABORTED,
}


def disagreements(centers: Iterable[CenterConfig]) -> list[str]:
    """Every session of which two ledgers tell different stories, or whose story is not settled.

    Sessions with others than these centers are left out.
    """
    ledgers = {
        center.id: {session.id: session for session in Reader(center.state_dir).sessions()}
        for center in centers
    }
    found = []
    for name, ledger in ledgers.items():
        for session in ledger.values():
            if session.peer not in ledgers:
                continue
            other = ledgers[session.peer].get(session.id)
            ours, theirs = _outcome(session.state), _outcome(other.state if other else None)
            if _AGREEING.get(ours) is not theirs:
                found.append(f"{session.id}: {name} {ours}, {session.peer} {theirs}")
            if not session.settled:
                found.append(f"{session.id}: not settled at {name}, {ours}")
    return found


def _outcome(state: str | None) -> State:
    """A withdrawn session, and one that a side has never promised, is one that came to nothing."""
    if state is None or state == State.WITHDRAWN:
        return State.ABORTED
    return State(state)
