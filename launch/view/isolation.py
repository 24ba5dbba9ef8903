"""Who was alone, when and why, over all centers of a federation (pure but for ``collect``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from abps_node.cli.human import number, plain, utc
from abps_node.store.reader import Reader
from abps_node.store.views import RoundEntry, RoundHead
from launch.layout import FederationLayout
from launch.view.reading import each_state, readable
from protocol.beliefs import Belief
from protocol.record import RestCause, RoundRecord

MOST_BINS: Final = 10
"""Columns of rounds that are shown."""
_JUDGES: Final = {"belief": RestCause.REJECTED_BY_BELIEF, "filter": RestCause.REJECTED_BY_FILTER}
"""Reasons of a rejection, and the causes that they explain."""


@dataclass(frozen=True)
class Alone:
    """What one center's state says of its rounds."""

    center: str
    heads: tuple[RoundHead, ...]
    newest: tuple[RoundEntry, ...]
    """The newest isolated round of each cause."""
    beliefs: Mapping[str, Belief]

    @property
    def causes(self) -> Counter[RestCause]:
        """Cause to rounds."""
        return Counter(head.cause for head in self.heads if head.cause is not None)

    @property
    def met_nobody(self) -> bool:
        """Whether it has committed rounds, none of them with a partner."""
        return bool(self.heads) and all(head.partners == 0 for head in self.heads)


@dataclass(frozen=True)
class Why:
    """One cause of one center's isolation, and what explains the newest round of it."""

    center: str
    cause: RestCause
    rounds: int
    last: int
    at: float
    explanation: str
    """As the center recorded it."""
    others: str
    """What the others' states add to that; maybe nothing."""


@dataclass(frozen=True)
class FederationIsolation:
    """All of it."""

    layout: FederationLayout
    centers: tuple[Alone, ...]
    problems: Mapping[str, str]
    """Centers whose state cannot be read, and why."""
    not_begun: tuple[str, ...]

    @property
    def rounds(self) -> int:
        """Committed by all centers together."""
        return sum(len(each.heads) for each in self.centers)

    @property
    def totals(self) -> dict[RestCause, int]:
        """Cause to rounds, in order of precedence."""
        counted = sum((each.causes for each in self.centers), Counter[RestCause]())
        return {cause: counted[cause] for cause in RestCause if counted[cause]}

    def touched(self, cause: RestCause) -> int:
        """How many centers have had this cause."""
        return sum(cause in each.causes for each in self.centers)

    @property
    def intentional(self) -> int:
        """Rounds of isolation by the own filter or belief."""
        return sum(n for cause, n in self.totals.items() if cause.intentional)

    @property
    def met_nobody(self) -> list[Alone]:
        """Centers that never found a partner."""
        return [each for each in self.centers if each.met_nobody]

    def whys(self) -> list[Why]:
        """Each center's causes, the most isolated center first."""
        beliefs = {each.center: each.beliefs for each in self.centers}
        order = sorted(self.centers, key=lambda each: (-each.causes.total(), each.center))
        return [why for each in order for why in _whys(each, beliefs)]


def collect(layout: FederationLayout) -> FederationIsolation:
    """Read all centers; one that cannot be read is named, and the others are there."""
    found = each_state(layout.centers, _read)
    good, bad = readable(found)
    missing = [name for name in found if name not in good and name not in bad]
    centers = [Alone(name, *parts) for name, parts in good.items()]
    return FederationIsolation(layout, tuple(centers), {**layout.broken, **bad}, tuple(missing))


def _read(
    reader: Reader,
) -> tuple[tuple[RoundHead, ...], tuple[RoundEntry, ...], Mapping[str, Belief]]:
    return tuple(reader.heads()), tuple(reader.newest_rests()), reader.beliefs()


def _whys(each: Alone, beliefs: Mapping[str, Mapping[str, Belief]]) -> list[Why]:
    causes = each.causes
    whys = []
    for entry in each.newest:
        rest = entry.record.rest
        if rest is not None:
            others = explained_by_others(each.center, entry.record, beliefs)
            why = Why(
                each.center,
                rest.cause,
                causes[rest.cause],
                entry.record.round,
                entry.at,
                rest.explanation,
                others,
            )
            whys.append(why)
    return sorted(whys, key=lambda why: (-why.rounds, why.cause))


def explained_by_others(
    center: str, record: RoundRecord, beliefs: Mapping[str, Mapping[str, Belief]]
) -> str:
    """Who rejected ``center`` in that round, and what they believe of it now."""
    parts = []
    for reason in _JUDGES:
        judges = sorted({p.peer for p in record.proposals_sent if p.reason == reason})
        words = [_judge(judge, center, reason, beliefs) for judge in judges]
        if words:
            parts.append(f"rejected by the {reason} of {', '.join(words)}")
    return "; ".join(parts)


def _judge(
    judge: str, center: str, reason: str, beliefs: Mapping[str, Mapping[str, Belief]]
) -> str:
    belief = beliefs.get(judge, {}).get(center)
    if reason != "belief" or belief is None:
        return judge
    return f"{judge} (mean {number(belief.mean)}, n {belief.n})"


# By round ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bin:
    """Some rounds that follow each other."""

    first: int
    last: int
    committed: int
    """Rounds that centers committed within it."""
    causes: Mapping[RestCause, int]

    @property
    def name(self) -> str:
        """«7», or «1–5»."""
        return str(self.first) if self.first == self.last else f"{self.first}–{self.last}"


def by_round(heads: Iterable[RoundHead], most: int = MOST_BINS) -> list[Bin]:
    """All centers' rounds in at most so many bins of equal length; the last may be shorter."""
    committed: Counter[int] = Counter()
    causes: dict[int, Counter[RestCause]] = {}
    for head in heads:
        committed[head.round] += 1
        if head.cause is not None:
            causes.setdefault(head.round, Counter())[head.cause] += 1
    if not committed:
        return []
    newest = max(committed)
    width = -(-newest // most)
    return [
        _bin(first, min(first + width - 1, newest), committed, causes)
        for first in range(1, newest + 1, width)
    ]


def _bin(
    first: int, last: int, committed: Counter[int], causes: Mapping[int, Counter[RestCause]]
) -> Bin:
    span = range(first, last + 1)
    tally = sum((causes.get(number, Counter()) for number in span), Counter[RestCause]())
    return Bin(first, last, sum(committed[number] for number in span), dict(tally))


# As JSON -----------------------------------------------------------------------------------------


def document(found: FederationIsolation) -> dict[str, Any]:
    """All of it as JSON types; every round of its own."""
    heads = [head for each in found.centers for head in each.heads]
    return {
        "directory": str(found.layout.directory),
        "federation": found.layout.contract.name,
        "rounds": found.rounds,
        "isolated": sum(found.totals.values()),
        "intentional": found.intentional,
        "totals": {
            str(cause): {
                "rounds": n,
                "centers": found.touched(cause),
                "intentional": cause.intentional,
            }
            for cause, n in found.totals.items()
        },
        "by_round": [
            {"round": each.first, "committed": each.committed, "causes": plain(each.causes)}
            for each in by_round(heads, most=max((head.round for head in heads), default=1))
        ],
        "never_found_a_partner": [each.center for each in found.met_nobody],
        "centers": _entries(found.whys()),
        "unreadable": dict(found.problems),
        "not_begun": list(found.not_begun),
    }


def _entries(whys: Sequence[Why]) -> list[dict[str, Any]]:
    return [
        {
            "center": why.center,
            "cause": str(why.cause),
            "intentional": why.cause.intentional,
            "rounds": why.rounds,
            "last_round": why.last,
            "at": utc(why.at),
            "explanation": why.explanation,
            "others": why.others,
        }
        for why in whys
    ]
