"""A center that has been trained for a few rounds, by the real daemon, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import abps
from tests.support.made_center import Row, make_center
from tests.support.toml_files import federation_tables

FEATURES: list[dict[str, Any]] = [
    {"name": "age", "kind": "continuous", "unit": "years"},
    {"name": "lactate", "kind": "continuous", "missing_indicator": True},
    {"name": "diabetes", "kind": "binary"},
    {"name": "sex", "kind": "binary", "levels": ["F", "M"]},
    {"name": "ward", "kind": "categorical", "levels": ["icu", "NA"], "missing_indicator": True},
]


def patient_rows(count: int = 400) -> list[Row]:
    """Patients with missing values, an undeclared ward, an id and a date; the label follows age."""
    rows: list[Row] = []
    for number in range(count):
        age = 20 + number * 37 % 70
        lactate = "" if number % 6 == 0 else round(0.5 + number * 7 % 90 / 10, 1)
        rows.append(
            {
                "patient": f"P{number:04d}",
                "age": age,
                "lactate": lactate,
                "diabetes": "" if number % 31 == 0 else number % 3 % 2,
                "sex": "FM"[number % 2],
                "ward": ("icu", "NA", "burns", "")[number % 4],
                "admitted": f"2020-{1 + number % 12:02d}-03",
                "died": int((age + number * 13 % 50) > 80),
            }
        )
    return rows


def train_center(
    directory: Path,
    rounds: int = 3,
    rows: int = 400,
    own: str = "",
    more: Callable[[int], Row] = lambda number: {},
    **policy: Any,
) -> Path:
    """Make a center, let it run its rounds alone; its center.toml, which ends in ``own``.

    ``more`` gives further cells of a row by its number.
    """
    federation = federation_tables()
    contract = federation["contract"]
    contract["data"] = {"label": "died", "features": FEATURES}
    contract["model"] = {"hidden": [8, 4]}
    contract["policy"] = {"preset": "abps+p+q", "rounds": rounds, **policy}
    contract["pacing"] = {
        "min_peers": 0,
        "start_wait_s": 0.0,
        "round_min_s": 0.0,
        "negotiation_s": 0.2,
        "linger_s": 0.2,
    }
    patients = [{**row, **more(number)} for number, row in enumerate(patient_rows(rows))]
    path = make_center(directory, rows=patients, federation=federation)
    text = path.read_text(encoding="utf-8") + f"\ncompare_alone = false\n{own}"
    path.write_text(text, encoding="utf-8")
    outcome = abps("run", path)
    if outcome.code != 0:
        pytest.fail(f"the center did not finish: {outcome.err}")
    return path
