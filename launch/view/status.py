"""`abps launch status`: every center in a line, those that need somebody first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from abps_node.cli.human import (
    MISSING,
    clean,
    clock,
    count,
    duration,
    fits,
    metric_name,
    number,
    plain,
    size,
    utc,
)
from abps_node.store.views import Status
from launch.layout import FederationLayout
from launch.view.attention import Level, Row, by_attention, phase_of, state_word, tally
from launch.view.reading import look_at

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

MANY: Final = 30
"""Beyond this number only the most urgent have a line of their own."""
_STYLES: Final = {Level.FINE: "", Level.DONE: "green", Level.BEHIND: "yellow"}
_ROOMY: Final = 20
"""Lines of a screen from which on there is room for the legend."""
_GROUP: Final = 8
"""Centers that are named with one and the same reason; the others are counted."""
_NAMED: Final = 2
"""Partners that are named in the table; the others are counted."""


@dataclass(frozen=True)
class Overview:
    """All centers at one moment, most urgent first."""

    layout: FederationLayout
    at: float
    """Wall clock seconds."""
    rows: tuple[Row, ...]

    @property
    def urgent(self) -> list[Row]:
        """Those that need somebody."""
        return [row for row in self.rows if row.attention.level.needs_somebody]

    @property
    def finished(self) -> bool:
        """Whether nothing is left to happen."""
        return all(row.attention.level is Level.DONE for row in self.rows)


def collect(layout: FederationLayout, now: float) -> Overview:
    """Look at all centers; never fails for what a state is like."""
    rows = by_attention(look_at(layout), layout.contract.pacing, now)
    return Overview(layout, now, tuple(rows))


# As JSON -----------------------------------------------------------------------------------------


def document(overview: Overview) -> dict[str, Any]:
    """The overview as JSON types; times in UTC."""
    contract = overview.layout.contract
    return {
        "directory": str(overview.layout.directory),
        "federation": contract.name,
        "contract": contract.digest(),
        "at": utc(overview.at),
        "rounds_planned": contract.policy.rounds,
        "states": tally(overview.rows),
        "needs_somebody": len(overview.urgent),
        "centers": [_entry(row) for row in overview.rows],
    }


def _entry(row: Row) -> dict[str, Any]:
    look, status = row.look, row.look.status
    return {
        "id": look.id,
        "state": state_word(row),
        "level": row.attention.level.name.lower(),
        "needs_somebody": row.attention.level.needs_somebody,
        "reason": row.attention.reason,
        "problem": look.problem,
        "seen": utc(look.seen),
        "suspected_by": look.hearsay.suspected,
        "last_words": look.last_words,
        **(_known(status) if status is not None else {}),
    }


def _known(status: Status) -> dict[str, Any]:
    return {
        "host": status.host,
        "pid": status.pid,
        "endpoint": status.endpoint,
        "incarnation": status.incarnation,
        "phase": phase_of(status),
        "phase_round": status.phase_round,
        "last_round": status.last_round,
        "last_round_at": utc(status.last_round_at),
        "partners_now": list(status.partners_now),
        "partners_last": list(status.partners_last),
        "isolated": status.isolated,
        "validation": plain(status.validation),
        "test": status.reports,
        "sent_bytes": status.sent.wire_bytes,
        "received_bytes": status.received.wire_bytes,
    }


# For people --------------------------------------------------------------------------------------


def render(
    overview: Overview, console: Console, everyone: bool, height: int | None = None
) -> RenderableType:
    """Who needs somebody and why, then the table; at most ``height`` lines if that is given."""
    from rich.console import Group

    urgent, rows = overview.urgent, shown_rows(overview.rows, everyone)
    legend = height is None or height >= _ROOMY
    if height is not None:
        # What is left beside headings, reasons' frame and legend; the reasons take a third of it.
        left = height - (10 if legend else 6)
        urgent = urgent[: max(2, left // 3)]
        rows = rows[: max(3, left - len(urgent))]
    parts: list[RenderableType] = [*_head(overview), *_reasons(overview, urgent)]
    made = _fitting(rows, overview.at, console)
    parts += [made, *_more(overview, rows)]
    return Group(*parts, *(_legend(overview, made) if legend else ()))


def shown_rows(rows: Sequence[Row], everyone: bool) -> list[Row]:
    """All of a small federation, of a large one the most urgent."""
    return list(rows) if everyone else list(rows[:MANY])


def _head(overview: Overview) -> list[Text]:
    from rich.text import Text

    contract, rows = overview.layout.contract, overview.rows
    policy = contract.policy
    committed = [row.look.status.last_round for row in rows if row.look.status is not None]
    spread = f"rounds {min(committed)} to {max(committed)}" if committed else "no round"
    states = ", ".join(f"{n} {word}" for word, n in tally(rows).items())
    hosts = sorted(
        {row.look.status.host for row in rows if row.look.status and row.look.status.host}
    )
    where = (
        "" if not hosts else f" · on {hosts[0] if len(hosts) == 1 else count(len(hosts), 'host')}"
    )
    return [
        Text(
            f"{clean(contract.name)}: {count(len(rows), 'center')}, {spread} of {policy.rounds} · "
            f"{states}{where} · {clock(overview.at)}",
            style="bold",
        )
    ]


def _reasons(overview: Overview, shown: Sequence[Row]) -> list[RenderableType]:
    from rich.text import Text

    if not overview.urgent:
        return [Text("Nobody needs attention."), Text()]
    lines: list[RenderableType] = [
        Text(f"{count(len(overview.urgent), 'center needs', 'centers need')} attention:")
    ]
    for reason, rows in grouped(shown):
        names = ", ".join(row.look.id for row in rows[:_GROUP])
        names += f" and {len(rows) - _GROUP} more" if len(rows) > _GROUP else ""
        lines.append(Text.assemble("  ", (names, f"bold {_style(rows[0])}"), f": {reason}"))
    more = len(overview.urgent) - len(shown)
    return [*lines, *([Text(f"  … and {more} more")] if more else []), Text()]


def grouped(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Reason to the rows that have it, the most urgent first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.attention.reason, []).append(row)
    return list(groups.items())


def _more(overview: Overview, rows: Sequence[Row]) -> list[Text]:
    from rich.text import Text

    more = len(overview.rows) - len(rows)
    return [Text(f"… and {count(more, 'center')} more; --all lists them.")] if more else []


def _legend(overview: Overview, made: Table) -> list[Text]:
    from rich.text import Text

    if all(row.look.status is None for row in overview.rows):
        return []
    words = " ".join(_LEGEND[str(c.header)] for c in made.columns if c.header in _LEGEND)
    return [Text(), Text(words, style="dim")]


_COLUMNS: Final = (
    "center",
    "host",
    "state",
    "round",
    "partners now",
    "isolated",
    "validation",
    "test AUROC",
    "bytes",
    "seen",
)
_LEGEND: Final = {
    "validation": "Validation: of the last committed round, on the center's own validation split.",
    "test AUROC": "Test AUROC: alone → federated, measured once after the last round.",
    "bytes": "Bytes: sent / received on the wire.",
    "seen": "Seen: the last sign of life.",
}
_LESS: Final[tuple[frozenset[str], ...]] = (
    frozenset(),
    frozenset({"host"}),
    frozenset({"host", "bytes"}),
    frozenset({"host", "bytes", "validation"}),
)
"""Columns that are left out, one step after the other, until all fit."""


def _fitting(rows: Sequence[Row], now: float, console: Console) -> Table:
    cells = [_cells(row, now) for row in rows]
    one_host = len({each["host"] for each in cells} - {MISSING}) <= 1
    for left_out in _LESS:
        made = _table(rows, cells, left_out | ({"host"} if one_host else frozenset()))
        if fits(made, console):
            break
    return made


def _table(rows: Sequence[Row], cells: Sequence[dict[str, str]], left_out: frozenset[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    names = [name for name in _COLUMNS if name not in left_out]
    for name in names:
        right = name in ("round", "validation", "seen", "bytes")
        made.add_column(name, justify="right" if right else "left", overflow="fold")
    for row, values in zip(rows, cells, strict=True):
        texts = [Text(values[name]) for name in names]
        texts[0].stylize("bold")
        texts[names.index("state")].stylize(_style(row))
        made.add_row(*texts)
    return made


def _cells(row: Row, now: float) -> dict[str, str]:
    look, status = row.look, row.look.status
    cells = dict.fromkeys(_COLUMNS, MISSING)
    cells["center"] = look.id
    cells["state"] = _state(row)
    cells["seen"] = MISSING if look.seen is None else duration(now - look.seen)
    if status is None:
        return cells
    cells["host"] = clean(status.host or MISSING)
    cells["round"] = f"{status.last_round}/{status.rounds_planned}"
    cells["partners now"] = few(status.partners_now)
    cells["isolated"] = _isolated(status)
    cells["bytes"] = f"{size(status.sent.wire_bytes)} / {size(status.received.wire_bytes)}"
    cells["test AUROC"] = _test(status)
    if status.validation is not None:
        found = status.validation
        name = "" if found.metric == "auroc" else f"{metric_name(found.metric)} "
        cells["validation"] = f"{name}{number(found.value)}"
    return cells


def _state(row: Row) -> str:
    """What it does now, or what has become of it."""
    word, status = state_word(row), row.look.status
    if word == "running" and status is not None:
        return phase_of(status)
    return word


def few(names: Sequence[str]) -> str:
    """Some names; the others are counted."""
    more = f" +{len(names) - _NAMED}" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more if names else MISSING


def _isolated(status: Status) -> str:
    total = sum(status.isolated.values())
    if not total:
        return "0"
    cause = next(iter(status.isolated))
    return f"{total} {cause}" if len(status.isolated) == 1 else f"{total}, mostly {cause}"


def _test(status: Status) -> str:
    if not status.reports:
        return MISSING
    values = [
        number(status.reports[name]["auroc"]) if name in status.reports else MISSING
        for name in ("alone", "federated")
    ]
    return " → ".join(values)


def _style(row: Row) -> str:
    return _STYLES.get(row.attention.level, "red")
