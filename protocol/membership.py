"""Members that come and go while a center runs: admitted, revoked, or leaving by themselves.

Who is a member is decided outside, by people, over keys; here is what follows from it. Of a member
that was revoked nothing is heard, said, asked, awaited or merged any more. Only a merge that was
under way at that moment is finished, and the event says so. What was believed of a peer stays: it
counts again if the peer is admitted again.
"""

from __future__ import annotations

from protocol.center import Center, Phase
from protocol.effects import SaveSessions
from protocol.introduction import greets_all
from protocol.ledger import Session
from protocol.messages import Goodbye
from protocol.negotiation import close_open_sessions
from protocol.peers import Peer
from protocol.session import Input, State, is_allowed
from protocol.settlement import announce


def on_added(center: Center, name: str) -> None:
    """A new member, or one that had been revoked: met as soon as it, or its address, shows up."""
    known = center.peers.by_id.get(name)
    if name == center.id or (known is not None and not known.revoked):
        return
    peer = center.peers.renew(name)
    center.note("member-added", f"{name} is a member now", name)
    if greets_all(center):
        center.peer_changed(peer)


def on_revoked(center: Center, name: str) -> None:
    """End everything with this member; its trunks that came and are not merged yet are dropped."""
    if name == center.id:
        return
    peer = center.peers.add(name)
    if peer.revoked:
        return
    rows = drop_unmerged(center, peer)
    peer.revoked = True
    peer.met = False
    detail = "its membership is revoked"
    if any(session.peer == name for session in _merging(center)):
        detail += f"; the merge of round {center.round.number} with its trunk was under way"
    dropped = sum(session.state is not State.WITHDRAWN for session in rows)
    center.note("member-revoked", f"{name}: {detail}", name, "warning", sessions=dropped)
    center.peer_changed(peer, detail)


def drop_unmerged(center: Center, peer: Peer) -> list[Session]:
    """End all sessions with a peer that no merge has taken up, and keep that."""
    taken = {session.id for session in _merging(center)}
    sessions = [
        session
        for session in center.ledger.sessions.values()
        if session.peer == peer.id and not session.committed and session.id not in taken
    ]
    close_open_sessions(center, peer, "revoked")
    _discard(sessions)
    promised = [session for session in sessions if session.promised(center.id)]
    if promised:
        center.out.append(SaveSessions(tuple(session.row() for session in promised)))
    return promised


def leave(center: Center) -> None:
    """End every session for good, say so to its peer, and goodbye to everybody."""
    for peer in center.peers.members():
        close_open_sessions(center, peer, "left")
    ended = [session for session in center.ledger.sessions.values() if not session.committed]
    _discard(ended)
    ended = sorted((s for s in ended if s.promised(center.id)), key=lambda session: session.id)
    center.ledger.commit(ended)
    if ended:
        center.out.append(SaveSessions(tuple(session.row() for session in ended)))
    announce(center, ended)
    for peer in center.peers.compatible():
        settled = not center.ledger.unsettled_with(peer.id)
        goodbye = Goodbye(center.identity.incarnation, center.finished, settled, left=True)
        center.send(peer.id, goodbye)


def on_left(center: Center, peer: Peer) -> None:
    """A member leaves: recorded, and no longer waited for."""
    if peer.left:
        return
    close_open_sessions(center, peer, "left")
    peer.left, peer.away = True, False
    center.note("member-left", f"{peer.id} has left; nobody waits for it", peer.id)
    center.peer_changed(peer, "has left")


def _discard(sessions: list[Session]) -> None:
    """Trunks that came are never merged."""
    for session in sessions:
        if is_allowed(session.state, Input.DISCARD):
            session.apply(Input.DISCARD)
        session.trunk = None


def _merging(center: Center) -> list[Session]:
    """Sessions whose trunks the learning thread has got already."""
    return center.round.merging if center.phase is Phase.CREDITING else []
