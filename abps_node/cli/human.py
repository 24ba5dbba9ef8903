"""How the reading commands write numbers, times and texts, for people and as JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from abps_node.visible import visible, visible_json

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

WIDTH_WITHOUT_TERMINAL: Final = 100
MISSING: Final = "–"
_METRICS: Final = {
    "brier": "1 − brier",
    "logloss": "−log-loss",
    "mae-gain": "1 − mae/median's",
    "mean": "mean over objectives",
}
"""Those whose recorded value, for which more is better, is not the plain score."""
_UNBOUNDED: Final = 10_000


def console() -> Console:
    """Standard output, 100 columns wide where it is no terminal; never interprets markup."""
    from rich.console import Console

    made = Console(highlight=False, markup=False, emoji=False)
    if made.is_terminal:
        return made
    return Console(
        width=WIDTH_WITHOUT_TERMINAL, highlight=False, markup=False, emoji=False, color_system=None
    )


def clean(text: str) -> str:
    """Text that may quote a peer, so that nothing in it acts on a terminal or turns it around."""
    return visible(text)


def count(number: int, one: str, many: str | None = None) -> str:
    """«1 round», «2 rounds»."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def size(number: float) -> str:
    """Bytes in decimal units with three digits: «0 B», «12.3 kB»."""
    units = ["TB", "GB", "MB", "kB", "B"]
    while number >= 999.5 and len(units) > 1:
        number /= 1000
        units.pop()
    digits = 0 if units[-1] == "B" or number >= 99.95 else 1
    return f"{number:.{digits}f} {units[-1]}"


def duration(seconds: float) -> str:
    """A span in its largest whole unit: «12 s», «3 min», «2 h», «4 d»."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def ago(at: float | None) -> str:
    """How long ago a wall clock time was; a dash for none."""
    return MISSING if at is None else duration(time.time() - at)


def clock(at: float | None) -> str:
    """A wall clock time in local time, to the second; a dash for none."""
    return MISSING if at is None else f"{datetime.fromtimestamp(at):%Y-%m-%d %H:%M:%S}"


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; a dash for none."""
    return MISSING if value is None else f"{value:.{digits}f}"


def metric_name(metric: str) -> str:
    """A recorded validation metric as what its value is: 1 − brier, −log-loss, or its own name."""
    return _METRICS.get(metric, metric)


def fits(table: Table, console: Console) -> bool:
    """Whether all cells of a table can be shown as they are, unfolded."""
    from rich.measure import Measurement

    unbounded = console.options.update(width=_UNBOUNDED)
    return Measurement.get(console, unbounded, table).maximum <= console.width


def signed(value: float | None) -> str:
    """A credit, in thousandths, always with its sign."""
    return MISSING if value is None else f"{value:+.3f}"


def utc(at: float | None) -> str | None:
    """A wall clock time for JSON: ISO 8601 in UTC."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_json(value: Any, *, indent: int | None = 2) -> str:
    """One JSON text; values that JSON cannot say (NaN, infinity) become null."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, indent=indent)
    return visible_json(text)


def plain(value: Any) -> Any:
    """Records, dataclasses and mappings as the types of JSON."""
    if isinstance(value, BaseModel):
        return plain(value.model_dump(mode="json"))
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
