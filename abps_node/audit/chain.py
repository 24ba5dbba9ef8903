"""Lines that vouch for each other: how the record of what left this center is written down.

A record is a folder ``outbound`` of text files, one for each start of the center (and another when
one grows too long): ``000003-0001.jsonl`` is the first file of incarnation 3. Every line is a JSON
object that ends with ``"hash"``: the SHA-256, as 64 hexadecimal digits, of the hash of the line
before and of the line itself up to that key. A file's first line goes on from the line that was the
last one of the file before, and names it. So whoever changes, drops, adds or reorders lines has to
write every later line anew, and the newest hash is also kept in ``state.sqlite``.

A file of its own for each start, because two copies of a center may run for a moment: they never
write to the same file.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "outbound"
FORMAT: Final = "abps-outbound-1"
GENESIS: Final = "0" * 64
"""What the first line of all goes on from."""
BEGIN: Final = "begin"
"""What a file's first line is."""
END: Final = "end"
"""The last line of a start that ended in good order; without it lines may be missing behind."""
_NAME: Final = re.compile(r"^(\d{6,})-(\d{4,})\.(?:jsonl|stimuli)$")
_SEAL: Final = b',"hash":"'
_SEAL_LENGTH: Final = len(_SEAL) + 64 + len(b'"}')
_LOOK_BACK: Final = 64 * 1024

Line = dict[str, Any]


@dataclass(frozen=True)
class Head:
    """The newest line of a record."""

    file: str
    number: int
    """Of the line, from 1."""
    hash: str


def file_name(incarnation: int, part: int, ending: str = "jsonl") -> str:
    """Sorts by start, then by part."""
    return f"{incarnation:06d}-{part:04d}.{ending}"


def place_of(name: str) -> tuple[int, int] | None:
    """Incarnation and part in a file's name; None for a file that is none of the record's."""
    match = _NAME.match(name)
    return None if match is None else (int(match[1]), int(match[2]))


def files_of(state_dir: Path) -> list[Path]:
    """The record's files, oldest first; none for a center that never started."""
    folder = state_dir / FOLDER
    if not folder.is_dir():
        return []
    found = [(place, path) for path in folder.iterdir() if (place := place_of(path.name))]
    return [path for _, path in sorted(found)]


def newest_start(state_dir: Path) -> int:
    """The highest incarnation that is written down; 0 if none is."""
    places = (place_of(path.name) for path in files_of(state_dir))
    return max((place[0] for place in places if place is not None), default=0)


def seal(content: bytes, before: str) -> tuple[bytes, str]:
    """The whole line of a JSON object that lacks its last brace, and the line's hash."""
    sealed = hashlib.sha256(before.encode() + content).hexdigest()
    return b'%b%b%b"}\n' % (content, _SEAL, sealed.encode()), sealed


def split(line: bytes) -> tuple[bytes, str] | None:
    """Content and hash of a line without its end; None for one that has not this form."""
    content, tail = line[:-_SEAL_LENGTH], line[-_SEAL_LENGTH:]
    whole = len(tail) == _SEAL_LENGTH and tail.startswith(_SEAL) and tail.endswith(b'"}')
    return (content, tail[len(_SEAL) : -2].decode("ascii", "replace")) if whole else None


def parse(line: bytes) -> Line | None:
    """The fields of a line; None for one that is no JSON object."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class Tail:
    """How a file ends."""

    head: Head | None
    """Its last whole line; None if there is not even one."""
    torn: bytes
    """What stands behind that: a line that a crash cut off, most often nothing."""


def tail_of(path: Path) -> Tail:
    """Look at the end of a file; checks nothing but the form. Raises ``OSError``."""
    with path.open("rb") as file:
        length = file.seek(0, 2)
        window = _LOOK_BACK
        while True:
            begin = max(0, length - window)
            file.seek(begin)
            found = _last_line(path.name, file.read(length - begin), at_start=begin == 0)
            if found.head is not None or begin == 0:
                return found
            window *= 8


def _last_line(name: str, content: bytes, at_start: bool) -> Tail:
    end = len(content)
    while (newline := content.rfind(b"\n", 0, end)) >= 0:
        begin = content.rfind(b"\n", 0, newline) + 1
        if begin == 0 and not at_start:
            break  # it may begin before the window
        line = content[begin:newline]
        parts, fields = split(line), parse(line)
        if parts is not None and fields is not None and isinstance(fields.get("n"), int):
            return Tail(Head(name, fields["n"], parts[1]), content[newline + 1 :])
        end = newline
    return Tail(None, content)
