"""Data sets with several tasks. An adapter is imported when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from sim.choices import chosen
from sim.multi.tasks import TaskData


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before anything is read."""

    module: str
    about: str
    source: str
    files: tuple[str, ...]


DATASETS: Final[Mapping[str, Entry]] = {
    "diabetes130": Entry(
        "diabetes",
        "early discharge, readmission within 30 days, length of stay",
        "archive.ics.uci.edu/dataset/296, CC BY 4.0",
        ("dataset_diabetes.zip",),
    ),
    "eicu-demo": Entry(
        "eicu",
        "hospital death, days in the unit, return to a unit (eICU, demo or full)",
        "physionet.org/content/eicu-crd-demo, ODbL 1.0",
        ("patient.csv.gz", "apacheApsVar.csv.gz", "apachePredVar.csv.gz"),
    ),
    "mimic-iii": Entry(
        "mimic3",
        "hospital death, days in the unit, readmission within 30 days",
        "physionet.org/content/mimiciii, credentialed",
        (
            "PATIENTS.csv.gz",
            "ADMISSIONS.csv.gz",
            "ICUSTAYS.csv.gz",
            "CHARTEVENTS.csv.gz",
            "LABEVENTS.csv.gz",
        ),
    ),
}


def entry_of(name: str) -> Entry:
    """A data set by name; ``ConfigError`` for an unknown one."""
    return chosen("data set", name, DATASETS)


def load(name: str, data_dir: Path | None = None) -> TaskData:
    """Read a data set; ``data_dir`` None stands for what ``ABPS_DATA_DIR`` says.

    Raises ``ConfigError`` for an unknown name, ``DataError`` for files missing or faulty.
    """
    return _load(name, data_dir)


@lru_cache(maxsize=1)
def _load(name: str, data_dir: Path | None) -> TaskData:
    from sim.datasets.files import find_folder

    entry = entry_of(name)
    folder = find_folder(name, data_dir, entry.files, entry.source)
    found: TaskData = importlib.import_module(f"sim.multi.datasets.{entry.module}").load(folder)
    return found
