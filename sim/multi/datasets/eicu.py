"""eICU (demo or full) with three tasks: hospital death, days in the unit, return to a unit.

Pollard et al., Sci Data 2018;5:180178; the demo is under the ODbL 1.0. The open stand-in for
FedCARE's MIMIC-III side: one row per ICU stay with day-1 APACHE values and a known outcome, 19
common features and 9 for each task, as there. Return: another ICU stay follows within the same
hospital stay; unknown for whom the unit stay ended in death. Clients are drawn, since the demo's
hospitals have a dozen stays each.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from protocol.contract import Feature
from sim.datasets.base import Column, Progress, select_list
from sim.datasets.eicu import COLUMNS, FILES
from sim.datasets.files import query
from sim.multi.tasks import PATIENT, Task, TaskData, features_of


def _number(name: str, sql: str) -> Column:
    return Column(Feature(name=name, kind="continuous"), f"nullif({sql}, -1)")


def _flag(name: str, sql: str) -> Column:
    return Column(Feature(name=name, kind="binary"), f"({sql})::INTEGER")


def _names(text: str) -> list[str]:
    return text.split()


_MORE: Final = (
    _number("weight", "admissionweight::DOUBLE"),
    _number("height", "admissionheight::DOUBLE"),
    _number("hours_before_unit", "-hospitaladmitoffset::DOUBLE / 60"),
    _number("unit_visit", "unitvisitnumber::DOUBLE"),
    _flag("cardiac_unit", "regexp_matches(unittype, 'Cardiac|CCU|CSICU|CTICU')"),
    _flag("surgical_unit", "unittype = 'SICU'"),
    _flag("medical_surgical_unit", "unittype = 'Med-Surg ICU'"),
    _flag("from_emergency_department", "unitadmitsource = 'Emergency Department'"),
    _flag("from_operating_room", "unitadmitsource IN ('Operating Room', 'Recovery Room', 'PACU')"),
    _flag("from_floor", "unitadmitsource IN ('Floor', 'Acute Care/Floor')"),
)
_COMMON: Final = _names(
    "age sex elective_surgery eyes motor verbal heart_rate mean_blood_pressure respiratory_rate "
    "temperature urine white_cells hematocrit sodium creatinine urea_nitrogen glucose intubated "
    "ventilated"
)
_DEATH: Final = _names(
    "albumin bilirubin arterial_ph metastatic_cancer hepatic_failure immunosuppression dialysis "
    "leukemia lymphoma"
)
_STAY: Final = _names(
    "pao2 paco2 fio2 weight height hours_before_unit cardiac_unit surgical_unit thrombolysis"
)
_RETURN: Final = _names(
    "readmission unit_visit medical_surgical_unit from_emergency_department from_operating_room "
    "from_floor aids cirrhosis diabetes"
)


def load(folder: Path, progress: Progress | None = None) -> TaskData:
    """All stays that qualify; raises ``DataError``."""
    named = {column.feature.name: column for column in (*COLUMNS, *_MORE)}
    columns = tuple(_one_number(named[name]) for name in (*_COMMON, *_DEATH, *_STAY, *_RETURN))
    sql = f"""
        SELECT uniquepid AS {PATIENT},
            (hospitaldischargestatus = 'Expired')::INTEGER AS died_in_hospital,
            unitdischargeoffset::DOUBLE / 1440 AS unit_days,
            CASE WHEN unitdischargestatus = 'Alive' THEN (
                unitvisitnumber::INTEGER < last_visit)::INTEGER END AS returned,
            {select_list(columns)}
        FROM patient
        JOIN aps USING (patientunitstayid)
        JOIN pred USING (patientunitstayid)
        JOIN (
            SELECT patienthealthsystemstayid, max(unitvisitnumber::INTEGER) AS last_visit
            FROM patient GROUP BY patienthealthsystemstayid
        ) USING (patienthealthsystemstayid)
        WHERE hospitaldischargestatus IS NOT NULL
        ORDER BY patientunitstayid::BIGINT
    """
    table = query(sql, {view: folder / file for view, file in FILES.items()}, progress, "reading")
    return TaskData(
        name="eicu-demo",
        title="eICU Collaborative Research Database, three tasks",
        table=table,
        common=features_of(columns, _COMMON),
        tasks=(
            Task("mortality", "bce", "died_in_hospital", features_of(columns, _DEATH)),
            Task("stay", "huber-log", "unit_days", features_of(columns, _STAY)),
            Task("readmission", "bce", "returned", features_of(columns, _RETURN)),
        ),
        notes=(
            f"{table.num_rows} stays taken",
            "readmission: to an ICU, in the same hospital stay",
        ),
    )


def _one_number(column: Column) -> Column:
    """Without the indicator of a missing value: a feature is one input here."""
    return Column(column.feature.model_copy(update={"missing_indicator": False}), column.sql)
