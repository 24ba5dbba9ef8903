"""What the daemon writes: every promise before it is said, every round as one transaction.

Kill −9 at any instant leaves the round before or the round after, never something between. Session
intents need to survive the process only (``synchronous = NORMAL``), a round also a power loss
(``FULL``); their model file is on disk before (``abps_node.store.models``). On a file system that
several machines share there is no write-ahead log, and every write waits for the disk.

Fencing. Each start of a center takes the next incarnation number. Every write checks, within its
own transaction, that the number is still its own, else it raises ``Superseded`` and nothing has
changed: of two copies that run at once only the newer can write.

One connection, used by the thread that opened it. Writes take well under a millisecond, except
the commit of a round, which waits for the disk.
"""

from __future__ import annotations

import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from abps_node.audit.chain import Head
from abps_node.errors import StoreError, Superseded
from abps_node.store.anchor import MAKE_ANCHOR, put_anchor, read_anchor
from abps_node.store.connection import (
    CHECKPOINT_ROUNDS,
    connect_to_write,
    has_log,
    readable_errors,
    store_error,
    transaction,
)
from abps_node.store.opening import check_owner, create_if_empty
from abps_node.store.outcomes import last_outcomes
from abps_node.store.patients import keep_patients
from abps_node.store.process import start_mark, this_host
from abps_node.store.rows import (
    PUT_EVENT,
    PUT_PEER,
    PUT_PHASE,
    model_of,
    put_beliefs,
    put_credits,
    put_outcomes,
    put_round,
    put_session_if_newest,
    put_sessions,
    put_signs_of_life,
    put_views,
    session_of,
)
from abps_node.store.schema import STATE_FILE
from protocol.beliefs import Belief
from protocol.contract import Contract
from protocol.effects import CommitRound, Note, PeerChanged, PhaseChanged, SessionRow
from protocol.events import ModelRef
from protocol.messages import SessionId
from protocol.record import RoundRecord

if TYPE_CHECKING:
    from abps_node.data import Fingerprint

TrafficKey = tuple[str, str, str]
"""Peer, direction (``in`` or ``out``), message kind."""
TrafficCount = tuple[int, int, int]
"""Messages, frame bytes, bytes on the wire."""


@dataclass(frozen=True)
class Recovered:
    """Where the last committed round left the center; all empty for a new one."""

    last_round: int
    """The round to go on from; 0 if none was committed."""
    model: ModelRef | None
    """Model of the last committed round."""
    best_round: int
    best_metric: float | None
    best_model: ModelRef | None
    rounds_without_gain: int
    finished: bool
    beliefs: Mapping[str, Belief]
    sessions: tuple[SessionRow, ...]
    """Open and unsettled ones, oldest round first: to be aborted or reconciled."""
    merged: frozenset[SessionId]
    """All sessions whose trunk entered a committed round here: the final word for a peer."""


class Store:
    """The writing side of one state directory."""

    def __init__(
        self, path: Path, connection: sqlite3.Connection, clock: Callable[[], float]
    ) -> None:
        """Use ``Store.open``."""
        self.path = path
        self._db = connection
        self._clock = clock
        self._incarnation = 0
        self._log = has_log(connection)
        self._synchronous = ""
        self._seen: dict[str, float] = {}
        self._views: list[tuple[str, tuple[object, ...]]] = []
        self._views_every_s = 0.0
        self._views_written = -math.inf
        self._anchor: Callable[[], Head] | None = None

    @classmethod
    def open(
        cls,
        state_dir: Path,
        center_id: str,
        contract: Contract,
        *,
        patients: Fingerprint | None = None,
        clock: Callable[[], float] = time.time,
        views_every_s: float = 0.0,
    ) -> Self:
        """Open or create the state of a center; the directory is created with mode 0700.

        ``patients`` is kept by the first start; another table is refused by all that come later.
        ``clock`` gives wall time in seconds. What only people look at (events, phase, peers) is
        written at least ``views_every_s`` seconds apart, with the next other write, or by
        ``write_views``. Raises ``StoreError`` if the state is damaged, of another program version,
        of another center, of another contract or of other patients.
        """
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"{state_dir}: cannot be a state directory ({error})") from error
        path = state_dir / STATE_FILE
        with readable_errors(path):
            connection = connect_to_write(path)
            try:
                create_if_empty(path, connection, center_id, contract)
                check_owner(path, connection, center_id, contract)
                if patients is not None:
                    keep_patients(path, connection, patients)
            except BaseException:
                connection.close()
                raise
        store = cls(path, connection, clock)
        store._views_every_s = views_every_s
        return store

    def close(self, *, clean: bool = True) -> None:
        """Fold the log into the main file as far as readers allow, and disconnect.

        A ``clean`` end is noted, unless superseded; without it the center will be found dead.
        """
        try:
            if clean and self._incarnation:
                self._mark_ended()
            elif self._views:
                # An error is under way already; what led to it should be told, if that can be.
                with suppress(StoreError, Superseded):
                    self.write_views()
            with readable_errors(self.path):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")
        finally:
            self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(clean=kind is None)

    # Incarnation -------------------------------------------------------------------------------

    def begin_incarnation(self, after: int = 0) -> int:
        """Take the next incarnation number, durably; from now on older copies cannot write.

        ``after``: a number that is known to be used, though this state may not know of it.
        """
        pid = os.getpid()
        with self._transaction(durable=True, fenced=False) as db:
            db.execute(MAKE_ANCHOR)
            db.execute(
                "UPDATE meta SET incarnation = max(incarnation, ?) + 1, started = ?, ended = NULL, "
                "host = ?, pid = ?, pid_started = ?, endpoint = NULL, "
                "phase = 'starting', phase_since = ?",
                (after, self._clock(), this_host(), pid, start_mark(pid), self._clock()),
            )
            incarnation = _stored_incarnation(db)
        self._incarnation = incarnation
        return incarnation

    def anchor(self) -> Head | None:
        """The newest line of what left the center, as of the last durable commit."""
        with readable_errors(self.path):
            return read_anchor(self._db)

    def anchored_by(self, newest: Callable[[], Head]) -> None:
        """From now on every durable commit keeps the newest line of what left the center.

        ``newest`` returns it once it is on the disk.
        """
        self._anchor = newest
        with self._transaction(durable=True):
            pass

    def current_incarnation(self) -> int:
        """The number of the newest copy; cheap, for polling."""
        with readable_errors(self.path):
            return _stored_incarnation(self._db)

    def set_runtime(self, endpoint: str, pid: int) -> None:
        """Where this copy listens and which process it is."""
        with self._transaction() as db:
            db.execute(
                "UPDATE meta SET endpoint = ?, pid = ?, pid_started = ?, host = ?",
                (endpoint, pid, start_mark(pid), this_host()),
            )

    # Recovery ----------------------------------------------------------------------------------

    def recover(self) -> Recovered:
        """What to go on from. Begin the incarnation first, so that no older copy writes later."""
        with readable_errors(self.path), _snapshot(self._db) as db:
            meta = db.execute("SELECT * FROM meta").fetchone()
            last = db.execute("SELECT max(round) FROM rounds").fetchone()[0] or 0
            beliefs = db.execute("SELECT peer, alpha, beta, n FROM beliefs ORDER BY peer")
            unsettled = db.execute("SELECT * FROM sessions WHERE settled = 0 ORDER BY round, id")
            merged = db.execute("SELECT id FROM sessions WHERE merged = 1")
            return Recovered(
                last_round=last,
                model=model_of(db, last),
                best_round=meta["best_round"],
                best_metric=meta["best_metric"],
                best_model=model_of(db, meta["best_round"]),
                rounds_without_gain=meta["rounds_without_gain"],
                finished=bool(meta["finished"]),
                beliefs={row["peer"]: Belief(*tuple(row)[1:]) for row in beliefs},
                sessions=tuple(session_of(row) for row in unsettled),
                merged=frozenset(SessionId.parse(row["id"]) for row in merged),
            )

    def models_in_use(self) -> set[str]:
        """File names of the last two models and of the best: what ``models.prune`` has to keep.

        The last but one stands in for the last, should that be damaged.
        """
        with readable_errors(self.path):
            names = self._db.execute(
                "SELECT model_name FROM rounds WHERE round >= (SELECT max(round) FROM rounds) - 1 "
                "OR round = (SELECT best_round FROM meta)"
            )
            return {row["model_name"] for row in names}

    def committed_models(self) -> dict[int, ModelRef]:
        """The models of all rounds, the newest first; most of their files are gone."""
        with readable_errors(self.path):
            rows = self._db.execute(
                "SELECT round, model_name, model_sha256 FROM rounds ORDER BY round DESC"
            )
            return {row["round"]: ModelRef(row[1], row[2]) for row in rows}

    def record_of(self, round_number: int) -> RoundRecord:
        """The record of a committed round."""
        with readable_errors(self.path):
            row = self._db.execute(
                "SELECT record FROM rounds WHERE round = ?", (round_number,)
            ).fetchone()
        return RoundRecord.model_validate_json(row["record"])

    def replace_best(self, round_number: int) -> None:
        """From now on this round counts as the best, since the model of that one is damaged."""
        value = self.record_of(round_number).validation.value
        with self._transaction(durable=True) as db:
            db.execute(
                "UPDATE meta SET best_round = ?, best_metric = ?, rounds_without_gain = "
                "(SELECT max(round) FROM rounds) - ?",
                (round_number, value, round_number),
            )

    # Sessions and rounds -----------------------------------------------------------------------

    def save_sessions(self, rows: Iterable[SessionRow]) -> None:
        """Insert or replace these sessions; returns after the commit.

        A peer waits for the answer that this promises: most often it is one row, which takes one
        statement, and nothing else is written with it.
        """
        rows = tuple(rows)
        if len(rows) == 1 and self._incarnation:
            try:
                self._synchronize("NORMAL")
                now = self._clock()
                if put_session_if_newest(self._db, rows[0], self._incarnation, now):
                    return
            except sqlite3.Error as error:
                raise store_error(self.path, error) from error
        # Several rows, or a fence that will tell what it found.
        with self._transaction(seen=False) as db:
            put_sessions(db, rows, self._incarnation, self._clock())

    def commit_round(self, commit: CommitRound) -> None:
        """One transaction: record, credits, beliefs, sessions, model, best, patience, finished.

        Its model file must be durable already. Rounds follow each other without a gap, else
        ``StoreError``.
        """
        record = commit.record
        with self._transaction(durable=True) as db:
            last = db.execute("SELECT max(round) FROM rounds").fetchone()[0] or 0
            if record.round != last + 1:
                raise StoreError(
                    f"{self.path}: found a commit of round {record.round}, allowed: {last + 1}, "
                    "the one after the last committed"
                )
            put_round(db, commit, self._clock())
            put_sessions(db, commit.sessions, self._incarnation, self._clock())
            put_beliefs(db, commit.beliefs)
            put_credits(db, record.round, commit.credits)
            put_outcomes(db, record.round, last_outcomes(record))
            db.execute(
                "UPDATE meta SET best_round = ?, best_metric = ?, rounds_without_gain = ?, "
                "finished = ?",
                (
                    commit.best_round,
                    commit.best_metric,
                    commit.rounds_without_gain,
                    commit.finished,
                ),
            )
        if record.round % CHECKPOINT_ROUNDS == 0 or commit.finished:
            with readable_errors(self.path):
                self._db.execute("PRAGMA wal_checkpoint(PASSIVE)")

    # What people look at -----------------------------------------------------------------------

    def note(self, note: Note, round_number: int) -> None:
        """Add one row to the events; the oldest beyond ``MAX_EVENTS`` go, in batches."""
        data = json.dumps(dict(note.data), default=str)
        values = (self._clock(), round_number, note.kind, note.level, note.peer, note.text, data)
        self._view(PUT_EVENT, values)

    def phase(self, change: PhaseChanged) -> None:
        """The phase that the center has entered, and since when."""
        self._view(PUT_PHASE, (change.phase, change.round, self._clock()))

    def peer(self, change: PeerChanged) -> None:
        """What is known of a peer; a card that is not given stays as it was."""
        card = None if change.card is None else json.dumps(list(change.card))
        values = (change.peer, change.status, change.incarnation, card, change.detail)
        self._view(PUT_PEER, values)

    def write_views(self) -> None:
        """Write what has been held back for people, if anything."""
        if self._views:
            with self._transaction():
                pass

    def _view(self, statement: str, values: tuple[object, ...]) -> None:
        self._views.append((statement, values))
        if self._clock() - self._views_written >= self._views_every_s:
            self.write_views()

    def seen(self, peer: str) -> None:
        """A peer gave a sign of life now; written with the next transaction, sessions apart."""
        self._seen[peer] = self._clock()

    def add_traffic(self, counts: Mapping[TrafficKey, TrafficCount]) -> None:
        """Add messages, frame bytes and wire bytes to the accounts by peer, direction and kind."""
        if not counts:
            return
        with self._transaction() as db:
            db.executemany(
                "INSERT INTO traffic VALUES (?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (peer, direction, kind) DO UPDATE SET "
                "messages = messages + excluded.messages, "
                "frame_bytes = frame_bytes + excluded.frame_bytes, "
                "wire_bytes = wire_bytes + excluded.wire_bytes",
                [(*key, *count) for key, count in counts.items()],
            )

    def save_report(self, name: str, report: Mapping[str, Any]) -> None:
        """Keep a test report, for instance ``federated`` or ``alone``; replaces an older one."""
        with self._transaction(durable=True) as db:
            db.execute(
                "INSERT INTO reports VALUES (?, ?, ?) ON CONFLICT (name) "
                "DO UPDATE SET at = excluded.at, report = excluded.report",
                (name, self._clock(), json.dumps(dict(report))),
            )

    # Inside ------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(
        self, *, durable: bool = False, fenced: bool = True, seen: bool = True
    ) -> Iterator[sqlite3.Connection]:
        """One write transaction; rolls back on any error. ``durable`` waits for the disk.

        ``seen``: signs of life, and what is held back for people, are written, too.
        """
        db = self._db
        with readable_errors(self.path):
            self._synchronize("FULL" if durable else "NORMAL")
            with transaction(db):
                if fenced:
                    self._check_fence()
                yield db
                if seen:
                    put_signs_of_life(db, self._seen)
                    put_views(db, self._views)
                if durable and self._anchor is not None:
                    put_anchor(db, self._anchor())
        if seen:
            self._seen.clear()
            self._views.clear()
            self._views_written = self._clock()

    def _synchronize(self, mode: str) -> None:
        if not self._log:
            mode = "FULL"  # less than that can damage a file without a log
        if mode != self._synchronous:
            self._db.execute(f"PRAGMA synchronous = {mode}")
            self._synchronous = mode

    def _check_fence(self) -> None:
        mine = self._incarnation
        if not mine:
            raise StoreError(f"{self.path}: begin_incarnation() comes before any other write")
        stored = _stored_incarnation(self._db)
        if stored != mine:
            raise Superseded(
                f"{self.path}: found incarnation {stored}, this copy is {mine}: a newer copy of "
                "the center has taken over"
            )

    def _mark_ended(self) -> None:
        try:
            with self._transaction(durable=True) as db:
                db.execute("UPDATE meta SET ended = ?", (self._clock(),))
        except Superseded:
            # The newer copy owns the row now, and ending is what this one has to do anyway.
            return


@contextmanager
def _snapshot(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """All reads within see the same state."""
    db.execute("BEGIN")
    try:
        yield db
    finally:
        db.execute("ROLLBACK")


def _stored_incarnation(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT incarnation FROM meta").fetchone()[0])
