"""Where a run's centers come from: a data set by name, or a federation directory.

With a data set the run's seed draws everything: the 70/15/15 split, the initial weights and what
each center draws. So methods of one seed stand on the same splits and are compared pair by pair,
and the spread over seeds holds the luck of the split too. With a directory the files decide about
split and initial weights, as they do for the daemons.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from protocol.randomness import derive_seed
from sim.datasets import load
from sim.datasets import table as own_table
from sim.datasets.base import Dataset, Progress
from sim.datasets.summary import without_values
from sim.federation import Federation, load_federation_directory


@dataclass(frozen=True)
class Source:
    """A data set with options, or a directory; exactly one of ``data`` and ``directory``."""

    data: str | None = None
    options: tuple[tuple[str, Any], ...] = ()
    """Of the data set, sorted."""
    data_dir: Path | None = field(default=None, metadata={"about": "not part of any result"})
    directory: Path | None = None

    @classmethod
    def of(cls, data: str, options: Mapping[str, Any], data_dir: Path | None = None) -> Source:
        """A data set; lists among the options become tuples, so that sources can be compared."""
        items = sorted((key, _frozen(value)) for key, value in options.items())
        return cls(data, tuple(items), data_dir)

    @property
    def name(self) -> str:
        """For tables: the data set, or the directory's own name."""
        return self.data if self.data is not None else str(self.directory and self.directory.name)

    def files(self) -> dict[str, dict[str, str]]:
        """Digests of the user's own files, of which no option tells whether they have changed."""
        if self.data != "table":
            return {}
        return {"files": own_table.digests(dict(self.options))}


def federation(source: Source, seed: int, progress: Progress | None = None) -> Federation:
    """The centers of one seed, under the source's own policy.

    Raises ``ConfigError`` and ``DataError`` as ``sim.datasets.load`` and
    ``load_federation_directory`` do.
    """
    if source.directory is not None:
        return load_federation_directory(source.directory)
    # Not through the caches if somebody watches: a cached function cannot tell how far it is.
    return (
        _divided(source, seed)
        if progress is None
        else _divide(_load(source, progress), source, seed)
    )


def _divide(dataset: Dataset, source: Source, seed: int) -> Federation:
    options = dict(source.options)
    if "split_seed" not in options:
        split_seed = derive_seed(seed, "split")
        dataset = replace(dataset, data=dataset.data.model_copy(update={"split_seed": split_seed}))
    base = dataset.base
    model = {} if base is None else base.model.model_dump(exclude_unset=True)
    contract = dataset.contract(model={**model, "init_seed": derive_seed(seed, "init")})
    return dataset.federation(contract)


def description(source: Source, made: Federation) -> dict[str, Any]:
    """What stands in a result about its data: no path, nobody left out in silence."""
    causes = Counter(out.cause for out in made.left_out)
    small = [out.id for out in made.left_out if out.cause != "not-largest"]
    return {
        "name": source.name,
        "options": {key: _thawed(value) for key, value in source.options},
        "centers": len(made.centers),
        "rows": sum(center.data.report.rows for center in made.centers),
        "positives": sum(center.data.report.positives for center in made.centers),
        "left_out": dict(sorted(causes.items())),
        "left_out_as_too_small": sorted(small),
        "without_values": without_values(made),
    }


@lru_cache(maxsize=1)
def _divided(source: Source, seed: int) -> Federation:
    """Sweeps go seed by seed: all methods of one share their centers' splits."""
    return _divide(_dataset(source), source, seed)


@lru_cache(maxsize=2)
def _dataset(source: Source) -> Dataset:
    return _load(source, None)


def _load(source: Source, progress: Progress | None) -> Dataset:
    options = {key: _thawed(value) for key, value in source.options}
    return load(source.data or "", source.data_dir, options, progress)


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _thawed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
