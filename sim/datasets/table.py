"""A table of the user's own: CSV or Parquet with a column of centers, schema from a contract."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from pydantic import Field

from abps_node.config import read_toml
from abps_node.config_text import checked
from abps_node.data import column_names, read_table
from abps_node.errors import ConfigError, DataError
from protocol.contract import Contract
from sim.datasets import base
from sim.datasets.base import CENTER, Dataset, Progress

__all__ = ["Options", "load"]


class Options(base.Options):
    """As for every data set, and where the table is."""

    file: str = Field(description="the table, .csv, .csv.gz or .parquet")
    contract: str = Field(
        description="TOML with the contract: a federation.toml, or what stands below [contract]"
    )
    center_column: str = Field(default=CENTER, description="the column that names the center")


def load(_: None, options: Options, progress: Progress | None = None) -> Dataset:
    """The columns of the contract and the center's; raises ``DataError`` and ``ConfigError``."""
    contract = read_contract(Path(options.contract))
    path = Path(options.file)
    if options.features is not None:
        raise ConfigError("table: features: the contract file says which")
    if progress is not None:
        progress("reading", None)
    names = column_names(contract.data)
    if options.center_column in names:
        raise DataError(
            f"{path}: column {options.center_column!r}: found as center and in the contract, "
            "allowed: one of the two, or the model would learn where instead of who"
        )
    read = read_table(path, [options.center_column, *names])
    columns = {CENTER: read.groups(options.center_column, "a center")}
    columns |= {name: read.columns[name] for name in names}
    data = contract.data
    if "split_seed" in options.model_fields_set:
        data = data.model_copy(update={"split_seed": options.split_seed})
    dataset = Dataset(
        name=path.name,
        title=contract.name,
        table=pa.table(columns),
        data=data,
        notes=(f"{read.rows} rows; columns not used: {', '.join(read.ignored) or 'none'}",),
        base=contract,
    )
    return base.partitioned(dataset, options)


def read_contract(path: Path) -> Contract:
    """The contract of a TOML file; ``ConfigError`` names every problem."""
    values = read_toml(path)
    model, problems = checked(Contract, values.get("contract", values), path)
    if model is None:
        raise ConfigError("\n".join(problems))
    return model
