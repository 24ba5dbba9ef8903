"""Results as a table: mean ± standard deviation over seeds, beside the paper's Table 1."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from sim.results_files import Result as Result
from sim.results_files import require_kind

PAPER: Final[dict[str, tuple[float, float, float | None]]] = {
    "local-only": (0.587, 0.013, 0.00),
    "centralized": (0.827, 0.007, None),
    "fedavg": (0.755, 0.019, 1.00),
    "fedprox": (0.753, 0.019, 1.00),
    "feddyn": (0.758, 0.017, 1.00),
    "moon": (0.750, 0.020, 1.00),
    "decefl": (0.696, 0.011, 1.00),
    "defta": (0.725, 0.013, 1.00),
    "wpfed": (0.694, 0.012, 1.00),
    "bnn+fl": (0.749, 0.014, 2.00),
    "abps": (0.753, 0.015, 1.50),
    "abps+p": (0.757, 0.015, 1.49),
    "abps+q": (0.753, 0.015, 0.75),
    "abps+p+q+k1": (0.748, 0.012, 0.25),
    "fedavg+p+q": (0.758, 0.017, 0.50),
    "abps+p+q+k1+hom": (0.742, 0.013, 0.25),
    "abps+p+q+k1+div": (0.694, 0.015, 0.16),
    "abps+p+q+k1+align": (0.739, 0.010, 0.25),
    "abps-x": (0.758, 0.010, 0.09),
    "fedavg-x": (0.691, 0.008, 0.31),
}
"""AUROC, its standard deviation and bandwidth, on MIMIC-IV with 230 centers (section 6.4)."""


@dataclass(frozen=True)
class Spread:
    """Mean over seeds and sample standard deviation; none with one seed."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), deviation)

    def __str__(self) -> str:
        tail = "" if self.deviation is None else f" ± {self.deviation:.3f}"
        return f"{self.mean:.3f}{tail}"


@dataclass(frozen=True)
class Row:
    """One method over its seeds."""

    data: str
    name: str
    seeds: tuple[int, ...]
    auroc: Spread | None
    pooled_auroc: Spread | None
    auprc: Spread | None
    brier: Spread
    scored_centers: float
    bandwidth: float
    """Against as many rounds of FedAvg as were run."""
    bandwidth_vs_50: float
    rounds: float
    partners: float
    belief_changed_order: float | None
    rested: float
    """Share of center-rounds without a partner, whatever the cause."""
    isolation: dict[str, float]
    above_control: Spread | None
    """AUROC minus that of random matching under the same policy, seed by seed."""
    paper: tuple[float, float, float | None] | None


def control_of(name: str) -> str | None:
    """The control that stands beside an ABPS row; none for other rows."""
    return name.replace("abps", "random-matching", 1) if name.startswith("abps") else None


def table(results: Sequence[Result]) -> list[Row]:
    """One row per data set and name, in the order of their first appearance in Table 1's list.

    Raises ``NodeError`` for results of `abps sim tasks`.
    """
    require_kind(results, tasks=False)
    groups: dict[tuple[str, str], list[Result]] = {}
    for each in results:
        groups.setdefault((each["config"]["data"]["name"], each["name"]), []).append(each)
    found = [_row(data, name, rows, groups) for (data, name), rows in groups.items()]
    return sorted(found, key=lambda row: (row.data, *_place(row.name)))


def _row(
    data: str, name: str, results: list[Result], groups: dict[tuple[str, str], list[Result]]
) -> Row:
    def mean(key: str) -> float:
        return statistics.fmean(each[key] for each in results)

    changed = [each["belief_changed_order"] for each in results]
    known = [value for value in changed if value is not None]
    causes = sorted({cause for each in results for cause in each["isolation"]})
    isolation = {
        cause: statistics.fmean(each["isolation"].get(cause, 0.0) for each in results)
        for cause in causes
    }
    return Row(
        data=data,
        name=name,
        seeds=tuple(sorted(each["seed"] for each in results)),
        auroc=_spread(results, "mean_auroc"),
        pooled_auroc=_spread(results, "pooled_auroc"),
        auprc=_spread(results, "pooled_auprc"),
        brier=Spread.of([each["pooled_brier"] for each in results]),
        scored_centers=mean("scored_centers"),
        bandwidth=mean("bandwidth_ratio"),
        bandwidth_vs_50=mean("bandwidth_ratio_vs_50"),
        rounds=mean("rounds_run"),
        partners=mean("mean_partners"),
        belief_changed_order=statistics.fmean(known) if known else None,
        rested=math.fsum(isolation.values()),
        isolation=isolation,
        above_control=_above(results, groups.get((data, control_of(name) or ""), [])),
        paper=PAPER.get(name),
    )


def _spread(results: Sequence[Result], key: str) -> Spread | None:
    values = [each[key] for each in results if each[key] is not None]
    return Spread.of(values) if values else None


def _above(results: Sequence[Result], controls: Sequence[Result]) -> Spread | None:
    by_seed = {each["seed"]: each["mean_auroc"] for each in controls}
    pairs = [(each["mean_auroc"], by_seed.get(each["seed"])) for each in results]
    gaps = [ours - theirs for ours, theirs in pairs if ours is not None and theirs is not None]
    return Spread.of(gaps) if gaps else None


def _place(name: str) -> tuple[int, int, str]:
    """Rows of the paper in its order, each control after its row, all others behind."""
    order = list(PAPER)
    owner = name.replace("random-matching", "abps", 1)
    place = order.index(owner) if owner in order else len(order)
    return place, int(owner != name), owner


_SHOWN: Final = 6
_HEAD: Final = (
    "method",
    "AUROC",
    "paper",
    "above control",
    "pooled",
    "bandwidth",
    "vs 50 rounds",
    "paper",
    "partners",
    "changed by belief",
    "rested",
    "rounds",
    "seeds",
)


def _cells(row: Row) -> tuple[str, ...]:
    paper = row.paper
    gap = row.above_control
    return (
        row.name,
        "–" if row.auroc is None else str(row.auroc),
        "" if paper is None else f"{paper[0]:.3f} ± {paper[1]:.3f}",
        "" if gap is None else _signed(gap),
        "–" if row.pooled_auroc is None else f"{row.pooled_auroc.mean:.3f}",
        f"{row.bandwidth:.2f}×",
        f"{row.bandwidth_vs_50:.2f}×",
        "" if paper is None or paper[2] is None else f"{paper[2]:.2f}×",
        f"{row.partners:.2f}",
        "" if row.belief_changed_order is None else f"{row.belief_changed_order:.0%}",
        f"{row.rested:.0%}" if row.isolation else "",
        f"{row.rounds:.0f}",
        f"{len(row.seeds)}",
    )


def _signed(gap: Spread) -> str:
    tail = "" if gap.deviation is None else f" ± {gap.deviation:.3f}"
    return f"{gap.mean:+.3f}{tail}"


def text(rows: Sequence[Row]) -> Iterator[str]:
    """Aligned columns, one block per data set."""
    for data in dict.fromkeys(row.data for row in rows):
        mine = [row for row in rows if row.data == data]
        lines = [_HEAD, *(_cells(row) for row in mine)]
        widths = [max(len(line[place]) for line in lines) for place in range(len(_HEAD))]
        yield f"{data}, {mine[0].scored_centers:.0f} centers scored"
        for line in lines:
            first, *rest = line
            padded = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
            yield "  ".join([first.ljust(widths[0]), *padded]).rstrip()


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """A table for a page, one per data set."""
    for data in dict.fromkeys(row.data for row in rows):
        yield f"**{data}**"
        yield ""
        yield "| " + " | ".join(_HEAD) + " |"
        yield "| --- |" + " ---: |" * (len(_HEAD) - 1)
        for row in (row for row in rows if row.data == data):
            first, *rest = _cells(row)
            yield "| " + " | ".join([f"`{first}`", *rest]) + " |"
        yield ""


def told_of(result: Result) -> Iterator[str]:
    """One result in words."""
    data = result["config"]["data"]
    scored, centers = result["scored_centers"], data["centers"]
    lacking = "" if scored == centers else " (the others lack a class in their test split)"
    auroc = "undefined" if result["mean_auroc"] is None else f"{result['mean_auroc']:.4f}"
    yield (
        f"{result['name']} on {data['name']}, seed {result['seed']}: mean AUROC {auroc} over "
        f"{scored} of {centers} centers{lacking}"
    )
    if result["pooled_auroc"] is not None:
        yield (
            f"pooled over all test rows: AUROC {result['pooled_auroc']:.4f}, "
            f"AUPRC {result['pooled_auprc']:.4f}, Brier {result['pooled_brier']:.4f}"
        )
    rounds = "1 round" if result["rounds_run"] == 1 else f"{result['rounds_run']} rounds"
    yield (
        f"{rounds}, bandwidth {result['bandwidth_ratio']:.3f}× of FedAvg "
        f"({result['bandwidth_ratio_vs_50']:.3f}× of its 50 rounds), "
        f"{result['mean_partners']:.2f} partners a round"
    )
    if result["belief_changed_order"] is not None:
        yield f"the posterior changed {result['belief_changed_order']:.1%} of the choices"
    replaced = data.get("policy_of_directory")
    if replaced:
        used = result["config"]["policy"]
        pairs = [f"{key} {value} (here {used[key]})" for key, value in replaced.items()]
        yield f"the directory's own policy does not count, the method's does: {', '.join(pairs)}"
    for cause, share in result["isolation"].items():
        yield f"alone, {cause}: {share:.1%} of center-rounds"
    small = data["left_out_as_too_small"]
    if small:
        yield f"too small to take part: {_listed(small)}"
    for column, without in data["without_values"].items():
        yield f"no value of {column}, its input is 0: {_listed(without)}"
    fallback = result["config"]["utilities"].get("brier", 0)
    if fallback:
        yield f"one class in validation, credit by 1 − Brier: {fallback} centers"
    yield f"{result['seconds']:.1f} s"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{len(names)} {'center' if len(names) == 1 else 'centers'} ({shown})"
