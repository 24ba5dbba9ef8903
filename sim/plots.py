"""Pictures of results, each as PNG and SVG: accuracy against bytes, curves, isolation, beliefs.

Everything is drawn from result files alone. A picture for which the results hold nothing (no
curves in a summary, no beliefs, nobody who rested) is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import NDArray

from abps_node.errors import NodeError
from sim.results_files import make_folder, require_kind
from sim.tables import Result, Row, Spread, table

CHOICE: Final = (
    "local-only",
    "centralized",
    "fedavg",
    "abps",
    "random-matching",
    "abps-live",
    "abps-x",
    "fedavg-x",
)
"""Whose curves are drawn if nobody asks for others: eight can be told apart."""
COLORS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#000000",
    "#8c6d31",
)
"""Okabe and Ito's, told apart with any kind of color vision."""
_STYLES: Final = ("-", "--", "-.", ":")
_NOTHING: Final = {
    "pareto": "no center has both classes in its test split",
    "rounds": "no curves; a summary has none",
    "bytes": "no curves of rows that send anything; a summary has none",
    "isolation": "nobody was without a partner, or this is a summary",
    "beliefs": "no result holds beliefs (run --beliefs, or beliefs = [row] in an experiment)",
}
_MIB: Final = 2**20
_POINTS_PER_INCH: Final = 72
_LABEL: Final = (11.0, 8.0)
"""Width and height that a number needs, in typographic points."""
_MOST_NAMED: Final = 16
"""Centers whose names fit beside a heat map."""
_MOST_PANELS: Final = 6


def line_of(number: int) -> tuple[str, str]:
    """Style and color of a curve by its place in the picture; 32 can be told apart."""
    lap = number // len(COLORS)
    return _STYLES[(number + lap) % len(_STYLES)], COLORS[number % len(COLORS)]


def draw(
    results: Sequence[Result],
    out: Path,
    rows: Sequence[str] | None = None,
    told: Callable[[str], object] | None = None,
) -> Iterator[Path]:
    """Draw all pictures of every data set among the results; yields the files.

    ``told`` hears of pictures for which the results hold nothing.

    Raises ``NodeError`` for a row that is not there, or results of `abps sim tasks`.
    """
    require_kind(results, tasks=False)
    make_folder(out)
    for data in sorted({each["config"]["data"]["name"] for each in results}):
        mine = [each for each in results if each["config"]["data"]["name"] == data]
        names = {each["name"] for each in mine}
        for row in rows or ():
            if row not in names:
                raise NodeError(f"--rows: found {row!r}, allowed: {', '.join(sorted(names))}")
        chosen = [row for row in rows or CHOICE if row in names] or sorted(names)[: len(COLORS)]
        pictures = {
            "pareto": pareto(table(mine), data),
            "rounds": curves(mine, chosen, data, over_bytes=False),
            "bytes": curves(mine, chosen, data, over_bytes=True),
            "isolation": isolation(mine, rows, data),
            "beliefs": beliefs(mine, data),
        }
        for name, figure in pictures.items():
            if figure is not None:
                yield from save(figure, out / f"{data}-{name}")
            elif told is not None:
                told(f"{data}: no picture «{name}»: {_NOTHING[name]}")


def pareto(rows: Sequence[Row], data: str) -> Figure | None:
    """Mean AUROC against bandwidth; the line joins those that nobody beats in both."""
    points = [(row, row.auroc) for row in rows if row.auroc is not None]
    if not points:
        return None
    figure, axes = _canvas(11.0, 6.0)
    positive = [row.bandwidth_vs_50 for row, _ in points if row.bandwidth_vs_50 > 0]
    least = min(positive, default=0.1) / 2.5
    spots = [(max(row.bandwidth_vs_50, least), auroc.mean) for row, auroc in points]
    front = _front([(row.bandwidth_vs_50, auroc.mean) for row, auroc in points])
    axes.plot(
        *zip(*(spots[place] for place in front), strict=True),
        color="0.75",
        linewidth=1.5,
        zorder=1,
        drawstyle="steps-post",
        label="not beaten in both",
    )
    for (row, auroc), (x, y) in zip(points, spots, strict=True):
        kind = _kind(row.name)
        axes.errorbar(
            x,
            y,
            yerr=auroc.deviation,
            fmt=_MARKERS[kind][1],
            color=_MARKERS[kind][0],
            markersize=6,
            elinewidth=0.8,
            alpha=0.9,
            zorder=3,
        )
    for kind, (color, marker) in _MARKERS.items():
        axes.plot([], [], marker, color=color, label=kind)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}×"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("bytes exchanged, relative to 50 rounds of FedAvg (left edge: none)")
    axes.set_ylabel("mean AUROC over centers (test)")
    seeds = sorted({len(row.seeds) for row, _ in points})
    bars = "" if seeds == [1] else "; bars: standard deviation over seeds"
    axes.set_title(f"{data}: accuracy against bandwidth, {_many(seeds)}{bars}")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    _key(axes, points, spots)
    return figure


_MARKERS: Final = {
    "ABPS": ("#d55e00", "o"),
    "random matching (control)": ("#e69f00", "D"),
    "with a server": ("#0072b2", "s"),
    "other peer-to-peer": ("#009e73", "^"),
    "no federation": ("#555555", "X"),
}


def _kind(name: str) -> str:
    if name.startswith("abps"):
        return "ABPS"
    if name.startswith("random-matching"):
        return "random matching (control)"
    if name in ("local-only", "centralized"):
        return "no federation"
    return (
        "other peer-to-peer"
        if name.split("+")[0] in ("decefl", "defta", "wpfed", "gossip", "braintorrent")
        else "with a server"
    )


def _front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Places of the points that no other beats in both, by rising cost."""
    order = sorted(range(len(points)), key=lambda place: (points[place][0], -points[place][1]))
    found: list[int] = []
    for place in order:
        if not found or points[place][1] > points[found[-1]][1]:
            found.append(place)
    return found


def _key(
    axes: Axes, points: Sequence[tuple[Row, Spread]], spots: Sequence[tuple[float, float]]
) -> None:
    """Numbers at the points, best first, and beside the picture what they stand for."""
    order = sorted(range(len(points)), key=lambda place: -points[place][1].mean)
    for number, place in enumerate(order, 1):
        row, auroc = points[place]
        color = _MARKERS[_kind(row.name)][0]
        axes.text(
            1.02,
            1.0 - (number - 1) / max(30, len(order)),
            f"{number:2d}  {auroc.mean:.3f}  {row.bandwidth_vs_50:4.2f}×  {row.name}",
            transform=axes.transAxes,
            fontsize=7.5,
            family="monospace",
            va="top",
            color=color,
        )
    # Where points stand on the paper is known once all else has its place.
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    inches = axes.transData.transform([spots[place] for place in order]) / figure.dpi
    for number, (place, offset) in enumerate(
        zip(order, _free_places(inches * _POINTS_PER_INCH), strict=True), 1
    ):
        axes.annotate(
            str(number),
            spots[place],
            xytext=offset,
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=7,
            color=_MARKERS[_kind(points[place][0].name)][0],
            arrowprops={"arrowstyle": "-", "color": "0.7", "lw": 0.5, "shrinkA": 4, "shrinkB": 2},
        )


def _free_places(points: NDArray[np.float64]) -> list[tuple[float, float]]:
    """For each point an offset near it at which a number covers neither a point nor a number.

    All in typographic points; the nearest free place on rings around the point, right ones first.
    Nothing stands right above or below, where the bar of the point is.
    """
    angles = np.deg2rad([20, -20, 45, -45, 160, -160, 135, -135])
    rings = [
        (radius * math.cos(angle), radius * math.sin(angle))
        for radius in (12.0, 18.0, 26.0, 34.0, 44.0, 56.0)
        for angle in angles
    ]
    taken = [np.array(point) for point in points]
    found: list[tuple[float, float]] = []
    for point in points:
        free = (
            offset
            for offset in rings
            if all(np.any(np.abs(point + offset - other) > _LABEL) for other in taken)
        )
        chosen = next(free, rings[0])
        taken.append(point + chosen)
        found.append(chosen)
    return found


def curves(
    results: Sequence[Result], rows: Sequence[str], data: str, over_bytes: bool
) -> Figure | None:
    """Mean test AUROC after each round: mean over seeds, band of one standard deviation."""
    figure, axes = _canvas(8.0, 5.0)
    drawn, ends = 0, ""
    for place, name in enumerate(rows):
        runs = [each for each in results if each["name"] == name and each.get("history")]
        runs = [each for each in runs if None not in each["history"]["auroc"]]
        if not runs or (over_bytes and not sum(runs[0]["history"]["bytes"])):
            continue
        lengths = [len(each["history"]["auroc"]) for each in runs]
        length = min(lengths)
        if length < max(lengths):
            ends = " (a curve ends with the first of its seeds that stopped early)"
        values = np.array([each["history"]["auroc"][:length] for each in runs])
        mean = values.mean(0)
        x = np.arange(1, length + 1, dtype=float)
        if over_bytes:
            centers = runs[0]["config"]["data"]["centers"]
            bytes_ = np.array([each["history"]["bytes"][:length] for each in runs])
            x = bytes_.cumsum(1).mean(0) / centers / _MIB
        style, color = line_of(place)
        axes.plot(x, mean, style, color=color, label=name, linewidth=1.8)
        if len(runs) > 1:
            spread = values.std(0, ddof=1)
            axes.fill_between(x, mean - spread, mean + spread, color=color, alpha=0.12, linewidth=0)
        drawn += 1
    if not drawn:
        return None
    if over_bytes:
        axes.set_xscale("log")
        axes.set_xlabel(f"MiB per center, each transfer counted once{ends}")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.set_xlabel(f"round{ends}")
    axes.set_ylabel("mean AUROC over centers (test)")
    axes.set_title(f"{data}: AUROC over {'bytes' if over_bytes else 'rounds'}")
    axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def isolation(results: Sequence[Result], rows: Sequence[str] | None, data: str) -> Figure | None:
    """Share of centers without a partner in each round, by cause; one panel per row."""
    rested = [
        each
        for each in _first_seeds(results)
        if each.get("history", {}).get("isolation") and (rows is None or each["name"] in rows)
    ]
    # Controls rest as their rows do; the rows that rest most tell most.
    rested = [each for each in rested if rows or not each["name"].startswith("random-matching")]
    rested = sorted(rested, key=lambda each: -sum(each["isolation"].values()))[:_MOST_PANELS]
    if not rested:
        return None
    causes = sorted({cause for each in rested for cause in each["history"]["isolation"]})
    columns = 2 if len(rested) == 4 else min(3, len(rested))
    lines = -(-len(rested) // columns)
    figure = Figure(figsize=(3.6 * columns + 1.6, 2.7 * lines + 0.8), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False, sharey=True)
    for axes, each in zip(panels.flat, rested, strict=False):
        shares = each["history"]["isolation"]
        x = np.arange(1, each["rounds_run"] + 1)
        parts = [shares.get(cause, [0.0] * len(x)) for cause in causes]
        axes.stackplot(x, parts, colors=COLORS[: len(causes)], labels=causes, step="mid", lw=0)
        axes.set_title(f"{each['name']} (seed {each['seed']})", fontsize=9)
        axes.set_xlim(1, max(2, len(x)))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels.flat[len(rested) :]:
        axes.set_visible(False)
    panels[0, 0].set_ylim(0, None)
    figure.supxlabel("round", fontsize=10)
    figure.supylabel("share of centers alone", fontsize=10)
    figure.suptitle(f"{data}: rounds without a partner, by cause", fontsize=11)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)
    return figure


def beliefs(results: Sequence[Result], data: str) -> Figure | None:
    """Posterior mean of every center about every peer; gray where there was no exchange."""
    held = [each for each in _first_seeds(results) if each.get("beliefs")][:_MOST_PANELS]
    if not held:
        return None
    width = 4.2 * len(held) + 1.0
    figure = Figure(figsize=(width, 4.8), layout="constrained")
    panels = figure.subplots(1, len(held), squeeze=False)[0]
    image: Any = None
    for axes, each in zip(panels, held, strict=True):
        # Large centers first: so one sees whether size earns trust.
        sizes = {name: center["train_rows"] for name, center in each["per_center"].items()}
        names = sorted(sizes, key=lambda name: (-sizes[name], name))
        place = {name: number for number, name in enumerate(names)}
        grid = np.full((len(names), len(names)), np.nan)
        for center, peers in each["beliefs"].items():
            for peer, (mean, _) in peers.items():
                grid[place[center], place[peer]] = mean
        image = axes.imshow(grid, cmap="RdYlBu", vmin=0.2, vmax=0.8, interpolation="nearest")
        axes.set_title(f"{each['name']} (seed {each['seed']})", fontsize=9)
        axes.set_facecolor("0.8")
        axes.set_xlabel("peer, largest first")
        axes.set_ylabel("center, largest first")
        if len(names) <= _MOST_NAMED:
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
            axes.set_yticks(range(len(names)), names, fontsize=7)
    bar = figure.colorbar(image, ax=panels.tolist(), shrink=0.8, extend="both")
    bar.set_label("posterior mean (prior 0.5; gray: no exchange)")
    figure.suptitle(f"{data}: what centers believe of their peers at the end", fontsize=11)
    return figure


def _first_seeds(results: Sequence[Result]) -> list[Result]:
    """Each row's first seed, in the order of the table."""
    first: dict[str, Result] = {}
    for each in sorted(results, key=lambda each: each["seed"]):
        # Beliefs are kept of one seed only: that one counts as the first.
        if each["name"] not in first or (
            "beliefs" in each and "beliefs" not in first[each["name"]]
        ):
            first[each["name"]] = each
    order = [row.name for row in table(results)]
    return sorted(first.values(), key=lambda each: order.index(each["name"]))


def _canvas(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _many(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return "1 seed" if seeds[0] == 1 else f"{seeds[0]} seeds"
    return f"{seeds[0]} to {seeds[-1]} seeds"


def save(figure: Figure, stem: Path) -> Iterator[Path]:
    """As PNG and SVG; yields the files."""
    # Without a date and with fixed ids, so that the same results give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "abps", "svg.fonttype": "none"}):
        for suffix, metadata in ((".png", {"Software": None}), (".svg", {"Date": None})):
            path = stem.with_name(stem.name + suffix)
            figure.savefig(path, dpi=140, metadata=metadata)
            yield path
