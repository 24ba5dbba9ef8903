"""Diabetes 130-US Hospitals with three tasks: early discharge, readmission, length of stay.

Strack et al., BioMed Res Int 2014, 781670, CC BY 4.0. FedCARE names 20 common features, 9, 9 and 8
private ones and five dropped for low variance, but not which; nor what «early discharge» is. Here:
of the 50 columns two are identifiers and two become outcomes; the five drugs that were given to at
most one patient are dropped; of the 41 that are left five hold two facts that one number cannot
(admission, source, discharge, specialty, first diagnosis), which makes 46 = 20 + 9 + 9 + 8. Early
discharge is a stay of at most two days. Nothing here was chosen after a result.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from protocol.contract import Feature
from sim.datasets.base import Column, Progress, select_list
from sim.datasets.diabetes import CANNOT_RETURN, DIAGNOSES, FILE, among, unpacked
from sim.datasets.files import query
from sim.multi.tasks import PATIENT, Task, TaskData, features_of

EARLY_DAYS: Final = 2
DROPPED: Final = (
    "examide",
    "citoglipton",
    "acetohexamide",
    "glimepiride-pioglitazone",
    "metformin-pioglitazone",
)
"""The five columns of least variance: at most one encounter differs from all others."""


def _number(name: str, sql: str | None = None) -> Column:
    return Column(Feature(name=name, kind="continuous"), sql or f"{name}::DOUBLE")


def _flag(name: str, sql: str) -> Column:
    return Column(Feature(name=name, kind="binary"), f"({sql})::INTEGER")


def _dose(drug: str) -> Column:
    ordered = f"CASE \"{drug}\" WHEN 'Down' THEN 1 WHEN 'Steady' THEN 2 WHEN 'Up' THEN 3 ELSE 0 END"
    return _number(drug.replace("-", "_"), ordered)


def _tested(name: str, column: str, levels: tuple[str, str, str]) -> Column:
    ordered = " ".join(f"WHEN '{level}' THEN {n}" for n, level in enumerate(levels, 1))
    return _number(name, f"CASE {column} {ordered} ELSE 0 END")


def _band(column: str) -> str:
    """The middle of «[70-80)»."""
    low, high = (f"regexp_extract({column}, '(\\d+)-(\\d+)', {part})::DOUBLE" for part in (1, 2))
    return f"CASE WHEN {column} LIKE '%-%' THEN ({low} + {high}) / 2 END"


_COMMON: Final = (
    _number("age", _band("age")),
    _flag("male", "CASE WHEN gender IN ('Female', 'Male') THEN gender = 'Male' END"),
    _flag("caucasian", "nullif(race, '?') = 'Caucasian'"),
    _number("num_medications"),
    _number("number_diagnoses"),
    _flag("diagnosis_1_circulatory", among("diag_1", DIAGNOSES["circulatory"])),
    _dose("insulin"),
    _flag("medication_changed", "change = 'Ch'"),
    _flag("diabetes_medication", "diabetesMed = 'Yes'"),
    _dose("metformin"),
    _tested("glucose", "max_glu_serum", ("Norm", ">200", ">300")),
    _dose("glipizide"),
    _dose("glyburide"),
    _dose("pioglitazone"),
    _dose("rosiglitazone"),
    _dose("glimepiride"),
    _dose("acarbose"),
    _dose("glyburide-metformin"),
    _dose("chlorpropamide"),
    _flag("diagnosis_1_respiratory", among("diag_1", DIAGNOSES["respiratory"])),
)
_EARLY: Final = (
    _flag("admission_emergency", "admission_type_id IN ('1', '7')"),
    _flag("admission_elective", "admission_type_id = '3'"),
    _flag("discharged_home", "discharge_disposition_id = '1'"),
    _flag(
        "discharged_to_facility",
        "discharge_disposition_id IN "
        "('2', '3', '4', '5', '9', '10', '15', '22', '23', '24', '27', '28', '29', '30')",
    ),
    _flag(
        "specialty_surgical", "medical_specialty LIKE '%Surg%' OR medical_specialty LIKE 'Ortho%'"
    ),
    _flag(
        "specialty_internal", "medical_specialty LIKE 'Internal%' OR medical_specialty LIKE 'Fam%'"
    ),
    _flag("from_emergency_room", "admission_source_id = '7'"),
    _flag("from_transfer", "admission_source_id IN ('4', '5', '6', '10', '18', '22', '25', '26')"),
    _flag("payer_medicare", "nullif(payer_code, '?') = 'MC'"),
)
_READMISSION: Final = (
    _number("number_inpatient"),
    _number("number_emergency"),
    _number("number_outpatient"),
    _flag("diagnosis_2_circulatory", among("diag_2", DIAGNOSES["circulatory"])),
    _flag("diagnosis_3_circulatory", among("diag_3", DIAGNOSES["circulatory"])),
    _dose("repaglinide"),
    _dose("nateglinide"),
    _dose("miglitol"),
    _dose("metformin-rosiglitazone"),
)
_STAY: Final = (
    _number("num_lab_procedures"),
    _number("num_procedures"),
    _tested("hba1c", "A1Cresult", ("Norm", ">7", ">8")),
    _number("weight", _band("weight")),
    _dose("tolbutamide"),
    _dose("tolazamide"),
    _dose("glipizide-metformin"),
    _dose("troglitazone"),
)


def load(folder: Path, progress: Progress | None = None) -> TaskData:
    """All encounters that did not end in death or hospice; raises ``DataError``."""
    columns = (*_COMMON, *_EARLY, *_READMISSION, *_STAY)
    gone = ", ".join(f"'{code}'" for code in CANNOT_RETURN)
    sql = f"""
        SELECT patient_nbr AS {PATIENT},
            (readmitted = '<30')::INTEGER AS readmitted_30d,
            (time_in_hospital::INTEGER <= {EARLY_DAYS})::INTEGER AS early_discharge,
            time_in_hospital::DOUBLE AS stay_days,
            {select_list(columns)}
        FROM encounters WHERE discharge_disposition_id NOT IN ({gone})
        ORDER BY encounter_id::BIGINT
    """
    with tempfile.TemporaryDirectory() as scratch:
        table = query(
            sql, {"encounters": unpacked(folder / FILE, Path(scratch))}, progress, "reading"
        )

    def named(part: tuple[Column, ...]) -> tuple[Feature, ...]:
        return features_of(columns, [column.feature.name for column in part])

    return TaskData(
        name="diabetes130",
        title="Diabetes 130-US Hospitals, three tasks",
        table=table,
        common=named(_COMMON),
        tasks=(
            Task("early-discharge", "bce", "early_discharge", named(_EARLY)),
            Task("readmission", "bce", "readmitted_30d", named(_READMISSION)),
            Task("stay", "huber-log", "stay_days", named(_STAY)),
        ),
        notes=(
            f"{table.num_rows} encounters taken, those without death or hospice",
            f"early discharge: at most {EARLY_DAYS} days; dropped: {', '.join(DROPPED)}",
            "the file names no hospital",
        ),
    )
