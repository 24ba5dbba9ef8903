"""`abps rounds --objectives`: how far a center's own objectives pulled in different directions."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from abps_node.atomic import write_whole
from abps_node.cli.human import number, signed
from abps_node.errors import NodeError
from protocol.record import ObjectivesRecord, RoundRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NOTHING: Final = "no objectives of its own"
_COLUMNS: Final = "{:>5}  {:<16} {:>8} {:>7} {:>6} {:>7} {:>9}  {}"
_FORMATS: Final = (".png", ".svg", ".pdf")
_COLORS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Okabe and Ito's, told apart with any kind of color vision."""
_STYLES: Final = ("-", "--", "-.", ":")


def header() -> str:
    """The names of the columns."""
    return _COLUMNS.format(
        "round", "objective", "loss", "U", "μ*", "μ used", "‖g‖", "cosine with the others"
    )


def lines(record: RoundRecord) -> str:
    """One line per objective, and one for all of them together."""
    told = record.objectives
    if told is None:
        return f"{record.round:>5}  {NOTHING}"
    text = []
    for place, each in enumerate(told.objectives):
        cosines = [
            f"{other.name} {signed(told.cosines[place][beside])}"
            for beside, other in enumerate(told.objectives)
            if beside != place
        ]
        text.append(
            _COLUMNS.format(
                record.round if place == 0 else "",
                each.name,
                number(each.loss, 4),
                number(each.utility, 4),
                number(each.mu, 2),
                number(each.mu_batches, 2),
                f"{each.norm:.2e}",
                ", ".join(cosines),
            ).rstrip()
        )
    text.append(f"       {_together(told)}")
    return "\n".join(text)


def _together(told: ObjectivesRecord) -> str:
    conflict = ""
    if told.conflicts is not None:
        conflict = f"conflict in {told.conflicts:.0%} of the mini-batches, "
    passes = "epoch" if told.epochs == 1 else "epochs"
    return f"{told.step}, {told.epochs} {passes}: {conflict}‖Σ μ*g‖² {told.stationarity:.2e}"


def plot(center: str, records: list[RoundRecord], path: Path) -> None:
    """Draw conflict over rounds into a PNG, SVG or PDF file; raises ``NodeError``."""
    if path.suffix.lower() not in _FORMATS:
        raise NodeError(
            f"--plot: found {str(path)!r}, allowed: a name that ends in .png, .svg or .pdf"
        )
    told = [(record.round, record.objectives) for record in records if record.objectives]
    if not told:
        raise NodeError(f"--plot: {center} has no committed round with {NOTHING.split(' ', 1)[1]}")

    from matplotlib.figure import Figure

    rounds = [place for place, _ in told]
    found = [each for _, each in told]
    figure = Figure(figsize=(8.0, 9.0), layout="constrained")
    cosines, weights, rest = figure.subplots(3, 1, sharex=True)
    _draw_cosines(cosines, rounds, found)
    _draw_weights(weights, rounds, found)
    _draw_rest(rest, rounds, found)
    figure.suptitle(f"{center}: conflict between its objectives")
    kind = path.suffix.lower().lstrip(".")
    write_whole(
        path, lambda file: figure.savefig(file, format=kind, dpi=150), force=True, mode=0o644
    )


def _draw_cosines(axes: Axes, rounds: list[int], found: list[ObjectivesRecord]) -> None:
    names = [each.name for each in found[0].objectives]
    for place, (a, b) in enumerate(combinations(range(len(names)), 2)):
        values = [each.cosines[a][b] for each in found]
        axes.plot(rounds, values, label=f"{names[a]} – {names[b]}", **_style(place))
    axes.axhline(0.0, color="0.5", linewidth=0.8)
    axes.set_ylim(-1.05, 1.05)
    axes.set_ylabel("cosine of gradients\n(below 0: conflict)")
    if len(names) > 1:
        axes.legend(fontsize="small")


def _draw_weights(axes: Axes, rounds: list[int], found: list[ObjectivesRecord]) -> None:
    for place, first in enumerate(found[0].objectives):
        values = [each.objectives[place].mu for each in found]
        axes.plot(rounds, values, label=first.name, **_style(place))
    axes.set_ylim(-0.05, 1.05)
    axes.set_ylabel("μ* on all training rows")
    axes.legend(fontsize="small")


def _draw_rest(axes: Axes, rounds: list[int], found: list[ObjectivesRecord]) -> None:
    values = [max(each.stationarity, 1e-30) for each in found]
    axes.semilogy(rounds, values, color=_COLORS[0])
    axes.set_ylabel("‖Σ μ*g‖²")
    axes.set_xlabel("round")
    shares = [each.conflicts for each in found]
    if any(share is not None for share in shares):
        beside = axes.twinx()
        beside.plot(rounds, [share or 0.0 for share in shares], color=_COLORS[1], linestyle="--")
        beside.set_ylim(-0.05, 1.05)
        beside.set_ylabel("mini-batches in conflict (dashed)")


def _style(place: int) -> dict[str, Any]:
    return {
        "color": _COLORS[place % len(_COLORS)],
        "linestyle": _STYLES[place // len(_COLORS) % len(_STYLES)],
    }
