"""The durable record of one round: what was known, asked, answered, learned, and why nobody came.

One ``RoundRecord`` per committed round of a center . The store keeps it as JSON, the CLI reads it
back, the simulator writes the same. Times are seconds on the center's own monotonic
clock; sizes are bytes.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class RestCause(StrEnum):
    """Why a round had no partner, in order of precedence."""

    NO_PEERS = "no-peers"
    FILTER_EMPTY = "filter-empty"
    BELOW_THRESHOLD = "below-threshold"
    ALL_UNREACHABLE = "all-unreachable"
    ALL_BUSY = "all-busy"
    PEERS_FINISHED = "peers-finished"
    REJECTED_BY_FILTER = "rejected-by-filter"
    REJECTED_BY_BELIEF = "rejected-by-belief"
    EXCHANGE_FAILED = "exchange-failed"
    MIXED = "mixed"

    @property
    def intentional(self) -> bool:
        """Only the center's own filter or belief make a rest «intentional isolation»."""
        return self in (RestCause.FILTER_EMPTY, RestCause.BELOW_THRESHOLD)


class Recorded(BaseModel):
    """Base of all parts of a record."""

    # A diverged loss is NaN, in a record too; it must not become null.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")


class ProposalRecord(Recorded):
    """One proposal, sent or received, and how it ended."""

    peer: str
    session: str
    """Empty if the peer did not answer the hello that goes before a proposal."""
    outcome: str
    """accepted, rejected, withdrawn, timeout, undeliverable, crossed, revoked, or left."""
    reason: str | None = None
    """The reason of a rejection, as the rejecting side named it."""
    seconds: float = 0.0


class PartnerRecord(Recorded):
    """One exchange of this round: who, what came, and the credit it earned."""

    peer: str
    session: str
    outcome: str
    """complete, received-only, sent-only or aborted. The first two were merged."""
    peer_round: int | None = None
    staleness: int | None = None
    """Rounds by which the received trunk was older than its sender's round."""
    lag: int | None = None
    """Own round minus the round of the received trunk."""
    size: int | None = None
    """Training patients the sender claims."""
    weight: float | None = None
    """Weight in the merge; own weight and all partners' sum to 1."""
    phi: float | None = None
    """Shapley credit φ, in units of the utility."""
    phi_bar: float | None = None
    """Clipped credit φ̄ in [0, 1]."""
    refused: str | None = None
    """Why the received trunk failed its checks; such a credit is 0."""
    bytes_sent: int = 0
    bytes_received: int = 0


class BeliefRecord(Recorded):
    """A Beta posterior after the round."""

    alpha: float
    beta: float
    n: int


class RestRecord(Recorded):
    """Why nobody was there, with the numbers that explain it."""

    cause: RestCause
    intentional: bool
    counts: dict[str, int]
    """known, suspect, finished, before_filter, after_filter, admissible, and one per outcome."""
    explanation: str
    """One sentence for people, with the decisive numbers."""


class ValidationRecord(Recorded):
    """The center's utility on its own validation split."""

    metric: str
    """auroc, brier (as 1 − Brier) or logloss (negated)."""
    value: float
    events: int
    """Positive rows of the split."""
    rows: int


class ObjectiveRecord(Recorded):
    """One objective of a center in one round."""

    name: str
    kind: str
    loss: float
    """Mean over the rows with an outcome, last epoch of the local step."""
    mu: float
    """Its weight in the least-norm combination of the gradients on all training rows."""
    mu_batches: float
    """Mean of its weight over the mini-batches of the last epoch: what the step really used."""
    norm: float
    """Length of its gradient on the trunk, all training rows."""
    utility: float | None = None
    """Its part of U, on validation, after the merge."""


class ObjectivesRecord(Recorded):
    """How far a center's own objectives pulled the trunk in different directions."""

    step: str
    """plain, weighted or pareto."""
    objectives: list[ObjectiveRecord]
    cosines: list[list[float]]
    """Between the gradients of every two objectives, all training rows, after the local step."""
    conflicts: float | None
    """Share of the last epoch's mini-batches in which two gradients pointed against each other;
    none where the step does not tell gradients apart."""
    stationarity: float
    """‖Σ μ*g‖² on all training rows; 0 where nothing improves all objectives at once."""
    epochs: int
    """Passes over the rows; fewer than agreed where the step ended as stationary."""


class RoundRecord(Recorded):
    """Everything about one committed round of one center."""

    round: int
    incarnation: int
    kappa: int
    exploratory: bool
    epsilon: float
    goal: str
    known: int
    """Compatible peers met so far in this incarnation, and unmet ones among the candidates."""
    candidates_before: list[str]
    candidates_after: list[str]
    threshold: float | None
    goal_scores: dict[str, float]
    tau_acc: float
    ucb: dict[str, float]
    ranked: list[str]
    """Proposal order."""
    belief_changed_order: bool
    """Whether the first κ differ from those that equal posterior means would have given."""
    proposals_sent: list[ProposalRecord]
    proposals_received: list[ProposalRecord]
    proposals_unrecorded: int
    """Received proposals beyond those that a record keeps."""
    partners: list[PartnerRecord]
    """Merged exchanges; their number is |P|."""
    failed: list[PartnerRecord]
    """Exchanges that brought no trunk."""
    rest: RestRecord | None
    utilities: dict[str, float]
    """Coalition (peers joined by commas, empty for ∅) to U."""
    u_empty: float
    u_partners: float
    validation: ValidationRecord
    """Of the model after merge and momentum."""
    clipped_share: float | None
    """Share of this round's credits that the clip cut; none without credits."""
    beliefs: dict[str, BeliefRecord]
    """Beliefs about every peer that has one, after the round."""
    training_loss: float
    objectives: ObjectivesRecord | None = None
    """None for a center without objectives of its own."""
    best_round: int
    rounds_without_gain: int
    durations: dict[str, float]
    """train, gather (proposals and exchange), credit, total; seconds."""
    loop_lag_s: float
    """Seconds by which the own loop was late since the last commit, or since the start of the
    process; timeouts were stretched by them."""
    bytes_sent: dict[str, int]
    """Message kind to frame bytes."""
    bytes_received: dict[str, int]
