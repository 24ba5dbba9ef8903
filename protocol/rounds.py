"""The round: local step, candidates, gathering, merge, credit, commit, rest (paper algorithm 1)."""

from __future__ import annotations

from collections import deque
from functools import partial

from protocol import credit as shapley_credit
from protocol import goal as goal_filter
from protocol import ranking
from protocol import trunk as trunks
from protocol.beliefs import Belief
from protocol.center import Center, Hold, OwnTrunk, Phase, Round
from protocol.effects import CommitRound, Credit, Exit, Merge, Train
from protocol.events import Merged, Trained
from protocol.handshake import farewell, say_goodbye, suspect
from protocol.introduction import greets_all
from protocol.ledger import Session
from protocol.merging import Best, adopting, merge_weights
from protocol.messages import Ping, Withdraw
from protocol.negotiation import expire_greetings, propose_next
from protocol.record import RoundRecord
from protocol.recording import round_record
from protocol.session import MERGEABLE, Input, State
from protocol.settlement import announce, ask_unsettled

NAMED_UNMET = 6
QUIET_S = 1.0
"""A finished center answers until nobody has asked anything for this long."""


def begin_to_wait(center: Center) -> None:
    """Say what the first round waits for, and how long at most."""
    pacing = center.contract.pacing
    center.enter(Phase.WAITING)
    wanted = min(pacing.min_peers, len(center.peers.members()))
    if wanted and pacing.start_wait_s:
        peers = "1 peer" if wanted == 1 else f"{wanted} peers"
        center.note("start-wait", f"waiting for {peers}, at most {pacing.start_wait_s:g} s")


def wait_for_peers(center: Center) -> None:
    """Begin with the first round once enough peers are met or the wait is over."""
    pacing = center.contract.pacing
    met = len(center.peers.compatible())
    waited = center.now - center.phase_started >= pacing.start_wait_s
    members = center.peers.members()
    refused = sum(peer.refused is not None for peer in members)
    hopeless = 0 < refused == len(members)
    if met < pacing.min_peers and not waited and not hopeless:
        return
    if met == 0 and refused and pacing.min_peers > 0:
        detail = f"every peer that answered ({refused}) refused the handshake"
        center.note("refused-by-all", detail, level="error")
        center.enter(Phase.STOPPED)
        center.out.append(Exit("refused", detail))
        return
    if met < pacing.min_peers:
        text = (
            f"starting with {met} of {pacing.min_peers} peers after {pacing.start_wait_s:g} s; "
            f"not met: {_unmet(center)}"
        )
        center.note("start-wait-over", text, level="warning")
    begin_round(center)


def _unmet(center: Center) -> str:
    """Who is missing, and of whom not even an address is known; the first few of many."""
    missing = [peer for peer in center.peers.members() if not peer.compatible]
    words = [
        peer.id if peer.reachable else f"{peer.id} (no address)" for peer in missing[:NAMED_UNMET]
    ]
    more = len(missing) - len(words)
    return ", ".join(words) + (f" and {more} more" if more else "")


def begin_round(center: Center) -> None:
    """Start the next round: fix the filter's threshold, run the local step."""
    current = center.upcoming
    center.round = current
    center.upcoming = Round(current.number + 1)
    current.started = center.now
    _name_unreachable(center)
    cards = {p.id: p.card for p in center.peers.compatible() if p.card is not None}
    current.threshold = goal_filter.threshold(
        center.contract.policy,
        center.identity.goal,
        center.id,
        center.identity.card,
        cards,
    )
    center.enter(Phase.TRAINING)
    center.out.append(Train(current.number))


def _name_unreachable(center: Center) -> None:
    """Say once of whom a center without connections of its own has heard no address."""
    if not center.identity.outbound_only:
        return
    for peer in center.peers.members():
        if peer.met or peer.reachable or peer.unreachable:
            continue
        peer.unreachable = True
        detail = "this center takes no connections, and no address of the other is known"
        center.note("peer-unreachable", f"{peer.id} is unreachable: {detail}", peer.id, "warning")
        center.peer_changed(peer, detail)


def on_trained(center: Center, event: Trained) -> None:
    """The local step is done: its trunk can be sent, candidates are ranked, proposals go out."""
    current = center.round
    if center.phase is not Phase.TRAINING or event.round != current.number:
        return
    payload = trunks.pack(event.trunk, center.contract.policy.wire_dtype)
    center.own = OwnTrunk(event.round, event.trunk, trunks.norm(event.trunk), payload)
    center.provenance.made(payload)
    current.train_seconds, current.loss = event.seconds, event.loss
    current.objectives = event.objectives
    current.gather_started = center.now
    _rank_candidates(center)
    center.enter(Phase.GATHERING)
    gather(center)


def _rank_candidates(center: Center) -> None:
    current = center.round
    peers = center.peers.compatible()
    if not greets_all(center):
        peers = peers + [p for p in center.peers.all() if not p.met and p.is_due(center.now)]
    if current.threshold is not None:
        current.scores = {
            p.id: goal_filter.score(center.identity.goal, center.identity.card, p.card)
            for p in peers
            if p.card is not None
        }
    before = [p.id for p in peers if not p.met or p.is_candidate(current.number)]
    after = [
        name
        for name in before
        if current.threshold is None
        or (name in current.scores and goal_filter.passes(current.scores[name], current.threshold))
    ]
    current.before, current.after = tuple(before), tuple(after)
    current.ranking = ranking.rank(
        after,
        center.beliefs,
        center.prior,
        current.number,
        center.contract.policy,
        center.rng("ranking", current.number),
    )
    current.queue = deque(current.ranking.order)


def expire(center: Center) -> None:
    """Close what has waited too long: proposals first, then exchanges."""
    expire_greetings(center)
    overdue = [
        session
        for session in center.ledger.sessions.values()
        if session.is_open and session.deadline <= center.now
    ]
    for session in sorted(overdue, key=lambda s: s.id):
        if session.state is State.PROPOSED:
            _expire_proposal(center, session)
        else:
            _expire_exchange(center, session)


def _expire_proposal(center: Center, session: Session) -> None:
    session.apply(Input.GIVE_UP)
    center.round.sent[session.id].close("timeout", center.now)
    center.send(session.peer, Withdraw(center.identity.incarnation, session.id))
    peer = center.peers[session.peer]
    if peer.last_heard <= session.opened:
        suspect(center, peer, "no answer to a proposal")
    else:
        peer.stalled(center.round.number)


def _expire_exchange(center: Center, session: Session) -> None:
    stalled = session.state in (State.SENT, State.ACCEPTED, State.ACKNOWLEDGED)
    session.apply(Input.GIVE_UP)
    peer = center.peers[session.peer]
    if stalled:
        peer.stalled(center.round.number)
        text = f"exchange with {peer.id} timed out, no trunk came ({peer.stalls} in a row)"
        center.note("exchange-timeout", text, peer.id, "warning")
    if peer.last_heard <= session.opened:
        suspect(center, peer, "silent during an exchange")


def gather(center: Center) -> None:
    """Propose on; merge when nothing is pending and nothing more is to be expected."""
    if center.hold is Hold.PROPOSALS:
        return
    propose_next(center)
    current = center.round
    pending = any(session.is_open for session in center.ledger.live_in(current.number))
    if pending or current.greetings or center.hold is Hold.MERGE:
        return
    full = center.ledger.slots_used(current.number) >= center.contract.policy.kappa
    over = center.now > center.negotiation_ends
    # With a slot free, others may still propose: the door stays open for the round's least time.
    aged = center.now - current.started >= center.contract.pacing.round_min_s
    if full or over or (not current.queue and aged):
        _begin_merge(center)


def _begin_merge(center: Center) -> None:
    current, policy = center.round, center.contract.policy
    current.merge_started = center.now
    current.merging = [s for s in center.ledger.in_round(current.number) if s.state in MERGEABLE]
    current.plan = shapley_credit.plan(
        [session.peer for session in current.merging],
        policy.shapley_exact_max,
        policy.shapley_permutations,
        partial(center.rng, "shapley", current.number),
    )
    sizes = {session.peer: session.size for session in current.merging}
    current.weights = merge_weights(policy, center.identity.size, sizes)
    if center.adopts and sizes:
        current.weights = adopting(current.weights)
        text = (
            f"round {current.number} takes the trunk of {', '.join(sizes)}, and nothing of its own"
        )
        center.note("trunk-adopted", text, round=current.number)
    trunks_in = {s.peer: s.trunk for s in current.merging if s.trunk is not None}
    center.enter(Phase.CREDITING)
    merge = Merge(current.number, trunks_in, current.weights, current.plan.coalitions)
    center.out.append(merge)


def on_merged(center: Center, event: Merged) -> None:
    """Credit the partners, update beliefs, commit the round, go on."""
    current = center.round
    if center.phase is not Phase.CREDITING or event.round != current.number:
        return
    credits, clipped = _credits(center, event)
    changed = {}
    for item in credits:
        belief = center.belief(item.peer).updated(item.phi_bar)
        center.beliefs[item.peer] = changed[item.peer] = belief
    _judge(center, event)
    sessions = center.ledger.in_round(current.number)
    record = round_record(center, event, credits, clipped, sessions)
    center.upcoming.lag_before = center.clock.lag
    rows = _commit_sessions(center, sessions)
    _commit(center, event, tuple(credits), changed, record, rows)
    _tell(center, record)
    announce(center, rows)
    center.ledger.forget_settled()
    if center.finished:
        _finish(center)
    else:
        center.enter(Phase.PAUSING)


def _credits(center: Center, event: Merged) -> tuple[list[Credit], int]:
    """Shapley credit of every merged session; 0 for every refused trunk (paper section 4.2)."""
    current, policy = center.round, center.contract.policy
    if current.plan is None:
        raise AssertionError("merged without a plan")
    values = shapley_credit.shapley(current.plan, event.utilities, policy.shapley_tolerance)
    low, high = shapley_credit.clip_bounds(policy, event.validation.metric)
    credits = [
        Credit(s.peer, s.id, values[s.peer], shapley_credit.clip(values[s.peer], low, high))
        for s in current.merging
    ]
    clipped = sum(shapley_credit.is_clipped(phi, low, high) for phi in values.values())
    for session in center.ledger.in_round(current.number):
        if session.penalized:
            credits.append(Credit(session.peer, session.id, None, 0.0))
    return credits, clipped


def _judge(center: Center, event: Merged) -> None:
    """Best model and patience, on the center's own validation metric."""
    number = center.round.number
    best = Best(center.best_round, center.best_metric, center.rounds_without_gain)
    best = best.after(number, event.validation.value)
    center.best_round, center.best_metric = best.round, best.metric
    center.rounds_without_gain = best.without_gain
    early = best.exhausted(center.contract.policy.patience)
    center.last_round = number
    center.finished = early or number >= center.contract.policy.rounds
    if early and number < center.contract.policy.rounds:
        text = f"early stop after round {number}: best was round {center.best_round}"
        center.note("early-stop", text)


def _commit_sessions(center: Center, sessions: list[Session]) -> list[Session]:
    """Fix this round's outcomes; at the end also those that would have counted in a next one.

    Returns those of interest to the ledger: an exchange was promised.
    """
    fixed = list(sessions)
    if center.finished:
        for session in center.ledger.in_round(center.round.number + 1):
            if session.is_open:
                session.apply(Input.GIVE_UP)
            if session.state in MERGEABLE:
                session.apply(Input.DISCARD)
            fixed.append(session)
    center.ledger.commit(fixed)
    return [session for session in fixed if session.promised(center.id)]


def _commit(
    center: Center,
    event: Merged,
    credits: tuple[Credit, ...],
    beliefs: dict[str, Belief],
    record: RoundRecord,
    sessions: list[Session],
) -> None:
    center.out.append(
        CommitRound(
            record=record,
            model=event.model,
            credits=credits,
            beliefs=beliefs,
            sessions=tuple(session.row() for session in sessions),
            best_round=center.best_round,
            rounds_without_gain=center.rounds_without_gain,
            best_metric=center.best_metric,
            finished=center.finished,
        )
    )


def _tell(center: Center, record: RoundRecord) -> None:
    """One line of the story of this round."""
    if record.rest is not None:
        kind = "isolation" if record.rest.intentional else "rest"
        text = f"round {record.round} alone, {record.rest.cause}: {record.rest.explanation}"
        center.note(kind, text, cause=record.rest.cause, round=record.round)
        return
    earned = ", ".join(f"{p.peer} (φ {p.phi:+.3f})" for p in record.partners if p.phi is not None)
    text = f"round {record.round} with {earned}: U {record.u_empty:.4f} → {record.u_partners:.4f}"
    center.note("round", text, round=record.round, partners=len(record.partners))


def pause(center: Center) -> None:
    """Begin the next round when the present one has lasted long enough."""
    if center.now - center.round.started >= center.contract.pacing.round_min_s:
        begin_round(center)


def _finish(center: Center) -> None:
    farewell(center)
    for peer in center.peers.all():
        peer.next_contact = center.now + center.contract.pacing.linger_s / 4
    begin_to_linger(center)


def begin_to_linger(center: Center) -> None:
    """Say what a center without rounds still waits for: it may be silent for long."""
    known = center.peers.compatible()
    waiting = sum(not (peer.finished or peer.left or peer.revoked) for peer in known)
    center.enter(Phase.LINGERING)
    if waiting:
        text = (
            f"all rounds are done; answering whoever has not finished ({waiting}), until they "
            f"have or were unseen for {center.contract.pacing.linger_s:g} s"
        )
        center.note("lingering", text)


def linger(center: Center) -> None:
    """Answer and reconcile until every member is finished and satisfied, or unseen for long.

    Long is ``linger_s``; satisfied is who lacks no final word of ours any more.
    """
    wait = center.contract.pacing.linger_s
    # A center that restarts only in order to linger has met nobody yet; others may miss its words.
    everybody = greets_all(center) or center.own is None
    busy = False
    lacking = set(center.ledger.peers_with_unsettled())
    for peer in center.peers.all():
        unsettled = peer.id in lacking
        waited_for = everybody or unsettled
        if not (peer.met or waited_for) or peer.revoked or peer.left:
            continue  # most of a large federation: this comes first
        seen = max(peer.last_heard, center.phase_started if waited_for else 0.0)
        if peer.refused is not None or center.now - seen >= wait:
            continue
        if unsettled:
            ask_unsettled(center, peer)
        if peer.met and not unsettled and not peer.told_satisfied:
            say_goodbye(center, peer)
        busy = busy or unsettled or not peer.satisfied
        if peer.met and not peer.satisfied and center.now >= peer.next_contact:
            peer.next_contact = center.now + wait / 4
            center.send(peer.id, Ping(center.identity.incarnation))
    quiet = center.now - max(center.last_asked, center.phase_started) >= QUIET_S
    if quiet and not busy:
        center.enter(Phase.STOPPED)
        center.out.append(Exit("finished", f"finished after round {center.last_round}"))
