"""Four centers of the RHC patients with wishes and columns of their own."""

from __future__ import annotations

import importlib.util
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from protocol.contract import Contract
from tests.support.wards import PACING

RHC = Path(__file__).parents[2] / "examples" / "rhc"
ROUNDS = 4
PRIVATE = {
    "chf": ["weight", "urine_output"],
    "coma": ["coma_score"],
    "copd": ["pao2_fio2", "paco2", "arterial_ph"],
    "cirrhosis": ["bilirubin", "albumin"],
}
MORTALITY = {"name": "mortality", "kind": "bce", "column": "death_30d"}
STAY = {"name": "stay", "kind": "huber-log", "column": "made_stay"}
ALARM = {"name": "alarm", "kind": "sensitivity", "column": "death_30d", "false_negative_cost": 4.0}
FAIR = {"name": "fair", "kind": "fairness", "column": "death_30d", "group": "sex"}
AIMS: dict[str, dict[str, Any]] = {
    "chf": {"objective": [MORTALITY]},
    "coma": {"objective": [STAY], "local_step": "plain"},
    "copd": {
        "objective": [MORTALITY, STAY, ALARM],
        "gradient_normalization": "unit",
        "private_features": "stage2",
        "stage2": {"epochs": 3},
    },
    "cirrhosis": {"objective": [FAIR, STAY], "local_step": "weighted"},
}


@cache
def units() -> dict[str, pa.Table]:
    """Center id to its patients, as the demo lays them out."""
    spec = importlib.util.spec_from_file_location("rhc_prepare", RHC / "prepare.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tables: dict[str, pa.Table] = module.split_by_unit(module.read_table())
    return tables


def contract(kind: str, min_peers: int) -> Contract:
    """Common features are those that no center keeps for itself."""
    values = tomllib.loads((RHC / "contract.toml").read_text(encoding="utf-8"))
    kept = {name for names in PRIVATE.values() for name in names}
    data = values["data"]
    data["features"] = [each for each in data["features"] if each["name"] not in kept]
    fedcare = kind == "fedcare"
    return Contract.model_validate(
        {
            "name": "rhc with objectives",
            "data": data,
            "model": {"kind": kind, **({"hidden": [32, 32, 16]} if fedcare else {})},
            "policy": {
                "rounds": ROUNDS,
                "kappa": 2,
                "epsilon": 0.0,
                "head_layers": 3 if fedcare else 1,
            },
            "pacing": {**PACING, "min_peers": min_peers},
        }
    )


def with_stay(table: pa.Table, seed: int) -> pa.Table:
    """The file has no length of stay; this one is made of a score, with a few left out."""
    score = pc.fill_null(table["apache3_score"].cast(pa.float64()), 50.0).to_numpy()
    rng = np.random.default_rng(seed)
    days = np.round(np.exp(score / 60.0 + rng.normal(0.5, 0.4, score.size)), 1)
    missing = rng.random(score.size) < 0.05
    return table.append_column("made_stay", pa.array(days, mask=missing))


def features() -> dict[str, dict[str, Any]]:
    """Name to the schema of a feature of the demo."""
    values = tomllib.loads((RHC / "contract.toml").read_text(encoding="utf-8"))
    return {each["name"]: each for each in values["data"]["features"]}
