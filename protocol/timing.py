"""Time as the protocol sees it: a clock that blames itself first, back-off, token bucket.

All three are driven by the time that callers pass in; none reads a clock.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

MAX_GAP_S = 0.5
"""Between two stimuli of a healthy loop there is a tick; a longer gap means that *we* were late."""
LATE_STEP_S = 0.1
"""What such a gap counts: no more than a tick, since answers may lie unread in our own sockets."""


@dataclass
class StretchedClock:
    """Protocol time: it stands still while the own loop is stalled.

    All deadlines are kept in protocol time, so a center that was frozen or overloaded for twenty
    seconds stretches its own timeouts by as much before it blames a peer.
    """

    last: float | None = None
    protocol: float = 0.0
    lag: float = 0.0
    """Seconds by which the loop was late, in all."""

    def at(self, now: float) -> float:
        """Protocol time at monotonic time ``now``, without moving there."""
        gap = 0.0 if self.last is None else max(0.0, now - self.last)
        return self.protocol + (LATE_STEP_S if gap > MAX_GAP_S else gap)

    def advance(self, now: float) -> float:
        """Move to monotonic time ``now`` (seconds); returns protocol time."""
        if self.last is None:
            self.last = now
        gap = max(0.0, now - self.last)
        late = gap - LATE_STEP_S if gap > MAX_GAP_S else 0.0
        self.last = max(self.last, now)
        self.lag += late
        self.protocol += gap - late
        return self.protocol


@dataclass
class Backoff:
    """Jittered exponential back-off: base, 2·base, 4·base … up to ``longest``, each ±25 %."""

    base: float
    longest: float
    attempts: int = 0

    def next_delay(self, rng: random.Random) -> float:
        """Seconds until the next attempt; counts this one."""
        delay = min(self.longest, self.base * 2.0 ** min(self.attempts, 30))
        self.attempts += 1
        return delay * rng.uniform(0.75, 1.25)

    def reset(self) -> None:
        """Start again from the base."""
        self.attempts = 0


@dataclass
class TokenBucket:
    """At most ``rate`` per second in the long run, bursts up to ``burst``."""

    rate: float
    burst: float
    tokens: float = field(init=False)
    updated: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def has_one(self, now: float) -> bool:
        """Whether ``take`` would succeed at protocol time ``now``."""
        return min(self.burst, self.tokens + (now - self.updated) * self.rate) >= 1.0

    def take(self, now: float) -> bool:
        """Take one token at protocol time ``now``; False if there is none."""
        self.tokens = min(self.burst, self.tokens + (now - self.updated) * self.rate)
        self.updated = now
        if self.tokens < 1.0:
            return False
        self.tokens -= 1.0
        return True
