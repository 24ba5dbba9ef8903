"""Who needs somebody's attention, why, and in which order (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from statistics import median
from typing import Final

from abps_node.cli.human import clean, count, duration
from abps_node.store.views import RoundHead, Status
from launch.view.reading import Look
from protocol.center import Phase
from protocol.contract import Pacing

LEAST_SILENCE_S: Final = 60.0
"""A center that gives no sign for less than this is never called silent."""
SILENT_ROUNDS: Final = 10
"""…nor one whose own rounds take so long that fewer than this fit into its silence."""
LONELY_ROUNDS: Final = 3
"""So many rounds in a row without a partner, not by the own choice, are worth a look."""
BEHIND_SHARE: Final = 0.5
"""A running center with fewer than this share of the median's rounds is behind…"""
BEHIND_ROUNDS: Final = 5
"""…if it is so many rounds as well."""


class Level(IntEnum):
    """How urgent it is, most urgent first."""

    UNREADABLE = 0
    DEAD = 1
    SILENT = 2
    STOPPED = 3
    ABSENT = 4
    LONELY = 5
    BEHIND = 6
    FINE = 7
    DONE = 8

    @property
    def needs_somebody(self) -> bool:
        """Whether a person should look."""
        return self < Level.FINE


@dataclass(frozen=True)
class Attention:
    """How urgent a center is, and why in a few words; none where nothing is wrong."""

    level: Level
    reason: str = ""


@dataclass(frozen=True)
class Row:
    """One center and what it needs."""

    look: Look
    attention: Attention


def by_attention(looks: Sequence[Look], pacing: Pacing, now: float) -> list[Row]:
    """All centers, most urgent first; among equals who is done last, then the furthest behind."""
    others = [look.status.last_round for look in looks if look.status is not None]
    typical = median(others) if others else 0.0
    rows = [Row(look, judge(look, pacing, typical, now)) for look in looks]
    return sorted(rows, key=_order)


def _order(row: Row) -> tuple[int, int, bool, int, str]:
    status = row.look.status
    committed = -1 if status is None else status.last_round
    lonely = lonely_rounds(row.look.heads) if row.attention.level is Level.LONELY else 0
    done = status is not None and status.finished
    return (row.attention.level, -lonely, done, committed, row.look.id)


def judge(look: Look, pacing: Pacing, typical: float, now: float) -> Attention:
    """What one center needs; ``typical`` is the median of all centers' committed rounds."""
    status = look.status
    if look.problem is not None:
        return Attention(Level.UNREADABLE, look.problem)
    if status is None:
        return Attention(Level.ABSENT, _with_words("never started", look))
    match status.condition:
        case "new":
            return Attention(Level.ABSENT, _with_words("began, and never listened", look))
        case "dead":
            return Attention(Level.DEAD, _with_words(_death(look, status, now), look))
        case "stopped":
            return Attention(Level.STOPPED, f"stopped on request after round {status.last_round}")
        case "left":
            return Attention(Level.DONE)
        case "finished":
            return _finished(look, status)
        case "running" | "elsewhere":
            return _running(look, status, pacing, typical, now)


def _finished(look: Look, status: Status) -> Attention:
    missing = [name for name in look.reports_due if name not in status.reports]
    if missing:
        names = " and ".join(missing)
        return Attention(
            Level.STOPPED, f"finished, without its test report ({names}); start it again to measure"
        )
    return Attention(Level.DONE)


def _running(look: Look, status: Status, pacing: Pacing, typical: float, now: float) -> Attention:
    if status.finished:
        return Attention(Level.FINE)
    silent_s = 0.0 if look.seen is None else now - look.seen
    if silent_s > silence_limit_s(look.heads, pacing):
        where = f" on {clean(status.host or '?')}" if status.condition == "elsewhere" else ""
        return Attention(Level.SILENT, f"no sign of life{where} for {duration(silent_s)}")
    if look.hearsay.of and 2 * look.hearsay.suspected > look.hearsay.of:
        told = f"{look.hearsay.suspected} of {count(look.hearsay.of, 'center')}"
        return Attention(Level.SILENT, f"does not answer {told}")
    lonely = lonely_rounds(look.heads)
    if lonely >= LONELY_ROUNDS:
        cause = next(head.cause for head in reversed(look.heads) if head.cause is not None)
        return Attention(Level.LONELY, f"no partner for {count(lonely, 'round')}, now {cause}")
    late = typical - status.last_round
    if late >= BEHIND_ROUNDS and status.last_round < BEHIND_SHARE * typical:
        return Attention(Level.BEHIND, f"{late:.0f} rounds behind the median center")
    return Attention(Level.FINE)


def lonely_rounds(heads: Sequence[RoundHead]) -> int:
    """Newest rounds in a row without a partner of which not all were the center's own choice."""
    run: list[RoundHead] = []
    for head in reversed(heads):
        if head.cause is None:
            break
        run.append(head)
    unwanted = any(head.cause is not None and not head.cause.intentional for head in run)
    return len(run) if unwanted else 0


def silence_limit_s(heads: Sequence[RoundHead], pacing: Pacing) -> float:
    """How long a center may say nothing: what its contract lets it wait, and its own pace."""
    gaps = [late.at - early.at for early, late in pairwise(heads)]
    own_pace = SILENT_ROUNDS * median(gaps) if gaps else 0.0
    waits = pacing.round_min_s + pacing.negotiation_s + pacing.exchange_s
    return max(LEAST_SILENCE_S, own_pace, waits, pacing.start_wait_s)


def tally(rows: Iterable[Row]) -> dict[str, int]:
    """State in a word to the number of centers, most urgent first."""
    found: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: row.attention.level):
        word = state_word(row)
        found[word] = found.get(word, 0) + 1
    return found


def state_word(row: Row) -> str:
    """What a center is, in a word."""
    status, level = row.look.status, row.attention.level
    if level is Level.UNREADABLE:
        return "unreadable"
    if status is None or status.condition == "new":
        return "not started"
    if level is Level.SILENT:
        return "silent"
    if status.condition == "elsewhere":
        return "finished" if status.finished else "running"
    return status.condition


def phase_of(status: Status) -> str:
    """The phase as people should read it: ``measuring`` has no phase of its own."""
    if status.finished and status.phase == Phase.STOPPED and status.condition == "running":
        return "measuring"  # nobody is left to answer, the reports are being written
    return status.phase or Phase.STARTING


def _death(look: Look, status: Status, now: float) -> str:
    when = "" if look.seen is None else f" {duration(now - look.seen)} ago"
    where = f" of round {status.phase_round}" if status.phase_round else ""
    return f"died{when} in phase {phase_of(status)}{where}; process {status.pid} is gone"


def _with_words(text: str, look: Look) -> str:
    return f"{text}; last words: {clean(look.last_words)}" if look.last_words else text
