"""A table of the user's own: CSV or Parquet with a column of centers, schema from a contract."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pydantic import Field

from abps_node.config import read_toml
from abps_node.config_text import checked
from abps_node.data import column_names, read_table
from abps_node.errors import ConfigError, DataError
from protocol.contract import Contract
from sim.datasets import base
from sim.datasets.base import CENTER, Dataset, Progress
from sim.division import center_id

__all__ = ["Options", "digests", "load"]

_SHOWN: Final = 6


class Options(base.Options):
    """As for every data set, and where the table is."""

    file: str = Field(description="the table, .csv, .csv.gz or .parquet")
    contract: str = Field(
        description="TOML with the contract: a federation.toml, or what stands below [contract]"
    )
    center_column: str = Field(default=CENTER, description="the column that names the center")


def load(_: None, options: Options, progress: Progress | None = None) -> Dataset:
    """The columns of the contract and the center's; raises ``DataError`` and ``ConfigError``."""
    path = Path(options.file)
    contract = read_contract(Path(options.contract), path.name.partition(".")[0])
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
    centers = read.groups(options.center_column, "a center")
    columns = {CENTER: centers}
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
    if options.partition == "natural":
        dataset = replace(dataset, notes=(*dataset.notes, *_renamed(centers)))
    return base.partitioned(dataset, options)


def digests(options: Mapping[str, Any]) -> dict[str, str]:
    """SHA-256 of the files that the options name, so that no result of others passes for theirs."""
    found = {}
    for key in ("contract", "file"):
        path = Path(str(options.get(key, "")))
        if path.is_file():
            stat = path.stat()
            found[key] = _digest(path, stat.st_mtime_ns, stat.st_size)
    return found


@lru_cache(maxsize=8)
def _digest(path: Path, _changed: int, _size: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _renamed(centers: Iterable[str]) -> Iterator[str]:
    """The centers whose names cannot be ids as they stand; case and spaces are not worth a word."""
    names = {name: center_id(name) for name in sorted(set(centers))}
    changed = [
        f"{name!r} is {made}"
        for name, made in names.items()
        if made != "-".join(name.lower().split())
    ]
    if changed:
        more = f", and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        yield f"names that became ids: {', '.join(changed[:_SHOWN])}{more}"


def read_contract(path: Path, name: str) -> Contract:
    """The contract of a TOML file, called ``name`` if it has none of its own.

    ``ConfigError`` names every problem.
    """
    values = read_toml(path)
    raw = values.get("contract", values)
    if isinstance(raw, dict):
        raw = {"name": name, **raw}
    model, problems = checked(Contract, raw, path)
    if model is None:
        raise ConfigError("\n".join(problems))
    return model
