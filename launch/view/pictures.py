"""The pictures of a federation's report; one for which there is nothing to draw is None."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from abps_node.store.views import RoundHead
from launch.view.gathering import Compared, Gathered
from launch.view.isolation import by_round
from launch.view.svg import FAINT, INK, canvas
from protocol.beliefs import Belief
from protocol.record import RestCause

BLUE: Final = "#2b8cc4"
ORANGE: Final = "#e0722b"
CAUSE_COLORS: Final[Mapping[RestCause, str]] = {
    # What a center chooses itself is blue; the rest can be told apart with any color vision.
    RestCause.FILTER_EMPTY: "#56b4e9",
    RestCause.BELOW_THRESHOLD: "#0072b2",
    RestCause.NO_PEERS: "#d55e00",
    RestCause.ALL_UNREACHABLE: "#cc79a7",
    RestCause.ALL_BUSY: "#e69f00",
    RestCause.PEERS_FINISHED: "#8c8c8c",
    RestCause.REJECTED_BY_FILTER: "#009e73",
    RestCause.REJECTED_BY_BELIEF: "#6a3d9a",
    RestCause.EXCHANGE_FAILED: "#b2182b",
    RestCause.MIXED: "#a08a4b",
}
_FEW: Final = 40
"""Up to so many centers names have room; beyond that everything is smaller, and still readable."""
_WIDTH: Final = 9.0
_SPOT: Final = 0.021
"""Inches of the circle's radius that a center needs beyond few."""
_CHARACTER: Final = 0.66 / 72
"""Width of a character, in inches for each point of its size."""


def auroc(compared: Sequence[Compared]) -> Figure | None:
    """Test AUROC with its interval, a line per center, the largest gain first."""
    there = [each for each in compared if _measured(each)]
    if not there:
        return None
    there.sort(key=lambda each: (-(each.difference or 0.0), each.center))
    figure, axes = canvas(_WIDTH, _tall(len(there)))
    for kind, color, marker, shift in (
        ("alone", ORANGE, "s", 0.14),
        ("federated", BLUE, "o", -0.14),
    ):
        values = [each.alone if kind == "alone" else each.federated for each in there]
        points = [
            (place + shift, value.value, value.low, value.high)
            for place, value in enumerate(values)
            if value is not None and value.value is not None
        ]
        spans = [
            (y, low, high) for y, _, low, high in points if low is not None and high is not None
        ]
        if spans:
            axes.hlines(*zip(*spans, strict=True), color=color, lw=1.0, alpha=0.7)
        y, x = [point[0] for point in points], [point[1] for point in points]
        axes.plot(x, y, marker, color=color, markersize=4.5)
        axes.plot([], [], f"{marker}-", color=color, label=kind, markersize=4.5)
    axes.axvline(0.5, color=FAINT, lw=1.0)
    _names_on_y(axes, [each.center for each in there])
    axes.set_xlabel("AUROC on the center's own test split, with its 95 % bootstrap interval")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def validation(values: Mapping[str, Mapping[int, float]], metric: str) -> Figure | None:
    """Each center's validation metric after each round, and the median of those that were there."""
    there = {name: rounds for name, rounds in values.items() if rounds}
    if not there:
        return None
    figure, axes = canvas(_WIDTH, 3.6)
    for rounds in there.values():
        few = len(there) <= _FEW
        axes.plot(
            list(rounds), list(rounds.values()), color=BLUE, lw=0.8, alpha=0.5 if few else 0.2
        )
    newest = max(max(rounds) for rounds in there.values())
    columns = {
        number: [rounds[number] for rounds in there.values() if number in rounds]
        for number in range(1, newest + 1)
    }
    # Of the few that go on longest a median would tell who they are, not how all do.
    half = {number: median(c) for number, c in columns.items() if 2 * len(c) >= len(there)}
    label = "median, as long as half of these centers commit the round"
    axes.plot(list(half), list(half.values()), color=ORANGE, lw=2.2, label=label)
    axes.set_xlabel("round")
    axes.set_ylabel(f"{metric} on the own validation split")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.5, newest + 0.5)
    figure.legend(loc="outside upper center")
    return figure


def partners(names: Sequence[str], pairs: Mapping[tuple[str, str], int]) -> Figure | None:
    """Who merged whose trunk: centers on a circle, a line for each pair, thicker for more."""
    if not pairs:
        return None
    nodes = sorted({*names, *(name for pair in pairs for name in pair)})
    few = len(nodes) <= _FEW
    size = 9.0 if few else 6.0
    radius = 2.5 if few else max(2.5, len(nodes) * _SPOT)
    # Names stand outside the circle: so much room that the longest is whole.
    reach = radius + 0.15 + max(map(len, nodes)) * size * _CHARACTER
    figure = Figure(figsize=(2 * reach, 2 * reach))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    angles = {name: 2 * np.pi * place / len(nodes) for place, name in enumerate(nodes)}
    spots = {name: (np.cos(angle), np.sin(angle)) for name, angle in angles.items()}
    most = max(pairs.values())
    order = sorted(pairs.items(), key=lambda item: item[1])
    axes.add_collection(
        LineCollection(
            [[spots[a], spots[b]] for (a, b), _ in order],
            linewidths=[0.3 + (3.2 if few else 1.6) * n / most for _, n in order],
            colors=BLUE,
            alpha=0.55 if few else 0.35,
        )
    )
    linked = {name for pair in pairs for name in pair}
    for there, marker, color in ((True, "o", INK), (False, "X", ORANGE)):
        these = [name for name in nodes if (name in linked) == there]
        x, y = [spots[name][0] for name in these], [spots[name][1] for name in these]
        axes.plot(x, y, marker, color=color, markersize=5 if few else 3)
        for name in these:
            _around(axes, name, angles[name], color, size)
    axes.set_xlim(-reach / radius, reach / radius)
    axes.set_ylim(-reach / radius, reach / radius)
    axes.set_aspect("equal")
    return figure


def isolation(heads: Sequence[RoundHead]) -> Figure | None:
    """How many centers spent each round without a partner, by cause, of how many."""
    if not heads:
        return None
    newest = max(head.round for head in heads)
    bins = by_round(heads, most=newest)
    causes = [cause for cause in RestCause if any(cause in each.causes for each in bins)]
    figure, axes = canvas(_WIDTH, 3.6)
    x = [each.first for each in bins]
    axes.step(
        [0.5, *(at + 0.5 for at in x)],
        [bins[0].committed, *(each.committed for each in bins)],
        color=INK,
        lw=1.0,
        label="centers that committed the round",
    )
    base = np.zeros(len(bins))
    for cause in causes:
        height = np.array([each.causes.get(cause, 0) for each in bins], dtype=float)
        label = f"{cause} (intentional)" if cause.intentional else str(cause)
        axes.bar(x, height, bottom=base, width=0.9, color=CAUSE_COLORS[cause], label=label)
        base += height
    axes.set_xlim(0.5, newest + 0.5)
    axes.set_ylim(0, None)
    axes.set_xlabel("round")
    axes.set_ylabel("centers without a partner")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    figure.legend(loc="outside right upper")
    return figure


def beliefs(held: Mapping[str, Mapping[str, Belief]]) -> Figure | None:
    """Posterior mean of every center about every peer; empty where there was no exchange."""
    believing = {center for center, peers in held.items() if peers}
    nodes = sorted(believing | {peer for peers in held.values() for peer in peers})
    if not nodes:
        return None
    place = {name: number for number, name in enumerate(nodes)}
    grid = np.full((len(nodes), len(nodes)), np.nan)
    for center, peers in held.items():
        for peer, belief in peers.items():
            grid[place[center], place[peer]] = belief.mean
    side = max(4.0, 0.115 * len(nodes)) if len(nodes) > _FEW else max(4.0, 0.3 * len(nodes))
    figure = Figure(figsize=(side + 2.6, side + 1.2), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(grid, cmap="RdYlBu", vmin=0.0, vmax=1.0, interpolation="nearest")
    size = 8.0 if len(nodes) <= _FEW else 6.0
    axes.set_xticks(range(len(nodes)), nodes, rotation=90, fontsize=size)
    axes.set_yticks(range(len(nodes)), nodes, fontsize=size)
    axes.tick_params(length=0)
    axes.set_xlabel("about this peer")
    axes.set_ylabel("what this center believes")
    bar = figure.colorbar(image, ax=axes, shrink=min(0.8, 4.0 / side), aspect=15)
    bar.set_label("posterior mean (prior 0.5)")
    return figure


def traffic(gathered: Gathered) -> Figure | None:
    """Bytes on the wire of each center, sent and received, most first."""
    found = [
        (row.look.id, row.look.status.sent.wire_bytes, row.look.status.received.wire_bytes)
        for row in gathered.overview.rows
        if row.look.status is not None
    ]
    if not any(sent + received for _, sent, received in found):
        return None
    found.sort(key=lambda each: (-each[1] - each[2], each[0]))
    figure, axes = canvas(_WIDTH, _tall(len(found)))
    places = np.arange(len(found), dtype=float)
    for shift, column, color, label in ((-0.2, 1, BLUE, "sent"), (0.2, 2, ORANGE, "received")):
        values = [float(each[column]) / 1e6 for each in found]
        axes.barh(places + shift, values, height=0.38, color=color, label=label)
    _names_on_y(axes, [each[0] for each in found])
    axes.set_xlabel("MB on the wire, overhead of transport and encryption included")
    figure.legend(loc="outside upper center", ncols=2)
    return figure


def _measured(each: Compared) -> bool:
    values = [value for value in (each.alone, each.federated) if value is not None]
    return any(value.value is not None for value in values)


def _tall(lines: int) -> float:
    """Height in inches for so many named lines."""
    return 1.1 + lines * (0.3 if lines <= _FEW else 0.14)


def _names_on_y(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names, fontsize=9.0 if len(names) <= _FEW else 6.5)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)


def _around(axes: Axes, name: str, angle: float, color: str, size: float) -> None:
    """A name beside its place on the circle, readable from the middle outwards."""
    left = np.pi / 2 < angle < 3 * np.pi / 2
    turned = np.degrees(angle) + (180 if left else 0)
    axes.text(
        1.04 * np.cos(angle),
        1.04 * np.sin(angle),
        name,
        rotation=turned,
        rotation_mode="anchor",
        ha="right" if left else "left",
        va="center",
        fontsize=size,
        color=color,
    )
