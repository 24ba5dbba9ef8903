"""One row against all others, seed by seed: the gaps that FedCARE's abstract speaks of.

Rows of one seed share patients, splits and initial weights, so that their differences vary less
than they do themselves: a comparison is made within each seed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from abps_node.errors import NodeError
from sim.multi import tables
from sim.results_files import Result
from sim.tables import Spread

PAPER_AUROC: Final[Mapping[str, Mapping[str, float]]] = {
    "diabetes130": {
        "fedavg": 0.6951,
        "fedprox": 0.7075,
        "fmgda": 0.7592,
        "fsmgda": 0.7653,
        "pafnet": 0.7632,
        "fedcare": 0.7819,
    },
    "mimic-iii": {
        "fedavg": 0.8131,
        "fedprox": 0.8108,
        "fmgda": 0.7811,
        "fsmgda": 0.8331,
        "pafnet": 0.8345,
        "fedcare": 0.8471,
    },
}
"""Its Table III; the errors there are those of its Tables IV and V."""


@dataclass(frozen=True)
class Change:
    """By how many percent a figure changes from another row to this one."""

    percent: Spread
    ahead: int
    """Seeds in which this row is better."""
    seeds: int
    paper: float | None

    @property
    def sure(self) -> bool:
        """Whether 0 lies outside of the 95 % interval of Student's t over the seeds."""
        from scipy.stats import t

        deviation = self.percent.deviation
        if deviation is None:
            return False
        far = float(t.ppf(0.975, self.seeds - 1)) * deviation / math.sqrt(self.seeds)
        return abs(self.percent.mean) > far

    def __str__(self) -> str:
        tail = "" if self.percent.deviation is None else f" ± {self.percent.deviation:.1f}"
        return f"{self.percent.mean:+.1f} %{tail}{'' if self.sure else ' (?)'}"


@dataclass(frozen=True)
class Versus:
    """One row against another."""

    data: str
    against: str
    auroc: Change | None
    """Of the mean AUROC; more is better."""
    error: Change | None
    """Of the mean absolute error in days; less is better."""


def compare(results: Sequence[Result], row: str = "fedcare") -> list[Versus]:
    """``row`` against every other one with which it shares a seed, per data set.

    Raises ``NodeError`` where there is no such row, and for results of other commands.
    """
    cells = {
        (each["config"]["data"]["name"], each["name"], each["seed"]): each
        for each in (*results, *tables.without_stage2(results))
    }
    names = [(each.data, each.name) for each in tables.table(results)]
    if row not in {name for _, name in names}:
        known = ", ".join(dict.fromkeys(name for _, name in names))
        raise NodeError(f"--row: found {row!r}, allowed: {known}")
    found = []
    for data, name in names:
        pairs = [
            (cells[data, row, seed], other)
            for (theirs, who, seed), other in cells.items()
            if (theirs, who) == (data, name) and (data, row, seed) in cells
        ]
        if name == row or not pairs:
            continue
        auroc, error = _paper(data, row, name)
        found.append(
            Versus(
                data,
                name,
                _change([(a["mean_auroc"], b["mean_auroc"]) for a, b in pairs], auroc, 1),
                _change([(_error(a), _error(b)) for a, b in pairs], error, -1),
            )
        )
    return found


def _paper(data: str, row: str, other: str) -> tuple[float | None, float | None]:
    aurocs, both = PAPER_AUROC.get(data, {}), tables.PAPER.get(data, {})
    if row not in aurocs or other not in aurocs:
        return None, None
    return _percent(aurocs[row], aurocs[other]), _percent(both[row][2], both[other][2])


def _percent(one: float, other: float) -> float:
    return 100.0 * (one / other - 1.0)


def _error(result: Result) -> float | None:
    errors = [t["mean"] for t in result["tasks"].values() if t["metric"] == "mae"]
    return errors[0] if errors else None


def _change(
    pairs: Sequence[tuple[float | None, float | None]], paper: float | None, sign: int
) -> Change | None:
    changes = [_percent(one, other) for one, other in pairs if one is not None and other]
    if not changes:
        return None
    ahead = sum(sign * change > 0 for change in changes)
    return Change(Spread.of(changes), ahead, len(changes), paper)


def lines(found: Sequence[Versus]) -> list[tuple[str, ...]]:
    """Head and rows of a table; «(?)» marks what the seeds do not tell from 0."""
    rows: list[tuple[str, ...]] = [
        ("against", "AUROC", "paper", "ahead", "error", "paper", "ahead")
    ]
    for each in found:
        cells: list[str] = []
        for change in (each.auroc, each.error):
            if change is None:
                cells += ["–", "", ""]
                continue
            paper = "" if change.paper is None else f"{change.paper:+.1f} %"
            cells += [str(change), paper, f"{change.ahead} of {change.seeds}"]
        rows.append((each.against, *cells))
    return rows


def text(found: Sequence[Versus], row: str) -> Iterator[str]:
    """Aligned columns, one block per data set."""
    for data in dict.fromkeys(each.data for each in found):
        yield f"{row} on {data}"
        yield from tables.aligned(lines([each for each in found if each.data == data]))


def markdown(found: Sequence[Versus], row: str) -> Iterator[str]:
    """A table for a page, one per data set."""
    for data in dict.fromkeys(each.data for each in found):
        yield f"**`{row}` on {data}**"
        yield ""
        yield from tables.piped(lines([each for each in found if each.data == data]))
        yield ""
