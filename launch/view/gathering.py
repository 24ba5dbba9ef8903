"""Everything that the report of a federation shows, read once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from abps_node.store.reader import Reader
from launch.layout import FederationLayout
from launch.objectives import ObjectiveRow, answers_label, rows_of
from launch.summary import Auroc, Verdict, verdict_of
from launch.view import isolation, status
from launch.view.isolation import FederationIsolation
from launch.view.reading import each_state, readable
from launch.view.status import Overview
from protocol.beliefs import Belief


@dataclass(frozen=True)
class Compared:
    """One center's test AUROC, alone and federated; None where it was not measured."""

    center: str
    alone: Auroc | None
    federated: Auroc | None
    answers_label: bool = True
    """Whether it learns the contract's label; else both are None."""
    objectives: tuple[ObjectiveRow, ...] = ()
    """What became of its own objectives; none where it has none."""

    @property
    def difference(self) -> float | None:
        """Federated minus alone."""
        if self.alone is None or self.federated is None:
            return None
        if self.alone.value is None or self.federated.value is None:
            return None
        return self.federated.value - self.alone.value

    @property
    def verdict(self) -> Verdict | None:
        """Which of the two intervals lies above the other, if they are apart."""
        return verdict_of(self.alone, self.federated)


@dataclass(frozen=True)
class Gathered:
    """A federation at one moment, and its whole past."""

    overview: Overview
    isolation: FederationIsolation
    validations: Mapping[str, Mapping[int, float]]
    """Center to its validation metric after each round."""
    merges: Mapping[str, Mapping[str, int]]
    """Center to peer to the number of its trunks that were merged."""
    beliefs: Mapping[str, Mapping[str, Belief]]
    kinds: Mapping[str, int]
    """Message kind to bytes on the wire that all centers sent together."""

    @property
    def layout(self) -> FederationLayout:
        """The federation's directory."""
        return self.overview.layout

    @property
    def names(self) -> list[str]:
        """All centers, in order of their ids."""
        return [center.id for center in self.layout.centers]

    @property
    def metrics(self) -> dict[str, str]:
        """Center to what its validation measures, those measured by most first."""
        found = {
            row.look.id: row.look.status.validation.metric
            for row in self.overview.rows
            if row.look.status is not None and row.look.status.validation is not None
        }
        often = Counter(found.values())
        return dict(sorted(found.items(), key=lambda item: (-often[item[1]], item)))

    def compared(self) -> list[Compared]:
        """All centers in order of their ids."""
        reports = {
            row.look.id: row.look.status.reports
            for row in self.overview.rows
            if row.look.status is not None
        }
        return [
            Compared(
                name,
                Auroc.of(reports.get(name, {}).get("alone")),
                Auroc.of(reports.get(name, {}).get("federated")),
                all(answers_label(report) for report in reports.get(name, {}).values()),
                rows_of(reports.get(name, {})),
            )
            for name in self.names
        ]

    def pairs(self) -> dict[tuple[str, str], int]:
        """Pairs of centers, the smaller id first, to the trunks that either merged of the other."""
        found: Counter[tuple[str, str]] = Counter()
        for center, peers in self.merges.items():
            for peer, number in peers.items():
                found[min(center, peer), max(center, peer)] += number
        return dict(found)


def gather(layout: FederationLayout) -> Gathered:
    """Read all centers; those that cannot be read are named by the overview."""
    overview = status.collect(layout, time.time())
    alone = isolation.collect(layout)
    good, _ = readable(each_state(layout.centers, _read))
    kinds: Counter[str] = Counter()
    for each in good.values():
        kinds.update(each.sent)
    return Gathered(
        overview=overview,
        isolation=alone,
        validations={name: each.validations for name, each in good.items()},
        merges={name: each.merges for name, each in good.items()},
        beliefs={each.center: each.beliefs for each in alone.centers},
        kinds=dict(kinds.most_common()),
    )


@dataclass(frozen=True)
class _Read:
    validations: Mapping[int, float]
    merges: Mapping[str, int]
    sent: Mapping[str, int]


def _read(reader: Reader) -> _Read:
    sent: Counter[str] = Counter()
    for line in reader.traffic():
        if line.direction == "out":
            sent[line.kind] += line.wire_bytes
    return _Read(reader.validations(), reader.merges(), sent)
