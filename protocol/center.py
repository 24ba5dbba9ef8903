"""The state of one center between two stimuli: plain data, no behavior of its own.

``protocol.node`` owns one ``Center`` and hands it to the rules in ``handshake``, ``negotiation``,
``exchange``, ``settlement`` and ``rounds``. What is to be done collects in ``Center.out``.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Literal

from protocol.beliefs import Belief
from protocol.contract import Contract, Goal
from protocol.credit import CreditPlan
from protocol.effects import Effect, Note, PeerChanged, PhaseChanged, Send, SessionRow
from protocol.ledger import Ledger, Session
from protocol.messages import CardMessage, Message, SessionId
from protocol.peers import Peer, Peers
from protocol.provenance import Provenance
from protocol.randomness import derive_rng
from protocol.ranking import Ranking
from protocol.record import ObjectivesRecord
from protocol.timing import StretchedClock
from protocol.trunk import TrunkLayout, Vector


class Phase(StrEnum):
    """What a center is doing."""

    STARTING = "starting"
    WAITING = "waiting"
    """For ``min_peers`` before round 1."""
    TRAINING = "training"
    GATHERING = "gathering"
    """Proposals and exchanges."""
    CREDITING = "crediting"
    """Coalitions are measured and merged; from here on new sessions count in the next round."""
    PAUSING = "pausing"
    """The round is committed, its least duration is not over."""
    LINGERING = "lingering"
    """All rounds are done; answers, reconciles, waits for the others."""
    STOPPED = "stopped"
    LEFT = "left"
    """Stopped for good, and the others know it."""

    @property
    def over(self) -> bool:
        """Whether nothing follows."""
        return self in (Phase.STOPPED, Phase.LEFT)


class Hold(StrEnum):
    """What a center waits for its turn with, where everybody goes in step (``sim.lockstep``)."""

    NOTHING = "nothing"
    """As daemons do: each at its own pace."""
    PROPOSALS = "proposals"
    """It answers, and proposes to nobody yet."""
    MERGE = "merge"
    """It proposes and answers, also with all slots full."""


@dataclass(frozen=True)
class Identity:
    """Who this center is in this incarnation."""

    center: str
    incarnation: int
    seed: int
    goal: Goal
    card: tuple[float, ...]
    size: int
    """Training patients, as claimed in ``weights``."""
    layout: TrunkLayout
    initial_trunk: str
    """Digest of the untrained trunk."""
    join_from: Literal["initial", "partner"] = "initial"
    """Whether the first merge ever takes the partners' trunks in the place of the own one."""
    outbound_only: bool = False
    """It takes no connections: it opens them all, and keeps them for the others to propose by."""


@dataclass(frozen=True)
class Memory:
    """What earlier incarnations left behind."""

    last_round: int = 0
    beliefs: Mapping[str, Belief] = field(default_factory=dict)
    sessions: tuple[SessionRow, ...] = ()
    """Open intents and unsettled outcomes."""
    merged: frozenset[SessionId] = frozenset()
    best_round: int = 0
    best_metric: float = float("-inf")
    rounds_without_gain: int = 0
    finished: bool = False


@dataclass(frozen=True)
class OwnTrunk:
    """The newest finished local step, ready to be sent."""

    round: int
    vector: Vector
    norm: float
    payload: bytes


@dataclass
class Proposal:
    """A proposal under way, sent or received, for the record."""

    peer: str
    session: SessionId | None
    """None while the peer has not answered the hello that goes before."""
    opened: float
    outcome: str | None = None
    reason: str | None = None
    closed: float = 0.0

    def close(self, outcome: str, now: float, reason: str | None = None) -> None:
        """Fix the outcome once; later news does not change the record."""
        if self.outcome is None:
            self.outcome, self.reason, self.closed = outcome, reason, now


@dataclass
class Round:
    """What one round has gathered so far."""

    number: int
    started: float = 0.0
    """Protocol time."""
    threshold: float | None = None
    scores: dict[str, float] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    ranking: Ranking | None = None
    queue: deque[str] = field(default_factory=deque)
    gather_started: float = 0.0
    merge_started: float = 0.0
    sent: dict[SessionId, Proposal] = field(default_factory=dict)
    greetings: dict[str, Proposal] = field(default_factory=dict)
    """Peers greeted in order to be proposed to, without an answer yet."""
    unanswered: list[Proposal] = field(default_factory=list)
    """Greetings that came to nothing."""
    received: list[Proposal] = field(default_factory=list)
    received_unrecorded: int = 0
    train_seconds: float = 0.0
    loss: float = 0.0
    objectives: ObjectivesRecord | None = None
    lag_before: float = 0.0
    plan: CreditPlan | None = None
    merging: list[Session] = field(default_factory=list)
    weights: dict[str, float] = field(default_factory=dict)
    bytes_sent: Counter[str] = field(default_factory=Counter)
    bytes_received: Counter[str] = field(default_factory=Counter)


@dataclass
class Center:
    """Everything that one center knows."""

    contract: Contract
    identity: Identity
    peers: Peers
    ledger: Ledger
    beliefs: dict[str, Belief]
    contract_digest: str
    layout_digest: str
    phase: Phase = Phase.STARTING
    round: Round = field(default_factory=lambda: Round(0))
    upcoming: Round = field(default_factory=lambda: Round(1))
    """Collects what already counts in the next round."""
    own: OwnTrunk | None = None
    provenance: Provenance = field(default_factory=Provenance)
    """Which trunks were here before."""
    clock: StretchedClock = field(default_factory=StretchedClock)
    now: float = 0.0
    """Protocol time of the present stimulus, seconds."""
    best_round: int = 0
    best_metric: float = float("-inf")
    rounds_without_gain: int = 0
    last_round: int = 0
    finished: bool = False
    superseded_by: set[str] = field(default_factory=set)
    phase_started: float = 0.0
    next_look: float = 0.0
    """When to look again for peers that are due for a hello or a ping."""
    last_asked: float = 0.0
    """When a peer last wanted something of us."""
    hold: Hold = Hold.NOTHING
    out: list[Effect] = field(default_factory=list)
    probe_rng: random.Random = field(default_factory=random.Random)

    @property
    def id(self) -> str:
        """The own center id."""
        return self.identity.center

    @property
    def adopts(self) -> bool:
        """Whether the next merge is a newcomer's first, which takes nothing of the own trunk."""
        return self.identity.join_from == "partner" and not self.ledger.merged_ids

    @cached_property
    def prior(self) -> Belief:
        """Beta(α₀, β₀)."""
        policy = self.contract.policy
        return Belief(policy.prior_alpha, policy.prior_beta, 0)

    @property
    def accepting_round(self) -> Round:
        """The round in which a session accepted now would count."""
        begun = self.phase in (Phase.CREDITING, Phase.PAUSING)
        late = self.phase is Phase.GATHERING and self.now > self.negotiation_ends
        return self.upcoming if begun or late else self.round

    @property
    def accounted_round(self) -> Round:
        """Whose record will hold what is sent and received now: the present one may be written."""
        before = self.phase in (Phase.STARTING, Phase.WAITING, Phase.PAUSING)
        return self.upcoming if before else self.round

    @property
    def negotiation_ends(self) -> float:
        """All proposals of the round share this deadline."""
        return self.round.gather_started + self.contract.pacing.negotiation_s

    def belief(self, peer: str) -> Belief:
        """The belief over a peer, the prior if there is none yet."""
        return self.beliefs.get(peer, self.prior)

    def rng(self, purpose: str, number: int) -> random.Random:
        """The center's own generator for one purpose of one round."""
        return derive_rng(self.identity.seed, self.id, number, purpose)

    def card_message(self) -> CardMessage:
        """The own card; fixed for one run, its sequence number is the incarnation."""
        return CardMessage(self.identity.incarnation, self.identity.card)

    def send(self, peer: str, message: Message) -> None:
        """Queue a message; to one that is no member any more nothing is said."""
        known = self.peers.by_id.get(peer)
        if known is not None and known.revoked:
            return
        self.out.append(Send(peer, message))

    def note(
        self, kind: str, text: str, peer: str | None = None, level: str = "info", **data: object
    ) -> None:
        """Queue a line for log and events; about one peer only so many (``NOTES_PER_S``)."""
        about = self.peers.by_id.get(peer or "")
        if about is not None:
            if not about.notes.take(self.now):
                about.notes_held_back += 1
                return
            if about.notes_held_back:
                data = {**data, "held_back_before": about.notes_held_back}
                about.notes_held_back = 0
        self.out.append(Note(kind, level, peer, text, data))

    def enter(self, phase: Phase) -> None:
        """Change the phase."""
        self.phase = phase
        self.phase_started = self.now
        self.out.append(PhaseChanged(phase, self.round.number))

    def peer_changed(self, peer: Peer, detail: str = "") -> None:
        """Queue the new view of a peer."""
        self.out.append(PeerChanged(peer.id, peer.status, peer.incarnation, peer.card, detail))
