"""The file format of recorded stimuli: entries with a length and a checksum, in parts.

A folder ``stimuli`` holds files as ``000003-0001.stimuli``: part 1 of the third start. An entry is
its length, its CRC-32 and the CRC-32 of these two (little-endian u32 each), and a msgpack list:

=============  =====================================================================
``begin``      a header: what the decisions of this start went on from
``blob``       SHA-256 and content of a trunk, once per file, before its first use
``stimulus``   time (s, monotonic), packed event, packed effects; null for effects if
               the decision ended in an error
=============  =====================================================================

A crash may leave the last entry cut off; what stands before it is complete.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgpack

from abps_node.audit.chain import place_of
from abps_node.errors import ReplayDiffers

FOLDER: Final = "stimuli"
FORMAT: Final = "abps-stimuli-2"
_HEAD: Final = struct.Struct("<8sI")
_SIZES: Final = struct.Struct("<II")


@dataclass(frozen=True)
class Stimulus:
    """One entry: what happened, and what the center wanted done."""

    number: int
    """In its file, from 1."""
    now: float
    event: bytes
    effects: bytes | None
    """None if the decision ended in an error."""


@dataclass(frozen=True)
class Begin:
    """The header of a file."""

    center: str
    incarnation: int
    part: int
    program: str
    setting: bytes
    """Packed: contract, identity, roster, memory."""
    state: bytes | None
    """Packed: the whole state of the center, where a file goes on from another one."""
    dropped: list[str]
    """Older files that made room for this one."""


def entry(*fields: Any) -> bytes:
    """The bytes of one entry."""
    content = msgpack.packb(fields)
    sizes = _SIZES.pack(len(content), zlib.crc32(content))
    return _HEAD.pack(sizes, zlib.crc32(sizes)) + bytes(content)


def recordings(state_dir: Path) -> list[Path]:
    """The files of recorded stimuli, oldest first."""
    folder = state_dir / FOLDER
    if not folder.is_dir():
        return []
    found = [(place, path) for path in folder.iterdir() if (place := place_of(path.name))]
    return [path for _, path in sorted(found)]


class Recording:
    """One file, read from its beginning."""

    def __init__(self, path: Path) -> None:
        """Reads the header; ``ReplayDiffers`` if there is none."""
        self.path = path
        self.blobs: dict[bytes, bytes] = {}
        self.torn = 0
        """Bytes at the end that a crash cut off; known once all has been read."""
        self._entries = self._read()
        first = next(self._entries, None)
        while first is not None and first[0] == "blob":
            self.blobs[first[1]] = first[2]
            first = next(self._entries, None)
        if first is None or first[0] != "begin" or first[1] != FORMAT:
            raise ReplayDiffers(f"{path}: found no beginning of the format {FORMAT}, expected one")
        self.begin = Begin(*first[2:])

    def stimuli(self) -> Iterator[Stimulus]:
        """All stimuli; blobs are known when they are needed."""
        number = 0
        for kind, *fields in self._entries:
            if kind == "blob":
                self.blobs[fields[0]] = fields[1]
                continue
            number += 1
            yield Stimulus(number, *fields)

    def _read(self) -> Iterator[list[Any]]:
        with self.path.open("rb") as file:
            while head := file.read(_HEAD.size):
                content = self._content(file, head)
                if content is None:
                    return
                yield msgpack.unpackb(content)

    def _content(self, file: BinaryIO, head: bytes) -> bytes | None:
        """The next entry's content; None at a torn end. ``ReplayDiffers`` for one that changed."""
        if len(head) < _HEAD.size:
            self.torn = len(head)
            return None
        place = file.tell() - len(head)
        sizes, guard = _HEAD.unpack(head)
        length, checksum = _SIZES.unpack(sizes)
        if zlib.crc32(sizes) != guard:
            self._require_zeros(place, head + file.read(), 0)
            return None
        content = file.read(length)
        if len(content) < length:
            self.torn = len(head) + len(content)
            return None
        if zlib.crc32(content) != checksum:
            self._require_zeros(place, content + file.read(), length - 1)
            return None
        return content

    def _require_zeros(self, place: int, rest: bytes, written: int) -> None:
        """Zeros up to the file's end are what a power loss can leave: torn, not changed.

        ``written``: so many bytes of the last entry may stand before them. ``ReplayDiffers`` for
        everything else.
        """
        if len(rest.rstrip(b"\0")) > written:
            raise ReplayDiffers(
                f"{self.path}: byte {place}: found an entry that is not as it was written"
            )
        self.torn = len(rest)
