"""What a model card tells, counted and suppressed: facts only, no words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from abps_node.data import CenterData, Patients, Split
from abps_node.data.split import SplitRows
from abps_node.export.measures import enough
from protocol.contract import Card, Feature
from protocol.record import RoundRecord

TOLERANCE: Final = 1e-5
"""Most by which ONNX Runtime and PyTorch may differ."""


@dataclass(frozen=True)
class Agreement:
    """The largest differences over all rows that were compared."""

    rows: int
    probability: float
    log_odds: float
    """Absolute where the log-odds are below 1, else relative."""


@dataclass(frozen=True)
class Count:
    """Rows and events of one split; None where they are too few to be told."""

    name: str
    rows: int | None
    events: int | None


@dataclass(frozen=True)
class Input:
    """One feature as a reader of the card needs it."""

    feature: Feature
    missing: float | None
    """Share of training rows without a value; None where too few to be told."""
    few: bool
    """Whether its preprocessing was fitted on fewer rows than may be told of."""


@dataclass(frozen=True)
class Collaboration:
    """With whom, up to the round of the model."""

    rounds: int
    merged: tuple[tuple[str, int, int], ...]
    """Peer, rounds in which its trunk was merged, the last of them; most often first."""
    isolated: tuple[tuple[str, int, bool], ...]
    """Cause of rest, rounds, whether the center chose it; most often first."""


def counts(data: CenterData, limits: Card) -> list[Count]:
    """Per split, and the total only if no part of it is missing, lest it be subtracted."""
    splits = {"train": data.train, "validation": data.validation, "test": data.test}
    told = [_count(name, split, limits) for name, split in splits.items()]
    rows, events = [count.rows for count in told], [count.events for count in told]
    total = Count(
        "all",
        None if None in rows else sum(filter(None, rows)),
        None if None in events else sum(filter(None, events)),
    )
    return [*told, total]


def _count(name: str, split: Split, limits: Card) -> Count:
    rows, events = int(split.y.size), int(split.y.sum())
    return Count(
        name,
        rows if rows >= limits.min_patients else None,
        events if enough(rows, events, limits) else None,
    )


def inputs(
    features: tuple[Feature, ...], patients: Patients, rows: SplitRows, limits: Card
) -> list[Input]:
    """Every feature with its missing share in training."""
    told = []
    for feature in features:
        values = patients.features.column(feature.name)[rows.train]
        missing, size = int(np.isnan(values).sum()), int(values.size)
        known = size - missing
        tellable = missing == 0 or min(missing, known) >= limits.min_events
        share = missing / size if tellable and size >= limits.min_patients else None
        told.append(Input(feature, share, known < limits.min_patients))
    return told


def collaboration(records: list[RoundRecord]) -> Collaboration:
    """Partners whose trunks went in, and rounds without any."""
    rounds: dict[str, list[int]] = {}
    for record in records:
        for partner in record.partners:
            if partner.weight is not None and partner.refused is None:
                rounds.setdefault(partner.peer, []).append(record.round)
    merged = [(peer, len(found), max(found)) for peer, found in rounds.items()]
    rests = [record.rest for record in records if record.rest is not None]
    causes = Counter((str(rest.cause), rest.intentional) for rest in rests)
    return Collaboration(
        rounds=len(records),
        merged=tuple(sorted(merged, key=lambda each: (-each[1], each[0]))),
        isolated=tuple((cause, n, chosen) for (cause, chosen), n in causes.most_common()),
    )
