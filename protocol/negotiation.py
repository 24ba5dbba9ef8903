"""Propose, accept, reject, withdraw: how a round finds its partners (paper section 4.3).

Outstanding proposals reserve nothing and number at most κ − |P|; an accepted one holds a slot until
its session ends. An accept that finds the proposer full is withdrawn.
"""

from __future__ import annotations

from protocol import goal as goal_filter
from protocol import ranking
from protocol.center import Center, Proposal, Round
from protocol.effects import SaveSessions
from protocol.exchange import send_trunk
from protocol.introduction import greet_before_proposing
from protocol.ledger import Session
from protocol.messages import Accept, Propose, Reject, Rejected, SessionId, Withdraw
from protocol.peers import Peer
from protocol.session import Input, State, is_allowed

MAX_RECORDED_PROPOSALS = 512
REPLY_SHARE = 1 / 3
"""Of the negotiation budget that one proposal may wait, so that a silent peer costs a third."""


def propose_next(center: Center) -> None:
    """Send proposals down the ranked list while slots and the budget allow."""
    current = center.round
    number = current.number
    kappa = center.contract.policy.kappa
    while current.queue and center.now <= center.negotiation_ends:
        busy = center.ledger.slots_used(number) + len(center.ledger.outstanding(number))
        if busy + len(current.greetings) >= kappa:
            return
        peer = center.peers[current.queue.popleft()]
        if not peer.met and peer.is_due(center.now):
            current.greetings[peer.id] = Proposal(peer.id, None, center.now)
            greet_before_proposing(center, peer)
        elif peer.is_candidate(number) and center.ledger.pair_in(number, peer.id) is None:
            _propose(center, peer)


def _propose(center: Center, peer: Peer) -> None:
    number = center.round.number
    session_id = center.ledger.new_id(peer.id, peer.incarnation)
    deadline = min(center.now + reply_patience(center), center.negotiation_ends)
    session = Session(session_id, peer.id, number, center.now, deadline)
    session.apply(Input.PROPOSE)
    center.ledger.add(session)
    center.round.sent[session_id] = Proposal(peer.id, session_id, center.now)
    center.send(peer.id, Propose(center.identity.incarnation, session_id, number))


def reply_patience(center: Center) -> float:
    """Seconds that a proposal, or the hello before it, waits for an answer."""
    return center.contract.pacing.negotiation_s * REPLY_SHARE


def expire_greetings(center: Center) -> None:
    """Give up on whoever did not answer a hello in time."""
    current = center.round
    for peer_id, greeting in list(current.greetings.items()):
        if center.now >= greeting.opened + reply_patience(center):
            _close_greeting(center, peer_id, "timeout")


def _close_greeting(center: Center, peer_id: str, outcome: str) -> None:
    greeting = center.round.greetings.pop(peer_id, None)
    if greeting is not None:
        greeting.close(outcome, center.now)
        center.round.unanswered.append(greeting)


def on_propose(center: Center, peer: Peer, message: Propose) -> None:
    """Accept into the round that can still take it, or reject with the reason."""
    known = center.ledger.sessions.get(message.session)
    if known is not None:
        if known.state is State.ACCEPTED:
            _say_accept(center, known)
        return
    center.last_asked = center.now
    target = center.accepting_round
    consented = False
    mine = center.ledger.pair_in(target.number, peer.id)
    # Only a fresh proposal crosses an own one: a late copy of an old one must not end it.
    fresh = _is_fresh(center, peer, message.session)
    if fresh and mine is not None and mine.state is State.PROPOSED:
        if center.id < peer.id:
            return
        mine.apply(Input.CROSS)
        center.round.sent[mine.id].close("crossed", center.now)
        consented = True
    reason = _objection(center, peer, message.session, target, consented)
    peer.highest_session = max(peer.highest_session, message.session.number)
    proposal = Proposal(peer.id, message.session, center.now)
    _remember(target, proposal)
    if reason is not None:
        proposal.close("rejected", center.now, reason)
        center.send(peer.id, Rejected(center.identity.incarnation, message.session, reason))
        return
    proposal.close("accepted", center.now)
    _accept(center, peer, message.session, target)


def _is_fresh(center: Center, peer: Peer, session: SessionId) -> bool:
    """Whether this is a new proposal of the peer's present incarnation to the own one."""
    new = session.acceptor == center.id and session.number > peer.highest_session
    current = (peer.incarnation, center.identity.incarnation)
    return new and (session.proposer_incarnation, session.acceptor_incarnation) == current


def _remember(target: Round, proposal: Proposal) -> None:
    if len(target.received) < MAX_RECORDED_PROPOSALS:
        target.received.append(proposal)
    else:
        target.received_unrecorded += 1


def _objection(
    center: Center, peer: Peer, session: SessionId, target: Round, consented: bool
) -> Reject | None:
    """Why not; None if welcome. Having proposed oneself counts as consent to a crossing one."""
    if not _is_fresh(center, peer, session):
        return Reject.STALE_SESSION
    if center.finished or target.number > center.contract.policy.rounds:
        return Reject.FINISHED
    if center.phase.over:
        return Reject.STOPPING
    if center.own is None:
        return Reject.NOT_READY
    if peer.blocked_until > target.number:
        return Reject.BACK_OFF
    if not consented:
        if not passes_filter(center, peer):
            return Reject.FILTER
        if not ranking.acceptable(center.belief(peer.id), target.number, center.contract.policy):
            return Reject.BELIEF
    if center.ledger.pair_in(target.number, peer.id) is not None:
        return Reject.ALREADY_PARTNERS
    if center.ledger.slots_used(target.number) >= center.contract.policy.kappa:
        return Reject.BUSY
    return None


def passes_filter(center: Center, peer: Peer) -> bool:
    """The own goal filter, with the threshold of the present round."""
    threshold = center.round.threshold
    if threshold is None:
        return True
    if peer.card is None:
        return False
    value = goal_filter.score(center.identity.goal, center.identity.card, peer.card)
    return goal_filter.passes(value, threshold)


def _accept(center: Center, peer: Peer, session_id: SessionId, target: Round) -> None:
    deadline = center.now + center.contract.pacing.exchange_s
    session = Session(session_id, peer.id, target.number, center.now, deadline)
    session.apply(Input.ACCEPT)
    center.ledger.add(session)
    center.out.append(SaveSessions((session.row(),)))
    _say_accept(center, session)


def _say_accept(center: Center, session: Session) -> None:
    message = Accept(center.identity.incarnation, session.id, session.round)
    center.send(session.peer, message)


def on_accept(center: Center, peer: Peer, message: Accept) -> None:
    """Confirm with the own trunk if there is still a slot, else withdraw."""
    session = center.ledger.sessions.get(message.session)
    if session is not None and session.is_open and session.state is not State.PROPOSED:
        return
    if session is None or session.state is not State.PROPOSED:
        center.send(peer.id, Withdraw(center.identity.incarnation, message.session))
        return
    proposal = center.round.sent[session.id]
    if center.ledger.slots_used(session.round) >= center.contract.policy.kappa:
        session.apply(Input.WITHDRAW)
        proposal.close("withdrawn", center.now)
        center.send(peer.id, Withdraw(center.identity.incarnation, session.id))
        return
    session.apply(Input.ACCEPTED)
    proposal.close("accepted", center.now)
    session.deadline = center.now + center.contract.pacing.exchange_s
    session.sent = True
    center.out.append(SaveSessions((session.row(),)))
    send_trunk(center, session)


def on_rejected(center: Center, peer: Peer, message: Rejected) -> None:
    """Note the reason; the next on the list is asked."""
    session = center.ledger.sessions.get(message.session)
    if session is None or not is_allowed(session.state, Input.REJECTED):
        return
    session.apply(Input.REJECTED)
    center.round.sent[session.id].close("rejected", center.now, message.reason)
    if message.reason is Reject.FINISHED and not peer.finished:
        peer.finished = True
        center.peer_changed(peer, "has finished its rounds")


def on_withdraw(center: Center, message: Withdraw) -> None:
    """The proposer is full or gave up: the slot is free again."""
    session = center.ledger.sessions.get(message.session)
    if session is not None and is_allowed(session.state, Input.WITHDRAWN):
        session.apply(Input.WITHDRAWN)


def close_open_sessions(center: Center, peer: Peer, outcome: str) -> None:
    """The peer finished, left, restarted or cannot be reached: nothing more will come of it."""
    _close_greeting(center, peer.id, outcome)
    for session in center.ledger.open_with(peer.id):
        proposal = center.round.sent.get(session.id)
        session.apply(Input.GIVE_UP)
        if proposal is not None:
            if outcome == "finished":
                proposal.close("rejected", center.now, Reject.FINISHED)
            else:
                proposal.close(outcome, center.now)
