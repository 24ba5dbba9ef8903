"""The tables of ``state.sqlite`` and the number of their version.

Beliefs are kept beside the credits that made them: the fold of a peer's credits, in the order of
``credits.id``, over the contract's prior gives the row in ``beliefs`` exactly (appendix C.1 of the
paper). The model of a round stands in that round's row, so the best model is the row of
``meta.best_round``. Only SQL of SQLite 3.24 is used: hospitals run old systems.
"""

from __future__ import annotations

from typing import Final

STATE_FILE: Final = "state.sqlite"
SCHEMA_VERSION: Final = 2
MAX_EVENTS: Final = 20_000
"""Newest rows of ``events`` that are kept…"""
EVENTS_BATCH: Final = 256
"""…give or take this many: the rest is deleted in batches."""

TABLES: Final = (
    """
    CREATE TABLE meta (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        center TEXT NOT NULL,
        contract_digest TEXT NOT NULL,
        incarnation INTEGER NOT NULL DEFAULT 0, -- the fence: only its holder may write
        started REAL,                           -- wall clock, seconds since 1970, as all times here
        ended REAL,                             -- set by a clean end only
        host TEXT,
        pid INTEGER,
        pid_started TEXT,                       -- tells the process from a later one with its pid
        endpoint TEXT,
        phase TEXT,
        phase_round INTEGER NOT NULL DEFAULT 0,
        phase_since REAL,
        finished INTEGER NOT NULL DEFAULT 0,
        best_round INTEGER NOT NULL DEFAULT 0,
        best_metric REAL,
        rounds_without_gain INTEGER NOT NULL DEFAULT 0,
        patients TEXT,                          -- abps_node.data.Fingerprint as JSON
        -- Canonical JSON, for readers without the TOML. It is long, and behind it the fence would
        -- cost every write the pages that it overflows into.
        contract TEXT NOT NULL
    )""",
    """
    CREATE TABLE rounds (
        round INTEGER PRIMARY KEY,
        at REAL NOT NULL,
        incarnation INTEGER NOT NULL,
        partners INTEGER NOT NULL,
        rest_cause TEXT,                        -- null with partners
        model_name TEXT NOT NULL,
        model_sha256 TEXT NOT NULL,
        record TEXT NOT NULL                    -- protocol.record.RoundRecord as JSON
    )""",
    "CREATE INDEX rests ON rounds (rest_cause, round) WHERE rest_cause IS NOT NULL",
    """
    CREATE TABLE sessions (
        id TEXT PRIMARY KEY,
        peer TEXT NOT NULL,
        round INTEGER NOT NULL,                 -- may not be committed yet: no foreign key
        state TEXT NOT NULL,
        settled INTEGER NOT NULL,
        merged INTEGER NOT NULL,
        incarnation INTEGER NOT NULL,           -- the own one that wrote last
        updated REAL NOT NULL
    ) WITHOUT ROWID""",  # and no index: each further tree costs every promise one more page
    """
    CREATE TABLE beliefs (
        peer TEXT PRIMARY KEY,
        alpha REAL NOT NULL,
        beta REAL NOT NULL,
        n INTEGER NOT NULL
    )""",
    """
    CREATE TABLE credits (
        id INTEGER PRIMARY KEY,
        round INTEGER NOT NULL REFERENCES rounds (round),
        peer TEXT NOT NULL REFERENCES beliefs (peer),
        session TEXT NOT NULL UNIQUE REFERENCES sessions (id),
        phi REAL,                               -- null for a trunk that failed its checks
        phi_bar REAL NOT NULL CHECK (phi_bar BETWEEN 0 AND 1)
    )""",
    """
    CREATE TABLE traffic (
        peer TEXT NOT NULL,
        direction TEXT NOT NULL CHECK (direction IN ('in', 'out')),
        kind TEXT NOT NULL,
        messages INTEGER NOT NULL,
        frame_bytes INTEGER NOT NULL,
        wire_bytes INTEGER NOT NULL,
        PRIMARY KEY (peer, direction, kind)
    )""",
    """
    CREATE TABLE peers (
        peer TEXT PRIMARY KEY,
        status TEXT NOT NULL DEFAULT 'unmet',
        incarnation INTEGER NOT NULL DEFAULT 0,
        card TEXT,                              -- JSON list of numbers
        detail TEXT NOT NULL DEFAULT '',
        last_seen REAL,
        last_outcome TEXT,
        last_outcome_round INTEGER
    )""",
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used twice, so a follower misses nothing
        at REAL NOT NULL,
        round INTEGER NOT NULL,
        kind TEXT NOT NULL,
        level TEXT NOT NULL,
        peer TEXT,
        text TEXT NOT NULL,
        data TEXT NOT NULL                      -- JSON object
    )""",
    "CREATE TABLE reports (name TEXT PRIMARY KEY, at REAL NOT NULL, report TEXT NOT NULL)",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)
"""Statements that make an empty database a state, in order, within one transaction."""
