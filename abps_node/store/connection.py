"""Opening ``state.sqlite`` for writing and for reading, and one clear error for all that fails."""

from __future__ import annotations

import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from abps_node.errors import Damaged, DiskFull, StoreError
from abps_node.filesystem import shared_file_system

BUSY_TIMEOUT_S = 5.0
"""How long a write waits for another copy of the center that is writing at this moment."""
CACHE_KIB: Final = 512
"""Rounds are written once and never read again by their center; of SQLite's usual 2 MiB they would
fill most, in each of hundreds of centers."""
CHECKPOINT_PAGES = 4000
"""Length of the log (pages of 4 KiB) at which SQLite checkpoints by itself, between rounds."""
CHECKPOINT_ROUNDS = 8
"""Rounds between checkpoints: each waits for the disk twice, and a round is safe without one."""
LOG_LIMIT_BYTES = 4 * 1024 * 1024
"""The log file is cut back to this length once its content is in the main file."""
_READ_VERSION_AT = 19
_READ_VERSION_LOG = 2
"""At that byte of the file: it can only be read together with its write-ahead log."""
_FULL_BYTES: Final = 64 * 1024
"""With less than that SQLite cannot even begin."""


def present(path: Path) -> bool:
    """Whether there is such a file; ``StoreError`` where that is hidden, by another user say."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise StoreError(f"{path.parent}: cannot be read: {error.strerror}") from error


@contextmanager
def readable_errors(path: Path, patience_s: float = BUSY_TIMEOUT_S) -> Iterator[None]:
    """Turn every error of SQLite into a ``StoreError`` that names the file and what to do.

    ``patience_s``: how long a lock was waited for.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise store_error(path, error, patience_s) from error


def store_error(path: Path, error: sqlite3.Error, patience_s: float = BUSY_TIMEOUT_S) -> StoreError:
    """What ``readable_errors`` raises, for the one place that has no time for a context manager."""
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith("SQLITE_FULL") or (name.startswith("SQLITE_IOERR") and _is_full(path)):
        return DiskFull(f"{path}: the disk is full; free some space, then start the center again")
    kind = Damaged if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) else StoreError
    return kind(f"{path}: {_explain(error, patience_s)}")


def _is_full(path: Path) -> bool:
    """Whether that is why SQLite cannot make the files that it needs beside the database."""
    try:
        return shutil.disk_usage(path.parent).free < _FULL_BYTES
    except OSError:
        return False


def _explain(error: sqlite3.Error, patience_s: float) -> str:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return damaged(str(error))
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
        return f"cannot be opened or written ({error}); check owner and permissions"
    if name.startswith("SQLITE_IOERR"):
        return (
            f"cannot be read or written ({error}, {name}): a failing disk, or one that has become "
            "read-only; see to it, then start the center again"
        )
    if name.startswith("SQLITE_BUSY"):
        return f"another process has held the file for more than {patience_s:g} s"
    return f"{error} ({name})" if name else str(error)


def damaged(found: str) -> str:
    """What to tell somebody whose state file is corrupt."""
    return (
        f"is damaged or not a state file ({found}); restore the state directory from a backup, "
        "or move it away and let the center begin anew"
    )


def connect_to_write(path: Path) -> sqlite3.Connection:
    """The daemon's one connection: explicit transactions, foreign keys.

    With a write-ahead log on a local disk; with a rollback journal, and always synchronous, on a
    file system that other machines use too, where such a log does not work.
    """
    wanted = "wal" if shared_file_system(path.parent) is None else "truncate"
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
    try:
        connection.row_factory = sqlite3.Row
        mode = connection.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]
        if mode != wanted:
            raise StoreError(
                f"{path}: the file system allows no journal of the mode {wanted} (found {mode}); "
                "put the state directory on a local disk"
            )
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """One write transaction, whole or not at all."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def has_log(connection: sqlite3.Connection) -> bool:
    """Whether this connection writes a write-ahead log."""
    return bool(connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal")


def connect_to_read(path: Path, patience_s: float = BUSY_TIMEOUT_S) -> sqlite3.Connection:
    """A short-lived connection that cannot write, whether the daemon runs, died or ended.

    It waits ``patience_s`` for a lock.

    A file that was written with a log, and has none beside it, is complete and nobody writes it in
    place, so it is opened as immutable: this leaves no files behind and works on a read-only disk.
    A rollback journal that a killed daemon left behind is played back first, as its next start
    would do; SQLite makes sure that no daemon is still writing it.
    """
    log = path.with_name(path.name + "-wal")
    complete = _needs_log(path) and not log.exists()
    connection = _open(path, "mode=ro&immutable=1" if complete else "mode=ro", patience_s)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master")
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorname != "SQLITE_READONLY_ROLLBACK":
            raise
        connection = _open(path, "mode=rw", patience_s)
        connection.execute("PRAGMA query_only = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _open(path: Path, mode: str, patience_s: float) -> sqlite3.Connection:
    uri = f"file:{quote(str(path.absolute()))}?{mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=patience_s, isolation_level=None)
    connection.row_factory = sqlite3.Row
    return connection


def _needs_log(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(_READ_VERSION_AT + 1)
    except OSError:
        return False  # SQLite will say what is wrong with it
    return head[_READ_VERSION_AT:] == bytes([_READ_VERSION_LOG])
