"""Probabilities for the rows of a table: each row gets one, or a reason why it has none.

Nothing here, and no error from here, quotes a cell: new patients are nobody's business but theirs
who hold the table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from abps_node.data import read_table
from abps_node.data.features import read_features
from abps_node.errors import DataError
from abps_node.learning.utility import probability
from abps_node.trained import TrainedModel

ROW, PROBABILITY, PROBLEM = "row", "probability", "problem"


@dataclass(frozen=True)
class Scores:
    """One entry for each row of the table, in its order."""

    row_numbers: NDArray[np.int64]
    """As a spreadsheet counts them: the header of a CSV file is row 1."""
    ids: Mapping[str, Any]
    """Columns that were asked for, as ``pyarrow.Array``."""
    probabilities: NDArray[np.float64]
    """NaN for a row that cannot be used."""
    problems: tuple[str, ...]
    """Why a row cannot be used, else empty."""
    filled: Mapping[str, int]
    """Feature to rows in which its training value stood in for a missing one."""
    unknown: Mapping[str, int]
    """Categorical feature to rows with a level that the model does not know."""
    ignored: tuple[str, ...]
    """Columns that the model does not use."""

    @property
    def unusable(self) -> list[int]:
        """Positions of the rows without a probability."""
        return [position for position, problem in enumerate(self.problems) if problem]


def score(model: TrainedModel, path: Path, ids: Sequence[str] = ()) -> Scores:
    """Score every row of a ``.csv``, ``.csv.gz`` or ``.parquet`` file; it needs no label.

    ``ids`` are columns to hand through. Raises ``DataError`` if the file cannot be read or lacks a
    column; a cell that cannot be read costs its own row alone.
    """
    features = model.encoder.features
    for name in ids:
        if name in (ROW, PROBABILITY, PROBLEM):
            raise DataError(f"--id: found {name!r}, which the scores have themselves; rename it")
    wanted = list(dict.fromkeys([*(feature.name for feature in features), *ids]))
    table = read_table(path, wanted).lenient()
    raw = read_features(table, features)
    reasons: list[list[str]] = [[] for _ in range(table.rows)]
    for misfit in table.misfits or ():
        for position in np.flatnonzero(misfit.rows):
            reasons[position].append(f"{misfit.column} is not {misfit.allowed}")
    for position in np.flatnonzero(np.isnan(raw.values).all(axis=0)):
        if not reasons[position]:
            reasons[position].append("no feature has a value")
    problems = tuple("; ".join(each) for each in reasons)
    usable = np.array([not problem for problem in problems])
    probabilities = probability(model.log_odds(raw))
    return Scores(
        row_numbers=table.first_row + np.arange(table.rows, dtype=np.int64),
        ids={name: table.columns[name] for name in ids},
        probabilities=np.where(usable, probabilities, np.nan),
        problems=problems,
        filled={name: count for name, count in raw.missing(usable).items() if count},
        unknown={name: sum(levels.values()) for name, levels in raw.unknown().items()},
        ignored=table.ignored,
    )
