"""The file of scores: the rows of the table in their order, CSV or Parquet, whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from abps_node.atomic import require_free, write_whole
from abps_node.errors import NodeError
from abps_node.predict.score import PROBLEM, ROW, Scores

_SUFFIXES: Final = (".csv", ".parquet")


def require_writable(table: Path, out: Path, force: bool) -> None:
    """Raise ``NodeError`` if ``out`` cannot become the file of scores; asked before any work."""
    if out.suffix.lower() not in _SUFFIXES:
        raise NodeError(f"{out}: found {out.suffix!r}, allowed: {', '.join(_SUFFIXES)}")
    if out.exists() and table.exists() and out.samefile(table):
        raise NodeError(f"{out}: is the table itself, allowed: another file for the scores")
    require_free(out, force)


def write_scores(scores: Scores, out: Path, force: bool) -> None:
    """Write all rows, readable by this user alone; raises ``NodeError``."""
    table = _table(scores)

    def fill(file: BinaryIO) -> None:
        if out.suffix.lower() == ".parquet":
            pq.write_table(table, file)
        else:
            pacsv.write_csv(table, file, pacsv.WriteOptions(quoting_style="needed"))

    write_whole(out, fill, force=force)


def _table(scores: Scores) -> pa.Table:
    answers = zip(scores.outputs, scores.answers.T, strict=True)
    return pa.table(
        {
            ROW: pa.array(scores.row_numbers),
            **scores.ids,
            **{name: pa.array(column, mask=np.isnan(column)) for name, column in answers},
            PROBLEM: pa.array([problem or None for problem in scores.problems], pa.string()),
        }
    )
