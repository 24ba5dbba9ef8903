"""Who is there: hello, refusal, goodbye, suspicion.

Identity comes from the authenticated connection. What a hello claims is only compared with it.
"""

from __future__ import annotations

from protocol import PROTOCOL_VERSION
from protocol.center import Center, Phase
from protocol.effects import Exit
from protocol.goal import card_length
from protocol.introduction import greets_all, hello, introduce
from protocol.messages import Goodbye, Hello, Message, Pong, Refuse, RefuseReason
from protocol.negotiation import close_open_sessions
from protocol.peers import Peer
from protocol.settlement import ask_unsettled

RECENT_S = 30.0
"""Whoever was heard within this time probably still has a connection to us."""


def on_reachable(center: Center, peer: Peer) -> None:
    """Discovery knows an address: say hello at the next tick."""
    if not peer.reachable:
        peer.reachable = True
        peer.unreachable = False
        peer.next_contact = center.now


def on_unreachable(center: Center, peer: Peer) -> None:
    """Discovery does not know its address any more: no candidate until it says something."""
    peer.reachable = False
    peer.hint_lost = True


def suspect(center: Center, peer: Peer, why: str) -> None:
    """A silent peer leaves the candidates until any authenticated message of it arrives."""
    if peer.suspect or not peer.met:
        return
    peer.suspect = True
    peer.probe.reset()
    peer.next_contact = center.now + peer.probe.next_delay(center.probe_rng)
    center.note("peer-suspect", f"{peer.id} is suspect: {why}", peer.id, "warning")
    center.peer_changed(peer, why)


def heard_from(center: Center, peer: Peer) -> None:
    """Any authenticated message of the present incarnation clears suspicion."""
    peer.last_heard = center.now
    peer.reachable = True
    peer.unreachable = False
    peer.hint_lost = False
    if peer.suspect:
        peer.suspect = False
        peer.probe.reset()
        center.note("peer-returned", f"{peer.id} answers again", peer.id)
        center.peer_changed(peer)


def admit(center: Center, peer: Peer, message: Message) -> bool:
    """Whether a message comes from the peer's present, introduced incarnation."""
    if message.incarnation < peer.incarnation:
        detail = f"incarnation {message.incarnation} is older than {peer.incarnation}, seen before"
        refuse(center, peer, RefuseReason.SUPERSEDED, detail, peer.incarnation)
        return False
    if peer.met and message.incarnation == peer.incarnation and peer.refused is None:
        return True
    introduce(center, peer)
    return False


def refuse(
    center: Center, peer: Peer, reason: RefuseReason, detail: str, known_incarnation: int = 0
) -> None:
    """Name the refusal to the peer and in the own events."""
    incarnation = center.identity.incarnation
    center.send(peer.id, Refuse(incarnation, reason, detail, known_incarnation))
    center.note("peer-refused", f"{peer.id} refused, {reason}: {detail}", peer.id, "error")


def on_hello(center: Center, peer: Peer, message: Hello) -> None:
    """Check what must agree, then take up the peer's incarnation and card."""
    if message.incarnation < peer.incarnation:
        admit(center, peer, message)
        return
    problem = _disagreement(center, peer, message)
    if problem is not None:
        reason, detail = problem
        if peer.refused != reason:
            peer.refused = reason
            refuse(center, peer, reason, detail)
            center.peer_changed(peer, detail)
            close_open_sessions(center, peer, "undeliverable")
        return
    if message.incarnation > peer.incarnation:
        _new_incarnation(center, peer, message)
    _take_card(center, peer, message)
    news = not peer.met or peer.away or peer.left or peer.refused is not None
    peer.met, peer.away, peer.left, peer.refused = True, False, False, None
    peer.finished = message.finished
    heard_from(center, peer)
    if news:
        peer.probe.reset()
        center.note("peer-met", f"{peer.id} met, incarnation {peer.incarnation}", peer.id)
        center.peer_changed(peer)
    if peer.id in center.round.greetings:
        # It was greeted in order to be proposed to: now it can be, before anybody else.
        del center.round.greetings[peer.id]
        center.round.queue.appendleft(peer.id)
    if not message.reply:
        center.send(peer.id, hello(center, reply=True))
    peer.next_reconcile = center.now
    ask_unsettled(center, peer)


def _take_card(center: Center, peer: Peer, message: Hello) -> None:
    """The newest card counts; but who has one may change it once a round, and not unnoticed.

    Else a peer could show each proposal the card that passes the filter.
    """
    card, number = message.card, center.round.number
    if card.values == peer.card:
        peer.card_sequence = max(peer.card_sequence, card.sequence)
        return
    if card.sequence <= peer.card_sequence:
        text = f"{peer.id} changed its card without a new sequence number; the first one counts"
        center.note("card-changed", text, peer.id, "warning")
        return
    if peer.card is not None:
        if peer.card_round == number:
            text = f"{peer.id} changed its card more than once in round {number}; the first counts"
            center.note("card-changed", text, peer.id, "warning")
            return
        center.note("card-renewed", f"{peer.id} has a new card", peer.id)
        peer.card_round = number
    peer.card, peer.card_sequence = card.values, card.sequence


def _disagreement(center: Center, peer: Peer, message: Hello) -> tuple[RefuseReason, str] | None:
    if message.center != peer.id:
        detail = f"the key of {peer.id} introduced itself as {message.center}"
        return RefuseReason.FOREIGN_ID, detail
    if message.protocol_version != PROTOCOL_VERSION:
        detail = f"protocol version: found {message.protocol_version}, allowed: {PROTOCOL_VERSION}"
        return RefuseReason.PROTOCOL_VERSION, detail
    if message.contract != center.contract_digest:
        found, own = message.contract[:12], center.contract_digest[:12]
        return (
            RefuseReason.CONTRACT,
            f"contract hash of {peer.id}: {found}…, of {center.id}: {own}…",
        )
    if message.initial_trunk != center.identity.initial_trunk:
        found, own = message.initial_trunk[:12], center.identity.initial_trunk[:12]
        return (
            RefuseReason.INITIAL_TRUNK,
            f"initial trunk of {peer.id}: {found}…, of {center.id}: {own}…",
        )
    expected = card_length(center.contract)
    if len(message.card.values) != expected:
        detail = f"card of {peer.id}: found {len(message.card.values)} numbers, allowed: {expected}"
        return RefuseReason.CONTRACT, detail
    return None


def _new_incarnation(center: Center, peer: Peer, message: Hello) -> None:
    if peer.incarnation:
        text = f"{peer.id} restarted: incarnation {peer.incarnation} → {message.incarnation}"
        center.note("peer-restarted", text, peer.id)
        close_open_sessions(center, peer, "undeliverable")
    peer.incarnation = message.incarnation
    peer.highest_session = 0
    peer.met = False


def on_refuse(center: Center, peer: Peer, message: Refuse) -> None:
    """The peer does not talk to us: recorded; if it saw a newer copy of us, maybe end."""
    if message.incarnation < peer.incarnation:
        return
    if message.reason is RefuseReason.SUPERSEDED:
        if message.known_incarnation > center.identity.incarnation:
            _superseded(center, peer, message)
        return
    if peer.refused != message.reason:
        peer.refused = message.reason
        text = f"{peer.id} refuses us, {message.reason}: {message.detail}"
        center.note("refused-by-peer", text, peer.id, "error")
        center.peer_changed(peer, message.detail)
        close_open_sessions(center, peer, "undeliverable")


def _superseded(center: Center, peer: Peer, message: Refuse) -> None:
    """One peer may be wrong or lie; more than half of those met end this copy, never one alone.

    Except where there is only one other member.
    """
    if peer.id not in center.superseded_by:
        center.superseded_by.add(peer.id)
        text = f"{peer.id} has seen our incarnation {message.known_incarnation}"
        known = message.known_incarnation
        center.note("superseded-claim", text, peer.id, "warning", known=known)
    known = max(len(center.peers.compatible()), min(2, len(center.peers.all())))
    if 2 * len(center.superseded_by) > known:
        claims = ", ".join(sorted(center.superseded_by))
        detail = f"a newer copy of {center.id} runs, say {claims}"
        center.note("superseded", detail, level="error")
        center.enter(Phase.STOPPED)
        center.out.append(Exit("superseded", detail))


def on_ping(center: Center, peer: Peer) -> None:
    """Answer; a finished center says so again, in case its goodbye was lost."""
    if center.finished:
        say_goodbye(center, peer)
    else:
        center.send(peer.id, Pong(center.identity.incarnation))


def on_goodbye(center: Center, peer: Peer, message: Goodbye) -> None:
    """The peer finished, or leaves for now; its open sessions are over."""
    peer.satisfied = message.finished and message.settled
    if (peer.finished, peer.away) == (message.finished, not message.finished):
        return
    peer.finished = message.finished
    peer.away = not message.finished
    peer.probe.reset()
    peer.next_contact = center.now + peer.probe.next_delay(center.probe_rng)
    word = "has finished its rounds" if message.finished else "leaves"
    center.note("peer-finished" if message.finished else "peer-left", f"{peer.id} {word}", peer.id)
    center.peer_changed(peer, word)
    close_open_sessions(center, peer, "finished" if message.finished else "undeliverable")


def farewell(center: Center) -> None:
    """Say goodbye to everybody who was met, or, where connections are few, met lately."""
    everybody = greets_all(center)
    for peer in center.peers.compatible():
        lately = center.now - peer.last_heard < RECENT_S
        if everybody or lately or center.ledger.unsettled_with(peer.id):
            say_goodbye(center, peer)


def say_goodbye(center: Center, peer: Peer) -> None:
    """Finished or leaving, and whether we still lack final words of this peer."""
    settled = not center.ledger.unsettled_with(peer.id)
    peer.told_satisfied = center.finished and settled
    center.send(peer.id, Goodbye(center.identity.incarnation, center.finished, settled))
