"""The tables of docs/reproduction.md are those of the committed results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.results_files import read
from sim.tables import markdown, table

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "sim" / "results"


@pytest.mark.parametrize("name", sorted(path.name for path in RESULTS.glob("*.json")))
def test_a_table_is_what_the_results_give(name: str) -> None:
    page = (ROOT / "docs" / "reproduction.md").read_text(encoding="utf-8")
    block = re.search(
        rf"<!-- results {re.escape(name)} -->\n(.*?)\n<!-- end results -->", page, re.DOTALL
    )
    assert block is not None
    made = "\n".join(markdown(table(read([RESULTS / name])))).strip()
    assert block.group(1) == made, f"abps sim table --markdown sim/results/{name}"


def test_results_are_summaries_and_name_no_path() -> None:
    for path in RESULTS.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert "per_center" not in text
        assert "data_dir" not in text
