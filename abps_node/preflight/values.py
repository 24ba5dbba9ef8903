"""Numbers that can be read and are still hardly meant: codes for «missing», and strays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from abps_node.cli.human import count
from abps_node.config_text import FILL_IN
from abps_node.data.features import RawFeatures
from abps_node.preflight.finding import Finding, warning
from protocol.contract import Feature

CHECK: Final = "values"
_CODES: Final = (-1.0, -9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)
_LEAST_ROWS: Final = 20
_LEAST_CODED: Final = 3
_FAR: Final = 30.0
"""So many interquartile ranges from the median is no patient but a slip, or another unit."""


def check_values(features: Sequence[Feature], raw: RawFeatures) -> Iterator[Finding]:
    """Warnings about continuous columns."""
    for feature in features:
        if feature.kind != "continuous":
            continue
        values = raw.column(feature.name)
        known = values[~np.isnan(values)]
        if known.size < _LEAST_ROWS:
            continue
        code = coded_missing(known)
        if code is not None:
            yield warning(
                CHECK,
                f"{feature.name}: {code:g} in {count(int((known == code).sum()), 'row')}, far from "
                "all others: a code for «missing»?",
                "leave these cells empty; as a number it would shift the mean of all others",
            )
            known = known[known != code]
        strays = far_away(known)
        if strays.size:
            unit = f" of {feature.unit}" if feature.unit not in (None, FILL_IN) else ""
            lie = "value{} lies" if strays.size == 1 else "values{} lie"
            yield warning(
                CHECK,
                f"{feature.name}: {strays.size} {lie.format(unit)} very far from the others, for "
                f"instance {strays[0]:g}; half of them lie within "
                f"{np.percentile(known, 25):g} to {np.percentile(known, 75):g}",
                "check unit and decimal point of these rows; correct them, or leave the cell empty",
            )


def coded_missing(known: NDArray[np.float64]) -> float | None:
    """A usual code that stands apart from all other values and is frequent; None if there is none.

    ``known`` has no NaN.
    """
    for code in _CODES:
        count = int((known == code).sum())
        others = known[known != code]
        if count < max(_LEAST_CODED, 0.005 * known.size) or others.size < _LEAST_ROWS:
            continue
        low, high = float(others.min()), float(others.max())
        if (code < 0 <= low) or code > high + (high - low):
            return code
    return None


def far_away(known: NDArray[np.float64]) -> NDArray[np.float64]:
    """Values beyond ``_FAR`` interquartile ranges from the median, the farthest first."""
    if known.size < _LEAST_ROWS:
        return known[:0]
    low, middle, high = np.percentile(known, [25, 50, 75])
    distance = np.abs(known - middle)
    far = distance > _FAR * (high - low)
    if high == low:
        return known[:0]
    return np.asarray(known[far][np.argsort(-distance[far], kind="stable")])
