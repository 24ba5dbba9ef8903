"""The last thing that happened with each peer in a round, in a few words for ``abps peers``."""

from __future__ import annotations

from protocol.record import PartnerRecord, RoundRecord


def last_outcomes(record: RoundRecord) -> dict[str, str]:
    """Peer to outcome, for all peers that this round touched; an exchange outweighs a proposal."""
    outcomes: dict[str, str] = {}
    for proposal in record.proposals_received:
        why = f": {proposal.reason}" if proposal.reason else ""
        verb = (
            "we rejected"
            if proposal.outcome == "rejected"
            else f"their proposal {proposal.outcome}"
        )
        outcomes[proposal.peer] = verb + why
    for proposal in record.proposals_sent:
        why = f": {proposal.reason}" if proposal.reason else ""
        verb = (
            "they rejected"
            if proposal.outcome == "rejected"
            else f"our proposal {proposal.outcome}"
        )
        outcomes[proposal.peer] = verb + why
    for exchange in (*record.failed, *record.partners):
        outcomes[exchange.peer] = _exchange(exchange)
    return outcomes


def _exchange(exchange: PartnerRecord) -> str:
    if exchange.refused is not None:
        return f"trunk refused: {exchange.refused}"
    return exchange.outcome
