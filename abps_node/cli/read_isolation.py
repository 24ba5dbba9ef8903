"""`abps isolation`: every round without a partner, its cause and the numbers that explain it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from abps_node.cli.human import clean, clock, count, plain, utc
from abps_node.store.reader import Reader
from abps_node.store.views import RestEntry
from protocol.record import RestCause

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@dataclass(frozen=True)
class Isolation:
    """All isolated rounds of a center; ``entries`` may be only the newest of them."""

    center: str
    rounds: int
    """Committed rounds in all."""
    totals: dict[RestCause, int]
    """In order of precedence."""
    entries: tuple[RestEntry, ...]


def collect(reader: Reader, last: int | None) -> Isolation:
    """Totals over all rounds, and the newest ``last`` isolated ones."""
    status, entries = reader.status(), reader.isolation()
    tally = Counter(entry.rest.cause for entry in entries)
    return Isolation(
        center=status.center,
        rounds=status.last_round,
        totals={cause: tally[cause] for cause in RestCause if tally[cause]},
        entries=tuple(entries if last is None else entries[-last:]),
    )


def document(found: Isolation) -> dict[str, Any]:
    """The isolated rounds as JSON types."""
    return {
        "center": found.center,
        "rounds": found.rounds,
        "isolated": sum(found.totals.values()),
        "intentional": _intentional(found),
        "totals": {
            str(cause): {"rounds": n, "intentional": cause.intentional}
            for cause, n in found.totals.items()
        },
        "entries": [
            {"round": entry.round, "at": utc(entry.at), **plain(entry.rest)}
            for entry in found.entries
        ],
    }


def show(found: Isolation, console: Console) -> None:
    """Print the totals by cause, then each isolated round with its explanation."""
    total, rounds = sum(found.totals.values()), count(found.rounds, "round")
    if found.rounds == 0:
        console.print(f"{found.center} has committed no round yet.")
    elif total == 0:
        console.print(f"{found.center} had a partner in each of {rounds}.")
    else:
        console.print(
            f"{found.center} was isolated in {total} of {rounds}, in {_intentional(found)} of them "
            "by its own filter or belief (intentional)."
        )
        console.print(_totals(found))
        console.print()
        console.print(_listing(found))


def _totals(found: Isolation) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("rounds", justify="right")
    table.add_column("cause")
    table.add_column("")
    for cause, n in found.totals.items():
        table.add_row(str(n), str(cause), "intentional" if cause.intentional else "")
    return table


def _listing(found: Isolation) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("round", "committed", "cause"):
        table.add_column(name, justify="right" if name == "round" else "left", no_wrap=True)
    table.add_column("why")
    for entry in found.entries:
        why = Text(clean(entry.rest.explanation))
        why.append(f"\n{_counts(entry)}", style="dim")
        cause = Text(str(entry.rest.cause), style="yellow" if entry.rest.intentional else "")
        table.add_row(str(entry.round), clock(entry.at), cause, why)
    return table


def _intentional(found: Isolation) -> int:
    return sum(n for cause, n in found.totals.items() if cause.intentional)


def _counts(entry: RestEntry) -> str:
    """The counts behind the cause, without those that are zero."""
    return (
        ", ".join(f"{name.replace('_', ' ')} {n}" for name, n in entry.rest.counts.items() if n)
        or "all counts are 0"
    )
