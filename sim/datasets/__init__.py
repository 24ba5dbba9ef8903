"""The data sets of the simulator: one small adapter each.

``load`` gives a ``Dataset``: a table that carries its schema, and a column of centers. This module
is light; an adapter is imported when it is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sim.datasets.base import Dataset


@dataclass(frozen=True)
class Entry:
    """What is known of a data set before anything is read."""

    module: str
    about: str
    centers: str
    source: str
    """Where the data come from, and under which license."""
    files: tuple[str, ...] = ()
    """Below the data set's folder; none where it needs no data directory."""
    shipped: str | None = None
    """The folder where the files are with the project itself."""


DATASETS: Final[Mapping[str, Entry]] = {
    "rhc": Entry(
        "rhc",
        "right heart catheterization, death within 30 days",
        "care units",
        "shipped in examples/rhc",
        ("rhc.csv.gz",),
        "examples/rhc",
    ),
    "ist": Entry(
        "ist",
        "International Stroke Trial, death within 14 days",
        "hospitals, the 230 largest",
        "doi.org/10.7488/ds/104, ODC-By 1.0",
        ("ist.csv.gz",),
    ),
    "eicu-demo": Entry(
        "eicu",
        "eICU (demo or full), hospital death from ICU day 1",
        "hospitals",
        "physionet.org/content/eicu-crd-demo, ODbL 1.0",
        ("patient.csv.gz", "apacheApsVar.csv.gz", "apachePredVar.csv.gz"),
    ),
    "diabetes130": Entry(
        "diabetes",
        "Diabetes 130-US Hospitals, readmission within 30 days",
        "drawn: the file names no hospital",
        "archive.ics.uci.edu/dataset/296, CC BY 4.0",
        ("dataset_diabetes.zip",),
    ),
    "mimic-iv": Entry(
        "mimic",
        "MIMIC-IV, hospital death from the first 24 h in an ICU",
        "care unit × two-year window, the 230 largest",
        "physionet.org/content/mimiciv, credentialed",
        (
            "hosp/patients.csv.gz",
            "hosp/admissions.csv.gz",
            "hosp/diagnoses_icd.csv.gz",
            "icu/icustays.csv.gz",
            "icu/chartevents.csv.gz",
        ),
    ),
    "synthetic": Entry(
        "synthetic",
        "made-up ICU stays, FedProx-Synthetic(α, β)",
        "any number",
        "drawn",
    ),
    "table": Entry(
        "table",
        "a table of your own, schema from a contract",
        "a column",
        "yours",
    ),
}


def load(
    name: str,
    data_dir: Path | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Callable[[str, float | None], None] | None = None,
) -> Dataset:
    """Read a data set; ``data_dir`` None stands for what ``ABPS_DATA_DIR`` says.

    Raises ``ConfigError`` for an unknown name or option, a leak, or a directory that nobody named,
    and ``DataError`` for files that are missing or faulty.
    """
    from sim.datasets.files import find_folder

    entry = find_entry(name)
    module = importlib.import_module(f"sim.datasets.{entry.module}")
    checked_options = _checked_options(name, module.Options, options or {})
    folder = None
    if entry.files:
        folder = find_folder(name, _root(entry, data_dir), entry.files, entry.source)
    dataset: Dataset = module.load(folder, checked_options, progress)
    return dataset


def where(name: str, data_dir: Path | None = None) -> str:
    """Where the files of a data set are, or what is missing, in words."""
    from abps_node.errors import NodeError
    from sim.datasets.files import find_folder

    entry = find_entry(name)
    if not entry.files:
        return "needs no files of ours"
    try:
        root = _root(entry, data_dir)
        return f"found in {find_folder(name, root, entry.files, entry.source)}"
    except NodeError as error:
        return str(error).removesuffix(f"; the data: {entry.source}")


def find_entry(name: str) -> Entry:
    """The entry of a data set; ``ConfigError`` names those that are like it."""
    from sim.choices import chosen

    return chosen("data set", name, DATASETS)


def _root(entry: Entry, data_dir: Path | None) -> Path | None:
    if data_dir is None and entry.shipped is not None:
        return Path(__file__).parents[2] / entry.shipped
    return data_dir


def _checked_options(name: str, model: type[BaseModel], values: Mapping[str, Any]) -> BaseModel:
    from abps_node.config_text import checked
    from abps_node.errors import ConfigError

    options, problems = checked(model, dict(values), name)
    if options is None:
        raise ConfigError("\n".join(problems))
    return options
