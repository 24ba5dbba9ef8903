"""Answers for the rows of a table: each row gets them, or a reason why it has none.

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
from abps_node.trained import TrainedModel
from abps_node.trained_heads import TrainedHeads

ROW, PROBLEM = "row", "problem"


@dataclass(frozen=True)
class Scores:
    """One entry for each row of the table, in its order."""

    row_numbers: NDArray[np.int64]
    """As a spreadsheet counts them: the header of a CSV file is row 1."""
    ids: Mapping[str, Any]
    """Columns that were asked for, as ``pyarrow.Array``."""
    outputs: tuple[str, ...]
    """Names of what the model answers: ``probability``, or one for each of several heads."""
    answers: NDArray[np.float64]
    """Shape ``(rows, outputs)``; NaN for a row that cannot be used."""
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
        """Positions of the rows without an answer."""
        return [position for position, problem in enumerate(self.problems) if problem]


def score(model: TrainedModel | TrainedHeads, path: Path, ids: Sequence[str] = ()) -> Scores:
    """Score every row of a ``.csv``, ``.csv.gz`` or ``.parquet`` file; it needs no label.

    ``ids`` are columns to hand through. Raises ``DataError`` if the file cannot be read or lacks a
    column; a cell that cannot be read costs its own row alone.
    """
    for name in ids:
        if name in (ROW, PROBLEM, *model.outputs):
            raise DataError(f"--id: found {name!r}, which the scores have themselves; rename it")
    names = [feature.name for encoder in model.encoders for feature in encoder.features]
    table = read_table(path, list(dict.fromkeys([*names, *ids]))).lenient()
    parts = [read_features(table, encoder.features) for encoder in model.encoders]
    reasons: list[list[str]] = [[] for _ in range(table.rows)]
    for misfit in table.misfits or ():
        for position in np.flatnonzero(misfit.rows):
            reasons[position].append(f"{misfit.column} is not {misfit.allowed}")
    values = np.concatenate([part.values for part in parts])
    for position in np.flatnonzero(np.isnan(values).all(axis=0)):
        if not reasons[position]:
            reasons[position].append("no feature has a value")
    problems = tuple("; ".join(each) for each in reasons)
    usable = np.array([not problem for problem in problems])
    missing = {name: rows for part in parts for name, rows in part.missing(usable).items()}
    unknown = {name: levels for part in parts for name, levels in part.unknown().items()}
    return Scores(
        row_numbers=table.first_row + np.arange(table.rows, dtype=np.int64),
        ids={name: table.columns[name] for name in ids},
        outputs=model.outputs,
        answers=np.where(usable[:, None], model.answers(parts), np.nan),
        problems=problems,
        filled={name: count for name, count in missing.items() if count},
        unknown={name: sum(levels.values()) for name, levels in unknown.items()},
        ignored=table.ignored,
    )
