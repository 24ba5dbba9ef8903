"""Diabetes 130-US Hospitals 1999–2008: readmission within 30 days.

Strack et al., BioMed Res Int 2014, 781670, CC BY 4.0. One row per encounter, known at discharge.
**The file has no hospital.** Centers are drawn (Dirichlet by default) or, as a proxy, the
specialty of the admitting physician; neither is a real center, and every output says so.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import Field

from abps_node.errors import DataError
from protocol.contract import Feature
from sim.datasets import base
from sim.datasets.base import CENTER, Column, Dataset, Progress, chosen, schema, select_list
from sim.datasets.files import query

__all__ = ["LEAKS", "Options", "load"]

FILE: Final = "dataset_diabetes.zip"
MEMBER: Final = "diabetic_data.csv"
DRAWN: Final = 100
LABEL, GROUP = "readmitted_30d", "patient"

CANNOT_RETURN: Final = (11, 13, 14, 19, 20, 21)
"""Discharge dispositions that are death or hospice: nobody of these can be readmitted."""

LEAKS: Final[Mapping[str, str]] = {
    "readmitted": "the outcome",
    "encounter_id|patient_nbr": "an identifier; encounters of one patient repeat",
}


class Options(base.Options):
    """As for every data set; drawn centers unless the proxy is asked for."""

    partition: Literal["natural", "dirichlet", "iid"] = Field(
        default="dirichlet", description="natural: the admitting specialty, a proxy"
    )


def _number(name: str) -> Column:
    return Column(Feature(name=name, kind="continuous"), f"{name}::DOUBLE")


def _levels(name: str, sql: str, levels: list[str]) -> Column:
    return Column(Feature(name=name, kind="categorical", levels=levels), sql)


DIAGNOSES: Final = {
    "circulatory": "39\\d|4[0-5]\\d|785",
    "respiratory": "4[6-9]\\d|50\\d|51\\d|786",
    "digestive": "5[2-7]\\d|787",
    "diabetes": "250",
    "injury": "[89]\\d\\d",
    "musculoskeletal": "7[1-3]\\d",
    "genitourinary": "5[89]\\d|6[0-2]\\d|788",
    "neoplasms": "1[4-9]\\d|2[0-3]\\d",
}
"""ICD-9 groups of Strack et al., table 2, as patterns of the digits before the point."""


def among(codes: str, pattern: str) -> str:
    """SQL: whether ICD-9 codes begin with what ``pattern`` says, to the point or the end."""
    return f"coalesce(regexp_matches({codes}, '^({pattern})(\\.|$)'), false)"


_FIRST: Final = "CASE {} ELSE 'other' END".format(
    " ".join(f"WHEN {among('diag_1', rule)} THEN '{name}'" for name, rule in DIAGNOSES.items())
)
_ANY: Final = tuple(
    Column(
        Feature(name=f"any_{name}", kind="binary"),
        "({})::INTEGER".format(" OR ".join(among(f"diag_{k}", rule) for k in (1, 2, 3))),
    )
    for name, rule in DIAGNOSES.items()
)
_DRUGS: Final = (
    "metformin",
    "repaglinide",
    "glimepiride",
    "glipizide",
    "glyburide",
    "pioglitazone",
    "rosiglitazone",
    "insulin",
)
CARD: Final = tuple(column.feature.name for column in _ANY)

COLUMNS: Final = (
    # decades, [70-80) is 75
    Column(
        Feature(name="age", kind="continuous", unit="years"),
        "regexp_extract(age, '(\\d+)-', 1)::DOUBLE + 5",
    ),
    Column(
        Feature(name="sex", kind="binary", levels=["Female", "Male"]),
        "CASE WHEN gender IN ('Female', 'Male') THEN gender END",
    ),
    _levels(
        "admission",
        "CASE admission_type_id WHEN '1' THEN 'emergency' WHEN '2' THEN 'urgent' "
        "WHEN '3' THEN 'elective' WHEN '7' THEN 'emergency' END",
        ["emergency", "urgent", "elective"],
    ),
    _levels(
        "source",
        "CASE WHEN admission_source_id = '7' THEN 'emergency room' "
        "WHEN admission_source_id IN ('1', '2', '3') THEN 'referral' "
        "WHEN admission_source_id IN ('4', '5', '6', '10', '18', '22', '25', '26') "
        "THEN 'transfer' END",
        ["emergency room", "referral", "transfer"],
    ),
    _levels(
        "discharge",
        "CASE WHEN discharge_disposition_id = '1' THEN 'home' "
        "WHEN discharge_disposition_id IN ('6', '8') THEN 'home with care' "
        "WHEN discharge_disposition_id IN "
        "('2', '3', '4', '5', '9', '10', '15', '22', '23', '24', '27', '28', '29', '30') "
        "THEN 'facility' WHEN discharge_disposition_id = '7' THEN 'against advice' END",
        ["home", "home with care", "facility", "against advice"],
    ),
    _number("time_in_hospital"),
    _number("num_lab_procedures"),
    _number("num_procedures"),
    _number("num_medications"),
    _number("number_outpatient"),
    _number("number_emergency"),
    _number("number_inpatient"),
    _number("number_diagnoses"),
    _levels("first_diagnosis", _FIRST, [*DIAGNOSES, "other"]),
    *_ANY,
    _levels("glucose", "nullif(max_glu_serum, 'None')", ["Norm", ">200", ">300"]),
    _levels("hba1c", "nullif(A1Cresult, 'None')", ["Norm", ">7", ">8"]),
    *(_levels(drug, drug, ["No", "Down", "Steady", "Up"]) for drug in _DRUGS),
    Column(Feature(name="medication_changed", kind="binary"), "(change = 'Ch')::INTEGER"),
    Column(Feature(name="diabetes_medication", kind="binary"), "(diabetesMed = 'Yes')::INTEGER"),
)


def load(folder: Path, options: Options, progress: Progress | None = None) -> Dataset:
    """All encounters that qualify; raises ``DataError`` and ``ConfigError``."""
    columns = chosen("diabetes130", COLUMNS, options.features, LEAKS)
    with tempfile.TemporaryDirectory() as scratch:
        file = unpacked(folder / FILE, Path(scratch))
        gone = ", ".join(f"'{code}'" for code in CANNOT_RETURN)
        sql = f"""
            SELECT 'proxy-' || coalesce(nullif(medical_specialty, '?'), 'unknown') AS {CENTER},
                (readmitted = '<30')::INTEGER AS {LABEL},
                patient_nbr AS {GROUP},
                {select_list(columns)}
            FROM encounters WHERE discharge_disposition_id NOT IN ({gone})
            ORDER BY encounter_id::BIGINT
        """
        table = query(sql, {"encounters": file}, progress, "reading")
        counted = query("SELECT count(*) FROM encounters", {"encounters": file})
    everyone = counted.column(0)[0].as_py()
    proxy = "the centers are specialties, a proxy" if options.partition == "natural" else None
    dataset = Dataset(
        name="diabetes130",
        title="Diabetes 130-US Hospitals",
        table=table,
        data=schema(columns, split_seed=options.split_seed, label=LABEL, group=GROUP, card=CARD),
        notes=(
            f"{everyone} encounters in the file; left out: {everyone - table.num_rows} that ended "
            f"in death or hospice (dispositions {', '.join(map(str, CANNOT_RETURN))})",
            "the file names no hospital" + (f"; {proxy}" if proxy else ""),
        ),
    )
    return base.partitioned(dataset, options, default_centers=DRAWN)


def unpacked(archive: Path, scratch: Path) -> Path:
    """The table in the archive, unpacked into ``scratch``; raises ``DataError``."""
    try:
        with zipfile.ZipFile(archive) as opened:
            names = [name for name in opened.namelist() if name.endswith(MEMBER)]
            if not names:
                raise DataError(f"{archive}: {MEMBER} is missing in it")
            return Path(opened.extract(names[0], scratch))
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(f"{archive}: cannot be read: {error}") from error
