"""Writes down what leaves this center, before it leaves. See ``abps_node.audit.chain``.

One ``write`` of the operating system per line, done before the frame is handed to a socket: what a
killed process has sent is in the record. A power loss may take lines that were not yet synced with
the disk; that is done at every committed round, at the start and at the end.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from abps_node import __version__
from abps_node.audit.chain import (
    BEGIN,
    END,
    FOLDER,
    FORMAT,
    GENESIS,
    Head,
    Tail,
    file_name,
    files_of,
    seal,
    tail_of,
)
from abps_node.errors import StoreError, store_failure
from abps_node.filesystem import sync_directory
from protocol.messages import CardMessage, Message, SessionId, Weights

PART_BYTES: Final = 64 * 1024 * 1024
"""A file that is longer is followed by another one. None is ever deleted or changed."""
_ACCESS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class OutboundRecord:
    """The record of one start of a center; may be used from several threads."""

    def __init__(
        self,
        state_dir: Path,
        center: str,
        incarnation: int,
        contract: str,
        *,
        part_bytes: int = PART_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin a new file, durably. ``contract``: its hash. Raises ``StoreError``."""
        self._folder = state_dir / FOLDER
        self._about = {"center": center, "incarnation": incarnation, "contract": contract}
        self._incarnation = incarnation
        self._part_bytes = part_bytes
        self._clock = clock
        self._lock = threading.Lock()
        self._second, self._stamp = -1, ""
        self._trunk: tuple[bytes, str] = (b"", "")
        self._part, self._file, self._length = 0, -1, 0
        self._number, self._hash = 0, GENESIS
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._begin(_newest(files_of(state_dir)))
        except OSError as error:
            raise self._unwritable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self.close(clean=kind is None)

    @property
    def path(self) -> Path:
        """The file that is written now."""
        return self._folder / file_name(self._incarnation, self._part)

    # What leaves --------------------------------------------------------------------------------

    def message(self, peer: str, message: Message, frame_bytes: int) -> int:
        """A frame is about to be handed to the socket; returns the number of its line."""
        fields: dict[str, Any] = {
            "to": peer,
            "via": "peer",
            "what": message.kind,
            "bytes": frame_bytes,
            "message": {name: getattr(message, name) for name in _fields_of(type(message))},
        }
        if isinstance(message, Weights):
            fields["trunk"] = self._digest(message.payload)
        return self._append(fields)

    def undelivered(self, number: int, reason: str) -> None:
        """No connection took the frame of that line: it did not leave."""
        self._append({"what": "undelivered", "line": number, "reason": reason})

    def published(self, via: str, to: str, what: str, payload: bytes) -> None:
        """Something goes to a place where others read: a folder or a broker."""
        told = payload.decode("utf-8", "replace")
        self._append({"to": to, "via": via, "what": what, "bytes": len(payload), "told": told})

    def _digest(self, payload: bytes) -> str:
        """SHA-256 of a packed trunk; the same object goes to every partner of a round."""
        known, digest = self._trunk
        if known is not payload:
            digest = hashlib.sha256(payload).hexdigest()
            self._trunk = payload, digest
        return digest

    # Lines --------------------------------------------------------------------------------------

    def sync(self) -> Head:
        """Wait until all lines are on the disk; the newest one."""
        with self._lock:
            if self._file >= 0:
                try:
                    os.fdatasync(self._file)
                except OSError as error:
                    raise self._unwritable(error) from error
            return self._head()

    def close(self, *, clean: bool = True) -> None:
        """Sync and close; nothing can be written any more. A ``clean`` end is written down."""
        if clean and self._file >= 0:
            self._append({"what": END})
        self.sync()
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _head(self) -> Head:
        return Head(self.path.name, self._number, self._hash)

    def _append(self, fields: dict[str, Any]) -> int:
        with self._lock:
            try:
                if self._length >= self._part_bytes:
                    self._next_part()
                return self._write(fields)
            except OSError as error:
                raise self._unwritable(error) from error

    def _write(self, fields: dict[str, Any]) -> int:
        text = _ENCODE(fields)
        number = self._number + 1
        content = f'{{"n":{number},"at":"{self._now()}",{text[1:-1]}'.encode()
        line, sealed = seal(content, self._hash)
        written = os.write(self._file, line)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._number, self._hash = number, sealed
        self._length += written
        return number

    def _next_part(self) -> None:
        os.fdatasync(self._file)
        os.close(self._file)
        self._begin((self._head(), b""))

    def _begin(self, before: tuple[Head | None, bytes]) -> None:
        self._part += 1
        self._file = os.open(self.path, _ACCESS, 0o600)
        self._number, self._length = 0, 0
        head, torn = before
        self._hash = GENESIS if head is None else head.hash
        fields: dict[str, Any] = {"what": BEGIN, "format": FORMAT, **self._about}
        fields |= {"part": self._part, "program": __version__}
        fields["before"] = None if head is None else dataclasses.asdict(head)
        if torn:
            digest = hashlib.sha256(torn).hexdigest()
            fields["torn"] = {"bytes": len(torn), "sha256": digest}
        self._write(fields)
        os.fdatasync(self._file)
        sync_directory(self._folder)

    def _now(self) -> str:
        """UTC with microseconds, ISO 8601."""
        now = self._clock()
        second = int(now)
        if second != self._second:
            self._second = second
            self._stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
        return f"{self._stamp}.{int((now - second) * 1e6):06d}Z"

    def _unwritable(self, error: OSError) -> StoreError:
        text = f"{self.path}: what leaves this center cannot be written down, so nothing is sent"
        return store_failure(f"{text} ({error.strerror})", error)


def _newest(files: list[Path]) -> tuple[Head | None, bytes]:
    """The last whole line of all, and what a crash left behind it."""
    torn = b""
    for path in reversed(files):
        tail: Tail = tail_of(path)
        torn = tail.torn
        if tail.head is not None:
            return tail.head, torn
    return None, torn


_NAMES: Final[dict[type[Message], tuple[str, ...]]] = {}


def _fields_of(kind: type[Message]) -> tuple[str, ...]:
    names = _NAMES.get(kind)
    if names is None:
        every = (field.name for field in dataclasses.fields(kind))
        names = _NAMES[kind] = tuple(name for name in every if name != "payload")
    return names


def _plain(value: object) -> object:
    """What JSON does not know by itself."""
    if isinstance(value, SessionId):
        return str(value)
    if isinstance(value, CardMessage):
        return {"sequence": value.sequence, "values": value.values}
    raise TypeError(f"{type(value).__name__} has no form in the record")


_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), default=_plain).encode
