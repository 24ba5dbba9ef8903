"""Public patient data that are not part of the project: tests that need them skip without."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim.datasets import DATASETS
from sim.datasets.files import VARIABLE

FOLDERS = {"mimic-iv": "mimic-iv-demo"}
"""Where the folder is not called as the data set is."""


def data_dir(name: str) -> Path | None:
    """The ``--data-dir`` of a data set; skips the test, naming the file, where one is missing."""
    entry = DATASETS[name]
    if not entry.files or entry.shipped is not None:
        return None
    root = os.environ.get(VARIABLE)
    if root is None:
        pytest.skip(f"{VARIABLE} is not set; {name} needs {entry.files[0]}")
    folder = Path(root) / FOLDERS.get(name, name)
    for file in entry.files:
        if not (folder / file).is_file():
            pytest.skip(f"{folder / file} is not there")
    return folder
