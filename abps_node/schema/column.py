"""What can be seen of one column without knowing what it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from abps_node.data.table import PLAIN_FLAGS, Table
from abps_node.errors import DataError

_NUMBER: Final = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$", re.ASCII)
_DECIMAL_COMMA: Final = re.compile(r"^[+-]?\d+,\d+$", re.ASCII)
_OTHER_DATE: Final = re.compile(r"^\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T].*)?$", re.ASCII)
_MOSTLY: Final = 0.9
"""So much of what is there has to look alike; the rest are slips."""


@dataclass(frozen=True)
class Column:
    """A column as texts."""

    name: str
    texts: Any
    """``pyarrow`` strings, trimmed, null for missing."""

    @property
    def rows(self) -> int:
        """Length."""
        return len(self.texts)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """Every text that occurs, and in how many rows; the most frequent first."""
        pairs = pc.value_counts(self.texts.drop_null()).to_pylist()
        pairs.sort(key=lambda pair: (-pair["counts"], pair["values"]))
        return {pair["values"]: pair["counts"] for pair in pairs}

    @property
    def present(self) -> int:
        """Rows with a value."""
        return self.rows - int(self.texts.null_count)

    @property
    def missing_share(self) -> float:
        """Share of rows without a value."""
        return float(self.texts.null_count / self.rows)

    def _share(self, test: Callable[[str], object]) -> float:
        """Share of the rows with a value in which it passes the test."""
        good = sum(count for text, count in self.counts.items() if test(text))
        return good / self.present if self.present else 0.0

    @cached_property
    def is_number(self) -> bool:
        """Whether all of it are numbers, as the program reads them."""
        return self.present > 0 and all(map(_NUMBER.match, self.counts))

    @cached_property
    def mostly_number(self) -> bool:
        """Whether nearly all of it are numbers, slips and decimal commas aside."""
        return self._share(lambda text: _NUMBER.match(text) or _DECIMAL_COMMA.match(text)) > _MOSTLY

    @cached_property
    def has_decimal_commas(self) -> bool:
        """Whether a comma stands where the program wants a point."""
        return any(map(_DECIMAL_COMMA.match, self.counts))

    @cached_property
    def is_whole(self) -> bool:
        """Whether all of it are whole numbers."""
        return self.is_number and all(float(text).is_integer() for text in self.counts)

    @cached_property
    def is_date(self) -> bool:
        """Whether nearly all of it are ISO dates or times."""
        return self._share(_is_iso_date) > _MOSTLY

    @cached_property
    def is_other_date(self) -> bool:
        """Whether nearly all of it look like dates, though the program would not read them."""
        return not self.is_date and self._share(_OTHER_DATE.match) > _MOSTLY

    @cached_property
    def is_flag(self) -> bool:
        """Whether it is 0/1, true/false or yes/no, with at least one of each."""
        values = {PLAIN_FLAGS.get(text.lower()) for text in self.counts}
        return values == {0.0, 1.0}

    def flags(self) -> NDArray[np.float64]:
        """Of a flag: 0, 1 and NaN, ``(rows,)``."""
        return self.mapped({text: PLAIN_FLAGS[text.lower()] for text in self.counts})

    def numbers(self) -> NDArray[np.float64]:
        """Of numbers: those, NaN for missing, ``(rows,)``."""
        return self.mapped({text: float(text) for text in self.counts})

    def mapped(self, values: Mapping[str, float]) -> NDArray[np.float64]:
        """Every text replaced by its value, NaN for missing, ``(rows,)``."""
        index = pc.index_in(self.texts, pa.array(list(values), pa.string()))
        known = np.array([*values.values(), np.nan], dtype=np.float64)
        return np.asarray(known[index.fill_null(len(values)).to_numpy(zero_copy_only=False)])


def column_of(name: str, table: Table) -> Column | None:
    """A column of a file; None for one of a type that the program cannot read, such as a list."""
    try:
        return Column(name, table.texts(""))
    except DataError:
        return None


def _is_iso_date(text: str) -> bool:
    if "-" not in text.lstrip("-"):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
