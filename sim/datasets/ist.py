"""International Stroke Trial, version 2: death within 14 days, centers are hospitals.

Sandercock et al., Trials 2011;12:101, ODC-By 1.0. One row per patient. Features are what was known
at randomization, the two allocated arms included; everything that came later is a leak.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from protocol.contract import Feature
from sim.datasets.base import (
    CENTER,
    Column,
    Dataset,
    Options,
    Progress,
    chosen,
    partitioned,
    schema,
    select_list,
)
from sim.datasets.files import query

__all__ = ["LEAKS", "Options", "load"]

FILE: Final = "ist.csv.gz"
LARGEST: Final = 230
"""As many hospitals as the paper has centers."""
LABEL, DATE = "died_14d", "randomized"

LEAKS: Final[Mapping[str, str]] = {
    r"ID14|DIED|TD|OCCODE|DEAD\d|EXPD\w+|SET14D": "the outcome, or made of it",
    r"D(?!AYLOCAL)\w+": "recorded at day 14 or at discharge",
    r"F(U\d_\w+|DEAD\w?|LASTD|RECOVER|DENNIS|PLACE|AP|OAC)": "recorded at six months",
    r"\w+14": "an event within 14 days",
    r"CMPL\w+|ONDRUG|NCCODE": "compliance, known after treatment",
}


def _flag(name: str, source: str, unknown: bool = False) -> Column:
    feature = Feature(name=name, kind="binary", missing_indicator=unknown)
    return Column(feature, f"CASE {source} WHEN 'Y' THEN 1 WHEN 'N' THEN 0 END")


_DEFICITS: Final = (
    "face_deficit",
    "arm_deficit",
    "leg_deficit",
    "dysphasia",
    "hemianopia",
    "visuospatial_disorder",
    "brainstem_signs",
    "other_deficit",
)
CARD: Final = ("atrial_fibrillation", "aspirin_3d", "heparin_24h", "infarct_on_ct", *_DEFICITS)
"""Twelve prevalences, as many as the paper's card has."""

COLUMNS: Final = (
    Column(Feature(name="age", kind="continuous", unit="years"), "AGE::DOUBLE"),
    Column(Feature(name="sex", kind="binary", levels=["F", "M"]), "SEX"),
    Column(Feature(name="delay", kind="continuous", unit="hours"), "RDELAY::DOUBLE"),
    Column(
        Feature(
            name="consciousness", kind="categorical", levels=["alert", "drowsy", "unconscious"]
        ),
        "CASE RCONSC WHEN 'F' THEN 'alert' WHEN 'D' THEN 'drowsy' WHEN 'U' THEN 'unconscious' END",
    ),
    _flag("noticed_on_waking", "RSLEEP"),
    _flag("atrial_fibrillation", "RATRIAL", unknown=True),
    _flag("ct_before", "RCT"),
    _flag("infarct_on_ct", "RVISINF"),
    _flag("heparin_24h", "RHEP24"),
    _flag("aspirin_3d", "RASP3"),
    Column(Feature(name="systolic", kind="continuous", unit="mmHg"), "RSBP::DOUBLE"),
    # «C» says that the deficit could not be assessed: missing, and worth an indicator.
    *(_flag(name, f"RDEF{place}", unknown=True) for place, name in enumerate(_DEFICITS, start=1)),
    Column(
        Feature(
            name="syndrome", kind="categorical", levels=["TACS", "PACS", "POCS", "LACS", "OTH"]
        ),
        "STYPE",
    ),
    _flag("arm_aspirin", "RXASP"),
    Column(
        Feature(name="arm_heparin", kind="categorical", levels=["N", "L", "M"]),
        # The pilot called the same dose «high» that the main phase called «medium».
        "CASE RXHEP WHEN 'H' THEN 'M' ELSE RXHEP END",
    ),
)

# Polish abbreviations; the second letter of October (paź) is broken in the published file.
_MONTHS: Final = ("sty", "lut", "mar", "kwi", "maj", "cze", "lip", "sie", "wrz", "pa", "lis", "gru")
_MONTH: Final = "CASE {} END".format(
    " ".join(
        f"WHEN RDATE LIKE '{short}%' THEN '{number:02d}'"
        for number, short in enumerate(_MONTHS, start=1)
    )
)


def load(folder: Path, options: Options, progress: Progress | None = None) -> Dataset:
    """The patients of the chosen hospitals; raises ``DataError`` and ``ConfigError``."""
    columns = chosen("ist", COLUMNS, options.features, LEAKS)
    sql = f"""
        SELECT 'hospital-' || lpad(HOSPNUM, 3, '0') AS {CENTER},
            ID14::INTEGER AS {LABEL},
            ('19' || right(RDATE, 2) || '-' || {_MONTH} || '-01')::DATE AS {DATE},
            {select_list(columns)}
        FROM ist
    """
    table = query(sql, {"ist": folder / FILE}, progress, "reading")
    hospitals = len(table[CENTER].unique())
    dataset = Dataset(
        name="ist",
        title="International Stroke Trial",
        table=table,
        data=schema(columns, split_seed=options.split_seed, label=LABEL, date=DATE, card=CARD),
        notes=(f"{table.num_rows} patients of {hospitals} hospitals in the file",),
    )
    return partitioned(dataset, options, default_centers=LARGEST)
