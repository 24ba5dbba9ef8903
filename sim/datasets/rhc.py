"""The demo's patients: right heart catheterization study, death within 30 days, care units.

Connors et al., JAMA 1996;276:889–897; the file, its columns and what was left out of it are
described in ``examples/rhc/README.md``, and the schema is that of the demo's contract.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from protocol.contract import Contract
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
from sim.division import Least

__all__ = ["LEAKS", "Options", "load"]

SHIPPED: Final = Path(__file__).parents[2] / "examples" / "rhc"
LEAST_PATIENTS: Final = 200
"""Units with fewer are no centers, as in the demo."""

LEAKS: Final[Mapping[str, str]] = {
    "death|death_30d|time|event|dth30|t3d30": "the outcome",
    "surv2md1": "what another model predicted",
    "swang1": "the treatment that the study was about",
    "adld3p": "an interview on day 3, which only survivors gave",
    "race|education|income|insurance": "kept for audits, and no input by decision of the demo",
}


def load(folder: Path, options: Options, progress: Progress | None = None) -> Dataset:
    """All patients; raises ``DataError`` and ``ConfigError``."""
    text = (SHIPPED / "contract.toml").read_text(encoding="utf-8")
    contract = Contract.model_validate(tomllib.loads(text))
    features = contract.data.features
    every = [Column(feature, f'"{feature.name}"') for feature in features]
    columns = chosen("rhc", every, options.features, LEAKS)
    label = contract.data.label
    sql = f"""
        SELECT replace(unit, ' w/', ' ') AS {CENTER}, {label}::INTEGER AS {label},
            {select_list(columns)}
        FROM rhc
    """
    table = query(sql, {"rhc": folder / "rhc.csv.gz"}, progress, "reading")
    dataset = Dataset(
        name="rhc",
        title=contract.name,
        table=table,
        data=schema(
            columns, split_seed=options.split_seed, label=label, card=contract.data.card.features
        ),
        notes=(f"{table.num_rows} patients in the file",),
        least=Least(LEAST_PATIENTS) if options.partition == "natural" else Least(),
        base=contract,
    )
    return partitioned(dataset, options)
