"""What every adapter makes: one table that carries its schema, and a column of centers.

An adapter is a list of columns, each a feature of the contract and the SQL that takes it from the
source, and the SQL around them. What would tell the outcome is in ``leaks``, refused by name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from abps_node.config_text import checked
from abps_node.errors import ConfigError
from protocol.contract import Contract, Data, Feature, Strict
from sim import partitions
from sim.division import Division, Least, LeftOut, divide
from sim.federation import Federation, federation_of

CENTER: Final = "center"
"""The column that says whose row it is; never a feature."""

_DRAWN: Final = 20

Progress = Callable[[str, float | None], None]
"""Told what is being done and which share of it is done (None: unknown)."""


class Options(Strict):
    """What can be asked of every data set with patients."""

    partition: Literal["natural", "dirichlet", "iid"] = Field(
        default="natural", description="natural: the centers of the data; the others are drawn"
    )
    centers: int | None = Field(
        default=None, ge=1, description="natural: only so many, the largest; drawn: how many"
    )
    alpha: float = Field(default=0.5, gt=0, description="concentration of the Dirichlet draw")
    seed: int = Field(default=0, ge=0, description="of the drawn partition")
    split_seed: int = Field(default=0, ge=0, lt=2**63, description="of the 70/15/15 split")
    features: list[str] | None = Field(
        default=None, description="only these features of the schema, in its order"
    )
    min_rows: int | None = Field(default=None, ge=1, description="centers with fewer are left out")
    min_per_class: int = Field(
        default=0, ge=0, description="centers with fewer rows of either class are left out"
    )

    @model_validator(mode="after")
    def _draws_alone_have_their_options(self) -> Self:
        for key, allowed in (("seed", ("dirichlet", "iid")), ("alpha", ("dirichlet",))):
            if key in self.model_fields_set and self.partition not in allowed:
                raise ValueError(
                    f"{key}: found with partition {self.partition}, where nothing would come of "
                    f"it, allowed: with {' or '.join(allowed)}"
                )
        return self


@dataclass(frozen=True)
class Column:
    """A feature and the SQL expression that takes it from the source."""

    feature: Feature
    sql: str


@dataclass(frozen=True)
class Dataset:
    """A table with its schema and its centers, before anything is split or encoded."""

    name: str
    title: str
    """For people; becomes the contract's name."""
    table: pa.Table
    """``center``, then the columns of the schema; one row per stay, encounter or patient."""
    data: Data
    """Features, label, group (patient) and date columns, card."""
    notes: tuple[str, ...] = ()
    """What was excluded, counted or decided; part of every output."""
    least: Least = field(default_factory=Least)
    left_out: tuple[LeftOut, ...] = ()
    """Centers of the source that are not in the table, with the reason."""
    base: Contract | None = None
    """Where the data set brings its own contract: what its other sections hold."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """As they were given, for the record."""

    def contract(self, **sections: Mapping[str, Any]) -> Contract:
        """A contract over this schema; ``policy``, ``model``… replace whole sections.

        Raises ``ConfigError`` naming the key.
        """
        values = {} if self.base is None else self.base.model_dump(exclude_unset=True)
        values |= {"name": self.title, "data": self.data.model_dump(exclude_unset=True)}
        model, problems = checked(Contract, {**values, **sections}, self.name)
        if model is None:
            raise ConfigError("\n".join(problems))
        return model

    def division(self, contract: Contract) -> Division:
        """Every row's center, and who is too small; ``left_out`` has those of the table too."""
        division = divide(contract, self.table, CENTER, source=self.name, least=self.least)
        return replace(division, left_out=(*self.left_out, *division.left_out))

    def federation(self, contract: Contract | None = None) -> Federation:
        """All centers in memory, split and encoded."""
        agreed = contract or self.contract()
        return federation_of(agreed, self.division(agreed), self.name)


def chosen(
    name: str, columns: Sequence[Column], wanted: Sequence[str] | None, leaks: Mapping[str, str]
) -> tuple[Column, ...]:
    """The columns to take: all, or those wanted; ``leaks`` maps a pattern of names to the reason.

    Raises ``ConfigError`` for a leak and for a name that is no feature.
    """
    if wanted is None:
        return tuple(columns)
    known = {column.feature.name: column for column in columns}
    for asked in wanted:
        for pattern, why in leaks.items():
            if asked not in known and re.fullmatch(pattern, asked, re.IGNORECASE):
                raise ConfigError(f"{name}: features: found {asked!r}, which would leak: {why}")
        if asked not in known:
            near = difflib.get_close_matches(asked, known, n=3) or list(known)
            raise ConfigError(f"{name}: features: found {asked!r}, allowed: {', '.join(near)}")
    return tuple(column for feature, column in known.items() if feature in wanted)


def select_list(columns: Sequence[Column]) -> str:
    """The columns as the list of a SELECT."""
    return ",\n".join(f'{column.sql} AS "{column.feature.name}"' for column in columns)


def schema(
    columns: Sequence[Column],
    *,
    split_seed: int,
    label: str,
    group: str | None = None,
    date: str | None = None,
    card: Sequence[str] = (),
) -> Data:
    """The contract's data section over these columns; card features that were not taken drop."""
    features = [column.feature for column in columns]
    names = {feature.name for feature in features}
    return Data.model_validate(
        {
            "label": label,
            **({"group": group} if group is not None else {}),
            **({"date": date} if date is not None else {}),
            "features": [feature.model_dump(exclude_unset=True) for feature in features],
            "split_seed": split_seed,
            "card": {"features": [name for name in card if name in names]},
        }
    )


def partitioned(dataset: Dataset, options: Options, default_centers: int | None = None) -> Dataset:
    """The data set with the centers that the options ask for.

    ``default_centers`` holds where the options name no number: how many of the largest natural
    centers are taken (None: all), or how many are drawn (None: 20).
    """
    least = Least(options.min_rows or dataset.least.rows, options.min_per_class)
    dataset = replace(dataset, least=least, options=options.model_dump(exclude_unset=True))
    if options.partition == "natural":
        asked = options.centers is not None
        return _largest(dataset, options.centers or default_centers, asked)
    count = options.centers or default_centers or _DRAWN
    if options.partition == "iid":
        names, how = partitions.iid(_patients(dataset), count, options.seed), "IID"
    else:
        labels = dataset.table[dataset.data.label].to_numpy().astype(np.float64)
        names = partitions.dirichlet(labels, _patients(dataset), count, options.alpha, options.seed)
        how = f"Dirichlet({options.alpha:g})"
    note = f"{count} centers drawn at random ({how}, seed {options.seed}): no real hospitals"
    return replace(
        with_centers(dataset, names),
        title=f"{dataset.name}, {how} draw of {count} centers",
        notes=(*dataset.notes, note),
    )


def with_centers(dataset: Dataset, names: partitions.Names) -> Dataset:
    """The same rows in other centers."""
    place = dataset.table.column_names.index(CENTER)
    column = pa.array(names, type=pa.string())
    return replace(dataset, table=dataset.table.set_column(place, CENTER, column))


def _largest(dataset: Dataset, count: int | None, asked: bool) -> Dataset:
    if count is None:
        return dataset
    names = dataset.table[CENTER].to_numpy()
    keep, left_out = partitions.largest(names, count)
    found = np.unique(names[keep].astype(str)).size
    notes = dataset.notes
    if found < count and asked:
        notes = (*notes, f"{count} centers were asked for, the data have {found}")
    table = dataset.table.filter(pa.array(keep))
    return replace(dataset, table=table, left_out=(*dataset.left_out, *left_out), notes=notes)


def _patients(dataset: Dataset) -> list[str]:
    group = dataset.data.group
    if group is None:
        return [str(row) for row in range(dataset.table.num_rows)]
    return [str(patient) for patient in dataset.table[group].to_pylist()]
