"""`abps logs`: log.jsonl and its rotated predecessors, for people."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Self

import typer

from abps_node.cli.human import clean, to_json
from abps_node.errors import ConfigError, StoreError
from abps_node.logs import LOG_NAME, RESERVED_KEYS, fields_text
from abps_node.store.connection import present

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
Entry = dict[str, Any]
NOTHING = "No line of the log is like that."


class Filter:
    """Which lines are wanted."""

    def __init__(self, level: str, pattern: str | None) -> None:
        """``level`` is the least; ``pattern`` a regular expression searched in the shown line."""
        self._least = _LEVELS[level]
        try:
            self._pattern = re.compile(pattern or "")
        except re.error as error:
            raise ConfigError(
                f"--grep: found {pattern!r}, allowed: a regular expression ({error})"
            ) from error

    def wants(self, entry: Entry) -> bool:
        """Whether the entry passes; a line that is no JSON is of no level and always does."""
        level = _LEVELS.get(str(entry.get("level")), _LEVELS["critical"])
        return level >= self._least and self._pattern.search(render(entry)) is not None


def show_all(state_dir: Path, wanted: Filter, last: int | None, as_json: bool) -> None:
    """Print all wanted lines, or the newest ``last`` of them."""
    found: Iterable[Entry] = filter(wanted.wants, entries(state_dir))
    if last is not None:
        found = deque(found, maxlen=last)
    if as_json:
        typer.echo(to_json({"log": list(found)}))
        return
    empty = True
    for entry in found:
        typer.echo(render(entry))
        empty = False
    if empty:
        typer.echo(NOTHING)


class Follower:
    """Prints wanted lines as they come, and follows the file through its rotation."""

    def __init__(self, state_dir: Path, wanted: Filter, last: int | None, as_json: bool) -> None:
        self._path = state_dir / LOG_NAME
        self._wanted = wanted
        self._as_json = as_json
        self._last = last
        self._older = log_files(state_dir)[:-1]
        self._stack = ExitStack()
        self._file: BinaryIO = self._stack.enter_context(self._path.open("rb"))
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def step(self) -> None:
        """Print what is new."""
        for entry in self.new():
            typer.echo(to_json(entry, indent=None) if self._as_json else render(entry))

    def new(self) -> list[Entry]:
        """What has come since the last call; at the first one also what was there before."""
        lines = [line for path in self._older for line in _lines_of(path)]
        self._older = []
        lines += self._new_lines()
        found: Iterable[Entry] = filter(self._wanted.wants, map(parse, lines))
        if self._last is not None:
            found = deque(found, maxlen=self._last)
            self._last = None
        return list(found)

    def _new_lines(self) -> Iterator[str]:
        """Whole lines only: the daemon may be in the middle of writing one."""
        rotated = self._was_rotated()
        # Looked at before reading, so that what the old file got last is not missed.
        yield from self._read()
        if rotated:
            self._stack.close()
            self._file = self._stack.enter_context(self._path.open("rb"))
            self._rest = b""
            yield from self._read()

    def _read(self) -> Iterator[str]:
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", errors="replace")

    def _was_rotated(self) -> bool:
        """Whether the name now belongs to another file; for a moment it may belong to none."""
        try:
            named = self._path.stat()
        except FileNotFoundError:
            return False
        return not os.path.samestat(named, os.fstat(self._file.fileno()))


def entries(state_dir: Path) -> Iterator[Entry]:
    """All logged entries, oldest first; ``StoreError`` if there is no log."""
    return (parse(line) for path in log_files(state_dir) for line in _lines_of(path))


def log_files(state_dir: Path) -> list[Path]:
    """The log's files, oldest first; ``StoreError`` if there is none."""
    newest = state_dir / LOG_NAME
    if not present(newest):
        raise StoreError(
            f"{state_dir}: found no {LOG_NAME}, which every center writes from its start on"
        )
    rotated = [path for path in state_dir.glob(f"{LOG_NAME}.*") if path.suffix[1:].isdigit()]
    return [*sorted(rotated, key=lambda path: -int(path.suffix[1:])), newest]


def parse(line: str) -> Entry:
    """A logged entry; of a line that is no JSON object (torn by a crash) only its text."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        entry = None
    return entry if isinstance(entry, dict) else {"text": line}


def render(entry: Entry, who: str = "") -> str:
    """Local time, level, ``who``, text, then as ``key=value`` what the text does not say."""
    text = str(entry.get("text", ""))
    fields = {key: value for key, value in entry.items() if key not in RESERVED_KEYS}
    head = f"{_local(entry.get('time'))}  {entry.get('level', '?')!s:7}  {who}"
    trace = str(entry.get("exception", ""))
    lines = [clean(head + text + fields_text(text, fields)), *map(clean, trace.splitlines())]
    return "\n".join(lines)


def _local(time: object) -> str:
    """ISO 8601 as local time to the second; what is not is shown as it is."""
    try:
        moment = datetime.fromisoformat(str(time))
    except ValueError:
        return str(time if time is not None else "?").ljust(19)
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def _lines_of(path: Path) -> Iterator[str]:
    """The lines of one file; of one that was rotated away meanwhile none."""
    try:
        with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")
    except FileNotFoundError:
        return
