"""Lay out the demo federation: ``python examples/rhc/prepare.py --out DIR``.

Each care unit (primary disease category) with at least 200 patients becomes one center. What the
centers agree on stands in ``contract.toml`` beside this script.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from abps_node.errors import NodeError
from launch.layout import FederationLayout, write_federation

HERE: Final = Path(__file__).parent
DATA: Final = HERE / "rhc.csv.gz"
CONTRACT: Final = HERE / "contract.toml"
LEAST_PATIENTS: Final = 200


def read_table() -> pa.Table:
    """All patients of the shipped file; an empty cell is a missing value."""
    return pacsv.read_csv(DATA)


def center_id(unit: str) -> str:
    """The id of a unit's center: ``MOSF w/Sepsis`` becomes ``mosf-sepsis``."""
    return re.sub(r"[^a-z0-9]+", "-", unit.lower().replace(" w/", " "))


def split_by_unit(table: pa.Table, least: int = LEAST_PATIENTS) -> dict[str, pa.Table]:
    """Center id to its patients, for the units that have at least ``least`` of them."""
    tables = {}
    for unit in sorted(pc.unique(table["unit"]).to_pylist()):
        rows = table.filter(pc.equal(table["unit"], unit)).drop_columns(["unit"])
        if rows.num_rows >= least:
            tables[center_id(unit)] = rows
    return tables


def prepare(directory: Path) -> FederationLayout:
    """Write the demo federation into an empty or new ``directory``."""
    contract = tomllib.loads(CONTRACT.read_text(encoding="utf-8"))
    return write_federation(directory, contract, split_by_unit(read_table()))


def main() -> int:
    """Read the command line, write the directory, say what is in it."""
    parser = argparse.ArgumentParser(description="Lay out the RHC demo federation.")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="new or empty")
    directory: Path = parser.parse_args().out
    try:
        layout = prepare(directory)
    except NodeError as error:
        print(error, file=sys.stderr)
        return 1
    names = ", ".join(center.id for center in layout.centers)
    print(f"{directory}: {len(layout.centers)} care units as centers ({names})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
