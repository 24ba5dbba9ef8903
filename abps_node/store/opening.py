"""Making an empty database a state, and refusing one that is damaged or somebody else's."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from abps_node.errors import Damaged, StoreError
from abps_node.store.connection import damaged, transaction
from abps_node.store.schema import SCHEMA_VERSION, TABLES
from protocol.contract import Contract


def create_if_empty(path: Path, db: sqlite3.Connection, center_id: str, contract: Contract) -> None:
    """Create the tables, unless another copy has just done so."""
    if _version(db) != 0:
        return
    db.execute("PRAGMA synchronous = FULL")
    with transaction(db):
        if _version(db) == 0:
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StoreError(f"{path}: {damaged('a database of another program')}")
            for statement in TABLES:
                db.execute(statement)
            db.execute(
                "INSERT INTO meta (one, center, contract_digest, contract) VALUES (1, ?, ?, ?)",
                (center_id, contract.digest(), contract.model_dump_json()),
            )


def is_empty(db: sqlite3.Connection) -> bool:
    """Whether nothing has been written yet: the first start of a center is just under way."""
    tables = db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return _version(db) == 0 and int(tables) == 0


def check_owner(path: Path, db: sqlite3.Connection, center_id: str, contract: Contract) -> None:
    """Raise ``StoreError`` unless this is a sound state of this center and contract."""
    if _version(db) != SCHEMA_VERSION:
        raise StoreError(
            f"{path}: found state version {_version(db)}, allowed: {SCHEMA_VERSION}; "
            "run the program version that wrote it"
        )
    check = db.execute("PRAGMA quick_check(1)").fetchone()[0]
    if check != "ok":
        raise Damaged(f"{path}: {damaged(str(check).splitlines()[-1])}")
    meta = db.execute("SELECT center, contract_digest FROM meta").fetchone()
    if meta["center"] != center_id:
        raise StoreError(
            f"{path}: found the state of center {meta['center']!r}, allowed: {center_id!r}; "
            "each center needs a state directory of its own"
        )
    if meta["contract_digest"] != contract.digest():
        raise StoreError(
            f"{path}: found the state of contract {meta['contract_digest'][:12]}, allowed: "
            f"{contract.digest()[:12]} ({contract.name}); another contract needs another state "
            "directory"
        )


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
