"""Made rounds that hang together: credits, beliefs, sessions and records of one center.

``Chronicle`` is a center's bookkeeping without the center: ask it for the commit of a round with
these partners, or with none and why, and hand that to a ``Store``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from protocol.beliefs import Belief, ucb
from protocol.contract import Contract
from protocol.effects import CommitRound, Credit, SessionRow
from protocol.events import ModelRef
from protocol.messages import SessionId
from protocol.record import (
    BeliefRecord,
    PartnerRecord,
    ProposalRecord,
    RestCause,
    RestRecord,
    RoundRecord,
    ValidationRecord,
)


def make_contract(**policy: object) -> Contract:
    """A small contract; keyword arguments override its policy."""
    return Contract.model_validate(
        {
            "name": "made",
            "data": {"label": "died", "features": [{"name": "age", "kind": "continuous"}]},
            "policy": policy,
        }
    )


def model_ref(round_number: int) -> ModelRef:
    """A reference to a model file that need not exist."""
    return ModelRef(f"round-{round_number:06d}-{'0' * 12}.safetensors", f"{round_number:064x}")


@dataclass
class Chronicle:
    """One center's rounds, made up."""

    center: str = "here"
    contract: Contract = field(default_factory=make_contract)
    incarnation: int = 1
    round: int = 0
    best_round: int = 0
    best_metric: float = 0.0
    beliefs: dict[str, Belief] = field(default_factory=dict)
    peers: Sequence[str] = ("near", "far")
    sessions_made: int = 0

    def session(self, peer: str) -> SessionId:
        """The next session with this peer, proposed here."""
        self.sessions_made += 1
        return SessionId(self.center, self.incarnation, peer, 1, self.sessions_made)

    def with_partners(
        self,
        credits: Mapping[str, float | None],
        *,
        validation: float = 0.7,
        finished: bool = False,
        model: ModelRef | None = None,
    ) -> CommitRound:
        """The next round, with these partners and their φ; None is a trunk that was refused."""
        earned = [self._credit(peer, phi) for peer, phi in credits.items()]
        for credit in earned:
            before = self.beliefs.get(credit.peer, Belief())
            self.beliefs[credit.peer] = before.updated(credit.phi_bar)
        changed = {credit.peer: self.beliefs[credit.peer] for credit in earned}
        return self._commit(earned, changed, None, validation, finished, model)

    def resting(
        self,
        cause: RestCause = RestCause.BELOW_THRESHOLD,
        explanation: str = "No peer's UCB reached 0.50; the highest was 0.43 (near).",
        *,
        finished: bool = False,
        model: ModelRef | None = None,
    ) -> CommitRound:
        """The next round, without a partner."""
        rest = RestRecord(
            cause=cause,
            intentional=cause.intentional,
            counts={"known": len(self.peers), "after_filter": len(self.peers), "admissible": 0},
            explanation=explanation,
        )
        return self._commit([], {}, rest, 0.7, finished, model)

    def _credit(self, peer: str, phi: float | None) -> Credit:
        phi_bar = 0.0 if phi is None else min(1.0, max(0.0, (phi + 0.1) / 0.2))
        return Credit(peer=peer, session=self.session(peer), phi=phi, phi_bar=phi_bar)

    def _commit(
        self,
        earned: Sequence[Credit],
        changed: Mapping[str, Belief],
        rest: RestRecord | None,
        validation: float,
        finished: bool,
        model: ModelRef | None,
    ) -> CommitRound:
        self.round += 1
        if validation > self.best_metric or self.best_round == 0:
            self.best_round, self.best_metric = self.round, validation
        rows = [
            SessionRow(
                session=credit.session,
                peer=credit.peer,
                round=self.round,
                state="complete",
                settled=False,
                merged=credit.phi is not None,
            )
            for credit in earned
        ]
        return CommitRound(
            record=self._record(earned, rest, validation),
            model=model or model_ref(self.round),
            credits=tuple(earned),
            beliefs=changed,
            sessions=tuple(rows),
            best_round=self.best_round,
            rounds_without_gain=self.round - self.best_round,
            best_metric=self.best_metric,
            finished=finished,
        )

    def _record(
        self, earned: Sequence[Credit], rest: RestRecord | None, validation: float
    ) -> RoundRecord:
        good = [credit for credit in earned if credit.phi is not None]
        gain = sum(credit.phi or 0.0 for credit in good)
        policy = self.contract.policy
        bounds = {
            peer: ucb(self.beliefs.get(peer, Belief()), self.round, policy.gamma)
            for peer in self.peers
        }
        return RoundRecord(
            round=self.round,
            incarnation=self.incarnation,
            kappa=policy.kappa,
            exploratory=False,
            epsilon=policy.epsilon,
            goal="homogeneity",
            known=len(self.peers),
            candidates_before=list(self.peers),
            candidates_after=list(self.peers),
            threshold=None,
            goal_scores={peer: 0.9 for peer in self.peers},
            tau_acc=policy.tau_acc,
            ucb=bounds,
            ranked=sorted(bounds, key=lambda peer: -bounds[peer]),
            belief_changed_order=False,
            proposals_sent=[
                ProposalRecord(peer=c.peer, session=str(c.session), outcome="accepted")
                for c in earned
            ],
            proposals_received=[],
            proposals_unrecorded=0,
            partners=[_partner(credit, "complete") for credit in good],
            failed=[_partner(c, "aborted", "trunk-norm") for c in earned if c.phi is None],
            rest=rest,
            utilities={"": validation - gain, ",".join(c.peer for c in good): validation},
            u_empty=validation - gain,
            u_partners=validation,
            validation=ValidationRecord(metric="auroc", value=validation, events=12, rows=60),
            clipped_share=0.0 if earned else None,
            beliefs={
                peer: BeliefRecord(alpha=b.alpha, beta=b.beta, n=b.n)
                for peer, b in self.beliefs.items()
            },
            training_loss=0.5,
            best_round=self.best_round,
            rounds_without_gain=self.round - self.best_round,
            durations={"train": 0.4, "gather": 0.7, "credit": 0.1, "total": 1.25},
            loop_lag_s=0.0,
            bytes_sent={"propose": 200, "weights": 20_000 * len(good)},
            bytes_received={"accept": 200, "weights": 20_000 * len(good)},
        )


def _partner(credit: Credit, outcome: str, refused: str | None = None) -> PartnerRecord:
    return PartnerRecord(
        peer=credit.peer,
        session=str(credit.session),
        outcome=outcome,
        peer_round=3,
        staleness=0,
        lag=0,
        size=100,
        weight=0.5,
        phi=credit.phi,
        phi_bar=credit.phi_bar,
        refused=refused,
        bytes_sent=20_000,
        bytes_received=20_000,
    )
