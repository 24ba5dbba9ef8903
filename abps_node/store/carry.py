"""What a state takes over from the one before it, when a center begins another campaign."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from abps_node.store.connection import (
    connect_to_read,
    connect_to_write,
    readable_errors,
    transaction,
)
from abps_node.store.rows import PUT_EVENT, put_beliefs, put_sessions, session_of
from abps_node.store.schema import STATE_FILE
from protocol.beliefs import Belief
from protocol.effects import SessionRow

MAKE_CARRIED: Final = (
    "CREATE TABLE IF NOT EXISTS carried ("
    "peer TEXT PRIMARY KEY, alpha REAL NOT NULL, beta REAL NOT NULL, n INTEGER NOT NULL)"
)
"""What the fold over credits begins with; a state that carries nothing has no such table."""


def carried_beliefs(db: sqlite3.Connection) -> dict[str, Belief]:
    """Those that came from the campaign before."""
    known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'carried'").fetchone()
    rows = db.execute("SELECT peer, alpha, beta, n FROM carried") if known else ()
    return {row["peer"]: Belief(row["alpha"], row["beta"], row["n"]) for row in rows}


def sessions_that_others_may_ask_for(state_dir: Path) -> list[SessionRow]:
    """Those that were merged here, and those of which a final word is missing."""
    path = state_dir / STATE_FILE
    with readable_errors(path), closing(connect_to_read(path)) as db:
        rows = db.execute("SELECT * FROM sessions WHERE merged = 1 OR settled = 0 ORDER BY id")
        return [session_of(row) for row in rows]


def carry_over(
    state_dir: Path,
    start: int,
    beliefs: Mapping[str, Belief],
    sessions: Iterable[SessionRow],
    text: str,
    data: Mapping[str, Any],
) -> None:
    """Put into a new state what goes on; its next start takes the number after ``start``."""
    path, now = state_dir / STATE_FILE, time.time()
    with readable_errors(path), closing(connect_to_write(path)) as db, transaction(db):
        db.execute("UPDATE meta SET incarnation = ?", (start,))
        put_beliefs(db, beliefs)
        db.execute(MAKE_CARRIED)
        db.executemany(
            "INSERT INTO carried VALUES (?, ?, ?, ?)",
            [(peer, b.alpha, b.beta, b.n) for peer, b in beliefs.items()],
        )
        put_sessions(db, sessions, start, now)
        db.execute(PUT_EVENT, (now, 0, "campaign", "info", None, text, json.dumps(dict(data))))
