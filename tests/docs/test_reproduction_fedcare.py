"""The tables of docs/reproduction-fedcare.md are those of the committed results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sim.multi.sweep import read_experiment
from sim.multi.tables import markdown, table
from sim.results_files import read

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reproduction-fedcare.md"
RESULTS = ROOT / "sim" / "results" / "fedcare"
NAMES = sorted(path.name for path in RESULTS.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_table_is_what_the_results_give(name: str) -> None:
    block = re.search(
        rf"<!-- results {re.escape(name)} -->\n(.*?)\n<!-- end results -->",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    assert block is not None
    made = "\n".join(markdown(table(read([RESULTS / name])))).strip()
    assert block.group(1) == made, f"abps sim tasks table --markdown sim/results/fedcare/{name}"


@pytest.mark.parametrize("name", NAMES)
def test_results_are_of_the_experiment_that_ships(name: str) -> None:
    experiment = read_experiment(ROOT / "sim" / "experiments" / f"fedcare-{Path(name).stem}.toml")
    rows = {row.name: row for row in experiment.rows}
    for result in read([RESULTS / name]):
        assert "history" not in result
        row = rows[re.sub(r"\.(rho|clients)-[\d.]+$", "", result["name"])]
        assert result["method"] == row.method
        found = result["config"]["settings"]
        wanted = {**experiment.settings, **row.settings}
        assert {key: found[key] for key in wanted} == wanted
        assert result["seed"] in experiment.seeds
