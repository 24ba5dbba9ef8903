"""The results behind docs/reproduction-fedcare.md are of the experiments that ship."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.multi.sweep import read_experiment
from sim.multi.tables import varied
from sim.results_files import read

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "sim" / "results" / "fedcare"
NAMES = sorted(path.name for path in RESULTS.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_results_are_of_the_experiment_that_ships(name: str) -> None:
    experiment = read_experiment(ROOT / "sim" / "experiments" / f"fedcare-{Path(name).stem}.toml")
    rows = {row.name: row for row in experiment.rows}
    for result in read([RESULTS / name]):
        assert "history" not in result
        row = rows[(varied(result["name"]) or (result["name"],))[0]]
        assert result["method"] == row.method
        found = result["config"]["settings"]
        wanted = {**experiment.settings, **row.settings}
        assert {key: found[key] for key in wanted} == wanted
        options = result["config"]["data"]["options"]
        assert {key: options[key] for key in experiment.options} == experiment.options
        assert result["seed"] in experiment.seeds
