"""What a center knows of each member of its roster."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from protocol.contract import Pacing
from protocol.timing import Backoff, TokenBucket

LONGEST_PROBE_S = 60.0
NOTES_PER_S = 1.0
NOTES_BURST = 100.0
"""About each peer: without this bound, one that misbehaves on purpose would push everything else
out of the log and the events, which keep the newest."""
MAX_STALL_ROUNDS = 16


class PeerStatus(StrEnum):
    """How a peer stands with us, in one word."""

    UNMET = "unmet"
    MET = "met"
    SUSPECT = "suspect"
    FINISHED = "finished"
    AWAY = "away"
    REFUSED = "refused"
    LEFT = "left"
    """It said goodbye for good."""
    REVOKED = "revoked"
    """No member any more."""
    UNREACHABLE = "unreachable"
    """No connection can come about: this center takes none, and knows no address of the peer."""


@dataclass
class Peer:
    """One member of the roster, as seen from here."""

    id: str
    bucket: TokenBucket
    probe: Backoff
    notes: TokenBucket = field(default_factory=lambda: TokenBucket(NOTES_PER_S, NOTES_BURST))
    notes_held_back: int = 0
    """Notes about this peer that were too many, since the last one that passed."""
    reachable: bool = False
    """Discovery has an address, or the peer has spoken to us."""
    hint_lost: bool = False
    """Discovery took its address back, and it has said nothing since."""
    unreachable: bool = False
    """A round began without any way to it, from a center that takes no connections."""
    met: bool = False
    suspect: bool = False
    finished: bool = False
    away: bool = False
    left: bool = False
    satisfied: bool = False
    """It is finished and lacks no final word of ours any more."""
    told_satisfied: bool = False
    """We told it the same of us."""
    refused: str | None = None
    revoked: bool = False
    incarnation: int = 0
    card: tuple[float, ...] | None = None
    card_sequence: int = 0
    card_round: int = -1
    """Own round in which it last replaced its card by another."""
    last_heard: float = 0.0
    next_contact: float = 0.0
    """Protocol time of the next hello or ping, while there is a reason for one."""
    next_reconcile: float = 0.0
    next_introduction: float = 0.0
    highest_session: int = 0
    """Newest session number seen of its present incarnation; older unknown ones are stale."""
    stalls: int = 0
    """Exchanges in a row that this peer let die."""
    blocked_until: int = 0
    """Own round before which it is neither asked nor accepted."""
    dropped: int = 0
    """Messages over the rate limit."""

    @property
    def status(self) -> PeerStatus:
        """The word for people and records."""
        if self.revoked:
            return PeerStatus.REVOKED
        if self.refused is not None:
            return PeerStatus.REFUSED
        if not self.met:
            return PeerStatus.UNREACHABLE if self.unreachable else PeerStatus.UNMET
        if self.left:
            return PeerStatus.LEFT
        if self.finished:
            return PeerStatus.FINISHED
        if self.away:
            return PeerStatus.AWAY
        return PeerStatus.SUSPECT if self.suspect else PeerStatus.MET

    @property
    def compatible(self) -> bool:
        """Met, and neither side refused the other."""
        return self.met and self.refused is None

    def is_candidate(self, round_number: int) -> bool:
        """Whether it may be proposed to in this round."""
        free = self.blocked_until <= round_number and not self.hint_lost
        return self.status is PeerStatus.MET and free

    def is_due(self, now: float) -> bool:
        """Whether a hello or ping may go out to it now, if there is a reason for one."""
        gone = self.finished or self.left or self.revoked
        wanted = self.reachable and self.refused is None and not gone
        return wanted and now >= self.next_contact

    def stalled(self, round_number: int) -> None:
        """It accepted or proposed and then let the exchange die: stay away 1, 2, 4 … rounds."""
        self.stalls += 1
        rest = min(MAX_STALL_ROUNDS, 2 ** (self.stalls - 1))
        self.blocked_until = round_number + 1 + rest

    def delivered(self) -> None:
        """An exchange with it worked."""
        self.stalls = 0
        self.blocked_until = 0


@dataclass
class Peers:
    """The roster without oneself."""

    pacing: Pacing
    by_id: dict[str, Peer] = field(default_factory=dict)
    _ordered: list[Peer] | None = None

    def add(self, peer_id: str) -> Peer:
        """A member joins the roster."""
        if peer_id not in self.by_id:
            self.by_id[peer_id] = Peer(
                id=peer_id,
                bucket=TokenBucket(self.pacing.messages_per_s, 2 * self.pacing.messages_per_s),
                probe=Backoff(min(1.0, self.pacing.negotiation_s), LONGEST_PROBE_S),
            )
            self._ordered = None
        return self.by_id[peer_id]

    def renew(self, peer_id: str) -> Peer:
        """A member joins, and nothing is known of it, whatever was before."""
        self.by_id.pop(peer_id, None)
        self._ordered = None
        return self.add(peer_id)

    def __getitem__(self, peer_id: str) -> Peer:
        return self.by_id[peer_id]

    def all(self) -> list[Peer]:
        """All peers in order of their id, so that dictionary order never matters."""
        if self._ordered is None:
            self._ordered = [self.by_id[key] for key in sorted(self.by_id)]
        return self._ordered

    def members(self) -> list[Peer]:
        """All but those that were revoked."""
        return [peer for peer in self.all() if not peer.revoked]

    def compatible(self) -> list[Peer]:
        """Those that were met and not refused."""
        return [peer for peer in self.all() if peer.compatible]

    def count(self, status: PeerStatus) -> int:
        """How many stand so."""
        return sum(peer.status is status for peer in self.by_id.values())
