"""From a matplotlib figure to a picture that stands in a page: light or dark, with a title."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Final

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK: Final = "#010101"
FAINT: Final = "#020202"
"""Colors that stand for those of the page, which differ between light and dark."""
_PAGE_COLORS: Final = {INK: "var(--ink)", FAINT: "var(--faint)"}
_STYLE: Final[dict[Any, Any]] = {
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": FAINT,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.facecolor": "none",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "font.size": 9.0,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Figures that are made within look as the page does."""
    with matplotlib.rc_context(_STYLE):
        yield


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty figure of so many inches, with light grid lines below what is drawn."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def inline(figure: Figure, name: str, title: str, description: str) -> str:
    """The figure as an svg element; ``name`` keeps its ids apart from other pictures'."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": name, **_STYLE}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{name}-", svg)
    for color, variable in _PAGE_COLORS.items():
        svg = svg.replace(color, variable)
    head, _, body = svg.partition(">")
    labels = f'role="img" aria-labelledby="{name}-title {name}-desc"'
    told = (
        f'<title id="{name}-title">{escape(title)}</title>'
        f'<desc id="{name}-desc">{escape(description)}</desc>'
    )
    return f"{head} {labels}>{told}{body}"
