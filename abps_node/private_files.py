"""Small files with a secret in them: read whole, bounded, and only if nobody else can read them."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from abps_node.errors import KeyFileError

MAX_BYTES: Final = 4096
_OPEN_TO_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_private(path: Path, what: str) -> bytes:
    """The content, up to one byte more than ``MAX_BYTES``; ``what`` names such a file for people.

    ``KeyFileError`` names the file and what is wrong with it: missing, not a regular file, or
    readable by group or others.
    """
    try:
        # Without O_NONBLOCK a named pipe in place of the file would block the start for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            # Asked of the open file, so that it cannot be exchanged between look and read.
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise KeyFileError(f"{path}: found no regular file, allowed: {what}")
            require_private(path, mode, "0600 or stricter")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be read: {error.strerror}") from error


def require_private(path: Path, mode: int, allowed: str) -> None:
    """``KeyFileError`` if group or others have any right; ``mode`` as of ``stat``."""
    if mode & _OPEN_TO_OTHERS:
        found = stat.S_IMODE(mode)
        raise KeyFileError(f"{path}: found mode {found:04o}, allowed: {allowed} (chmod go= {path})")
