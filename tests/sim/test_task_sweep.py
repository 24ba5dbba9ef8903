"""Experiments with tasks: cells, resumption, tables beside the paper, the picture of conflict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from abps_node.errors import ConfigError, NodeError
from sim import results_files
from sim.multi import plots, runner
from sim.multi.compare import compare
from sim.multi.compare import markdown as comparison
from sim.multi.sweep import TaskExperiment, plan, read_experiment
from sim.multi.tables import markdown, table, text, without_stage2
from tests.support.command_line import abps
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
    assert {row.name for row in rows} == {"fedavg", "fsmgda", "fedcare-b", "fedcare"}
    assert all(row.seeds == (1, 2) for row in rows)
    (fedavg,) = (row for row in rows if row.name == "fedavg")
    assert fedavg.tasks["stay"] is not None and fedavg.tasks["stay"].deviation is not None
    assert any("2.91" in line for line in text(rows))
    assert sum(line.startswith("| `") for line in markdown(rows)) == 4
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
    assert [(cell.row, cell.data, cell.options["clients"]) for cell in cells] == [
        ("fedavg.clients-3", "diabetes130", 3),
        ("fedavg.clients-10", "diabetes130", 10),
    ]
    other = plan(varied, tmp_path, "eicu-demo", {"patients": 9, "clients": 7}, rows=["fedavg"])
    assert {cell.data for cell in other.cells} == {"eicu-demo"}
    assert [cell.options["clients"] for cell in other.cells] == [3, 10], "the row's name says so"
    assert all(cell.options["patients"] == 9 for cell in other.cells)


def made(name: str, seed: int, auroc: float, days: float) -> dict[str, Any]:
    """A result, as far as tables read it."""
    return {
        "name": name,
        "method": name.partition(".")[0],
        "seed": seed,
        "config": {"data": {"name": "diabetes130"}},
        "mean_auroc": auroc,
        "tasks": {
            "early": {"metric": "auroc", "mean": auroc},
            "back": {"metric": "auroc", "mean": auroc},
            "stay": {"metric": "mae", "mean": days},
        },
        "mini_batches": {"federated": 1, "stage2": 0},
        "bytes": 1,
    }


def test_rows_are_compared_seed_by_seed() -> None:
    results = [
        made("fedcare", 1, 0.66, 1.9),
        made("fedcare", 2, 0.55, 1.8),
        made("fedavg", 1, 0.60, 2.0),
        made("fedavg", 2, 0.50, 2.0),
        made("fedavg", 3, 0.10, 9.0),
        made("pafnet", 2, 0.56, 1.5),
    ]
    fedavg, pafnet = compare(results)
    assert (fedavg.against, pafnet.against) == ("fedavg", "pafnet")
    assert fedavg.auroc is not None and fedavg.error is not None
    assert fedavg.auroc.percent.mean == pytest.approx(10.0)
    assert (fedavg.auroc.ahead, fedavg.auroc.seeds, fedavg.auroc.sure) == (2, 2, True)
    assert fedavg.auroc.paper == pytest.approx(12.49, abs=0.01)
    assert fedavg.error.percent.mean == pytest.approx(-7.5)
    assert fedavg.error.paper == pytest.approx(-32.0, abs=0.05)
    assert not fedavg.error.sure, "5 and 10 % less are two seeds only"
    assert pafnet.error is not None and (pafnet.error.ahead, pafnet.error.sure) == (0, False)
    told = "\n".join(comparison(compare(results), "fedcare"))
    assert "| `fedavg` | +10.0 % ± 0.0 | +12.5 % | 2 of 2 | -7.5 % ± 3.5 (?) | -32.0 % |" in told
    assert "| `pafnet` | -1.8 % (?) | +2.5 % | 0 of 1 | +20.0 % (?) |" in told
    (ours,) = (each for each in compare(results, "pafnet") if each.against == "fedavg")
    assert ours.auroc is not None and ours.auroc.paper == pytest.approx(9.8, abs=0.1)
    with pytest.raises(NodeError, match="--row: found 'abps', allowed: fedavg, pafnet, fedcare"):
        compare(results, "abps")


@pytest.mark.usefixtures("made_up")
def test_fedcare_before_its_second_stage_is_fedcare_b() -> None:
    cells = plan(experiment(methods=["fedcare", "fedcare-b"], seeds=[1]), Path()).cells
    both, first = (cell.run() for cell in cells)
    (told,) = without_stage2([both])
    for key in ("name", "method", "tasks", "mean_auroc", "bytes", "mini_batches"):
        assert told[key] == first[key]
    assert list(without_stage2([both, first])) == []
    assert [row.name for row in table([both])] == ["fedcare-b", "fedcare"]


def test_what_is_varied_is_drawn(tmp_path: Path) -> None:
    results = [
        made(f"{row}.clients-{count}", seed, 0.6 + 0.01 * seed, 2.0)
        for row in ("fedavg", "fedcare")
        for count in (30, 3)
        for seed in (1, 2)
    ]
    names = [row.name for row in table(results)]
    assert names == [f"{row}.clients-{n}" for row in ("fedavg", "fedcare") for n in (3, 30)]
    paths = plots.draw(results, tmp_path, ["fedavg"])
    assert [path.name for path in paths] == [
        f"diabetes130-clients.{kind}" for kind in ("png", "svg")
    ]
    with pytest.raises(NodeError, match="allowed: fedavg, fedcare"):
        list(plots.draw(results, tmp_path, ["fmgda"]))
    with pytest.raises(NodeError, match="nothing to draw"):
        list(plots.draw([made("fedavg", 1, 0.6, 2.0)], tmp_path / "none"))
    assert not (tmp_path / "none").exists()


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


FILE = """
data = "diabetes130"
seeds = [1, 2]
options = { clients = 3 }
settings = { rounds = 1, local_steps = 1, batch_size = 32, tuning_steps = 2 }
methods = ["fedavg", "fedcare"]
"""


@pytest.mark.usefixtures("made_up")
def test_one_cell_by_hand_is_the_cell_of_a_sweep(tmp_path: Path) -> None:
    settings = [word for pair in QUICK.items() for word in ("--set", "{}={}".format(*pair))]
    words = ("sim", "tasks", "run", "fedcare", "--data", "diabetes130", "--seed", "2", *settings)
    outcome = abps(*words, "--clients", "3", "--json", "--out", tmp_path / "one.json")
    assert outcome.code == 0, outcome.err
    result = json.loads(outcome.out.splitlines()[-1])
    (written,) = results_files.read([tmp_path / "one.json"])
    assert written == result
    cell = plan(experiment(methods=["fedcare"], seeds=[2]), tmp_path).cells[0].run()
    del result["seconds"], cell["seconds"]
    assert result == cell
    told = abps(*words, "--clients", "3", "--rounds", "1").out.splitlines()
    assert told[0].startswith("fedcare on diabetes130, 3 clients, seed 2: mean AUROC 0.")
    assert told[3].startswith("stay: MAE ") and " before stage 2; 1 client, " in told[3]
    assert told[4].startswith("1 round, ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "rouns=3"], "fedcare: settings: rouns: unknown key"),
        (["--client", "3"], "diabetes130: options: client: unknown key"),
        (["--rho", "none"], 'diabetes130: options: rho: found "none"'),
    ],
    ids=lambda value: str(value),
)
def test_a_cell_that_cannot_be_is_refused_by_name(words: list[str], message: str) -> None:
    outcome = abps("sim", "tasks", "run", "fedcare", "--data", "diabetes130", *words)
    assert (outcome.code, outcome.err[: len(message) + 6]) == (10, f"abps: {message}")


@pytest.mark.usefixtures("made_up")
def test_a_job_array_runs_the_tasks_own_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("few.toml").write_text(FILE)
    words = ("sim", "tasks", "sweep", "few.toml", "--out", "out", "--slurm", "--patients", "300")
    outcome = abps(*words, "--dry-run", "--seeds", "2", "--data", "eicu-demo")
    assert outcome.code == 0, outcome.err
    expected = "abps_node sim tasks sweep few.toml --out out --patients 300 --data eicu-demo"
    assert f"{expected} --seeds 2 " in outcome.out
    assert "\n  fedavg:2\n  fedcare:2\n" in outcome.out
    for cell in plan(read_experiment(Path("few.toml")), Path("out")).cells:
        result = cell.run()
        results_files.write(results_files.file_of(Path("out"), cell.row, cell.seed), result)
    done = abps("sim", "tasks", "sweep", "few.toml", "--out", "out", "--slurm")
    assert done.out == "All 4 cells have a result: abps sim tasks table out\n"
    rows = json.loads(abps("sim", "tasks", "table", "out", "--json").out)
    assert [(row["name"], row["seeds"]) for row in rows] == [
        ("fedavg", [1, 2]),
        ("fedcare-b", [1, 2]),
        ("fedcare", [1, 2]),
    ]
    for other in (("table", "out"), ("plot", "out", "--out", "pictures")):
        refused = abps("sim", *other)
        assert (refused.code, refused.err) == (
            1,
            "abps: fedavg: found a result of abps sim tasks, allowed: those of abps sim\n",
        )
