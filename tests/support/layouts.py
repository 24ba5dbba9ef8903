"""Small federation directories, for tests of what starts, follows and reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from launch.layout import FederationLayout, write_federation
from tests.support.records import make_contract


def patients(rows: int = 40) -> pa.Table:
    """A table that fits ``make_contract``: every fourth patient died."""
    return pa.table(
        {
            "died": [int(row % 4 == 0) for row in range(rows)],
            "age": [40.0 + row for row in range(rows)],
        }
    )


def small_federation(
    directory: Path, centers: Sequence[str] = ("near", "far"), **policy: object
) -> FederationLayout:
    """A federation directory of these centers, with ``policy`` over the defaults."""
    return write_federation(directory, make_contract(**policy), dict.fromkeys(centers, patients()))
