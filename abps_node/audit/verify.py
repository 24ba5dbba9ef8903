"""Reads the record of what left a center, and finds the first line in it that is not as it was.

What is checked: every line's hash and number, every file's link to the one before, and that the
line which ``state.sqlite`` held for the newest at its last commit is still there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from abps_node.audit.chain import (
    BEGIN,
    END,
    FORMAT,
    GENESIS,
    Head,
    files_of,
    parse,
    place_of,
    seal,
    split,
)
from abps_node.errors import StoreError
from abps_node.store.anchor import read_anchor
from abps_node.store.connection import connect_to_read, readable_errors
from abps_node.store.schema import STATE_FILE

CLOCK_NOTE_S: Final = 2.0
"""A line so much older than the one before is worth a note: somebody has set the clock."""
_SHOWN: Final = 16


@dataclass(frozen=True)
class Break:
    """The first line that is not as it was written."""

    place: str
    """File and line."""
    found: str
    expected: str
    reading: str
    """What that means."""

    def __str__(self) -> str:
        return f"{self.place}: {self.reading}: found {self.found}, expected {self.expected}"


@dataclass
class Verdict:
    """What a look at the whole record has found."""

    files: int = 0
    lines: int = 0
    starts: int = 0
    first: str | None = None
    """Time of the oldest line, ISO 8601, UTC."""
    last: str | None = None
    head: Head | None = None
    """The newest line that holds: worth to be written down outside this machine."""
    anchor: Head | None = None
    """The newest line at the last commit, as ``state.sqlite`` knows it."""
    broken: Break | None = None
    notes: list[str] = field(default_factory=list)
    """What is no break but worth to know: torn lines, clocks set back, copies that overlapped."""


def lines_of(path: Path) -> Iterator[tuple[bytes, bool]]:
    """The lines of one file without their ends, and whether each had one."""
    try:
        with path.open("rb") as file:
            for line in file:
                whole = line.endswith(b"\n")
                yield line[:-1] if whole else line, whole
    except OSError as error:
        raise StoreError(f"{path}: cannot be read ({error.strerror})") from error


def verify(state_dir: Path) -> Verdict:
    """Check the whole record of a center. Raises ``StoreError`` if it cannot be read."""
    verdict = Verdict(anchor=_anchor(state_dir))
    walk = _Walk(verdict)
    for path in files_of(state_dir):
        if not walk.file(path):
            return verdict
    walk.end()
    return verdict


def knows(state_dir: Path, noted: str) -> bool:
    """Whether a line with this hash, which somebody wrote down once, is still in the record."""
    ending = b'"hash":"' + noted.encode() + b'"}'
    return any(line.endswith(ending) for path in files_of(state_dir) for line, _ in lines_of(path))


def _anchor(state_dir: Path) -> Head | None:
    path = state_dir / STATE_FILE
    if not path.is_file():
        return None
    with readable_errors(path), closing(connect_to_read(path)) as db:
        return read_anchor(db)


class _Walk:
    """Goes through the files in their order."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._ends: dict[str, tuple[int, bytes]] = {}
        """Of each file: number of its whole lines, and what stands behind them."""
        self._hashes: dict[tuple[str, int], str] = {}
        """Of the lines that other places name: the heads of all files and the anchor's."""
        self._time: float | None = None
        self._starts: set[int] = set()
        self._ended = True
        """Whether the line before was a clean end."""

    def file(self, path: Path) -> bool:
        """Check one; False if it is broken."""
        self._verdict.files += 1
        self._name, self._path = path.name, path
        hash_before, number, torn = "", 0, b""
        for line, whole in lines_of(path):
            if not whole or torn:
                torn += line + (b"\n" if whole else b"")
                continue
            parts, fields = split(line), parse(line)
            if parts is None or fields is None:
                torn = line + b"\n"
                continue
            if number == 0:
                before = self._link(fields)
                if before is None:
                    return False
                hash_before = before
            if not self._line(number + 1, parts, fields, hash_before):
                return False
            number, hash_before = number + 1, parts[1]
        return self._close(number, hash_before, torn)

    def _line(self, number: int, parts: tuple[bytes, str], fields: Any, before: str) -> bool:
        found = fields.get("n")
        if found != number:
            meaning = "a line is missing before it" if _later(found, number) else "a line too many"
            return self._break(number, f"number {found}", f"number {number}", meaning)
        content, sealed = parts
        expected = seal(content, before)[1]
        if sealed != expected:
            meaning = "this line, or the order of lines, was changed"
            return self._break(number, f"hash {sealed}", f"hash {expected}", meaning)
        self._verdict.lines += 1
        self._ended = fields.get("what") == END
        self._look_at_time(number, str(fields.get("at")))
        anchor = self._verdict.anchor
        if anchor is not None and (anchor.file, anchor.number) == (self._name, number):
            self._hashes[self._name, number] = sealed
        return True

    def _link(self, fields: dict[str, Any]) -> str | None:
        """The hash that a file's first line goes on from; None if the link is broken."""
        if fields.get("what") != BEGIN or fields.get("format") != FORMAT:
            found = f"{fields.get('what')!r} of format {fields.get('format')!r}"
            self._break(
                1, found, f"{BEGIN!r} of format {FORMAT!r}", "the file's first line is gone"
            )
            return None
        self._look_at_end(int(fields.get("incarnation", 0)))
        told = fields.get("before")
        earlier = list(self._ends)
        if told is None:
            if earlier:
                meaning = "a file that goes on from nothing"
                self._break(1, "no line before", f"the last one of {earlier[-1]}", meaning)
                return None
            return GENESIS
        head = Head(str(told.get("file")), int(told.get("number", 0)), str(told.get("hash")))
        return self._link_to(head, fields.get("torn"), earlier)

    def _look_at_end(self, start: int) -> None:
        """Whether the start before this one had come to its end."""
        if start not in self._starts and not self._ended:
            last = next(reversed(self._ends))
            text = f"{last}: no clean end: killed, or out of power, and then lines may be missing"
            self._verdict.notes.append(text)
        self._starts.add(start)

    def _link_to(self, head: Head, torn: Any, earlier: list[str]) -> str | None:
        if head.file not in self._ends:
            found = f"{earlier[-1]} before it" if earlier else "no file before it"
            self._break(1, found, head.file, "a whole file is missing")
            return None
        if not self._none_between(head.file, earlier):
            return None
        count, rest = self._ends[head.file]
        if count < head.number:
            self._break_at(
                f"{self._path.parent / head.file}: line {count + 1}",
                f"{count} lines",
                f"at least {head.number}, as {self._name} knows",
                "its last lines are missing",
            )
            return None
        kept = self._hash_at(head.file, head.number)
        if kept != head.hash:
            place = f"{self._path.parent / head.file}: line {head.number}"
            expected = f"hash {head.hash}, as {self._name} knows"
            self._break_at(place, f"hash {kept}", expected, "lines were written anew")
            return None
        if count > head.number:
            more = f"{head.file}: lines {head.number + 1} to {count} were written by an older copy"
            self._verdict.notes.append(f"{more} of the center while the next one began")
        return (
            head.hash
            if self._torn_is_marked(head.file, rest, torn, late=count > head.number)
            else None
        )

    def _none_between(self, name: str, earlier: list[str]) -> bool:
        """Whether the files between the named one and this can be there.

        Two copies of a center that start at the same moment do not know of each other's files.
        """
        for other in earlier[earlier.index(name) + 1 :]:
            place = place_of(other)
            if place is None or (place[1] > 1 and self._ends[other][0]):
                found = f"{other} between the two"
                return self._break(1, found, f"nothing between {name} and this", "a file too many")
            self._verdict.notes.append(f"{other}: began together with {self._name}, or is empty")
        return True

    def _torn_is_marked(self, name: str, rest: bytes, mark: Any, *, late: bool) -> bool:
        if not rest:
            return True
        digest = hashlib.sha256(rest).hexdigest()
        told = mark if isinstance(mark, dict) else {}
        if late or (told.get("bytes"), told.get("sha256")) == (len(rest), digest):
            text = f"{name}: {len(rest)} bytes of a line that a crash cut off at its end"
            self._verdict.notes.append(f"{text}, as the next start noted")
            return True
        self._break_at(
            f"{self._path.parent / name}: line {self._ends[name][0] + 1}",
            f"{len(rest)} bytes that are no line",
            f"{told.get('bytes', 'no')} such bytes, as {self._name} knows",
            "this line was changed",
        )
        return False

    def _hash_at(self, name: str, number: int) -> str:
        known = self._hashes.get((name, number))
        if known is None:
            for place, (line, _) in enumerate(lines_of(self._path.parent / name), start=1):
                if place == number:
                    parts = split(line)
                    known = parts[1] if parts is not None else "none"
                    break
        return known or "none"

    def _close(self, number: int, sealed: str, torn: bytes) -> bool:
        self._ends[self._name] = (number, torn)
        if number:
            self._verdict.head = Head(self._name, number, sealed)
            self._hashes[self._name, number] = sealed
        return True

    def end(self) -> None:
        """After the last file: its end, and what the state knows of it."""
        verdict = self._verdict
        verdict.starts = len(self._starts)
        newest = next(reversed(self._ends), None)
        if newest is not None and (rest := self._ends[newest][1]):
            place = f"{newest}: line {self._ends[newest][0] + 1}"
            if b"\n" in rest.rstrip(b"\0"):
                meaning = "this line was changed"
                self._break_at(place, f"{rest[:_SHOWN]!r}…", "a line of the record", meaning)
                return
            verdict.notes.append(f"{place}: {len(rest)} bytes of a line that was cut off")
        anchor = verdict.anchor
        if anchor is None:
            if verdict.files:
                verdict.notes.append(
                    f"no {STATE_FILE} that knows of the record: its end is not sure"
                )
            return
        place = f"{anchor.file}: line {anchor.number}"
        if anchor.number > self._ends.get(anchor.file, (0, b""))[0]:
            count = self._ends.get(anchor.file, (0, b""))[0]
            found = f"{count} lines" if anchor.file in self._ends else "no such file"
            expected = f"at least {anchor.number} lines, as {STATE_FILE} knows"
            self._break_at(place, found, expected, "the record's end is missing")
        elif (found := self._hash_at_known(anchor)) != anchor.hash:
            expected = f"hash {anchor.hash}, as {STATE_FILE} knows"
            self._break_at(place, f"hash {found}", expected, "lines were written anew")

    def _hash_at_known(self, anchor: Head) -> str:
        return self._hashes.get((anchor.file, anchor.number), "none")

    def _look_at_time(self, number: int, stamp: str) -> None:
        verdict = self._verdict
        verdict.first, verdict.last = verdict.first or stamp, stamp
        try:
            at = datetime.fromisoformat(stamp).timestamp()
        except ValueError:
            return
        if self._time is not None and at < self._time - CLOCK_NOTE_S:
            back = self._time - at
            verdict.notes.append(
                f"{self._name}: line {number}: the clock was set back by {back:.0f} s"
            )
        self._time = at

    def _break(self, number: int, found: str, expected: str, reading: str) -> bool:
        self._break_at(f"{self._path}: line {number}", found, expected, reading)
        return False

    def _break_at(self, place: str, found: str, expected: str, reading: str) -> None:
        self._verdict.broken = Break(place, found, expected, reading)


def _later(found: object, number: int) -> bool:
    return isinstance(found, int) and found > number
