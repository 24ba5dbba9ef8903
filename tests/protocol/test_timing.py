"""Clock, back-off and token bucket."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from protocol.timing import MAX_GAP_S, Backoff, StretchedClock, TokenBucket

gaps = st.lists(st.floats(0, 100), min_size=1, max_size=50)


@given(gaps)
def test_protocol_time_never_jumps_and_lag_takes_the_rest(steps: list[float]) -> None:
    clock, now, start = StretchedClock(), 1000.0, 1000.0
    last = clock.advance(now)
    for step in steps:
        now += step
        moved = clock.advance(now)
        assert 0 <= moved - last <= MAX_GAP_S + 1e-9
        last = moved
    assert abs(clock.protocol + clock.lag - (now - start)) < 1e-6


def test_a_clock_that_goes_back_stands_still() -> None:
    clock = StretchedClock()
    clock.advance(100.0)
    before = clock.advance(100.2)
    assert clock.advance(50.0) == before
    assert clock.advance(100.3) > before


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_backoff_grows_within_its_jitter_up_to_the_bound(seed: int, attempts: int) -> None:
    backoff, rng = Backoff(0.5, 30.0), random.Random(seed)
    for attempt in range(attempts):
        center = min(30.0, 0.5 * 2**attempt)
        assert 0.75 * center <= backoff.next_delay(rng) <= 1.25 * center
    backoff.reset()
    assert backoff.next_delay(rng) <= 0.5 * 1.25


@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=300))
def test_bucket_lets_pass_at_most_burst_plus_rate(waits: list[float]) -> None:
    bucket, now, passed = TokenBucket(rate=10, burst=20), 0.0, 0
    for wait in waits:
        now += wait
        passed += bucket.take(now)
    assert passed <= 20 + 10 * now + 1e-6
    assert passed >= min(len(waits), 20)
