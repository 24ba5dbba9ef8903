"""`abps launch logs`: the logs of all centers as one, by time."""

from __future__ import annotations

import heapq
import re
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import typer

from abps_node.cli.human import to_json
from abps_node.cli.read_logs import Entry, Filter, Follower, entries, render
from abps_node.config import CenterConfig
from abps_node.errors import ConfigError, StoreError
from abps_node.logs import LOG_NAME
from abps_node.store.connection import present

_UNITS: Final = {"s": "seconds", "m": "minutes", "min": "minutes", "h": "hours", "d": "days"}
_SINCE: Final = "10m (s, min, h, d), 14:30, or 2026-11-30T14:30"
POLL_S: Final = 0.5


@dataclass(frozen=True)
class Line:
    """One logged entry of one center."""

    at: float
    """Wall clock seconds; of a line without a time, that of the line before it."""
    center: str
    entry: Entry

    def text(self, width: int) -> str:
        """For people; ``width`` is that of the longest center's id."""
        return render(self.entry, f"{self.center:{width}}  ")

    def document(self) -> Entry:
        """As JSON; a line that is no JSON object gets its center, too."""
        return {**self.entry, "center": self.center}


def since_time(text: str, now: float) -> float:
    """Wall clock seconds of ``--since``: a span before ``now``, a time of day, or a date.

    A time of day that is still to come today was yesterday's. Raises ``ConfigError``.
    """
    span = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)\s*(s|m|min|h|d)", text.strip())
    if span:
        number, unit = span.groups()
        return now - timedelta(**{_UNITS[unit]: float(number)}).total_seconds()
    if re.fullmatch(r"\d{1,2}:\d{2}(:\d{2})?", text.strip()):
        return _time_of_day(text.strip(), now)
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigError(f"--since: found {text!r}, allowed: {_SINCE}") from error


def _time_of_day(text: str, now: float) -> float:
    try:
        clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M").time()
    except ValueError as error:
        raise ConfigError(f"--since: found {text!r}, allowed: {_SINCE}") from error
    today = datetime.combine(datetime.fromtimestamp(now).date(), clock)
    moment = today.timestamp()
    return moment if moment <= now else (today - timedelta(days=1)).timestamp()


def timed(center: str, logged: Iterable[Entry]) -> Iterator[Line]:
    """One center's entries with a time each, which never goes back: clocks do, files do not."""
    at = 0.0
    for entry in logged:
        at = max(at, time_of(entry, at))
        yield Line(at, center, entry)


def time_of(entry: Entry, otherwise: float) -> float:
    """When an entry was logged; ``otherwise`` if it does not say."""
    try:
        return datetime.fromisoformat(str(entry.get("time"))).timestamp()
    except (ValueError, OverflowError):
        return otherwise


def merged(streams: Sequence[Iterable[Line]]) -> Iterator[Line]:
    """All lines by time; each center's stay in their order."""
    return heapq.merge(*streams, key=lambda line: line.at)


def with_readable_logs(
    centers: Sequence[CenterConfig],
) -> tuple[list[CenterConfig], dict[str, str]]:
    """The centers without those whose state directory may not be looked into, and why of these."""
    good: list[CenterConfig] = []
    bad: dict[str, str] = {}
    for center in centers:
        try:
            present(center.state_dir / LOG_NAME)
        except StoreError as error:
            bad[center.id] = str(error)
        else:
            good.append(center)
    return good, bad


def wanted_lines(
    centers: Sequence[CenterConfig], wanted: Filter, since: float | None
) -> tuple[Iterator[Line], list[str]]:
    """All wanted lines by time, and the centers that have no log."""
    streams, silent = [], []
    for center in centers:
        if present(center.state_dir / LOG_NAME):
            streams.append(timed(center.id, entries(center.state_dir)))
        else:
            silent.append(center.id)
    lines = (line for line in merged(streams) if since is None or line.at >= since)
    return (line for line in lines if wanted.wants(line.entry)), silent


def show_all(lines: Iterator[Line], width: int, last: int | None, as_json: bool) -> bool:
    """Print all lines, or the newest ``last``; whether there was one."""
    kept: Iterable[Line] = lines if last is None else deque(lines, maxlen=last)
    if as_json:
        typer.echo(to_json({"log": [line.document() for line in kept]}))
        return True
    any_line = False
    for line in kept:
        typer.echo(line.text(width))
        any_line = True
    return any_line


def follow(
    centers: Sequence[CenterConfig], wanted: Filter, since: float, width: int, as_json: bool
) -> None:
    """Print what is logged after ``since``, also by centers that begin later, until Ctrl-C.

    Within one look lines are in the order of their times; the next look comes after
    ``POLL_S`` seconds.
    """
    followers: dict[str, Follower] = {}
    with ExitStack() as stack:
        while True:
            lines: list[Line] = []
            for center in centers:
                if center.id not in followers and present(center.state_dir / LOG_NAME):
                    made = Follower(center.state_dir, wanted, None, as_json)
                    followers[center.id] = stack.enter_context(made)
            for name, follower in followers.items():
                lines += timed(name, follower.new())
            for line in sorted(lines, key=lambda line: line.at):
                if line.at >= since:
                    text = to_json(line.document(), indent=None) if as_json else line.text(width)
                    typer.echo(text)
            time.sleep(POLL_S)
