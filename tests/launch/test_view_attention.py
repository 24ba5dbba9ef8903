"""The order of attention (pure): total, stable, and by what is most urgent."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from abps_node.store.views import RoundHead, Status, TrafficTotal
from launch.view.attention import (
    LEAST_SILENCE_S,
    Level,
    by_attention,
    judge,
    lonely_rounds,
    silence_limit_s,
)
from launch.view.reading import Hearsay, Look
from protocol.contract import Pacing
from protocol.record import RestCause

NOW = 1_000_000.0
PACING = Pacing()
CAUSES = st.one_of(st.none(), st.sampled_from(RestCause))


def heads(causes: list[RestCause | None], every_s: float = 2.0) -> tuple[RoundHead, ...]:
    begin = NOW - every_s * len(causes)
    return tuple(
        RoundHead(number, begin + every_s * number, int(cause is None), cause)
        for number, cause in enumerate(causes, 1)
    )


def status(condition: str, rounds: int, *, finished: bool = False, at: float = NOW) -> Status:
    return Status(
        center="c", contract_name="made", contract_digest="0" * 64, condition=condition,  # type: ignore[arg-type]
        incarnation=1, endpoint=None, host="here", pid=1, started=at, ended=None,
        phase="gathering", phase_round=rounds + 1, phase_since=at, rounds_planned=50,
        last_round=rounds, last_round_at=at, partners_now=(), partners_last=(), validation=None,
        best_round=0, best_metric=None, rounds_without_gain=0, finished=finished, reports={},
        isolated={}, peers={}, sent=TrafficTotal(), received=TrafficTotal(), last_event=None,
    )  # fmt: skip


def running(causes: list[RestCause | None], at: float = NOW) -> Look:
    return Look("c", status("running", len(causes), at=at), heads=heads(causes))


@st.composite
def looks(draw: st.DrawFn, name: str) -> Look:
    kind = draw(st.sampled_from(["none", "bad", "new", "running", "finished", "stopped", "dead"]))
    if kind == "none":
        return Look(name, None)
    if kind == "bad":
        return Look(name, None, problem="damaged")
    causes = draw(st.lists(CAUSES, max_size=12))
    hearsay = Hearsay(None, draw(st.integers(0, 4)), 4)
    at = NOW - draw(st.floats(0, 1000))
    found = status(kind, len(causes), finished=kind == "finished", at=at)
    return Look(name, found, heads=heads(causes), hearsay=hearsay)


@st.composite
def federations(draw: st.DrawFn) -> list[Look]:
    return [draw(looks(f"c{number}")) for number in range(draw(st.integers(0, 8)))]


@given(federations(), st.integers(0, 1000))
def test_everybody_is_there_once_the_most_urgent_first_whatever_the_order(
    found: list[Look], seed: int
) -> None:
    rows = by_attention(found, PACING, NOW)
    assert sorted(row.look.id for row in rows) == sorted(look.id for look in found)
    levels = [row.attention.level for row in rows]
    assert levels == sorted(levels)
    shuffled = list(found)
    Random(seed).shuffle(shuffled)
    assert by_attention(shuffled, PACING, NOW) == rows


@given(federations())
def test_whoever_needs_somebody_says_why(found: list[Look]) -> None:
    for row in by_attention(found, PACING, NOW):
        assert bool(row.attention.reason) == row.attention.level.needs_somebody


@given(st.lists(CAUSES, max_size=20))
def test_lonely_rounds_are_the_newest_in_a_row_and_not_all_chosen(
    causes: list[RestCause | None],
) -> None:
    lonely = lonely_rounds(heads(causes))
    tail = causes[len(causes) - lonely :]
    assert None not in tail
    if lonely:
        assert any(cause is not None and not cause.intentional for cause in tail)
        assert lonely == len(causes) or causes[-lonely - 1] is None


@given(st.lists(CAUSES, max_size=6), st.floats(0.1, 100.0))
def test_nobody_is_silent_within_what_the_contract_allows(
    causes: list[RestCause | None], every_s: float
) -> None:
    limit = silence_limit_s(heads(causes, every_s), PACING)
    waits = PACING.round_min_s + PACING.negotiation_s + PACING.exchange_s
    assert limit >= max(LEAST_SILENCE_S, waits, PACING.start_wait_s)
    if len(causes) > 1:
        assert limit >= 9.9 * every_s


def test_silence() -> None:
    assert judge(running([None], at=NOW - 59.0), PACING, 1, NOW).level is Level.FINE
    silent = judge(running([None], at=NOW - 200.0), PACING, 1, NOW)
    assert (silent.level, silent.reason) == (Level.SILENT, "no sign of life for 3 min")


def test_a_sign_that_others_saw_counts() -> None:
    found = running([None], at=NOW - 500.0)
    heard = Look("c", found.status, heads=found.heads, hearsay=Hearsay(NOW - 1.0, 0, 3))
    assert judge(heard, PACING, 1, NOW).level is Level.FINE
    suspected = Look("c", found.status, heads=found.heads, hearsay=Hearsay(NOW - 1.0, 2, 3))
    assert judge(suspected, PACING, 1, NOW).reason == "does not answer 2 of 3 centers"


def test_a_center_far_behind_is_named() -> None:
    behind = judge(running([None] * 4), PACING, 20.0, NOW)
    assert (behind.level, behind.reason) == (Level.BEHIND, "16 rounds behind the median center")
    assert judge(running([None] * 12), PACING, 20.0, NOW).level is Level.FINE
    assert judge(running([]), PACING, 4.0, NOW).level is Level.FINE


def test_chosen_isolation_is_no_trouble() -> None:
    chosen = [RestCause.BELOW_THRESHOLD] * 9
    assert judge(running([None, *chosen]), PACING, 10, NOW).level is Level.FINE
    mixed = [*chosen, RestCause.ALL_BUSY]
    assert judge(running(mixed), PACING, 10, NOW).reason == "no partner for 10 rounds, now all-busy"
