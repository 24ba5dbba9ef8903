"""The newest line of the record of what left the center, kept with every durable commit.

So whoever cuts lines off that record's end has to change ``state.sqlite``, too.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from abps_node.audit.chain import Head

MAKE_ANCHOR: Final = (
    "CREATE TABLE IF NOT EXISTS outbound ("
    "one INTEGER PRIMARY KEY CHECK (one = 1), "
    "file TEXT NOT NULL, line INTEGER NOT NULL, hash TEXT NOT NULL)"
)
"""At each start, since states of earlier versions of the program have no such table."""


def put_anchor(db: sqlite3.Connection, head: Head) -> None:
    """Replace the one that was there."""
    db.execute(
        "INSERT OR REPLACE INTO outbound VALUES (1, ?, ?, ?)", (head.file, head.number, head.hash)
    )


def read_anchor(db: sqlite3.Connection) -> Head | None:
    """The kept one; None if this state has never kept one."""
    known = db.execute("SELECT 1 FROM sqlite_master WHERE name = 'outbound'").fetchone()
    row = db.execute("SELECT file, line, hash FROM outbound").fetchone() if known else None
    return None if row is None else Head(row["file"], row["line"], row["hash"])
