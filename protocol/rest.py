"""Why nobody came: the cause of a round without partners, and the numbers that explain it.

Causes are tried in the order of ``RestCause``; only the center's own filter or belief make a rest
«intentional isolation» (paper sections 4.3 and 5.3).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from protocol.messages import Reject
from protocol.record import RestCause, RestRecord

_BUSY = {Reject.BUSY, Reject.NOT_READY, Reject.ALREADY_PARTNERS, Reject.STOPPING, Reject.BACK_OFF}
_SINGLE_CAUSE = {
    "unreachable": RestCause.ALL_UNREACHABLE,
    "busy": RestCause.ALL_BUSY,
    "finished": RestCause.PEERS_FINISHED,
    "filter": RestCause.REJECTED_BY_FILTER,
    "belief": RestCause.REJECTED_BY_BELIEF,
    "exchange-failed": RestCause.EXCHANGE_FAILED,
}


@dataclass(frozen=True)
class RestFacts:
    """What the round knew."""

    roster: int
    """Other members, met or not."""
    known: int
    unavailable: int
    """Known peers that are suspect, away or in back-off."""
    finished: int
    refused: int
    before_filter: int
    after_filter: int
    admissible: int
    exploratory: bool
    outcomes: tuple[str, ...]
    """One class per answered or failed attempt, see ``classify``."""
    goal: str
    threshold: float | None
    scores: Mapping[str, float]
    tau_acc: float
    ucb: Mapping[str, float]
    unreachable: int = 0
    """Of the roster: neither side of the two takes connections."""


def classify(outcome: str, reason: str | None) -> str:
    """The class of one proposal: unreachable, busy, finished, filter, belief or other."""
    if outcome in ("timeout", "undeliverable"):
        return "unreachable"
    if outcome != "rejected":
        return "other"
    if reason in _BUSY:
        return "busy"
    return reason if reason in ("finished", "filter", "belief") else "other"


def diagnose(facts: RestFacts) -> RestRecord:
    """Name the cause of a rest, with counts and one sentence."""
    cause = cause_of(facts)
    counts = {
        "roster": facts.roster,
        "known": facts.known,
        "unavailable": facts.unavailable,
        "finished": facts.finished,
        "refused": facts.refused,
        "unreachable": facts.unreachable,
        "before_filter": facts.before_filter,
        "after_filter": facts.after_filter,
        "admissible": facts.admissible,
        "attempts": len(facts.outcomes),
        **{f"attempts_{name}": n for name, n in sorted(Counter(facts.outcomes).items())},
    }
    return RestRecord(
        cause=cause,
        intentional=cause.intentional,
        counts=counts,
        explanation=_explain(cause, facts),
    )


def cause_of(facts: RestFacts) -> RestCause:
    """The cause alone, in the order of precedence; reads counts and outcomes only."""
    if facts.known == 0:
        nobody = facts.roster > 0 and facts.unreachable == facts.roster
        return RestCause.ALL_UNREACHABLE if nobody else RestCause.NO_PEERS
    if facts.before_filter == 0 and not facts.outcomes:
        return _cause_without_candidates(facts)
    if facts.before_filter > 0 and facts.after_filter == 0:
        return RestCause.FILTER_EMPTY
    if facts.admissible == 0 and facts.after_filter > 0 and not facts.exploratory:
        return RestCause.BELOW_THRESHOLD
    kinds = set(facts.outcomes)
    if len(kinds) == 1:
        return _SINGLE_CAUSE.get(kinds.pop(), RestCause.MIXED)
    return RestCause.EXCHANGE_FAILED if "exchange-failed" in kinds else RestCause.MIXED


def _cause_without_candidates(facts: RestFacts) -> RestCause:
    if facts.unavailable == facts.known:
        return RestCause.ALL_UNREACHABLE
    if facts.finished == facts.known:
        return RestCause.PEERS_FINISHED
    return RestCause.MIXED


def _best(values: Mapping[str, float]) -> str:
    peer = max(sorted(values), key=lambda key: values[key])
    return f"{values[peer]:.4f} ({peer})"


def _explain(cause: RestCause, facts: RestFacts) -> str:
    tally = ", ".join(f"{n} {name}" for name, n in sorted(Counter(facts.outcomes).items()))
    match cause:
        case RestCause.NO_PEERS:
            refused = f"; {facts.refused} refused the handshake" if facts.refused else ""
            away = f"; {facts.unreachable} unreachable" if facts.unreachable else ""
            return f"none of the {facts.roster} other members has been met{refused}{away}"
        case RestCause.ALL_UNREACHABLE if facts.known == 0:
            return (
                f"this center takes no connections, and of none of the {facts.roster} other "
                "members an address is known"
            )
        case RestCause.FILTER_EMPTY:
            limit = "none" if facts.threshold is None else f"{facts.threshold:.4f}"
            best = _best(facts.scores) if facts.scores else "unknown, no card"
            return (
                f"none of {facts.before_filter} candidates passes the {facts.goal} filter: "
                f"threshold {limit}, best score {best}"
            )
        case RestCause.BELOW_THRESHOLD:
            return (
                f"no candidate of {facts.after_filter} is believed useful enough: "
                f"best UCB {_best(facts.ucb)} is below {facts.tau_acc:g}"
            )
        case RestCause.ALL_UNREACHABLE if not facts.outcomes:
            return f"every known peer ({facts.known}) is suspect, away or in back-off"
        case RestCause.PEERS_FINISHED if not facts.outcomes:
            return f"every known peer ({facts.known}) has finished"
        case _ if facts.outcomes:
            attempts = (
                "1 attempt" if len(facts.outcomes) == 1 else f"{len(facts.outcomes)} attempts"
            )
            return f"{attempts}: {tally}"
        case _:
            return (
                f"no attempt was possible; known peers: {facts.known} (unavailable "
                f"{facts.unavailable}, finished {facts.finished}, admissible {facts.admissible})"
            )
