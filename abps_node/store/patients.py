"""Which patient table a state belongs to: kept by the first start, compared by every later one.

With another table the splits are others: patients on whom the center tests, and on whom it measured
its partners, would train the model, and every figure of the state would be too good.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

from abps_node.errors import StoreError
from abps_node.store.connection import transaction

if TYPE_CHECKING:
    from abps_node.data import Fingerprint


def keep_patients(path: Path, db: sqlite3.Connection, now: Fingerprint) -> None:
    """Remember the table of a state that has none yet; ``StoreError`` if it has another one."""
    with transaction(db):
        check_patients(path, db, now)
        db.execute("UPDATE meta SET patients = ? WHERE patients IS NULL", (now.model_dump_json(),))


def check_patients(path: Path, db: sqlite3.Connection, now: Fingerprint) -> None:
    """Raise ``StoreError`` unless the state has no table yet, or this one."""
    stored = db.execute("SELECT patients FROM meta").fetchone()["patients"]
    if stored is not None:
        require_same(path, stored, now)


def require_same(path: Path, stored: str, now: Fingerprint) -> None:
    """Raise ``StoreError`` unless ``now`` is the table of the fingerprint that was stored."""
    # Not imported: who only reads a state does without the modules that read tables.
    former = type(now).model_validate_json(stored)
    otherwise = "or set another state_dir, which begins anew, or begin another campaign "
    otherwise += "(abps campaign)"
    if (other := former.other_columns(now)) is not None:
        raise StoreError(
            f"{path}: center.toml has other objectives or private features than this state: "
            f"{other}; put the former ones back, {otherwise}"
        )
    if (changes := former.changes(now)) is not None:
        raise StoreError(
            f"{path}: the patient table is not the one that this state was trained on: {changes}; "
            f"put the former table back, {otherwise}"
        )
