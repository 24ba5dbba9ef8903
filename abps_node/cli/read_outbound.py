"""The record of what left a center, for people and as JSON."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from abps_node.audit.chain import BEGIN, END, Line, files_of, parse
from abps_node.audit.verify import Verdict, lines_of
from abps_node.cli.human import clean, count, size

if TYPE_CHECKING:
    from rich.console import Console

NOTHING: Final = "nothing of the kind has left this center"
_SHORT: Final = 12
_OWN: Final = ("undelivered",)
"""Lines about another line."""


@dataclass(frozen=True)
class Filter:
    """What is wanted."""

    peer: str | None = None
    kind: str | None = None
    since: datetime | None = None
    last: int | None = None
    """Only the newest so many of these."""

    def wants(self, line: Line) -> bool:
        """Whether it is about that receiver, of that kind, and not older."""
        if self.peer not in (None, line.get("to")) or self.kind not in (None, line.get("what")):
            return False
        if self.since is None:
            return True
        at = datetime.fromisoformat(str(line["at"]))
        return at.timestamp() >= self.since.timestamp()


def lines(state_dir: Path, wanted: Filter) -> Iterator[Line]:
    """What left, oldest first, each with its ``file``; ``sent`` is false if no connection took it.

    What cannot be read is left out: whether the record is whole is ``verify``'s question.
    """
    found = (line for path in files_of(state_dir) for line in _of_file(path, wanted))
    yield from found if wanted.last is None else deque(found, maxlen=wanted.last)


def _of_file(path: Path, wanted: Filter) -> Iterator[Line]:
    # Only the line before can be called off, since nothing happens between the two.
    last: Line | None = None
    for text, _ in lines_of(path):
        line = parse(text)
        if line is None or line.get("what") in (BEGIN, END):
            continue
        if line.get("what") in _OWN:
            if last is not None and last.get("n") == line.get("line"):
                last = {**last, "sent": False, "reason": line.get("reason")}
            continue
        if last is not None and wanted.wants(last):
            yield last
        last = {"file": path.name, **line, "sent": True}
    if last is not None and wanted.wants(last):
        yield last


def render(line: Line) -> str:
    """Local time, receiver, kind, bytes, and what it said."""
    at = datetime.fromisoformat(str(line["at"])).astimezone()
    bytes_ = size(int(line.get("bytes", 0)))
    head = f"{at:%Y-%m-%d %H:%M:%S}  {line.get('to', '?')!s:16} {line.get('what', '?')!s:12}"
    state = "" if line["sent"] else f"  not sent ({line.get('reason')})"
    return clean(f"{head} {bytes_:>8}  {_content(line)}{state}")


def _content(line: Line) -> str:
    if "told" in line:
        return " ".join(str(line["told"]).split())
    message: dict[str, Any] = line.get("message", {})
    words = [f"{key}={_word(key, value)}" for key, value in message.items() if key != "incarnation"]
    if "trunk" in line:
        words.append(f"trunk={str(line['trunk'])[:_SHORT]}…")
    return " ".join(words)


def _word(key: str, value: object) -> str:
    if key in ("contract", "initial_trunk", "layout"):
        return f"{str(value)[:_SHORT]}…"
    if isinstance(value, dict) and "values" in value:
        return "[" + " ".join(f"{number:.4g}" for number in value["values"]) + "]"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass
class Total:
    """All of one kind that went to one receiver."""

    to: str
    what: str
    messages: int = 0
    bytes: int = 0
    not_sent: int = 0
    first: str = ""
    last: str = ""
    trunks: set[str] = field(default_factory=set)


def totals(found: Iterable[Line]) -> list[dict[str, Any]]:
    """One entry per receiver and kind, in alphabetical order; trunks counted once each."""
    by_key: dict[tuple[str, str], Total] = {}
    for line in found:
        key = (str(line.get("to")), str(line.get("what")))
        total = by_key.setdefault(key, Total(*key))
        if not line["sent"]:
            total.not_sent += 1
            continue
        total.messages += 1
        total.bytes += int(line.get("bytes", 0))
        total.first, total.last = total.first or str(line["at"]), str(line["at"])
        if "trunk" in line:
            total.trunks.add(str(line["trunk"]))
    entries = (vars(by_key[key]) for key in sorted(by_key))
    return [{**entry, "trunks": len(entry["trunks"])} for entry in entries]


def show_totals(found: list[dict[str, Any]], console: Console) -> None:
    """As a table."""
    from rich.table import Table

    if not found:
        console.print(NOTHING)
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("to", overflow="fold")
    table.add_column("what")
    for name in ("messages", "bytes", "not sent", "different trunks"):
        table.add_column(name, justify="right")
    for entry in found:
        numbers = (str(entry["messages"]), size(entry["bytes"]), str(entry["not_sent"]))
        trunks = str(entry["trunks"]) if entry["trunks"] else ""
        table.add_row(clean(entry["to"]), clean(entry["what"]), *numbers, trunks)
    console.print(table)


def told(verdict: Verdict) -> Iterator[str]:
    """The verdict in lines for people; a break is the error that ends the command."""
    if not verdict.files:
        yield "no record: this center has never started with a program that keeps one"
        return
    files, lines = count(verdict.files, "file"), count(verdict.lines, "line")
    yield f"{files}, {lines}, {verdict.first} to {verdict.last}"
    for note in verdict.notes:
        yield f"note: {note}"
    if verdict.broken is not None or verdict.head is None:
        return
    head = verdict.head
    yield f"whole: every line of {count(verdict.starts, 'start')} is as it was written"
    yield f"newest line: {head.file}, line {head.number}, hash {head.hash}"
    if verdict.anchor is not None:
        anchor = verdict.anchor
        yield f"the last commit knows {anchor.file}, line {anchor.number}: it is there, unchanged"
