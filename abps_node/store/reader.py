"""Looking at a center's state without disturbing it.

Works while the daemon runs, after it was killed, and when it has ended. Every view opens the file
read-only, reads one consistent snapshot and closes again, so that nothing is locked and a follower
always sees the newest state. Raises ``StoreError`` if there is no state or it is damaged.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from abps_node.errors import Damaged, StoreError
from abps_node.store.carry import carried_beliefs
from abps_node.store.connection import (
    BUSY_TIMEOUT_S,
    connect_to_read,
    damaged,
    present,
    readable_errors,
)
from abps_node.store.process import liveness
from abps_node.store.schema import SCHEMA_VERSION, STATE_FILE
from abps_node.store.views import (
    Condition,
    CreditView,
    EventView,
    PeerView,
    RestEntry,
    RoundEntry,
    RoundHead,
    SessionView,
    Status,
    TrafficTotal,
    TrafficView,
)
from protocol.beliefs import Belief
from protocol.center import Phase
from protocol.contract import Contract
from protocol.events import ModelRef
from protocol.record import RestCause, RoundRecord
from protocol.session import EXCHANGING, MERGEABLE

_LAST_EVENT = (
    "SELECT * FROM events WHERE NOT (kind = 'connection' AND peer IN "
    "(SELECT peer FROM peers WHERE status IN ('finished', 'away'))) ORDER BY id DESC LIMIT 1"
)
"""Without the connections of peers that took their leave: that these end is no news."""


class NoState(StoreError):
    """Nothing is wrong: the center has not begun yet."""


class Reader:
    """Read-only views of the state in one directory."""

    def __init__(self, state_dir: Path, patience_s: float = BUSY_TIMEOUT_S) -> None:
        """Check that there is a state of this program version.

        ``patience_s``: how long to wait for whoever holds the file; who reads many has less.
        """
        self.state_dir = state_dir
        self.path = state_dir / STATE_FILE
        self._patience_s = patience_s
        with self._snapshot() as db:
            self._contract = Contract.model_validate_json(_meta(db)["contract"])

    # The center --------------------------------------------------------------------------------

    @property
    def contract(self) -> Contract:
        """The contract that the state belongs to."""
        return self._contract

    def status(self) -> Status:
        """The center at a glance."""
        with self._snapshot() as db:
            meta = _meta(db)
            newest = db.execute("SELECT * FROM rounds ORDER BY round DESC LIMIT 1").fetchone()
            record = None if newest is None else RoundRecord.model_validate_json(newest["record"])
            condition = _condition(meta)
            events = db.execute(_LAST_EVENT).fetchall()
            totals = _traffic_totals(db)
            last_round = 0 if record is None else record.round
            return Status(
                center=meta["center"],
                contract_name=self._contract.name,
                contract_digest=meta["contract_digest"],
                condition=condition,
                incarnation=meta["incarnation"],
                endpoint=meta["endpoint"],
                host=meta["host"],
                pid=meta["pid"],
                started=meta["started"],
                ended=meta["ended"],
                phase=meta["phase"],
                phase_round=meta["phase_round"],
                phase_since=meta["phase_since"],
                rounds_planned=self._contract.policy.rounds,
                last_round=last_round,
                last_round_at=None if newest is None else newest["at"],
                partners_now=(
                    _partners_now(db, meta["phase_round"], last_round)
                    if condition in ("running", "elsewhere")
                    else ()
                ),
                partners_last=() if record is None else tuple(p.peer for p in record.partners),
                validation=None if record is None else record.validation,
                best_round=meta["best_round"],
                best_metric=meta["best_metric"],
                rounds_without_gain=meta["rounds_without_gain"],
                finished=bool(meta["finished"]),
                reports=_reports(db),
                isolated=_counts(db, "rounds", "rest_cause"),
                peers=_counts(db, "peers", "status"),
                sent=totals.get("out", TrafficTotal()),
                received=totals.get("in", TrafficTotal()),
                last_event=_event(events[0]) if events else None,
            )

    def condition(self) -> Condition:
        """Whether the center runs, and if not, how it ended."""
        with self._snapshot() as db:
            return _condition(_meta(db))

    def alive(self) -> bool:
        """Whether the very process that wrote last is running on this machine."""
        return self.condition() == "running"

    # Rounds ------------------------------------------------------------------------------------

    def rounds(self, since: int = 0, limit: int | None = None) -> list[RoundEntry]:
        """Committed rounds after ``since``, the newest ``limit`` of them, oldest first."""
        with self._snapshot() as db:
            rows = db.execute(
                "SELECT at, record FROM rounds WHERE round > ? ORDER BY round DESC LIMIT ?",
                (since, _limit(limit)),
            ).fetchall()
            return [_round(row) for row in reversed(rows)]

    def heads(self) -> list[RoundHead]:
        """All committed rounds without their records, oldest first: quick, also for hundreds."""
        with self._snapshot() as db:
            rows = db.execute("SELECT round, at, partners, rest_cause FROM rounds ORDER BY round")
            return [_head(row) for row in rows]

    def validations(self) -> dict[int, float]:
        """Round to the validation metric after it; that metric is one and the same in all."""
        with self._snapshot() as db:
            rows = db.execute("SELECT round, record FROM rounds ORDER BY round")
            return {row["round"]: json.loads(row["record"])["validation"]["value"] for row in rows}

    def isolation(self) -> list[RestEntry]:
        """All rounds without a partner, oldest first."""
        with self._snapshot() as db:
            rows = db.execute(
                "SELECT at, record FROM rounds WHERE rest_cause IS NOT NULL ORDER BY round"
            ).fetchall()
            entries = [_round(row) for row in rows]
        return [
            RestEntry(entry.record.round, entry.at, entry.record.rest)
            for entry in entries
            if entry.record.rest is not None
        ]

    def newest_rests(self) -> list[RoundEntry]:
        """The newest isolated round of every cause, oldest first."""
        with self._snapshot() as db:
            rows = db.execute(
                "SELECT at, record FROM rounds WHERE round IN (SELECT max(round) FROM rounds "
                "WHERE rest_cause IS NOT NULL GROUP BY rest_cause) ORDER BY round"
            ).fetchall()
            return [_round(row) for row in rows]

    def model(self, which: Literal["best", "last"]) -> tuple[RoundRecord, ModelRef] | None:
        """The best or the last committed round and its model; None before the first."""
        wanted = {"best": "best_round FROM meta", "last": "max(round) FROM rounds"}[which]
        with self._snapshot() as db:
            row = db.execute(
                "SELECT record, model_name, model_sha256 FROM rounds WHERE round = "
                f"(SELECT {wanted})"
            ).fetchone()
        if row is None:
            return None
        ref = ModelRef(row["model_name"], row["model_sha256"])
        return RoundRecord.model_validate_json(row["record"]), ref

    def patients(self) -> str | None:
        """The fingerprint of the patient table, as JSON; None where none was kept."""
        with self._snapshot() as db:
            found: str | None = _meta(db)["patients"]
        return found

    # Peers -------------------------------------------------------------------------------------

    def beliefs(self) -> dict[str, Belief]:
        """The belief over every peer that earned a credit; the others stand at the prior."""
        with self._snapshot() as db:
            rows = db.execute("SELECT peer, alpha, beta, n FROM beliefs ORDER BY peer")
            return {row["peer"]: Belief(row["alpha"], row["beta"], row["n"]) for row in rows}

    def folded_beliefs(self) -> dict[str, Belief]:
        """The beliefs computed anew from all credits; equal to ``beliefs()`` in a sound state.

        They begin with those that came from the campaign before, else with the prior.
        """
        policy = self._contract.policy
        prior = Belief(policy.prior_alpha, policy.prior_beta)
        with self._snapshot() as db:
            beliefs = carried_beliefs(db)
        for credit in self.credits():
            beliefs[credit.peer] = beliefs.get(credit.peer, prior).updated(credit.phi_bar)
        return dict(sorted(beliefs.items()))

    def credits(self) -> list[CreditView]:
        """All belief updates, in the order in which they were made."""
        with self._snapshot() as db:
            rows = db.execute("SELECT round, peer, session, phi, phi_bar FROM credits ORDER BY id")
            return [CreditView(*row) for row in rows]

    def peers(self) -> list[PeerView]:
        """All peers of whom something is known, by id."""
        with self._snapshot() as db:
            return [_peer(row) for row in db.execute("SELECT * FROM peers ORDER BY peer")]

    def sessions(self) -> list[SessionView]:
        """The ledger of sessions, by round and id."""
        with self._snapshot() as db:
            rows = db.execute("SELECT * FROM sessions ORDER BY round, id")
            return [_session(row) for row in rows]

    def merges(self) -> dict[str, int]:
        """Peer to the number of its trunks that were merged."""
        with self._snapshot() as db:
            rows = db.execute(
                "SELECT peer, count(*) FROM sessions WHERE merged GROUP BY peer ORDER BY peer"
            )
            return {peer: number for peer, number in rows}

    def traffic(self) -> list[TrafficView]:
        """The byte accounts by peer, direction and message kind."""
        with self._snapshot() as db:
            rows = db.execute("SELECT * FROM traffic ORDER BY peer, direction, kind")
            return [TrafficView(*row) for row in rows]

    # Events and reports ------------------------------------------------------------------------

    def events(
        self, since_id: int = 0, limit: int | None = None, kind: str | None = None
    ) -> list[EventView]:
        """Events after ``since_id``, the newest ``limit`` of them, oldest first."""
        with self._snapshot() as db:
            rows = db.execute(
                "SELECT * FROM events WHERE id > ? AND (? IS NULL OR kind = ?) "
                "ORDER BY id DESC LIMIT ?",
                (since_id, kind, kind, _limit(limit)),
            ).fetchall()
            return [_event(row) for row in reversed(rows)]

    def report(self, name: str) -> dict[str, Any] | None:
        """A report that the daemon saved; None if there is none of this name."""
        with self._snapshot() as db:
            row = db.execute("SELECT report FROM reports WHERE name = ?", (name,)).fetchone()
            return None if row is None else dict(json.loads(row["report"]))

    # Inside ------------------------------------------------------------------------------------

    @contextmanager
    def _snapshot(self) -> Iterator[sqlite3.Connection]:
        """All reads within see the same state; the connection closes afterwards."""
        if not present(self.path):
            raise NoState(
                f"{self.state_dir}: found no {STATE_FILE}: no center has run with this state "
                "directory yet"
            )
        with readable_errors(self.path, self._patience_s):
            db = connect_to_read(self.path, self._patience_s)
            try:
                db.execute("BEGIN")
                self._check_version(db)
                yield db
            except ValueError as error:
                # A page that is damaged but well formed: texts in it are not what was written.
                found = str(error).splitlines()[0]
                raise Damaged(f"{self.path}: {damaged(found)}") from error
            finally:
                db.close()

    def _check_version(self, db: sqlite3.Connection) -> None:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            raise NoState(f"{self.path}: holds no state yet; the center has only just begun")
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: found state version {version}, allowed: {SCHEMA_VERSION}; "
                "read it with the program version that wrote it"
            )


def _limit(limit: int | None) -> int:
    """SQLite takes a negative limit for none."""
    return -1 if limit is None else limit


def _meta(db: sqlite3.Connection) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute("SELECT * FROM meta").fetchone()
    if row is None:
        raise ValueError("the table meta is empty")
    return row


def _condition(meta: sqlite3.Row) -> Condition:
    if meta["pid"] is None:
        return "new"
    if meta["ended"] is not None:
        if meta["finished"]:
            return "finished"
        return "left" if meta["phase"] == Phase.LEFT else "stopped"
    found = liveness(meta["pid"], meta["pid_started"], meta["host"])
    if found == "alive":
        return "running"
    if meta["finished"]:
        return "finished"
    return found


def _partners_now(db: sqlite3.Connection, phase_round: int, last_round: int) -> tuple[str, ...]:
    if phase_round <= last_round:
        return ()
    states = sorted(EXCHANGING | MERGEABLE)
    rows = db.execute(
        "SELECT DISTINCT peer FROM sessions WHERE round = ? AND state IN "
        f"({', '.join('?' * len(states))}) ORDER BY peer",
        (phase_round, *map(str, states)),
    )
    return tuple(row["peer"] for row in rows)


def _round(row: sqlite3.Row) -> RoundEntry:
    return RoundEntry(row["at"], RoundRecord.model_validate_json(row["record"]))


def _head(row: sqlite3.Row) -> RoundHead:
    cause = row["rest_cause"]
    return RoundHead(
        row["round"], row["at"], row["partners"], None if cause is None else RestCause(cause)
    )


def _reports(db: sqlite3.Connection) -> dict[str, dict[str, Any]]:
    rows = db.execute("SELECT name, report FROM reports ORDER BY name DESC")
    return {row["name"]: dict(json.loads(row["report"])) for row in rows}


def _counts(db: sqlite3.Connection, table: str, column: str) -> dict[str, int]:
    rows = db.execute(
        f"SELECT {column} AS value, count(*) AS n FROM {table} WHERE {column} IS NOT NULL "
        f"GROUP BY {column} ORDER BY n DESC, value"
    )
    return {row["value"]: row["n"] for row in rows}


def _traffic_totals(db: sqlite3.Connection) -> dict[str, TrafficTotal]:
    rows = db.execute(
        "SELECT direction, sum(messages), sum(frame_bytes), sum(wire_bytes) FROM traffic "
        "GROUP BY direction"
    )
    return {row[0]: TrafficTotal(*tuple(row)[1:]) for row in rows}


def _peer(row: sqlite3.Row) -> PeerView:
    return PeerView(
        peer=row["peer"],
        status=row["status"],
        incarnation=row["incarnation"],
        card=None if row["card"] is None else tuple(json.loads(row["card"])),
        detail=row["detail"],
        last_seen=row["last_seen"],
        last_outcome=row["last_outcome"],
        last_outcome_round=row["last_outcome_round"],
    )


def _session(row: sqlite3.Row) -> SessionView:
    flags = {key: bool(row[key]) for key in ("settled", "merged")}
    return SessionView(**{**dict(row), **flags})


def _event(row: sqlite3.Row) -> EventView:
    return EventView(**{**dict(row), "data": json.loads(row["data"])})
