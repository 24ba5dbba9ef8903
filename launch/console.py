"""What a child prints, drained from its pipe into one file per center, which is rotated."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

CONSOLE_NAME: Final = "console.log"
CONSOLE_BYTES: Final = 2 * 1024 * 1024
_READ_BYTES: Final = 65_536
_TAIL_BYTES: Final = 16_384


class Console:
    """The reading end of one child's output."""

    def __init__(self, path: Path, limit_bytes: int = CONSOLE_BYTES) -> None:
        """Open the pipe. The file is appended to; beyond ``limit_bytes`` it becomes ``….1``."""
        self.path = path
        self._limit = limit_bytes
        self._tail = b""
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)

    def fileno(self) -> int:
        """For selectors."""
        return self.reading

    def drain(self) -> bool:
        """Write what has come to the file; False once no writer or no pipe is left."""
        while self.reading >= 0:
            try:
                content = os.read(self.reading, _READ_BYTES)
            except BlockingIOError:
                return True
            if not content:
                return False
            self._tail = (self._tail + content)[-_TAIL_BYTES:]
            # A full disk under one center must not end the others. What it said is not lost: its
            # last words are kept here, and told with its end.
            with suppress(OSError):
                self._write(content)
        return False

    def last_words(self) -> str:
        """The last line that this child printed; of a JSON log line its text. Maybe empty."""
        return _last_line(self._tail)

    def close_writing(self) -> None:
        """The supervisor's copy of the child's end, once the child has its own."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def close(self) -> None:
        """Both ends."""
        self.close_writing()
        if self.reading >= 0:
            os.close(self.reading)
            self.reading = -1

    def _write(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.open("ab") as file:
            full = file.tell() + len(content) > self._limit
            if not (full and file.tell()):
                file.write(content)
                return
        self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        self.path.write_bytes(content)


def last_words(path: Path) -> str:
    """The last line of a file; of a JSON log line its text. Empty if none."""
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        return _last_line(file.read())


def _last_line(content: bytes) -> str:
    lines = [line for line in content.decode(errors="replace").splitlines() if line.strip()]
    if not lines:
        return ""
    try:
        line = json.loads(lines[-1])
    except json.JSONDecodeError:
        return lines[-1].strip()
    return str(line.get("text", lines[-1])) if isinstance(line, dict) else lines[-1].strip()
