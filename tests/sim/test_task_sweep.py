"""Experiments with tasks: cells, resumption, tables beside the paper, the picture of conflict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from abps_node.errors import ConfigError, NodeError
from sim import results_files
from sim.multi import plots, runner
from sim.multi.sweep import TaskExperiment, plan, read_experiment
from sim.multi.tables import markdown, table, text
from tests.support.task_data import made_up_tasks

EXPERIMENTS = Path(__file__).parents[2] / "sim" / "experiments"
QUICK = {"rounds": 3, "local_steps": 1, "batch_size": 32, "tuning_steps": 2}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "load", lambda name, data_dir: made_up_tasks())
    runner._clients.cache_clear()


def experiment(**changes: Any) -> TaskExperiment:
    base = {
        "data": "diabetes130",
        "seeds": [1, 2],
        "options": {"clients": 3},
        "settings": QUICK,
        "methods": ["fedavg", "fsmgda", "fedcare"],
    }
    return TaskExperiment.model_validate({**base, **changes})


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("fedcare-*.toml")), ids=lambda p: p.stem)
def test_every_experiment_that_ships_is_sound(path: Path, tmp_path: Path) -> None:
    read = read_experiment(path)
    points = 1 if read.vary is None else len(read.vary.values)
    assert len(plan(read, tmp_path).cells) == len(read.seeds) * len(read.rows) * points
    assert len(read.seeds) == 10


@pytest.mark.usefixtures("made_up")
def test_a_result_depends_on_its_cell_alone_and_is_found_again(tmp_path: Path) -> None:
    planned = plan(experiment(), tmp_path)
    results = []
    for cell in planned.cells:
        first, second = cell.run(), cell.run()
        del first["seconds"], second["seconds"]
        assert first == second
        results_files.write(results_files.file_of(tmp_path, cell.row, cell.seed), first)
        results.append(first)
    assert planned.open_cells() == []
    with pytest.raises(ConfigError, match="another settings"):
        plan(experiment(settings={**QUICK, "rounds": 4}), tmp_path).open_cells()
    rows = table(results_files.read([tmp_path]))
    assert {row.name for row in rows} == {"fedavg", "fsmgda", "fedcare"}
    assert all(row.seeds == (1, 2) for row in rows)
    (fedavg,) = (row for row in rows if row.name == "fedavg")
    assert fedavg.tasks["stay"] is not None and fedavg.tasks["stay"].deviation is not None
    assert any("2.91" in line for line in text(rows))
    assert sum(line.startswith("| `") for line in markdown(rows)) == 3
    drawn = sorted(path.name for path in plots.draw(results, tmp_path / "pictures"))
    assert drawn == [
        f"diabetes130-{row}-conflict.{kind}"
        for row in ("fedcare", "fsmgda")
        for kind in ("png", "svg")
    ]
    with pytest.raises(NodeError, match="fedavg"):
        list(plots.draw(results, tmp_path / "pictures", ["fedavg"]))


@pytest.mark.usefixtures("made_up")
def test_what_a_result_tells() -> None:
    made = plan(experiment(methods=["fedcare"]), Path()).cells[0].run()
    assert made["mini_batches"] == {"federated": 9, "stage2": 6}
    assert made["tasks"]["stay"]["metric"] == "mae"
    assert made["before_stage2"]["stay"]["mean"] != made["tasks"]["stay"]["mean"]
    aurocs = [made["tasks"][task]["mean"] for task in ("early", "back")]
    assert made["mean_auroc"] == pytest.approx(sum(aurocs) / 2)
    assert all(len(curve) == 3 for curve in made["history"]["cosines"].values())
    weights = made["history"]["weights"].values()
    assert [round(sum(each), 4) for each in zip(*weights, strict=True)] == [1.0, 1.0, 1.0]


def test_one_option_is_varied(tmp_path: Path) -> None:
    varied = experiment(vary={"option": "clients", "values": [3, 10]}, seeds=[1])
    cells = plan(varied, tmp_path, rows=["fedavg"]).cells
    assert [(cell.row, cell.options["clients"]) for cell in cells] == [
        ("fedavg.clients-3", 3),
        ("fedavg.clients-10", 10),
    ]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fedsgd"):
        plan(experiment(methods=["fedsgd"]), tmp_path)
    with pytest.raises(ConfigError, match="local_rat"):
        plan(experiment(settings={"local_rat": 1}), tmp_path)
    with pytest.raises(ConfigError, match="client"):
        plan(experiment(options={"client": 3}), tmp_path)
    with pytest.raises(ConfigError, match="--rows"):
        plan(experiment(), tmp_path, rows=["abps"])
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        read_experiment(tmp_path / "nowhere.toml")
