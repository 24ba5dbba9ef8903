"""Files that are written whole or not at all, and replace nothing by accident."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from abps_node.errors import NodeError


def require_free(path: Path, force: bool) -> None:
    """Raise ``NodeError`` if something would be replaced that nobody said may be."""
    if path.is_dir():
        raise NodeError(f"{path}: found a folder, allowed: the name of a file")
    if path.exists() and not force:
        raise NodeError(f"{path}: exists already; --force replaces it")
    if not path.parent.is_dir():
        raise NodeError(f"{path.parent}: found no such folder, allowed: one that exists")


def write_whole(
    path: Path, write: Callable[[BinaryIO], None], *, force: bool, mode: int = 0o600
) -> None:
    """Let ``write`` fill a file that appears under its name complete and durable, or never.

    Raises ``NodeError`` if it cannot be written, or exists and ``force`` is not given.
    """
    require_free(path, force)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            require_free(path, force)  # somebody may have written it meanwhile
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise NodeError(f"{path}: cannot be written: {error.strerror}") from error
