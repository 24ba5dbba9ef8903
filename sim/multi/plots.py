"""How the tasks' gradients get on with each other over the rounds, drawn from results alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from abps_node.errors import NodeError
from sim.plots import COLORS, STYLES, save
from sim.results_files import require_kind
from sim.tables import Result

_PANELS: Final = (
    ("cosines", "cosine between Δ_s"),
    ("norms", "‖Δ_s‖"),
    ("weights", "λ*_s"),
)


def draw(results: Sequence[Result], out: Path, rows: Sequence[str] | None = None) -> Iterator[Path]:
    """One picture per row and data set, of its first seed; yields the files.

    Raises ``NodeError`` for a row that is not there or has no server that weighs tasks, and for
    results of other commands.
    """
    require_kind(results, tasks=True)
    out.mkdir(parents=True, exist_ok=True)
    first: dict[tuple[str, str], Result] = {}
    for each in sorted(results, key=lambda each: int(each["seed"])):
        if each.get("history", {}).get("cosines"):
            first.setdefault((each["config"]["data"]["name"], each["name"]), each)
    known = {name for _, name in first}
    for row in rows or ():
        if row not in known:
            raise NodeError(f"--rows: found {row!r}, allowed: {', '.join(sorted(known)) or 'none'}")
    for (data, name), result in first.items():
        if not rows or name in rows:
            yield from save(conflict(result), out / f"{data}-{name}-conflict")


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
            axes.plot(x, y, STYLES[number], color=COLORS[number], label=name, linewidth=1.2)
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("round")
    axes.legend(fontsize=7, frameon=False)
