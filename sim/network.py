"""An in-memory network of centers: seeded loss, duplication, delay, reordering, crash, restart.

It drives the daemons' own state machine, ``protocol.node``, over virtual time. Every message goes
through the wire codec. Commits go to a ``Disk`` per center that survives crashes; a crash may
strike between any two effects, so «durable before said» is put to the test.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from protocol import codec
from protocol.beliefs import Belief
from protocol.center import Identity, Memory, Phase
from protocol.contract import Contract
from protocol.effects import (
    CommitRound,
    Effect,
    Exit,
    Merge,
    Note,
    PeerChanged,
    PhaseChanged,
    SaveSessions,
    Send,
    SessionRow,
    Train,
)
from protocol.events import (
    Coalition,
    Event,
    Heard,
    MemberAdded,
    MemberRevoked,
    Merged,
    ModelRef,
    Reachable,
    Sent,
    Started,
    StopRequested,
    Tick,
    Trained,
)
from protocol.messages import Message, SessionId
from protocol.node import Node
from protocol.record import ValidationRecord
from protocol.session import OPEN, State
from protocol.trunk import TrunkLayout, Vector

TICK_S = 0.1
LAYOUT = TrunkLayout((("trunk", (4,)),))
INITIAL_TRUNK = "0" * 64

Utility = Callable[[str, int, Coalition], float]
"""(center, round, coalition) to U."""


@dataclass(frozen=True)
class Faults:
    """How bad the network is; all probabilities per message."""

    loss: float = 0.0
    duplication: float = 0.0
    delay_s: tuple[float, float] = (0.001, 0.01)
    """Uniform delay; a wide one reorders."""


@dataclass
class Disk:
    """What a center has committed."""

    incarnation: int = 0
    commits: list[CommitRound] = field(default_factory=list)
    sessions: dict[SessionId, SessionRow] = field(default_factory=dict)
    beliefs: dict[str, Belief] = field(default_factory=dict)

    def memory(self) -> Memory:
        """What a restarted center finds."""
        last = self.commits[-1] if self.commits else None
        rows = [row for row in self.sessions.values() if not row.settled or row.state in OPEN]
        merged = frozenset(row.session for row in self.sessions.values() if row.merged)
        if last is None:
            return Memory(sessions=tuple(rows))
        return Memory(
            last_round=last.record.round,
            beliefs=dict(self.beliefs),
            sessions=tuple(rows),
            merged=merged,
            best_round=last.best_round,
            best_metric=last.best_metric,
            rounds_without_gain=last.rounds_without_gain,
            finished=last.finished,
        )

    def commit(self, effect: CommitRound) -> None:
        """One transaction."""
        self.commits.append(effect)
        self.beliefs.update(effect.beliefs)
        self.save(effect.sessions)

    def save(self, rows: Iterable[SessionRow]) -> None:
        """Insert or replace session rows."""
        for row in rows:
            self.sessions[row.session] = row


@dataclass
class Actor:
    """One center: its disk, and its machine while it is up."""

    id: str
    disk: Disk
    card: tuple[float, ...]
    size: int
    train_s: float
    node: Node | None = None
    life: int = 0
    """Counts starts, so that answers of a dead life are dropped."""
    exit: Exit | None = None
    notes: list[Note] = field(default_factory=list)
    crash_after: int | None = None
    """Effects to perform before the next crash."""
    paused_until: float = 0.0
    revoked: set[str] = field(default_factory=set)
    """Whom its people have revoked: that survives a crash."""
    merged_until: dict[str, int] = field(default_factory=dict)
    """Peer to the last round whose merge could have begun when it was revoked."""


class Network:
    """Centers, wires and one virtual clock."""

    def __init__(
        self,
        contract: Contract,
        centers: Iterable[str],
        utility: Utility,
        seed: int,
        faults: Faults | None = None,
        goals: dict[str, str] | None = None,
        cards: dict[str, tuple[float, ...]] | None = None,
        train_s: dict[str, float] | None = None,
    ) -> None:
        """``train_s`` is the virtual time of a local step per center, 0.05 by default."""
        self.contract = contract
        self.utility = utility
        self.faults = faults or Faults()
        self.rng = random.Random(seed)
        self.seed = seed
        self.now = 0.0
        self.goals = goals or {}
        self.transcript: list[str] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        cards, train_s = cards or {}, train_s or {}
        self.gone: set[str] = set()
        """Who left, or was ever revoked: nobody need agree with it on everything."""
        self.actors = {
            name: Actor(
                id=name,
                disk=Disk(),
                card=cards.get(name, (0.2, 5.0)),
                size=100,
                train_s=train_s.get(name, 0.05),
            )
            for name in sorted(centers)
        }

    def start(self, name: str) -> None:
        """Start or restart one center with the next incarnation."""
        actor = self.actors[name]
        actor.life += 1
        actor.disk.incarnation += 1
        actor.exit = None
        identity = Identity(
            center=name,
            incarnation=actor.disk.incarnation,
            seed=self.seed,
            goal=self.goals.get(name, self.contract.policy.goal),  # type: ignore[arg-type]
            card=actor.card,
            size=actor.size,
            layout=LAYOUT,
            initial_trunk=INITIAL_TRUNK,
        )
        actor.node = Node(self.contract, identity, self.actors, actor.disk.memory())
        self._say(f"{name} starts, incarnation {identity.incarnation}")
        self._feed(actor, Started())
        for peer in sorted(actor.revoked):
            self._feed(actor, MemberRevoked(peer))
        for peer in self.actors:
            if peer != name:
                self._feed(actor, Reachable(peer))
        self._tick(actor, actor.life)

    def start_all(self) -> None:
        """Start every center."""
        for name in self.actors:
            self.start(name)

    def crash(self, name: str, after_effects: int = 0) -> None:
        """Kill a center: at once, or after it has performed some more effects."""
        actor = self.actors[name]
        if after_effects:
            actor.crash_after = after_effects
        elif actor.node is not None:
            self._say(f"{name} crashes")
            actor.node, actor.crash_after = None, None
            actor.life += 1

    def stop(self, name: str) -> None:
        """Ask a center to end."""
        self._feed(self.actors[name], StopRequested("asked to"))

    def leave(self, name: str) -> None:
        """Ask a center to leave for good."""
        self.gone.add(name)
        self._feed(self.actors[name], StopRequested("asked to", leave=True))

    def join(self, name: str) -> None:
        """A new center: everybody admits it, then it starts."""
        self.actors[name] = Actor(name, Disk(), card=(0.2, 5.0), size=100, train_s=0.05)
        for actor in self.actors.values():
            if actor.id != name:
                self._feed(actor, MemberAdded(name))
                self._feed(actor, Reachable(name))
        self.start(name)

    def revoke(self, name: str, by: str) -> None:
        """The people of one center revoke another; what that one sends is dropped from now on."""
        actor = self.actors[by]
        if name == by or name in actor.revoked:
            return
        self.gone.add(name)
        actor.revoked.add(name)
        begun = actor.node is not None and actor.node.phase is Phase.CREDITING
        actor.merged_until[name] = len(actor.disk.commits) + begun
        self._feed(actor, MemberRevoked(name))

    def readmit(self, name: str, by: str) -> None:
        """They admit it again."""
        actor = self.actors[by]
        if name in actor.revoked:
            actor.revoked.discard(name)
            del actor.merged_until[name]
            self._feed(actor, MemberAdded(name))
            self._feed(actor, Reachable(name))

    def freeze(self, name: str, seconds: float) -> None:
        """Stall a center's loop (SIGSTOP): nothing reaches it, then everything at once."""
        self.actors[name].paused_until = self.now + seconds

    def run(self, until: float) -> None:
        """Let virtual time pass up to ``until``."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, action = heapq.heappop(self._queue)
            action()
        self.now = until

    def run_until(self, condition: Callable[[], bool], limit: float, step: float = 0.5) -> bool:
        """Run until the condition holds or virtual time ``limit`` is reached; says whether."""
        while not condition() and self.now < limit:
            self.run(self.now + step)
        return condition()

    def all_exited(self) -> bool:
        """Whether every center has ended by itself."""
        return all(actor.exit is not None for actor in self.actors.values())

    def _at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (when, next(self._order), action))

    def _tick(self, actor: Actor, life: int) -> None:
        if actor.life == life and actor.node is not None:
            self._feed(actor, Tick())
            self._at(self.now + TICK_S, lambda: self._tick(actor, life))

    def _later(self, actor: Actor, seconds: float, event: Event) -> None:
        life = actor.life

        def arrive() -> None:
            if actor.life == life:
                self._feed(actor, event)

        self._at(self.now + seconds, arrive)

    def _feed(self, actor: Actor, event: Event) -> None:
        if actor.node is None:
            return
        if self.now < actor.paused_until:
            if not isinstance(event, Tick):
                self._later(actor, actor.paused_until - self.now, event)
            return
        for effect in actor.node.handle(event, self.now):
            self._perform(actor, effect)
            if actor.crash_after is not None:
                actor.crash_after -= 1
                if actor.crash_after <= 0:
                    self.crash(actor.id)
                    return

    def _perform(self, actor: Actor, effect: Effect) -> None:
        match effect:
            case Send(peer=peer, message=message):
                self._transmit(actor, peer, message)
            case SaveSessions(rows=rows):
                actor.disk.save(rows)
            case CommitRound():
                actor.disk.commit(effect)
            case Train(round=number):
                self._say(f"{actor.id} trains for round {number}")
                trunk = _made_trunk(actor.id, number)
                trained = Trained(number, trunk, loss=0.5, seconds=actor.train_s)
                self._later(actor, actor.train_s, trained)
            case Merge():
                self._later(actor, 0.01, self._merged(actor, effect))
            case Note(text=text):
                actor.notes.append(effect)
                self._say(f"{actor.id}: {text}")
            case Exit(why=why, detail=detail):
                self._say(f"{actor.id} ends, {why}: {detail}")
                actor.exit, actor.node = effect, None
                actor.life += 1
            case PhaseChanged() | PeerChanged():
                pass
            case _:
                raise TypeError(f"unknown effect {effect!r}")

    def _merged(self, actor: Actor, effect: Merge) -> Merged:
        utilities = {
            coalition: self.utility(actor.id, effect.round, coalition)
            for coalition in effect.coalitions
        }
        value = utilities[frozenset(effect.trunks)]
        return Merged(
            round=effect.round,
            utilities=utilities,
            validation=ValidationRecord(metric="auroc", value=value, events=20, rows=100),
            model=ModelRef(f"round-{effect.round:06d}", "0" * 64),
            seconds=0.01,
        )

    def _transmit(self, actor: Actor, peer: str, message: Message) -> None:
        frame = codec.encode(message)
        self._say(f"{actor.id} → {peer}: {describe(message)}")
        if actor.node is not None:
            actor.node.handle(Sent(peer, message, len(frame)), self.now)
        copies = 0 if self.rng.random() < self.faults.loss else 1
        copies += self.rng.random() < self.faults.duplication
        for _ in range(copies):
            delay = self.rng.uniform(*self.faults.delay_s)
            self._at(self.now + delay, lambda: self._deliver(actor.id, peer, frame))

    def _deliver(self, sender: str, receiver: str, frame: bytes) -> None:
        message = codec.decode(frame, LAYOUT.payload_bytes("float32"))
        if sender in self.actors[receiver].revoked:
            return
        self._feed(self.actors[receiver], Heard(sender, message, len(frame)))

    def _say(self, text: str) -> None:
        self.transcript.append(f"{self.now:8.3f}  {text}")


def describe(message: Message) -> str:
    """One message in a few words, for transcripts."""
    session = getattr(message, "session", None)
    words = [message.kind]
    if session is not None:
        words.append(str(session))
    for name in ("reason", "verified", "finished", "reply", "round"):
        value = getattr(message, name, None)
        if value not in (None, ""):
            words.append(f"{name}={value}")
    return " ".join(words)


def disagreements(network: Network) -> list[str]:
    """Every edge on which two disks tell different stories of one session."""
    agreeing = {
        State.COMPLETE: State.COMPLETE,
        State.RECEIVED_ONLY: State.SENT_ONLY,
        State.SENT_ONLY: State.RECEIVED_ONLY,
        State.ABORTED: State.ABORTED,
        State.WITHDRAWN: State.ABORTED,
    }
    found = []
    for actor in network.actors.values():
        for row in actor.disk.sessions.values():
            if network.gone & {actor.id, row.peer}:
                continue
            other = network.actors[row.peer].disk.sessions.get(row.session)
            theirs = State.ABORTED if other is None else State(other.state)
            theirs = State.ABORTED if theirs is State.WITHDRAWN else theirs
            if agreeing.get(State(row.state)) is not theirs:
                found.append(f"{row.session}: {actor.id} {row.state}, {row.peer} {theirs}")
    return found


def _made_trunk(center: str, number: int) -> Vector:
    """No two centers and no two rounds in a row have the same, in bfloat16 neither."""
    parts = [number, *center.encode()[:3]]
    parts += [0] * (4 - len(parts))
    return np.array([1.0 + (part % 128) / 128 for part in parts], dtype=np.float32)
