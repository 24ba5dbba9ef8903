"""One center as a state machine: ``handle(event, now) -> effects``.

The machine reads no clock, opens no socket and draws no random number that its seeds do not fix:
the same identity, memory and sequence of (event, now) give the same effects, in a daemon, in a
simulator, or when a recorded run is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from protocol import (
    agenda,
    exchange,
    handshake,
    introduction,
    membership,
    negotiation,
    rounds,
    settlement,
)
from protocol.center import Center, Identity, Memory, Phase, Round
from protocol.contract import Contract
from protocol.effects import Effect, Exit, SaveSessions
from protocol.events import (
    Event,
    Flooded,
    Heard,
    MemberAdded,
    MemberRevoked,
    Merged,
    Misbehaved,
    Reachable,
    Sent,
    Started,
    StopRequested,
    Tick,
    Trained,
    Undeliverable,
    Unreachable,
)
from protocol.ledger import Ledger, Session
from protocol.messages import (
    Accept,
    Done,
    Goodbye,
    Hello,
    Message,
    Ping,
    Propose,
    Reconcile,
    Refuse,
    RefuseReason,
    Rejected,
    SessionMessage,
    Settle,
    Weights,
    Withdraw,
)
from protocol.peers import Peer, Peers
from protocol.randomness import derive_rng
from protocol.session import OPEN, Input, State

RATE_NOTE_EVERY = 100


class Node:
    """The decisions of one center. Not thread-safe; one stimulus at a time."""

    def __init__(
        self, contract: Contract, identity: Identity, roster: Iterable[str], memory: Memory
    ) -> None:
        """``roster`` are the ids of all members; the own one is ignored."""
        peers = Peers(contract.pacing)
        for member in roster:
            if member != identity.center:
                peers.add(member)
        self.center = Center(
            contract=contract,
            identity=identity,
            peers=peers,
            ledger=Ledger(identity.center, identity.incarnation, merged_ids=set(memory.merged)),
            beliefs=dict(memory.beliefs),
            contract_digest=contract.digest(),
            layout_digest=identity.layout.digest,
            round=Round(memory.last_round),
            upcoming=Round(memory.last_round + 1),
            best_round=memory.best_round,
            best_metric=memory.best_metric,
            rounds_without_gain=memory.rounds_without_gain,
            last_round=memory.last_round,
            finished=memory.finished,
            probe_rng=derive_rng(identity.seed, identity.center, identity.incarnation, "probe"),
        )
        self._memory = memory

    @property
    def phase(self) -> Phase:
        """What the center is doing."""
        return self.center.phase

    def next_tick(self) -> float:
        """Seconds after the last stimulus by which a tick should come."""
        return agenda.next_tick(self.center)

    def has_room(self, peer_id: str, now: float) -> bool:
        """Whether a frame of this peer is within its rate; if not, it is not worth decoding."""
        peer = self.center.peers.by_id.get(peer_id)
        return peer is None or peer.bucket.has_one(self.center.clock.at(now))

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one stimulus at monotonic time ``now`` (seconds); returns what is to be done."""
        center = self.center
        center.now = center.clock.advance(now)
        if not center.phase.over:
            self._dispatch(event)
            self._go_on(event)
        effects, center.out = center.out, []
        return effects

    def _dispatch(self, event: Event) -> None:
        center = self.center
        match event:
            case Heard():
                self._heard(event)
            case Sent():
                self._sent(event)
            case Tick():
                rounds.expire(center)
                introduction.contact_peers(center)
                for peer_id in center.ledger.peers_with_unsettled():
                    settlement.ask_unsettled(center, center.peers[peer_id])
            case Trained():
                rounds.on_trained(center, event)
            case Merged():
                rounds.on_merged(center, event)
            case Started():
                self._started()
            case StopRequested():
                self._stop(event)
            case _:
                self._about_peer(event)

    def _about_peer(self, event: Event) -> None:
        center = self.center
        match event:
            case Reachable(peer=name) if name in center.peers.by_id:
                handshake.on_reachable(center, center.peers[name])
            case Flooded(peer=name) if name in center.peers.by_id:
                self._over_rate(center.peers[name])
            case Unreachable(peer=name) if name in center.peers.by_id:
                handshake.on_unreachable(center, center.peers[name])
            case Undeliverable(peer=name, reason=reason) if name in center.peers.by_id:
                peer = center.peers[name]
                handshake.suspect(center, peer, f"undeliverable, {reason}")
                negotiation.close_open_sessions(center, peer, "undeliverable")
            case Misbehaved():
                self._misbehaved(event)
            case MemberAdded(peer=name):
                membership.on_added(center, name)
            case MemberRevoked(peer=name):
                membership.on_revoked(center, name)
            case _:
                pass

    def _go_on(self, event: Event) -> None:
        """Let the phase move where this stimulus made that possible."""
        center = self.center
        if center.phase is Phase.GATHERING and not isinstance(event, Sent):
            rounds.gather(center)
        elif center.phase is Phase.WAITING:
            rounds.wait_for_peers(center)
        elif center.phase is Phase.PAUSING:
            rounds.pause(center)
        elif center.phase is Phase.LINGERING and isinstance(event, Tick):
            rounds.linger(center)

    def _started(self) -> None:
        """Abort what the previous incarnation left open, then wait for peers."""
        center = self.center
        aborted = []
        for row in self._memory.sessions:
            state = State(row.state)
            session = Session(row.session, row.peer, row.round, 0.0, 0.0, state=state, sent=True)
            if state in OPEN:
                session.apply(Input.GIVE_UP)
                aborted.append(session)
            session.committed = True
            center.ledger.add(session)
            center.peers.add(row.peer)
        if aborted:
            rows = tuple(session.row() for session in aborted)
            center.out.append(SaveSessions(rows))
            what = "1 session" if len(aborted) == 1 else f"{len(aborted)} sessions"
            text = f"{what} of an earlier incarnation aborted"
            center.note("sessions-aborted", text)
        if introduction.greets_all(center):
            for peer in center.peers.all():
                center.peer_changed(peer)
        if center.finished:
            rounds.begin_to_linger(center)
        else:
            rounds.begin_to_wait(center)

    def _stop(self, event: StopRequested) -> None:
        center = self.center
        if event.leave:
            membership.leave(center)
        else:
            handshake.farewell(center)
        center.enter(Phase.LEFT if event.leave else Phase.STOPPED)
        why = "left" if event.leave else "finished" if center.finished else "stopped"
        center.out.append(Exit(why, event.reason))

    def _sent(self, event: Sent) -> None:
        center, message = self.center, event.message
        center.accounted_round.bytes_sent[message.kind] += event.frame_bytes
        if isinstance(message, Weights):
            session = center.ledger.sessions.get(message.session)
            if session is not None:
                session.bytes_sent += event.frame_bytes

    def _misbehaved(self, event: Misbehaved) -> None:
        center = self.center
        if event.peer in center.peers.by_id:
            center.peers[event.peer].bucket.take(center.now)
        text = f"{event.peer or 'a stranger'}: {event.reason}, {event.detail}"
        center.note("misbehavior", text, event.peer, "warning", reason=event.reason)
        if event.reason == "protocol-version" and event.peer in center.peers.by_id:
            peer = center.peers[event.peer or ""]
            if peer.refused is None:
                peer.refused = RefuseReason.PROTOCOL_VERSION
                handshake.refuse(center, peer, RefuseReason.PROTOCOL_VERSION, event.detail)
                center.peer_changed(peer, event.detail)

    def _heard(self, event: Heard) -> None:
        center, message = self.center, event.message
        peer = center.peers.by_id.get(event.peer)
        if peer is None:
            center.note("unknown-peer", f"{event.peer} is not on the roster", event.peer, "warning")
            return
        if peer.revoked:
            return
        if not peer.bucket.take(center.now):
            self._over_rate(peer)
            return
        center.accounted_round.bytes_received[message.kind] += event.frame_bytes
        match message:
            case Hello():
                handshake.on_hello(center, peer, message)
            case Refuse():
                handshake.on_refuse(center, peer, message)
            case _ if handshake.admit(center, peer, message):
                handshake.heard_from(center, peer)
                self._from_friend(peer, message, event.frame_bytes)
            case _:
                pass

    def _over_rate(self, peer: Peer) -> None:
        if peer.dropped % RATE_NOTE_EVERY == 0:
            limit = self.center.contract.pacing.messages_per_s
            text = f"{peer.id} sends more than {limit:g} messages a second; the rest is dropped"
            self.center.note("rate-limited", text, peer.id, "warning", dropped=peer.dropped)
        peer.dropped += 1

    def _from_friend(self, peer: Peer, message: Message, frame_bytes: int) -> None:
        center = self.center
        if isinstance(message, SessionMessage):
            pair = (message.session.proposer, message.session.acceptor)
            if pair not in ((center.id, peer.id), (peer.id, center.id)):
                text = f"{peer.id} speaks about session {message.session}, which is not with it"
                center.note("misbehavior", text, peer.id, "warning", reason="foreign-session")
                return
            if isinstance(message, Weights):
                exchange.on_weights(center, peer, message, frame_bytes)
                return
        handler = _HANDLERS.get(type(message))
        if handler is not None:
            handler(center, peer, message)


_HANDLERS: dict[type[Message], Callable[[Center, Peer, Any], None]] = {
    Propose: negotiation.on_propose,
    Accept: negotiation.on_accept,
    Rejected: negotiation.on_rejected,
    Withdraw: lambda center, peer, message: negotiation.on_withdraw(center, message),
    Done: lambda center, peer, message: exchange.on_done(center, message),
    Settle: settlement.on_settle,
    Reconcile: settlement.on_reconcile,
    Ping: lambda center, peer, message: handshake.on_ping(center, peer),
    Goodbye: lambda center, peer, message: (
        membership.on_left(center, peer)
        if message.left
        else handshake.on_goodbye(center, peer, message)
    ),
}
