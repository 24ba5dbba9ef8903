"""A center with objectives of its own: what the commands that look at it afterwards say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pyarrow.csv as pacsv
import pytest
from sklearn.metrics import roc_auc_score

from abps_node.config import load_center_config
from abps_node.data import load_with_patients, split_rows
from abps_node.learning import make_learner
from abps_node.store.models import read_preprocessing
from abps_node.store.reader import Reader
from abps_node.worker import Worker
from tests.support.command_line import abps
from tests.support.trained_center import train_center

OWN = """
[[objective]]
name = "death"
kind = "bce"
column = "died"

[[objective]]
name = "birthday"
kind = "huber-log"
column = "row_days"

[[private]]
name = "shift"
kind = "continuous"

[stage2]
epochs = 2
"""


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_center(
        tmp_path_factory.mktemp("objectives"),
        own=OWN,
        more=lambda number: {"row_days": number % 11, "shift": number % 3},
    )


def test_status_tells_every_objective_and_what_stage_2_kept(center: Path) -> None:
    shown = " ".join(abps("status", center).out.split())
    for words in (
        "test federated, death",
        "test federated, birthday",
        "for always saying the training median",
        "stage2 kept",
        "fine-tuning; validation",
        "mean over objectives",
    ):
        assert words in shown, shown
    reports = json.loads(abps("status", center, "--json").out)["reports"]
    assert set(reports) == {"federated", "stage2"}


def test_rounds_tell_how_the_objectives_stood(center: Path) -> None:
    shown = abps("rounds", center, "--objectives").out
    assert "death" in shown and "birthday" in shown and "conflict in" in shown


def test_an_export_of_one_output_refuses_several_by_name(center: Path, tmp_path: Path) -> None:
    exported = abps("export", center, "--out", tmp_path / "bundle")
    assert exported.code != 0
    assert "found a model with a head for each of death, birthday" in exported.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("model", "report"), [("last", "federated"), ("stage2", "stage2")])
def test_every_head_scores_new_patients_as_it_was_measured(
    center: Path, tmp_path: Path, model: str, report: str
) -> None:
    table, out = center.parent / "patients.csv", tmp_path / "scores.csv"
    done = abps("predict", center, "--input", table, "--out", out, "--model", model)
    assert done.code == 0, done.err
    assert "death: died = 1" in done.out and "birthday: row_days in days" in done.out
    scores = pacsv.read_csv(out)
    assert scores.column_names == ["row", "probability_death", "days_birthday", "problem"]
    config = load_center_config(center)
    data, patients = load_with_patients(
        config.federation.contract, config.id, config.data, config.aims
    )
    assert data.objectives is not None
    test = split_rows(
        config.federation.contract.data, config.id, patients.labels, patients.groups
    ).test
    death, days = (np.array(scores[name])[test] for name in scores.column_names[1:3])
    reader = Reader(config.state_dir)
    measured = reader.report(report)
    assert measured is not None
    validation = reader.rounds()[-1].record.validation.value
    if report == "stage2":
        validation = measured[f"validation_{measured['kept']}"]
    assert f"mean over objectives {validation:.3f} on" in done.out
    y = data.objectives.test.y
    expected = measured["objectives"]
    assert roc_auc_score(y[:, 0], death) == pytest.approx(expected["death"]["auroc"], abs=1e-9)
    error = np.abs(y[:, 1] - days).mean()
    assert error == pytest.approx(expected["birthday"]["mae"], rel=1e-6)


def test_the_models_file_holds_what_its_heads_are(center: Path) -> None:
    state_dir = load_center_config(center).state_dir
    found = Reader(state_dir).model("last")
    assert found is not None
    fitted = read_preprocessing(state_dir, found[1])
    assert [each["name"] for each in fitted["objectives"]] == ["death", "birthday"]
    assert fitted["private"]["inputs"] == ["shift"]


def test_the_log_tells_of_fine_tuning_and_of_its_being_given_up(
    center: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_center_config(center)
    contract = config.federation.contract
    data = load_with_patients(contract, config.id, config.data, config.aims)[0]
    worker = Worker(config, data, make_learner(contract, data, 1, config.aims))
    caplog.set_level("INFO", "abps_node.worker")
    assert asyncio.run(worker.fine_tune()) is not None
    worker.cancel()
    assert asyncio.run(worker.fine_tune()) is None
    worker.close()
    texts = [record.getMessage() for record in caplog.records]
    assert texts[0] == texts[2] == "private fine-tuning begins; nothing is sent"
    assert texts[1].startswith("private fine-tuning ended, epochs: 2, validation: 0.")
    assert texts[3].startswith("private fine-tuning given up, since the center stops")
