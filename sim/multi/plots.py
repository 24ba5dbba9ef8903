"""What an option that is varied does to each row, and how the tasks' gradients get on with each
other over the rounds, drawn from results alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from abps_node.errors import NodeError
from sim.multi.tables import TaskRow, table, varied
from sim.plots import line_of, save
from sim.results_files import Result, make_folder, require_kind
from sim.tables import Spread

_PANELS: Final = (
    ("cosines", "cosine between Δ_s"),
    ("norms", "‖Δ_s‖"),
    ("weights", "λ*_s"),
)


_Curves = dict[tuple[str, str], dict[str, list[tuple[float, TaskRow]]]]
"""(data set, option) to row to values of the option."""


def draw(results: Sequence[Result], out: Path, rows: Sequence[str] | None = None) -> Iterator[Path]:
    """One picture per varied option; one of the conflict per row and data set, of its first seed.

    Yields the files. Raises ``NodeError`` for a row that is in none of them, and for results of
    other commands.
    """
    require_kind(results, tasks=True)
    curves, weighing = _varied(results), _weighing(results)
    known = {row for by_row in curves.values() for row in by_row} | {name for _, name in weighing}
    if not known:
        raise NodeError(
            "nothing to draw: found no row with a varied option and none whose server weighs "
            "tasks, allowed: results of a sweep with [vary], or of fmgda, fsmgda or fedcare"
        )
    for row in rows or ():
        if row not in known:
            raise NodeError(f"--rows: found {row!r}, allowed: {', '.join(sorted(known))}")
    make_folder(out)
    for (data, option), by_row in curves.items():
        chosen = {row: points for row, points in by_row.items() if not rows or row in rows}
        if chosen:
            yield from save(trend(data, option, chosen), out / f"{data}-{option}")
    for (data, name), result in weighing.items():
        if not rows or name in rows:
            yield from save(conflict(result), out / f"{data}-{name}-conflict")


def _varied(results: Sequence[Result]) -> _Curves:
    found: _Curves = {}
    for each in table(results):
        row, option, value = varied(each.name) or (each.name, "", 0.0)
        if option:
            found.setdefault((each.data, option), {}).setdefault(row, []).append((value, each))
    return found


def _weighing(results: Sequence[Result]) -> dict[tuple[str, str], Result]:
    """The first seed of rows with a server that weighs tasks, unless an option is varied."""
    found: dict[tuple[str, str], Result] = {}
    for each in sorted(results, key=lambda each: int(each["seed"])):
        if each.get("history", {}).get("cosines") and varied(each["name"]) is None:
            found.setdefault((each["config"]["data"]["name"], each["name"]), each)
    return found


def trend(data: str, option: str, by_row: Mapping[str, list[tuple[float, TaskRow]]]) -> Figure:
    """AUROC and error in days against the option's value, mean and standard deviation of seeds."""
    figure = Figure(figsize=(10.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (name, points) in enumerate(by_row.items()):
        style, color = line_of(number)
        for axes, of in ((left, _auroc), (right, _error)):
            known = [(value, found) for value, row in points if (found := of(row)) is not None]
            axes.errorbar(
                [value for value, _ in known],
                [found.mean for _, found in known],
                [found.deviation or 0.0 for _, found in known],
                fmt=f"{style}o",
                color=color,
                label=name,
                linewidth=1.2,
                markersize=3,
                capsize=2,
            )
    left.set_title("mean AUROC", fontsize=10)
    right.set_title("mean absolute error, days", fontsize=10)
    for axes in (left, right):
        axes.set_xlabel(option)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False)
    seeds = {len(row.seeds) for points in by_row.values() for _, row in points}
    few, many = min(seeds), max(seeds)
    told = f"{few} to {many} seeds" if few < many else f"{few} seed{'s' * (few > 1)}"
    figure.suptitle(f"{data}, {told}", fontsize=10)
    return figure


def _auroc(row: TaskRow) -> Spread | None:
    return row.auroc


def _error(row: TaskRow) -> Spread | None:
    """Of the one task that is measured in days."""
    return next((row.tasks[task] for task in row.tasks if task in row.days), None)


def conflict(result: Result) -> Figure:
    """Cosines between the tasks' aggregated gradients, their lengths, and λ*, by round."""
    figure = Figure(figsize=(11.0, 3.6), layout="constrained")
    panels = figure.subplots(1, len(_PANELS))
    for axes, (key, title) in zip(panels, _PANELS, strict=True):
        _panel(axes, result["history"][key], title)
    panels[0].axhline(0.0, color="#888888", linewidth=0.8)
    panels[1].set_yscale("log")
    figure.suptitle(
        f"{result['name']} on {result['config']['data']['name']}, seed {result['seed']}: below 0 "
        "one task's gain is another's loss",
        fontsize=10,
    )
    return figure


def _panel(axes: Axes, curves: dict[str, list[Any]], title: str) -> None:
    for number, (name, values) in enumerate(curves.items()):
        points = [(t, value) for t, value in enumerate(values, 1) if value is not None]
        if points:
            x, y = zip(*points, strict=True)
            style, color = line_of(number)
            axes.plot(x, y, style, color=color, label=name, linewidth=1.2)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("round")
    axes.legend(fontsize=7, frameon=False)
