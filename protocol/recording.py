"""From what a round gathered to its durable record."""

from __future__ import annotations

from collections.abc import Mapping

from protocol.center import Center, Proposal
from protocol.effects import Credit
from protocol.events import Merged
from protocol.ledger import Session
from protocol.messages import SessionId
from protocol.peers import PeerStatus
from protocol.record import (
    BeliefRecord,
    ObjectivesRecord,
    PartnerRecord,
    ProposalRecord,
    RestRecord,
    RoundRecord,
)
from protocol.rest import RestFacts, classify, diagnose
from protocol.session import MERGEABLE, OUTCOMES


def round_record(
    center: Center,
    event: Merged,
    credits: list[Credit],
    clipped: int,
    sessions: list[Session],
) -> RoundRecord:
    """The record of the present round; beliefs and best model are those after the update."""
    current = center.round
    ranking, plan = current.ranking, current.plan
    if ranking is None or plan is None:
        raise AssertionError("a round is recorded before it was ranked and merged")
    earned = {item.session: item for item in credits}
    partners = [_partner(center, s, earned) for s in sessions if s.state in MERGEABLE]
    failed = [
        _partner(center, s, earned)
        for s in sessions
        if s.state in OUTCOMES and s.state not in MERGEABLE and s.promised(center.id)
    ]
    return RoundRecord(
        round=current.number,
        incarnation=center.identity.incarnation,
        kappa=center.contract.policy.kappa,
        exploratory=ranking.exploratory,
        epsilon=ranking.epsilon,
        goal=center.identity.goal,
        known=known_peers(center),
        candidates_before=list(current.before),
        candidates_after=list(current.after),
        threshold=current.threshold,
        goal_scores=dict(current.scores),
        tau_acc=center.contract.policy.tau_acc,
        ucb=dict(ranking.ucb),
        ranked=list(ranking.order),
        belief_changed_order=ranking.belief_changed_order,
        proposals_sent=[_proposal(p) for p in (*current.sent.values(), *current.unanswered)],
        proposals_received=[_proposal(p) for p in current.received],
        proposals_unrecorded=current.received_unrecorded,
        partners=partners,
        failed=failed,
        rest=None if partners else _rest(center, len(failed)),
        utilities={",".join(sorted(s)): event.utilities[s] for s in plan.coalitions},
        u_empty=event.utilities[frozenset()],
        u_partners=event.utilities[plan.grand],
        validation=event.validation,
        clipped_share=clipped / len(partners) if partners else None,
        beliefs={
            peer: BeliefRecord(alpha=b.alpha, beta=b.beta, n=b.n)
            for peer, b in sorted(center.beliefs.items())
        },
        training_loss=current.loss,
        objectives=_objectives(center, event),
        best_round=center.best_round,
        rounds_without_gain=center.rounds_without_gain,
        durations={
            "train": current.train_seconds,
            "gather": current.merge_started - current.gather_started,
            "credit": event.seconds,
            "total": center.now - current.started,
        },
        loop_lag_s=center.clock.lag - current.lag_before,
        bytes_sent=dict(sorted(current.bytes_sent.items())),
        bytes_received=dict(sorted(current.bytes_received.items())),
    )


def _objectives(center: Center, event: Merged) -> ObjectivesRecord | None:
    """What the local step told, with what the merged model reaches in each."""
    told = center.round.objectives
    if told is None or not event.parts:
        return told
    pairs = zip(told.objectives, event.parts, strict=True)
    measured = [each.model_copy(update={"utility": value}) for each, value in pairs]
    return told.model_copy(update={"objectives": measured})


def known_peers(center: Center) -> int:
    """Compatible peers met so far, and those that were candidates without having been met."""
    return len({p.id for p in center.peers.compatible()} | set(center.round.before))


def _partner(center: Center, session: Session, earned: Mapping[SessionId, Credit]) -> PartnerRecord:
    credit = earned.get(session.id)
    return PartnerRecord(
        peer=session.peer,
        session=str(session.id),
        outcome=session.state,
        peer_round=session.peer_round,
        staleness=session.staleness,
        lag=None if session.peer_round is None else session.round - session.peer_round,
        size=session.size,
        weight=center.round.weights.get(session.peer) if session.state in MERGEABLE else None,
        phi=None if credit is None else credit.phi,
        phi_bar=None if credit is None else credit.phi_bar,
        refused=session.refused,
        bytes_sent=session.bytes_sent,
        bytes_received=session.bytes_received,
    )


def _proposal(proposal: Proposal) -> ProposalRecord:
    return ProposalRecord(
        peer=proposal.peer,
        session="" if proposal.session is None else str(proposal.session),
        outcome=proposal.outcome or "open",
        reason=proposal.reason,
        seconds=max(0.0, proposal.closed - proposal.opened),
    )


def _rest(center: Center, failed: int) -> RestRecord:
    current, peers = center.round, center.peers
    ranking = current.ranking
    if ranking is None:
        raise AssertionError("a rest is explained before the round was ranked")
    known = peers.compatible()
    tried = [*current.sent.values(), *current.unanswered]
    outcomes = [
        classify(p.outcome or "open", p.reason)
        for p in tried
        if p.outcome not in ("accepted", "crossed")
    ]
    outcomes += ["exchange-failed"] * failed
    return diagnose(
        RestFacts(
            roster=len(peers.members()),
            known=known_peers(center),
            unavailable=sum(
                p.status in (PeerStatus.SUSPECT, PeerStatus.AWAY, PeerStatus.LEFT)
                or (p.status is PeerStatus.MET and p.blocked_until > current.number)
                for p in known
            ),
            finished=peers.count(PeerStatus.FINISHED),
            refused=peers.count(PeerStatus.REFUSED),
            unreachable=peers.count(PeerStatus.UNREACHABLE),
            before_filter=len(current.before),
            after_filter=len(current.after),
            admissible=len(ranking.admissible),
            exploratory=ranking.exploratory,
            outcomes=tuple(outcomes),
            goal=center.identity.goal,
            threshold=current.threshold,
            scores=current.scores,
            tau_acc=center.contract.policy.tau_acc,
            ucb=ranking.ucb,
        )
    )
