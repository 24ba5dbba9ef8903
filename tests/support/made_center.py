"""A whole center on disk that has no problems: keys, roster, a small made table, a free port."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from abps_node.keys import write_key_pair
from tests.support.toml_files import KEY_B, center_tables, federation_tables, write_files

Row = dict[str, object]


def made_rows(count: int = 200) -> list[Row]:
    """Rows that fit ``toml_files.FEATURES``; every fourth has the label, every ninth lacks age."""
    return [
        {
            "age": "" if number % 9 == 0 else 30 + number % 50,
            "diabetes": number % 3 % 2,
            "ward": ("icu", "surgery")[number % 2],
            "died": int(number % 4 == 0),
        }
        for number in range(count)
    ]


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a CSV file."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def make_center(
    directory: Path,
    *,
    rows: Sequence[Row] | None = None,
    federation: dict[str, Any] | None = None,
    center: dict[str, Any] | None = None,
) -> Path:
    """Write the center north, with whatever is given in place of the good; returns center.toml."""
    pair = write_key_pair(directory / "keys", "north")
    tables = federation_tables() if federation is None else federation
    tables["roster"] = [
        {"id": "north", "public_key": pair.public},
        {"id": "south", "public_key": KEY_B, "address": "tcp://127.0.0.1:5556"},
    ]
    write_rows(directory / "patients.csv", made_rows() if rows is None else rows)
    return write_files(directory, tables, center_tables() if center is None else center)
