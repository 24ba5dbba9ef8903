"""`abps rounds`: one line a round, the same whether listed or followed."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from abps_node.cli import read_objectives
from abps_node.cli.human import console, number, plain, signed, size, to_json, utc
from abps_node.store.reader import Reader
from abps_node.store.views import RoundEntry
from protocol.record import RoundRecord

_COLUMNS = "{:>7} {:>15} {:>7} {:>5} {:>7}  "
_BYTES = "{:>8}  "
_ROOMY = 96
"""Columns from which on there is room for the bytes, too."""
_GLUE = "\N{NO-BREAK SPACE}"
"""Keeps a partner and its credit on one line."""
NOTHING = "No round is committed yet."


def show_all(reader: Reader, last: int | None, as_json: bool, objectives: bool = False) -> None:
    """Print the newest ``last`` rounds, or all; with ``objectives`` how those stood."""
    entries = reader.rounds(limit=last)
    if as_json:
        center = reader.status().center
        typer.echo(to_json({"center": center, "rounds": [document(entry) for entry in entries]}))
    elif not entries:
        typer.echo(NOTHING)
    else:
        head, each = _form(objectives)
        typer.echo("\n".join([head, *(each(entry.record) for entry in entries)]))


def draw(reader: Reader, last: int | None, path: Path) -> None:
    """Draw the conflict between objectives over these rounds."""
    records = [entry.record for entry in reader.rounds(limit=last)]
    read_objectives.plot(reader.status().center, records, path)
    typer.echo(f"{path}: {len(records)} rounds")


def _form(objectives: bool) -> tuple[str, Callable[[RoundRecord], str]]:
    """Header, and how a round is written."""
    if objectives:
        return read_objectives.header(), read_objectives.lines
    width = console().width
    return header(width), lambda record: line(record, width)


class Follower:
    """Prints each round once, as soon as it is committed."""

    def __init__(
        self, reader: Reader, last: int | None, as_json: bool, objectives: bool = False
    ) -> None:
        self._reader = reader
        self._last = last
        self._as_json = as_json
        self._shown = 0
        self._objectives = objectives
        if not as_json:
            typer.echo(_form(objectives)[0])

    def step(self) -> None:
        """Print what is new."""
        for entry in self._reader.rounds(since=self._shown, limit=self._last):
            if self._as_json:
                typer.echo(to_json(document(entry), indent=None))
            else:
                typer.echo(_form(self._objectives)[1](entry.record))
            self._shown = entry.record.round
        # The limit is for what was there before; of what comes nothing is left out.
        self._last = None


def document(entry: RoundEntry) -> dict[str, Any]:
    """The record as JSON types, with the time of its commit in UTC."""
    return {"at": utc(entry.at), **plain(entry.record)}


def header(width: int) -> str:
    """The names of the columns."""
    names = _COLUMNS.format("round", "U(∅)→U(P)", "valid.", "prop.", "time")
    names += _BYTES.format("bytes") if width >= _ROOMY else ""
    return names + "partners (φ) or cause of rest"


def line(record: RoundRecord, width: int) -> str:
    """A round in one line; what does not fit is continued below the last column."""
    accepted = sum(proposal.outcome == "accepted" for proposal in record.proposals_sent)
    moved = sum(record.bytes_sent.values()) + sum(record.bytes_received.values())
    utility = number(record.u_empty, 4)
    if record.partners:
        utility += f"→{number(record.u_partners, 4)}"
    head = _COLUMNS.format(
        f"{record.round}{'ε' if record.exploratory else ' '}",
        utility,
        number(record.validation.value, 4),
        f"{len(record.proposals_sent)}/{accepted}",
        f"{record.durations.get('total', 0.0):.1f} s",
    )
    head += _BYTES.format(size(moved)) if width >= _ROOMY else ""
    filled = textwrap.fill(
        _company(record),
        width=max(width, len(head) + 20),
        initial_indent=head,
        subsequent_indent=" " * len(head),
        break_on_hyphens=False,
    )
    return filled.replace(_GLUE, " ")


def _company(record: RoundRecord) -> str:
    """The partners with their credit, or why there was none."""
    if record.rest is not None:
        return f"rest: {record.rest.cause}" + (" (intentional)" if record.rest.intentional else "")
    return ", ".join(f"{p.peer}{_GLUE}{signed(p.phi)}" for p in record.partners)
