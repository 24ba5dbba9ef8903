"""When a center wants its next tick: what waits for the clock, and for nothing else.

A tick that changes nothing costs hundreds of centers on one machine as much as their training.
"""

from __future__ import annotations

from protocol.center import Center, Phase
from protocol.negotiation import reply_patience
from protocol.timing import MAX_GAP_S

CALM_TICK_S = 0.5 * MAX_GAP_S
"""With nothing due. Much rarer ones would look like a stalled loop as soon as it is a bit late."""
LEAST_TICK_S = 0.01


def next_tick(center: Center) -> float:
    """Seconds from the last stimulus until a tick can change something; 0.01 to 0.25."""
    soonest = min([center.now + CALM_TICK_S, *_expiries(center)])
    for due in _openings(center):
        # What is past did not suffice: it waits for something else.
        if center.now < due < soonest:
            soonest = due
    return max(LEAST_TICK_S, soonest - center.now)


def _expiries(center: Center) -> list[float]:
    """What a tick at that time, or any later one, ends."""
    patience = reply_patience(center)
    found = [session.deadline for session in center.ledger.sessions.values() if session.is_open]
    found += [greeting.opened + patience for greeting in center.round.greetings.values()]
    return found


def _openings(center: Center) -> list[float]:
    """When the present phase may come to its end."""
    pacing = center.contract.pacing
    aged = center.round.started + pacing.round_min_s
    match center.phase:
        case Phase.WAITING:
            return [center.phase_started + pacing.start_wait_s, center.next_look]
        case Phase.GATHERING:
            return [aged, center.negotiation_ends]
        case Phase.PAUSING:
            return [aged]
        case _:
            return []
