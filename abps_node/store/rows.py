"""Rows to effects and back, within a transaction that the caller holds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from abps_node.store.schema import EVENTS_BATCH, MAX_EVENTS
from protocol.beliefs import Belief
from protocol.effects import CommitRound, Credit, SessionRow
from protocol.events import ModelRef
from protocol.messages import SessionId


def model_of(db: sqlite3.Connection, round_number: int) -> ModelRef | None:
    """The model of a committed round; None if there is no such round."""
    row = db.execute(
        "SELECT model_name, model_sha256 FROM rounds WHERE round = ?", (round_number,)
    ).fetchone()
    return None if row is None else ModelRef(row["model_name"], row["model_sha256"])


def session_of(row: sqlite3.Row) -> SessionRow:
    """A row of ``sessions`` as the protocol knows it."""
    return SessionRow(
        session=SessionId.parse(row["id"]),
        peer=row["peer"],
        round=row["round"],
        state=row["state"],
        settled=bool(row["settled"]),
        merged=bool(row["merged"]),
    )


def put_round(db: sqlite3.Connection, commit: CommitRound, now: float) -> None:
    """Append a round; ``now`` is wall time in seconds."""
    record = commit.record
    db.execute(
        "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            record.round,
            now,
            record.incarnation,
            len(record.partners),
            None if record.rest is None else str(record.rest.cause),
            commit.model.name,
            commit.model.sha256,
            record.model_dump_json(),
        ),
    )


_UPSERT_SESSION = (
    "ON CONFLICT (id) DO UPDATE SET "
    "peer = excluded.peer, round = excluded.round, state = excluded.state, "
    "settled = excluded.settled, merged = excluded.merged, "
    "incarnation = excluded.incarnation, updated = excluded.updated"
)
_PUT_SESSION = f"INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?) {_UPSERT_SESSION}"
_PUT_SESSION_IF_NEWEST = (
    "INSERT INTO sessions SELECT ?, ?, ?, ?, ?, ?, ?, ? FROM meta WHERE incarnation = ? "
    + _UPSERT_SESSION
)


def put_sessions(
    db: sqlite3.Connection, rows: Iterable[SessionRow], incarnation: int, now: float
) -> None:
    """Insert or replace sessions by id; never delete, since credits refer to them."""
    db.executemany(_PUT_SESSION, [_session_values(row, incarnation, now) for row in rows])


def put_session_if_newest(
    db: sqlite3.Connection, row: SessionRow, incarnation: int, now: float
) -> bool:
    """Fence, insert or replace, and commit in one statement; False if a newer copy has started.

    Outside of any transaction: a single statement is one, at half the cost.
    """
    values = (*_session_values(row, incarnation, now), incarnation)
    return db.execute(_PUT_SESSION_IF_NEWEST, values).rowcount == 1


def _session_values(row: SessionRow, incarnation: int, now: float) -> tuple[object, ...]:
    state, settled, merged = str(row.state), row.settled, row.merged
    return (str(row.session), row.peer, row.round, state, settled, merged, incarnation, now)


def put_beliefs(db: sqlite3.Connection, beliefs: Mapping[str, Belief]) -> None:
    """Replace these beliefs."""
    db.executemany(
        "INSERT INTO beliefs VALUES (?, ?, ?, ?) ON CONFLICT (peer) DO UPDATE SET "
        "alpha = excluded.alpha, beta = excluded.beta, n = excluded.n",
        [(peer, belief.alpha, belief.beta, belief.n) for peer, belief in beliefs.items()],
    )


def put_credits(db: sqlite3.Connection, round_number: int, earned: Iterable[Credit]) -> None:
    """Append a round's credits; their sessions and beliefs must stand there already."""
    db.executemany(
        "INSERT INTO credits (round, peer, session, phi, phi_bar) VALUES (?, ?, ?, ?, ?)",
        [(round_number, c.peer, str(c.session), c.phi, c.phi_bar) for c in earned],
    )


def put_outcomes(db: sqlite3.Connection, round_number: int, outcomes: Mapping[str, str]) -> None:
    """Note the last thing that happened with each peer."""
    db.executemany(
        "INSERT INTO peers (peer, last_outcome, last_outcome_round) VALUES (?, ?, ?) "
        "ON CONFLICT (peer) DO UPDATE SET last_outcome = excluded.last_outcome, "
        "last_outcome_round = excluded.last_outcome_round",
        [(peer, outcome, round_number) for peer, outcome in outcomes.items()],
    )


def put_signs_of_life(db: sqlite3.Connection, seen: Mapping[str, float]) -> None:
    """Note when each of these peers was last heard, wall time in seconds."""
    db.executemany(
        "INSERT INTO peers (peer, last_seen) VALUES (?, ?) "
        "ON CONFLICT (peer) DO UPDATE SET last_seen = excluded.last_seen",
        seen.items(),
    )


PUT_EVENT = (
    "INSERT INTO events (at, round, kind, level, peer, text, data) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
PUT_PHASE = "UPDATE meta SET phase = ?, phase_round = ?, phase_since = ?"
PUT_PEER = (
    "INSERT INTO peers (peer, status, incarnation, card, detail) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (peer) DO UPDATE SET status = excluded.status, "
    "incarnation = excluded.incarnation, detail = excluded.detail, "
    "card = coalesce(excluded.card, card)"
)


def put_views(db: sqlite3.Connection, views: Iterable[tuple[str, tuple[object, ...]]]) -> None:
    """Perform these statements in order; the oldest events beyond ``MAX_EVENTS`` go, in batches."""
    for statement, values in views:
        added = db.execute(statement, values).lastrowid
        if statement == PUT_EVENT and added is not None and added % EVENTS_BATCH == 0:
            db.execute("DELETE FROM events WHERE id <= ?", (added - MAX_EVENTS,))
