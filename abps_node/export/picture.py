"""The calibration plot of a model card, as SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.figure import Figure

from abps_node.export.measures import Bin


def calibration_plot(bins: Sequence[Bin], outcome: str) -> bytes:
    """Predicted against observed, with 95 % intervals; the diagonal is perfect calibration."""
    # Text stays text: searchable, and drawn in whatever font the reader has.
    with rc_context({"svg.fonttype": "none", "text.parse_math": False, "svg.hashsalt": "abps"}):
        figure = Figure(figsize=(5, 5), layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color="0.6", linestyle="--", label="perfect calibration")
        predicted = [each.predicted for each in bins]
        observed = [each.observed for each in bins]
        below = [each.observed - each.low for each in bins]
        above = [each.high - each.observed for each in bins]
        axes.errorbar(
            predicted,
            observed,
            yerr=[below, above],
            marker="o",
            capsize=3,
            color="#1f5a99",
            label="test patients, 95 % interval",
        )
        top = min(1.0, 1.1 * max(*predicted, *(each.high for each in bins)))
        axes.set(
            xlim=(0, top),
            ylim=(0, top),
            xlabel="predicted probability",
            ylabel=f"share with {one_line(outcome)} = 1",
        )
        axes.legend(loc="upper left", frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    return file.getvalue()


def one_line(text: str) -> str:
    """Without control characters, which neither SVG nor Markdown can hold."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
