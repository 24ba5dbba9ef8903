"""New patients are scored as the model was trained, row by row, and none is lost or shown."""

from __future__ import annotations

import csv
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abps_node.config import load_center_config
from abps_node.data import load_center, split_rows
from abps_node.learning import Learner
from abps_node.predict import score
from abps_node.store import models
from abps_node.store.reader import Reader
from abps_node.trained import load_model
from tests.support.command_line import Outcome, abps
from tests.support.made_center import write_rows
from tests.support.trained_center import patient_rows

FEATURES = ("age", "lactate", "diabetes", "sex", "ward")


def predict(trained: Path, table: Path, *options: str | Path) -> tuple[Outcome, list[Any]]:
    out = table.parent / "scores.csv"
    outcome = abps("predict", trained, "--input", table, "--out", out, *options)
    rows = list(csv.DictReader(out.open(encoding="utf-8"))) if out.exists() else []
    return outcome, rows


def new_patients(tmp_path: Path, **changes: object) -> Path:
    """Twelve rows without label; ``changes`` replace the value in the third one (row 4)."""
    rows = [
        {"patient": row["patient"], **{k: row[k] for k in FEATURES}} for row in patient_rows(12)
    ]
    rows[2] = {**rows[2], **changes}
    path = tmp_path / "new.csv"
    write_rows(path, rows)
    return path


def test_scores_are_those_of_the_model_in_training(trained: Path, tmp_path: Path) -> None:
    config = load_center_config(trained)
    contract = config.federation.contract
    data = load_center(contract, config.id, config.data)
    learner = Learner(contract, data, config.seed)
    found = Reader(config.state_dir).model("best")
    assert found is not None
    tensors = models.read_model(config.state_dir, found[1])
    learner.load_state_tensors(tensors)
    outcome, rows = predict(trained, shutil.copy(config.data, tmp_path / "table.csv"))
    assert outcome.code == 0, outcome.err
    assert [int(row["row"]) for row in rows] == list(range(2, 402))
    scored = np.array([float(row["probability"]) for row in rows])
    labels = np.array([float(row["died"]) for row in patient_rows()])
    parts = split_rows(contract.data, config.id, labels, None)
    model = load_model(config.state_dir, "best")
    for part, split in ((parts.train, data.train), (parts.test, data.test)):
        with torch.inference_mode():
            logits = model.mlp.logits(model.weights, torch.from_numpy(split.x)).numpy()
        np.testing.assert_allclose(scored[part], 1 / (1 + np.exp(-logits)), atol=1e-6)
    brier = learner.test_report()["brier"]
    assert np.mean((scored[parts.test] - labels[parts.test]) ** 2) == pytest.approx(brier, abs=1e-6)


def test_what_is_told_names_columns_and_counts(trained: Path, tmp_path: Path) -> None:
    outcome, rows = predict(trained, new_patients(tmp_path), "--id", "patient")
    assert (outcome.code, outcome.err) == (0, "")
    assert [row["patient"] for row in rows] == [f"P{number:04d}" for number in range(12)]
    assert all(0 < float(row["probability"]) < 1 and row["problem"] == "" for row in rows)
    for line in (
        "outcome    died = 1",
        "filled in  lactate was missing in 2 rows",
        "filled in  diabetes was missing in 1 row\n",
        "unknown    ward had a level that the model does not know in 3 rows",
        "scored     12 of 12 rows",
    ):
        assert line in outcome.out
    assert "model      best, of north after round" in outcome.out
    plain, _ = predict(trained, new_patients(tmp_path), "--force")
    assert "not used   patient" in plain.out
    assert "burns" not in plain.out + outcome.out


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"age": "secret-47"}, "row 4: age is not a number, or empty for missing"),
        ({"age": "1e40"}, "row 4: age is not a finite number of at most ±1e+30"),
        ({"sex": "secret-47"}, "row 4: sex is not 'F' or 'M', or empty for missing"),
        ({"diabetes": "2"}, "row 4: diabetes is not 0/1, true/false or yes/no"),
        ({"age": "x", "sex": "y"}, "row 4: age is not a number, or empty for missing; sex is not"),
        (dict.fromkeys(FEATURES, ""), "row 4: no feature has a value"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_and_stays(
    trained: Path, tmp_path: Path, changes: dict[str, str], told: str
) -> None:
    _, good = predict(trained, new_patients(tmp_path))
    outcome, rows = predict(trained, new_patients(tmp_path, **changes), "--force")
    assert outcome.code == 11
    assert told in outcome.err and told.partition(": ")[2] in rows[2]["problem"]
    assert "secret-47" not in outcome.err + outcome.out + str(rows)
    assert "scored     11 of 12 rows" in outcome.out
    assert rows[2]["probability"] == ""
    others = [number for number in range(12) if number != 2]
    assert [rows[n]["probability"] for n in others] == [good[n]["probability"] for n in others]


def test_missing_columns_are_all_named(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.csv"
    write_rows(path, [{"Age": 40, "lactat": 1.0, "diabetes": 0, "sex": "F"}])
    outcome, rows = predict(trained, path)
    assert (outcome.code, rows) == (11, [])
    assert "column 'age' is missing; found 4 columns, nearest: 'Age'" in outcome.err
    assert "column 'lactate' is missing; found 4 columns, nearest: 'lactat'" in outcome.err
    assert "column 'ward' is missing" in outcome.err
    outcome, _ = predict(trained, new_patients(tmp_path), "--id", "mrn")
    assert outcome.code == 11 and "column 'mrn' is missing" in outcome.err


def test_a_line_with_too_few_cells_is_named_without_them(trained: Path, tmp_path: Path) -> None:
    path = new_patients(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + "secret-47,1\n", encoding="utf-8")
    outcome, rows = predict(trained, path)
    assert (outcome.code, rows) == (11, [])
    assert "row 14: found 2 cells, allowed: 6, as in the header" in outcome.err
    assert "secret-47" not in outcome.err


def test_parquet_in_and_out_gives_the_same(trained: Path, tmp_path: Path) -> None:
    path = new_patients(tmp_path)
    _, rows = predict(trained, path)
    table, out = tmp_path / "new.parquet", tmp_path / "scores.parquet"
    pq.write_table(pacsv.read_csv(path), table)
    outcome = abps("predict", trained.parent, "--input", table, "--out", out, "--id", "patient")
    assert outcome.code == 0, outcome.err
    found = pq.read_table(out).to_pylist()
    assert [row["row"] for row in found] == list(range(1, 13))  # no header in a Parquet file
    assert [row["patient"] for row in found] == [f"P{number:04d}" for number in range(12)]
    assert [row["probability"] for row in found] == [float(row["probability"]) for row in rows]
    assert [row["problem"] for row in found] == [None] * 12


def test_nothing_is_overwritten_unless_asked(trained: Path, tmp_path: Path) -> None:
    path, out = new_patients(tmp_path), tmp_path / "scores.csv"
    out.write_text("mine", encoding="utf-8")
    outcome, _ = predict(trained, path)
    assert outcome.code == 1 and "scores.csv: exists already; --force replaces it" in outcome.err
    assert out.read_text(encoding="utf-8") == "mine"
    before = path.read_bytes()
    same = abps("predict", trained, "--input", path, "--out", path, "--force")
    assert same.code == 1 and "is the table itself" in same.err and path.read_bytes() == before
    outcome, rows = predict(trained, path, "--force")
    assert outcome.code == 0 and len(rows) == 12
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new.csv", "scores.csv"]


@pytest.mark.parametrize(
    ("out", "told"),
    [
        ("scores.xlsx", "found '.xlsx', allowed: .csv, .parquet"),
        ("no/scores.csv", "found no such folder"),
    ],
)
def test_an_impossible_place_is_named(trained: Path, tmp_path: Path, out: str, told: str) -> None:
    path = new_patients(tmp_path)
    outcome = abps("predict", trained, "--input", path, "--out", tmp_path / out)
    assert outcome.code == 1 and told in outcome.err


def test_the_table_of_the_training_may_be_gone(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained.parent, copy)
    (copy / "patients.csv").unlink()
    outcome, rows = predict(copy / "center.toml", new_patients(tmp_path), "--model", "last")
    assert outcome.code == 0 and len(rows) == 12
    assert "model      last, of north after round 3" in outcome.out


def test_a_center_without_a_round_has_no_model(trained: Path, tmp_path: Path) -> None:
    from abps_node.store import Store

    config = load_center_config(trained)
    Store.open(tmp_path / "state", "north", config.federation.contract).close()
    outcome, _ = predict(tmp_path / "state", new_patients(tmp_path))
    assert outcome.code == 14 and "found no committed round yet" in outcome.err


def test_stage_2_is_named_where_there_is_none(trained: Path, tmp_path: Path) -> None:
    arguments = ("--input", new_patients(tmp_path), "--out", tmp_path / "scores.csv")
    done = abps("predict", trained, *arguments, "--model", "stage2")
    assert done.code == 14 and "found no model of stage 2" in done.err


CELLS = st.sampled_from(
    ["", "NA", "0", "1", "7.5", "1,5", "F", "icu", "secret-47", '"', "x\ny", "1e40"]
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.lists(CELLS, min_size=5, max_size=5), min_size=1, max_size=12))
def test_whatever_the_cells_no_row_is_lost_or_quoted(
    trained: Path, tmp_path: Path, cells: list[list[str]]
) -> None:
    path = tmp_path / "any.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([FEATURES, *cells])
    model = load_model(trained.parent / "state", "best")
    scores = score(model, path)
    assert scores.row_numbers.tolist() == list(range(2, len(cells) + 2))
    assert [not problem for problem in scores.problems] == (
        ~np.isnan(scores.answers[:, 0])
    ).tolist()
    assert "secret-47" not in str(scores.problems)
    for row, problem in zip(cells, scores.problems, strict=True):
        alone = tmp_path / "one.csv"
        with alone.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows([FEATURES, row])
        # What a row gives never depends on the others.
        assert score(model, alone).problems == (problem,)
