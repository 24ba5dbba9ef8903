"""All sessions of one center: slots, pairs, final words.

The ledger keeps in memory what is open, what belongs to an uncommitted round, and what is not yet
settled; of the rest only the ids of merged sessions, so that it can give its final word on any
session at any time. An unknown session was never merged here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from protocol.effects import SessionRow
from protocol.messages import SessionId
from protocol.session import EXCHANGING, MERGEABLE, OPEN, VOID, Input, State, transition
from protocol.trunk import Vector


@dataclass
class Session:
    """One session on this side. Only ``apply`` moves its state."""

    id: SessionId
    peer: str
    round: int
    """Own round in which it counts."""
    opened: float
    """Protocol time."""
    deadline: float
    state: State = State.NEW
    sent: bool = False
    """Own trunk went out, so the peer may have it."""
    trunk: Vector | None = None
    peer_round: int | None = None
    staleness: int | None = None
    size: int | None = None
    refused: str | None = None
    """Why their trunk failed its checks."""
    penalized: bool = False
    """Whether that failure is a credit of 0 (a merely stale trunk is not)."""
    peer_word: bool | None = None
    """Their final word: did our trunk enter their committed round?"""
    committed: bool = False
    """Own outcome is durable."""
    bytes_sent: int = 0
    bytes_received: int = 0

    def apply(self, event: Input) -> None:
        """Follow the state table; raises ``IllegalTransition`` and then changes nothing."""
        self.state = transition(self.state, event)

    @property
    def is_open(self) -> bool:
        """Still waiting for something."""
        return self.state in OPEN

    @property
    def holds_slot(self) -> bool:
        """Counts against κ: an exchange under way or one that succeeded."""
        return self.state in EXCHANGING or self.state in MERGEABLE

    def promised(self, center: str) -> bool:
        """Whether an exchange was ever promised, seen from ``center``.

        An own proposal is promised once the own trunk went out, a peer's once it was accepted.
        """
        return self.sent or self.id.acceptor == center

    @property
    def merged(self) -> bool:
        """Their trunk is in one of our committed rounds."""
        return self.committed and self.state in MERGEABLE

    @property
    def settled(self) -> bool:
        """Own outcome durable, theirs known or irrelevant: nothing can change any more."""
        return self.committed and (not self.sent or self.peer_word is not None)

    def row(self) -> SessionRow:
        """The durable form."""
        return SessionRow(self.id, self.peer, self.round, self.state, self.settled, self.merged)


@dataclass
class Ledger:
    """The sessions of one incarnation, plus what earlier ones left unsettled."""

    center: str
    incarnation: int
    sessions: dict[SessionId, Session] = field(default_factory=dict)
    merged_ids: set[SessionId] = field(default_factory=set)
    last_number: int = 0
    _live: dict[int, dict[SessionId, Session]] = field(default_factory=dict)
    """By round. A peer may propose and withdraw hundreds of times in one round; no answer may get
    slower by that, so what came to nothing leaves this index at the next look."""

    def new_id(self, peer: str, peer_incarnation: int) -> SessionId:
        """A fresh id for a proposal of ours."""
        self.last_number += 1
        return SessionId(self.center, self.incarnation, peer, peer_incarnation, self.last_number)

    def add(self, session: Session) -> None:
        """Take up a session."""
        self.sessions[session.id] = session
        if not session.committed:
            self._live.setdefault(session.round, {})[session.id] = session

    def in_round(self, number: int) -> list[Session]:
        """Sessions that count in this own round, in a fixed order."""
        found = [s for s in self.sessions.values() if s.round == number and not s.committed]
        return sorted(found, key=lambda session: session.id)

    def live_in(self, number: int) -> list[Session]:
        """Of these all but the ones that came to nothing, in the order they were taken up."""
        live = self._live.get(number)
        if not live:
            return []
        for session_id in [s.id for s in live.values() if s.state in VOID]:
            del live[session_id]
        return list(live.values())

    def slots_used(self, number: int) -> int:
        """|P| so far: exchanges under way or delivered."""
        return sum(session.holds_slot for session in self.live_in(number))

    def outstanding(self, number: int) -> list[Session]:
        """Own proposals without an answer."""
        return [s for s in self.live_in(number) if s.state is State.PROPOSED]

    def pair_in(self, number: int, peer: str) -> Session | None:
        """The one session with this peer in this round: pending, promised or failed, if any.

        A failed exchange keeps the pair's place: nobody gets a second try in the same round.
        """
        for session in self.live_in(number):
            counts = session.state is State.PROPOSED or session.promised(self.center)
            if counts and session.peer == peer:
                return session
        return None

    def open_with(self, peer: str) -> list[Session]:
        """Open sessions with one peer."""
        return sorted(
            (s for s in self.sessions.values() if s.peer == peer and s.is_open),
            key=lambda session: session.id,
        )

    def peers_with_unsettled(self) -> list[str]:
        """Whose final word is missing, in a fixed order."""
        return sorted({s.peer for s in self.sessions.values() if s.committed and not s.settled})

    def unsettled_with(self, peer: str) -> list[Session]:
        """Durable outcomes that still lack the peer's final word, oldest first."""
        return sorted(
            (s for s in self.sessions.values() if s.peer == peer and s.committed and not s.settled),
            key=lambda session: session.id,
        )

    def final_word(self, session_id: SessionId) -> bool | None:
        """Whether that session's trunk is in a committed round here; None while undecided."""
        session = self.sessions.get(session_id)
        if session is None:
            return session_id in self.merged_ids
        if session.committed:
            return session.merged
        undecided = session.is_open or session.state in MERGEABLE
        return None if undecided else False

    def commit(self, sessions: Iterable[Session]) -> None:
        """Fix outcomes that become durable now; apply final words that came early."""
        for session in sessions:
            session.committed = True
            self._live.get(session.round, {}).pop(session.id, None)
            if session.state in MERGEABLE:
                self.merged_ids.add(session.id)
            if session.sent and session.peer_word is not None:
                session.apply(Input.SETTLED_YES if session.peer_word else Input.SETTLED_NO)
            session.trunk = None
        self._live = {number: live for number, live in self._live.items() if live}

    def forget_settled(self) -> None:
        """Drop from memory what can no longer change."""
        for session_id in [s.id for s in self.sessions.values() if s.settled]:
            del self.sessions[session_id]
