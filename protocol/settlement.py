"""The final word on sessions, so that no two ledgers disagree for good.

After each commit a center tells its partners whether their trunk is in the committed round. Whoever
lacks such a word asks again at the next contact; the answer is the same however often it is asked.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol.center import Center
from protocol.effects import SaveSessions
from protocol.ledger import Session
from protocol.messages import MAX_SESSIONS_PER_MESSAGE, Reconcile, SessionId, Settle
from protocol.peers import Peer, PeerStatus
from protocol.session import Input, is_allowed


def announce(center: Center, sessions: Iterable[Session]) -> None:
    """After a commit: give the final word on its sessions, and ask for the missing ones later."""
    words: dict[str, list[tuple[SessionId, bool]]] = {}
    for session in sessions:
        words.setdefault(session.peer, []).append((session.id, session.merged))
    for peer_id, entries in sorted(words.items()):
        _say(center, peer_id, entries)
        center.peers[peer_id].next_reconcile = center.now + center.contract.pacing.negotiation_s


def _say(center: Center, peer_id: str, entries: list[tuple[SessionId, bool]]) -> None:
    for start in range(0, len(entries), MAX_SESSIONS_PER_MESSAGE):
        part = tuple(entries[start : start + MAX_SESSIONS_PER_MESSAGE])
        center.send(peer_id, Settle(center.identity.incarnation, part))


def ask_unsettled(center: Center, peer: Peer) -> None:
    """Ask for missing final words, at most once per negotiation budget."""
    if center.now < peer.next_reconcile or peer.status not in (
        PeerStatus.MET,
        PeerStatus.FINISHED,
    ):
        return
    unsettled = center.ledger.unsettled_with(peer.id)[:MAX_SESSIONS_PER_MESSAGE]
    if unsettled:
        peer.next_reconcile = center.now + center.contract.pacing.negotiation_s
        ids = tuple(session.id for session in unsettled)
        center.send(peer.id, Reconcile(center.identity.incarnation, ids))


def on_reconcile(center: Center, peer: Peer, message: Reconcile) -> None:
    """Answer what is final here. A session never heard of can then never begin any more."""
    center.last_asked = center.now
    entries = []
    for session_id in message.sessions:
        if peer.id not in (session_id.proposer, session_id.acceptor):
            continue
        word = center.ledger.final_word(session_id)
        if word is not None:
            entries.append((session_id, word))
        if session_id.proposer == peer.id and session_id.proposer_incarnation == peer.incarnation:
            peer.highest_session = max(peer.highest_session, session_id.number)
    if entries:
        _say(center, peer.id, entries)


def on_settle(center: Center, peer: Peer, message: Settle) -> None:
    """Take the peer's final words; while a session is open here they are as good as an answer."""
    changed = []
    for session_id, merged in message.merged:
        session = center.ledger.sessions.get(session_id)
        if session is None or session.peer != peer.id or session.settled or not session.sent:
            continue
        session.peer_word = merged
        if session.committed:
            before = session.state
            session.apply(Input.SETTLED_YES if merged else Input.SETTLED_NO)
            changed.append(session)
            if session.state is not before:
                text = f"{session.id} is {session.state}, was {before}: final word of {peer.id}"
                center.note("session-settled", text, peer.id)
        elif is_allowed(session.state, Input.ACK):
            session.apply(Input.ACK if merged else Input.NACK)
    if changed:
        center.out.append(SaveSessions(tuple(session.row() for session in changed)))
        center.ledger.forget_settled()
