"""The data sets with tasks: what they hold, that no outcome is an input, and MIMIC-III's schema."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from abps_node.errors import ConfigError, DataError
from protocol.contract import Training
from sim.multi.clients import Options, clients_of
from sim.multi.datasets import DATASETS, load
from sim.multi.datasets.mimic3 import FILES
from sim.multi.tasks import PATIENT, TaskData
from tests.support.public_data import data_dir

START = datetime(2150, 1, 1)


def no_outcome_is_an_input(data: TaskData) -> None:
    features = [*data.common, *(f for task in data.tasks for f in task.private)]
    names = [feature.name for feature in features]
    assert len(set(names)) == len(names)
    assert not {PATIENT, *(task.column for task in data.tasks)} & set(names)
    assert {feature.kind for feature in features} <= {"continuous", "binary"}
    assert not any(feature.missing_indicator for feature in features)


def test_diabetes_has_the_papers_shape() -> None:
    data = load("diabetes130", data_dir("diabetes130"))
    assert data.table.num_rows == 99_343
    assert len(data.common) == 20
    assert [len(task.private) for task in data.tasks] == [9, 9, 8]
    no_outcome_is_an_input(data)
    days, early = data.table["stay_days"], data.table["early_discharge"]
    assert pc.min(days).as_py() == 1
    assert early.to_pylist()[:200] == [int(value <= 2) for value in days.to_pylist()[:200]]
    assert pc.mean(data.table["readmitted_30d"]).as_py() == pytest.approx(0.114, abs=0.001)


def test_eicu_stands_in_with_the_shape_of_mimic_iii() -> None:
    data = load("eicu-demo", data_dir("eicu-demo"))
    assert data.table.num_rows == 2_179
    assert len(data.common) == 19
    assert [len(task.private) for task in data.tasks] == [9, 9, 9]
    no_outcome_is_an_input(data)
    # Who died in the unit cannot return to one.
    known = pc.is_valid(data.table["returned"])
    assert 0 < known.to_pylist().count(False) < 200
    clients = clients_of(data, Options(clients=5), 11, Training())
    assert len(clients.members) == 5


def written(path: Path, head: str, rows: Sequence[Sequence[Any]]) -> None:
    with gzip.open(path, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head.split())
        writer.writerows(rows)


@pytest.fixture
def mimic(tmp_path: Path) -> Path:
    """Patients 1 to 40 with a stay each; odd ones come back after 20 days, each fifth dies."""
    patients, admissions, stays, charts, labs = [], [], [], [], []
    for n in range(1, 41):
        born = START - timedelta(days=365 * (300 if n == 7 else 17 if n == 9 else 40 + n))
        patients.append((n, n, "MF"[n % 2], born, "", "", "", 0))
        for visit in range(1 + n % 2):
            hadm, began = 100 * n + visit, START + timedelta(days=30 * visit + n)
            dead = int(n % 5 == 0 and visit == n % 2)
            ended = began + timedelta(days=10)
            place = (
                ("EMERGENCY", "EMERGENCY ROOM ADMIT") if n % 3 else ("ELECTIVE", "PHYS REFERRAL")
            )
            admissions.append((hadm, n, hadm, began, ended, *place, "Medicare", "MARRIED", dead))
            unit = "MICU" if n % 2 else "CSRU"
            days = 1.5 if n == 11 else 2.0 + n % 4
            until = began + timedelta(days=days)
            stays.append((hadm, n, hadm, 1000 + hadm, unit, began, until, days))
            hour = began + timedelta(hours=1)
            late = began + timedelta(hours=60)
            for item, value in ((220045, 80 + n), (211, 60), (678, 98.6), (220045, 999)):
                charts.append((n, hadm, 1000 + hadm, item, hour, value, ""))
            charts.append((n, hadm, 1000 + hadm, 220045, late, 200, ""))
            charts.append((n, hadm, 1000 + hadm, 220045, hour, 190, "1"))
            labs += [(n, hadm, 50912, hour, 1.5), (n, hadm, 50912, late, 9.0)]
    # An admission with two ICU stays is left out.
    stays.append((9999, 2, 200, 9999, "MICU", START, START + timedelta(days=3), 3.0))
    head = "ROW_ID SUBJECT_ID GENDER DOB DOD DOD_HOSP DOD_SSN EXPIRE_FLAG"
    written(tmp_path / FILES["patients"], head, patients)
    head = (
        "ROW_ID SUBJECT_ID HADM_ID ADMITTIME DISCHTIME ADMISSION_TYPE ADMISSION_LOCATION INSURANCE "
        "MARITAL_STATUS HOSPITAL_EXPIRE_FLAG"
    )
    written(tmp_path / FILES["admissions"], head, admissions)
    head = "ROW_ID SUBJECT_ID HADM_ID ICUSTAY_ID FIRST_CAREUNIT INTIME OUTTIME LOS"
    written(tmp_path / FILES["icustays"], head, stays)
    head = "SUBJECT_ID HADM_ID ICUSTAY_ID ITEMID CHARTTIME VALUENUM ERROR"
    written(tmp_path / FILES["chartevents"], head, charts)
    written(tmp_path / FILES["labevents"], "SUBJECT_ID HADM_ID ITEMID CHARTTIME VALUENUM", labs)
    return tmp_path


def test_mimic_iii_reads_its_own_schema(mimic: Path) -> None:
    data = load("mimic-iii", mimic)
    assert len(data.common) == 19
    assert [len(task.private) for task in data.tasks] == [9, 9, 9]
    no_outcome_is_an_input(data)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in data.table.to_pylist():
        rows.setdefault(row[PATIENT], []).append(row)
    # Too young, too short, two stays in one admission.
    assert not {"9", "11", "2"} & set(rows)
    assert len(rows) == 37
    first, second = rows["1"]
    assert first["returned_30d"] == 1
    assert second["returned_30d"] == 0
    assert first["earlier_admissions"] == 0
    assert second["earlier_admissions"] == 1
    assert second["days_since_discharge"] == pytest.approx(20)
    assert first["days_since_discharge"] is None
    # Typing errors, marked errors and what came after 48 hours do not count.
    assert first["heart_rate_max"] == 81
    assert first["heart_rate_avg"] == pytest.approx(70.5)
    assert first["temperature_avg"] == pytest.approx(37.0)
    assert first["creatinine"] == pytest.approx(1.5)
    assert first["lactate"] is None
    assert rows["7"][0]["age"] == 91
    (dead,) = rows["10"]
    assert dead["died_in_hospital"] == 1
    assert dead["returned_30d"] is None
    assert first["unit_days"] == 3.0
    assert (first["medical_unit"], first["surgical_unit"]) == (1, 0)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="allowed: diabetes130, eicu-demo, mimic-iii"):
        load("mimic-ii", tmp_path)
    with pytest.raises(DataError, match=r"PATIENTS\.csv\.gz"):
        load("mimic-iii", tmp_path)


def test_sources_stand_beside_every_data_set() -> None:
    assert all(entry.source and entry.files for entry in DATASETS.values())
