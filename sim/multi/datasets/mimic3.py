"""MIMIC-III with three tasks: hospital death, days in the unit, readmission within 30 days.

Johnson et al., Sci Data 2016;3:160035; credentialed, so that everybody points at a folder of their
own, as PhysioNet ships it (``ADMISSIONS.csv.gz``…). FedCARE takes 21,139 records with 49 columns,
19 features common and 9 for each task, and names none. Here: stays of adults that lasted 48 hours
at least, in admissions with one ICU stay; features are of the first 48 hours, means of laboratory
values, means and extremes of vital signs. Item ids are those of the public MIMIC-III code for both
charting systems. Readmission is to the hospital, within 30 days of discharge; unknown for whom the
stay ended in death. Charts are streamed once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from protocol.contract import Feature
from sim.datasets.base import Column, Progress, select_list
from sim.datasets.files import query
from sim.multi.tasks import PATIENT, Task, TaskData, features_of

FILES: Final = {
    "patients": "PATIENTS.csv.gz",
    "admissions": "ADMISSIONS.csv.gz",
    "icustays": "ICUSTAYS.csv.gz",
    "chartevents": "CHARTEVENTS.csv.gz",
    "labevents": "LABEVENTS.csv.gz",
}
HOURS: Final = 48
VITALS: Final = {
    "heart_rate": ((211, 220045), (0, 300)),
    "systolic": ((51, 442, 455, 6701, 220179, 220050), (0, 400)),
    "diastolic": ((8368, 8440, 8441, 8555, 220180, 220051), (0, 300)),
    "mean_pressure": ((456, 52, 6702, 443, 220052, 220181, 225312), (0, 300)),
    "respiratory_rate": ((615, 618, 220210, 224690), (0, 70)),
    "temperature": ((223761, 678, 223762, 676), (10, 50)),
    "spo2": ((646, 220277), (0, 100.001)),
}
"""Chart items and the open interval outside of which a value is a typing error."""
_FAHRENHEIT: Final = (223761, 678)
LABS: Final = {
    "anion_gap": 50868,
    "albumin": 50862,
    "bilirubin": 50885,
    "bicarbonate": 50882,
    "creatinine": 50912,
    "chloride": 50902,
    "glucose": 50931,
    "hematocrit": 51221,
    "hemoglobin": 51222,
    "lactate": 50813,
    "platelets": 51265,
    "potassium": 50971,
    "ptt": 51275,
    "inr": 51237,
    "sodium": 50983,
    "urea_nitrogen": 51006,
    "white_cells": 51301,
}


def _number(name: str, sql: str) -> Column:
    return Column(Feature(name=name, kind="continuous"), sql)


def _flag(name: str, sql: str) -> Column:
    return Column(Feature(name=name, kind="binary"), f"({sql})::INTEGER")


def _vital(text: str) -> Column:
    name, _, how = text.rpartition("_")
    items = ", ".join(map(str, VITALS[name][0]))
    return _number(text, f"{how}(value) FILTER (item IN ({items}))")


def _columns(names: str) -> tuple[Column, ...]:
    return tuple(
        _number(name, f"avg(value) FILTER (item = {LABS[name]})") if name in LABS else _vital(name)
        for name in names.split()
    )


_COMMON: Final = _columns(
    "heart_rate_avg heart_rate_min heart_rate_max systolic_avg systolic_min systolic_max "
    "respiratory_rate_avg respiratory_rate_max temperature_avg spo2_avg spo2_min creatinine sodium "
    "potassium white_cells hematocrit"
)
_DEATH: Final = _columns(
    "lactate bilirubin albumin platelets inr urea_nitrogen anion_gap bicarbonate mean_pressure_min"
)
_STAY: Final = _columns(
    "glucose hemoglobin chloride ptt diastolic_avg mean_pressure_avg temperature_max"
)
_OF_STAY: Final = (
    # Dates of birth of patients above 89 are shifted by 300 years.
    _number("age", "CASE WHEN years > 150 THEN 91 ELSE years END"),
    _flag("male", "gender = 'M'"),
    _flag("emergency", "admission_type = 'EMERGENCY'"),
    _flag("surgical_unit", "first_careunit IN ('SICU', 'TSICU', 'CSRU')"),
    _flag("elective", "admission_type = 'ELECTIVE'"),
    _number("earlier_admissions", "earlier::DOUBLE"),
    _number("days_since_discharge", "since"),
    _flag("medicare", "insurance = 'Medicare'"),
    _flag("medicaid", "insurance = 'Medicaid'"),
    _flag("married", "marital_status = 'MARRIED'"),
    _flag("from_emergency_room", "admission_location LIKE 'EMERGENCY%'"),
    _flag("from_transfer", "admission_location LIKE 'TRANSFER%'"),
    _flag("medical_unit", "first_careunit = 'MICU'"),
    _flag("cardiac_unit", "first_careunit = 'CCU'"),
)


def load(folder: Path, progress: Progress | None = None) -> TaskData:
    """All stays that qualify; raises ``DataError``."""
    events = (*_COMMON, *_DEATH, *_STAY)
    sql = f"""
        WITH visits AS (
            SELECT *, lead(admittime::TIMESTAMP) OVER later AS next,
                lag(dischtime::TIMESTAMP) OVER later AS previous,
                row_number() OVER later - 1 AS earlier
            FROM admissions
            WINDOW later AS (PARTITION BY subject_id ORDER BY admittime::TIMESTAMP)
        ), stays AS (
            SELECT icustay_id, subject_id, hadm_id, first_careunit, los::DOUBLE AS days,
                intime::TIMESTAMP AS began, intime::TIMESTAMP + INTERVAL {HOURS} HOUR AS until
            FROM icustays
            WHERE los::DOUBLE >= {HOURS} / 24.0
            AND hadm_id IN (SELECT hadm_id FROM icustays GROUP BY hadm_id HAVING count(*) = 1)
        ), events AS (
            {_events()}
        ), measured AS (
            SELECT icustay_id, {select_list(events)} FROM events GROUP BY icustay_id
        ), known AS (
            SELECT *, date_diff('year', dob::TIMESTAMP, began) AS years,
                date_diff('hour', previous, began) / 24.0 AS since
            FROM stays JOIN patients USING (subject_id) JOIN visits USING (subject_id, hadm_id)
        )
        SELECT subject_id AS {PATIENT}, hospital_expire_flag::INTEGER AS died_in_hospital,
            days AS unit_days,
            CASE WHEN hospital_expire_flag = '0' THEN coalesce(
                next <= dischtime::TIMESTAMP + INTERVAL 30 DAY, false)::INTEGER END AS returned_30d,
            {select_list(_OF_STAY)},
            {", ".join(column.feature.name for column in events)}
        FROM known LEFT JOIN measured USING (icustay_id)
        WHERE years >= 18
        ORDER BY icustay_id::BIGINT
    """
    table = query(sql, {view: folder / file for view, file in FILES.items()}, progress, "reading")
    columns = (*events, *_OF_STAY)

    def named(part: tuple[Column, ...]) -> tuple[Feature, ...]:
        return features_of(columns, [column.feature.name for column in part])

    return TaskData(
        name="mimic-iii",
        title="MIMIC-III, three tasks",
        table=table,
        common=named((*_OF_STAY[:3], *_COMMON)),
        tasks=(
            Task("mortality", "bce", "died_in_hospital", named(_DEATH)),
            Task("stay", "huber-log", "unit_days", named((*_OF_STAY[3:5], *_STAY))),
            Task("readmission", "bce", "returned_30d", named(_OF_STAY[5:])),
        ),
        notes=(
            f"{table.num_rows} stays of adults taken, of {HOURS} hours at least, one per admission",
            "readmission: to the hospital within 30 days",
        ),
    )


def _events() -> str:
    """Vital signs and laboratory values of the window: stay, item, value."""
    low_high = " ".join(
        f"WHEN item IN ({', '.join(map(str, items))}) THEN value > {low} AND value < {high}"
        for items, (low, high) in VITALS.values()
    )
    charted = ", ".join(str(item) for items, _ in VITALS.values() for item in items)
    fahrenheit = ", ".join(map(str, _FAHRENHEIT))
    tested = ", ".join(map(str, LABS.values()))
    return f"""
        SELECT icustay_id, item, value FROM (
            SELECT icustay_id, itemid::INTEGER AS item,
                CASE WHEN itemid::INTEGER IN ({fahrenheit}) THEN (valuenum::DOUBLE - 32) / 1.8
                ELSE valuenum::DOUBLE END AS value
            FROM chartevents JOIN stays USING (icustay_id)
            WHERE itemid::INTEGER IN ({charted}) AND valuenum IS NOT NULL
            AND coalesce(error, '0') <> '1' AND charttime::TIMESTAMP BETWEEN began AND until
        ) WHERE CASE {low_high} END
        UNION ALL
        SELECT icustay_id, itemid::INTEGER, valuenum::DOUBLE
        FROM labevents JOIN stays ON labevents.hadm_id = stays.hadm_id
        WHERE itemid::INTEGER IN ({tested}) AND valuenum::DOUBLE > 0
        AND charttime::TIMESTAMP BETWEEN began AND until
    """
