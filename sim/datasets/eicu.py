"""eICU Collaborative Research Database (demo or full): hospital death from the first ICU day.

Pollard et al., Sci Data 2018;5:180178; the demo is under the ODbL 1.0. One row per ICU stay with
day-1 APACHE values and a known outcome; centers are hospitals, in the demo a dozen stays each. The
source writes -1 for missing and «> 89» for ages above.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from protocol.contract import Feature
from sim.datasets import base
from sim.datasets.base import (
    CENTER,
    Column,
    Dataset,
    Progress,
    chosen,
    partitioned,
    schema,
    select_list,
)
from sim.datasets.files import query

__all__ = ["LEAKS", "Options", "load"]

FILES: Final = {
    "patient": "patient.csv.gz",
    "aps": "apacheApsVar.csv.gz",
    "pred": "apachePredVar.csv.gz",
}
LABEL, GROUP, DATE = "died_in_hospital", "patient", "year"

LEAKS: Final[Mapping[str, str]] = {
    r"diedinhospital|(hospital|unit)dischargestatus": "the outcome",
    r"dischargelocation|(hospital|unit)discharge(location|offset|time24)": "known at discharge",
    r"dischargeweight": "known at discharge",
    r"(un)?actual\w+|unabridged\w+|var03hspxlos": "length of stay or outcome, known at discharge",
    r"pred(icted|vent)\w+": "what another model predicted",
}


def _number(name: str, source: str, unit: str | None = None, missing: bool = False) -> Column:
    feature = Feature(name=name, kind="continuous", unit=unit, missing_indicator=missing)
    return Column(feature, f"nullif({source}::DOUBLE, -1)")


def _flag(name: str, source: str) -> Column:
    return Column(Feature(name=name, kind="binary"), f"nullif({source}::INTEGER, -1)")


_UNITS: Final = [
    "Med-Surg ICU",
    "MICU",
    "SICU",
    "Cardiac ICU",
    "CCU-CTICU",
    "CSICU",
    "CTICU",
    "Neuro ICU",
]
_SOURCES: Final = [
    "Emergency Department",
    "Floor",
    "Acute Care/Floor",
    "Operating Room",
    "Recovery Room",
    "PACU",
    "Direct Admit",
    "Step-Down Unit (SDU)",
    "ICU",
    "Other ICU",
    "Other Hospital",
    "Chest Pain Center",
    "ICU to SDU",
]
CARD: Final = (
    "hepatic_failure",
    "cirrhosis",
    "diabetes",
    "immunosuppression",
    "leukemia",
    "lymphoma",
    "metastatic_cancer",
)

COLUMNS: Final = (
    Column(
        Feature(name="age", kind="continuous", unit="years"),
        "CASE WHEN patient.age = '> 89' THEN 90 ELSE patient.age::DOUBLE END",
    ),
    Column(
        Feature(name="sex", kind="binary", levels=["Female", "Male"]),
        "CASE WHEN patient.gender IN ('Female', 'Male') THEN patient.gender END",
    ),
    Column(Feature(name="unit", kind="categorical", levels=_UNITS), "unittype"),
    Column(Feature(name="source", kind="categorical", levels=_SOURCES), "unitadmitsource"),
    _flag("readmission", "readmit"),
    # only surgical patients have it
    Column(Feature(name="elective_surgery", kind="binary"), "coalesce(electivesurgery, '0')::INT"),
    # acute physiology, the worst values of the first day
    _number("eyes", "aps.eyes", "points", missing=True),
    _number("motor", "aps.motor", "points"),
    _number("verbal", "aps.verbal", "points"),
    _number("heart_rate", "heartrate", "1/min"),
    _number("mean_blood_pressure", "meanbp", "mmHg"),
    _number("respiratory_rate", "respiratoryrate", "1/min"),
    _number("temperature", "temperature", "°C"),
    _number("urine", "urine", "mL/day", missing=True),
    _number("white_cells", "wbc", "1000/µL", missing=True),
    _number("hematocrit", "hematocrit", "%"),
    _number("sodium", "sodium", "mmol/L"),
    _number("creatinine", "aps.creatinine", "mg/dL", missing=True),
    _number("urea_nitrogen", "bun", "mg/dL"),
    _number("glucose", "glucose", "mg/dL"),
    _number("albumin", "albumin", "g/dL", missing=True),
    _number("bilirubin", "bilirubin", "mg/dL", missing=True),
    _number("arterial_ph", "ph", missing=True),
    _number("pao2", "aps.pao2", "mmHg"),
    _number("paco2", "pco2", "mmHg"),
    _number("fio2", "aps.fio2", "%"),
    _flag("intubated", "intubated"),
    _flag("ventilated", "vent"),
    _flag("dialysis", "dialysis"),
    _flag("thrombolysis", "thrombolytics"),
    # chronic conditions; their prevalences make the enriched card
    _flag("aids", "aids"),
    _flag("hepatic_failure", "hepaticfailure"),
    _flag("cirrhosis", "cirrhosis"),
    _flag("diabetes", "diabetes"),
    _flag("immunosuppression", "immunosuppression"),
    _flag("leukemia", "leukemia"),
    _flag("lymphoma", "lymphoma"),
    _flag("metastatic_cancer", "metastaticcancer"),
)


class Options(base.Options):
    """As for every data set, and which stays of a patient."""

    stays: Literal["all", "first"] = Field(
        default="all",
        description="first: one stay for each patient. Then no patient column is needed, rows are "
        "dealt by class, and fewer tiny hospitals have an empty split",
    )


def load(folder: Path, options: Options, progress: Progress | None = None) -> Dataset:
    """All stays that qualify; raises ``DataError`` and ``ConfigError``."""
    columns = chosen("eicu-demo", COLUMNS, options.features, LEAKS)
    files = {view: folder / file for view, file in FILES.items()}
    first = options.stays == "first"
    sql = f"""
        SELECT 'hospital-' || lpad(hospitalid, 3, '0') AS {CENTER},
            (hospitaldischargestatus = 'Expired')::INTEGER AS {LABEL},
            {"" if first else f"uniquepid AS {GROUP},"}
            hospitaldischargeyear::INTEGER AS {DATE},
            {select_list(columns)}
        FROM patient
        JOIN aps USING (patientunitstayid)
        JOIN pred USING (patientunitstayid)
        WHERE hospitaldischargestatus IS NOT NULL
        {_one_of_each() if first else ""}
        ORDER BY patientunitstayid::BIGINT
    """
    table = query(sql, files, progress, "reading")
    dataset = Dataset(
        name="eicu-demo",
        title="eICU Collaborative Research Database",
        table=table,
        data=schema(
            columns,
            split_seed=options.split_seed,
            label=LABEL,
            group=None if first else GROUP,
            date=DATE,
            card=CARD,
        ),
        notes=(
            *_counted(files),
            f"{table.num_rows} stays taken" + (", the first of each patient" if first else ""),
            "the year is that of discharge; the source has no other",
        ),
    )
    return partitioned(dataset, options)


def _one_of_each() -> str:
    # Stays of one year have no order across hospital visits: then the smaller id goes first.
    return """
        QUALIFY row_number() OVER (
            PARTITION BY uniquepid ORDER BY hospitaldischargeyear::INTEGER,
                patienthealthsystemstayid::BIGINT, unitvisitnumber::INTEGER
        ) = 1
    """


def _counted(files: Mapping[str, Path]) -> tuple[str, ...]:
    counts = query(
        """
        SELECT count(*), count(DISTINCT uniquepid),
            count(*) FILTER (hospitaldischargestatus IS NULL),
            count(*) FILTER (hospitaldischargestatus IS NOT NULL AND (
                patientunitstayid NOT IN (SELECT patientunitstayid FROM aps)
                OR patientunitstayid NOT IN (SELECT patientunitstayid FROM pred)))
        FROM patient
        """,
        files,
    )
    stays, patients, unknown, without = (column[0].as_py() for column in counts.columns)
    return (
        f"{stays} stays of {patients} patients in the files; left out: {unknown} whose outcome is "
        f"unknown, {without} without APACHE values of day 1",
    )
