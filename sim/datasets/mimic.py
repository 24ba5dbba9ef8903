"""MIMIC-IV: in-hospital death from the first 24 hours of an ICU stay (paper section 6.1).

Johnson et al., Sci Data 2023;10:1; credentialed, so that everybody points at a folder of their own
(``hosp/`` and ``icu/``, as PhysioNet ships them); the demo of 100 patients has the same layout. One
row per stay. Centers are care units × two-year windows of the shifted admission year. Extraction
streams the compressed files and keeps nothing but sums per stay.

Diagnoses are coded after discharge: a condition may have been found later than the first day. The
paper uses them; ``features`` can leave them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa
from pydantic import Field

from protocol.contract import Feature
from sim import partitions
from sim.datasets import base
from sim.datasets.base import CENTER, Column, Dataset, Progress, chosen, schema, select_list
from sim.datasets.charlson import CONDITIONS, flag
from sim.datasets.files import query

__all__ = ["COLUMNS", "LEAKS", "Options", "load"]

FILES: Final = {
    "patients": "hosp/patients.csv.gz",
    "admissions": "hosp/admissions.csv.gz",
    "diagnoses": "hosp/diagnoses_icd.csv.gz",
    "icustays": "icu/icustays.csv.gz",
    "chartevents": "icu/chartevents.csv.gz",
}
LARGEST: Final = 230
LABEL, GROUP, DATE = "died_in_hospital", "patient", "admitted"
CARD: Final = tuple(CONDITIONS)
_AGES: Final = (18, 95)

LEAKS: Final[Mapping[str, str]] = {
    "hospital_expire_flag|deathtime|dod": "the outcome",
    "dischtime|discharge_location|outtime|los|last_careunit": "known at discharge",
    r"drg\w*|hcpcs\w*|seq_num": "coded for billing, after discharge",
}

UNITS: Final = {
    "cvicu": "Cardiac Vascular Intensive Care Unit (CVICU)",
    "ccu": "Coronary Care Unit (CCU)",
    "micu": "Medical Intensive Care Unit (MICU)",
    "micu-sicu": "Medical/Surgical Intensive Care Unit (MICU/SICU)",
    "sicu": "Surgical Intensive Care Unit (SICU)",
    "tsicu": "Trauma SICU (TSICU)",
}
"""The six care units of the paper, by their first care unit in ``icustays``."""

VITALS: Final = {
    "heart_rate": ("1/min", (220045,), (0, 300)),
    "systolic": ("mmHg", (220050, 220179, 225309), (0, 400)),
    "diastolic": ("mmHg", (220051, 220180, 225310), (0, 300)),
    "mean_pressure": ("mmHg", (220052, 220181, 225312), (0, 300)),
    "respiratory_rate": ("1/min", (220210, 224690), (0, 70)),
    "temperature": ("°C", (223761, 223762), (10, 50)),
    "spo2": ("%", (220277,), (0, 100.001)),
}
"""Unit, chart items, and the open interval outside of which a value is a typing error."""
_FAHRENHEIT: Final = 223761
SUMMARIES: Final = ("mean", "min", "max")

_ADMISSIONS: Final = [
    "EW EMER.",
    "DIRECT EMER.",
    "URGENT",
    "OBSERVATION ADMIT",
    "EU OBSERVATION",
    "DIRECT OBSERVATION",
    "AMBULATORY OBSERVATION",
    "SURGICAL SAME DAY ADMISSION",
    "ELECTIVE",
]
_LOCATIONS: Final = [
    "EMERGENCY ROOM",
    "PHYSICIAN REFERRAL",
    "CLINIC REFERRAL",
    "WALK-IN/SELF REFERRAL",
    "TRANSFER FROM HOSPITAL",
    "TRANSFER FROM SKILLED NURSING FACILITY",
    "PROCEDURE SITE",
    "PACU",
    "INTERNAL TRANSFER TO OR FROM PSYCH",
    "AMBULATORY SURGERY TRANSFER",
]
_RACES: Final = {
    "white": "WHITE%|PORTUGUESE",
    "black": "BLACK%",
    "hispanic": "HISPANIC%|SOUTH AMERICAN",
    "asian": "ASIAN%",
}
_RACE: Final = "CASE {} END".format(
    " ".join(
        f"WHEN race LIKE '{pattern}' THEN '{group}'"
        for group, patterns in _RACES.items()
        for pattern in patterns.split("|")
    )
)


def _levels(name: str, sql: str, levels: list[str]) -> Column:
    return Column(Feature(name=name, kind="categorical", levels=levels), sql)


COLUMNS: Final = (
    Column(Feature(name="age", kind="continuous", unit="years"), "age"),
    Column(Feature(name="sex", kind="binary", levels=["F", "M"]), "gender"),
    _levels("race", _RACE, list(_RACES)),
    _levels("admission_type", "admission_type", _ADMISSIONS),
    _levels(
        "admission_location",
        "nullif(admission_location, 'INFORMATION NOT AVAILABLE')",
        _LOCATIONS,
    ),
    _levels("insurance", "insurance", ["Medicare", "Medicaid", "Private", "Other"]),
    *(
        Column(
            Feature(name=f"{vital}_{summary}", kind="continuous", unit=VITALS[vital][0]),
            f"vitals.{vital}_{summary}",
        )
        for vital in VITALS
        for summary in SUMMARIES
    ),
    *(
        Column(Feature(name=condition, kind="binary"), f"coalesce(charlson.{condition}, 0)")
        for condition in CONDITIONS
    ),
)


class Options(base.Options):
    """As for every data set, and the cohort's own."""

    window_years: int = Field(default=2, ge=1, description="width of a window of admission years")
    min_hours: float = Field(
        default=24.0, ge=0, description="shorter stays are left out: their first day is not whole"
    )


def load(folder: Path, options: Options, progress: Progress | None = None) -> Dataset:
    """The cohort; raises ``DataError`` and ``ConfigError``."""
    columns = chosen("mimic-iv", COLUMNS, options.features, LEAKS)
    files = {view: folder / file for view, file in FILES.items()}
    raw = query(_cohort_sql(columns, options), files, progress, "reading chart events")
    units = raw["unit"].to_pylist()
    years = raw[DATE].to_numpy().astype("datetime64[Y]").astype(int) + 1970
    names = partitions.by_unit_and_window(units, years, options.window_years)
    table = raw.drop_columns(["unit"]).add_column(0, CENTER, pa.array(names, type=pa.string()))
    dataset = Dataset(
        name="mimic-iv",
        title="MIMIC-IV",
        table=table,
        data=schema(
            columns, split_seed=options.split_seed, label=LABEL, group=GROUP, date=DATE, card=CARD
        ),
        notes=_notes(files, options, table.num_rows),
    )
    dataset = base.partitioned(dataset, options, default_centers=LARGEST)
    patients = len(dataset.table[GROUP].unique())
    return replace(
        dataset,
        notes=(*dataset.notes, f"{patients} patients in the centers, also in those too small"),
    )


def _stays_sql() -> str:
    """Every stay with its patient; the age is that of the admission (the anchor is shifted)."""
    units = " ".join(f"WHEN '{name}' THEN '{unit}'" for unit, name in UNITS.items())
    return f"""
        SELECT stay_id, icustays.hadm_id, subject_id, intime::TIMESTAMP AS start,
            los::DOUBLE * 24 AS hours, CASE first_careunit {units} END AS unit,
            anchor_age::INTEGER + year(admittime::TIMESTAMP) - anchor_year::INTEGER AS age,
            gender, race, admission_type, admission_location, insurance, hospital_expire_flag,
            admittime::TIMESTAMP::DATE AS admitted
        FROM icustays JOIN admissions USING (subject_id, hadm_id) JOIN patients USING (subject_id)
    """


def _chosen_sql(options: Options) -> str:
    return (
        f"unit IS NOT NULL AND age BETWEEN {_AGES[0]} AND {_AGES[1]} "
        f"AND hours >= {options.min_hours}"
    )


def _cohort_sql(columns: tuple[Column, ...], options: Options) -> str:
    return f"""
        WITH stays AS ({_stays_sql()}),
        cohort AS (SELECT * FROM stays WHERE {_chosen_sql(options)}),
        charlson AS (
            SELECT hadm_id, {", ".join(flag(condition) for condition in CONDITIONS)}
            FROM diagnoses GROUP BY hadm_id
        ),
        vitals AS ({_vitals_sql()})
        SELECT unit, hospital_expire_flag::INTEGER AS {LABEL}, cohort.subject_id AS {GROUP},
            admitted AS {DATE},
            {select_list(columns)}
        FROM cohort
        LEFT JOIN charlson USING (hadm_id)
        LEFT JOIN vitals USING (stay_id)
        ORDER BY stay_id::BIGINT
    """


def _vitals_sql() -> str:
    """Mean, least and greatest plausible value of each vital sign in the first 24 hours."""
    items = [item for _, items, _ in VITALS.values() for item in items]
    summaries = [
        # Decimals add up exactly, so that the order in which threads deliver does not matter.
        f"({'avg' if summary == 'mean' else summary}(value) FILTER (vital = '{vital}'))::DOUBLE "
        f"AS {vital}_{summary}"
        for vital in VITALS
        for summary in SUMMARIES
    ]
    return f"""
        SELECT stay_id, {", ".join(summaries)}
        FROM (
            SELECT stay_id, vital, value::DECIMAL(9, 3) AS value
            FROM (
                SELECT stay_id, {_vital_of("itemid")} AS vital, charttime::TIMESTAMP AS charted,
                    CASE itemid WHEN '{_FAHRENHEIT}' THEN (valuenum::DOUBLE - 32) / 1.8
                    ELSE valuenum::DOUBLE END AS value
                FROM chartevents
                WHERE itemid IN ({", ".join(f"'{item}'" for item in items)})
            )
            JOIN cohort USING (stay_id)
            WHERE charted >= start AND charted < start + INTERVAL 24 HOUR AND {_plausible()}
        )
        GROUP BY stay_id
    """


def _vital_of(item: str) -> str:
    cases = " ".join(
        f"WHEN '{number}' THEN '{vital}'"
        for vital, (_, items, _) in VITALS.items()
        for number in items
    )
    return f"CASE {item} {cases} END"


def _plausible() -> str:
    bounds = " ".join(
        f"WHEN '{vital}' THEN value > {low} AND value < {high}"
        for vital, (_, _, (low, high)) in VITALS.items()
    )
    return f"CASE vital {bounds} END"


def _notes(files: Mapping[str, Path], options: Options, kept: int) -> tuple[str, ...]:
    needed = {view: files[view] for view in ("icustays", "admissions", "patients")}
    counted = query(
        f"""
        SELECT count(*), count(*) FILTER (unit IS NULL),
            count(*) FILTER (unit IS NOT NULL AND age NOT BETWEEN {_AGES[0]} AND {_AGES[1]}),
            count(*) FILTER (NOT ({_chosen_sql(options)}))
        FROM ({_stays_sql()})
        """,
        needed,
    )
    stays, elsewhere, ages, left_out = (column[0].as_py() for column in counted.columns)
    return (
        f"{stays} ICU stays in the files, {kept} taken; left out: {elsewhere} in other units, "
        f"{ages} of other ages than {_AGES[0]} to {_AGES[1]}, "
        f"{left_out - elsewhere - ages} shorter than {options.min_hours:g} h",
        "diagnoses are coded after discharge, as in the paper",
    )
