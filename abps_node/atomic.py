"""Files that are written whole or not at all, and replace nothing by accident."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
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


def write_text(path: Path, text: str, *, force: bool) -> None:
    """A text that others may read, whole or not at all; raises ``NodeError``."""
    write_whole(path, partial(_write, text.encode()), force=force, mode=0o644)


def require_free_folder(folder: Path, force: bool, known: Collection[str]) -> None:
    """Raise ``NodeError`` unless ``folder`` is new, empty, or may be replaced.

    Only a folder that holds nothing but files named in ``known`` can be replaced.
    """
    if folder.exists() and not folder.is_dir():
        raise NodeError(f"{folder}: found a file, allowed: the name of a folder")
    if not folder.resolve().parent.is_dir():
        raise NodeError(f"{folder.parent}: found no such folder, allowed: one that exists")
    found = sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []
    if foreign := [name for name in found if name not in known]:
        raise NodeError(f"{folder}: found {foreign[0]!r}, allowed: a new or empty folder")
    if found and not force:
        raise NodeError(f"{folder}: exists already; --force replaces it")


def write_folder(folder: Path, files: Mapping[str, bytes]) -> None:
    """Make a folder, mode 0700, that appears with all its files or not at all.

    What was there before is replaced: ask ``require_free_folder`` first. Raises ``NodeError``.
    """
    folder = folder.resolve()
    beside = folder.with_name(f".{folder.name}.{os.getpid()}")
    fresh, old = beside.with_suffix(".tmp"), beside.with_suffix(".old")
    try:
        fresh.mkdir(mode=0o700)
        try:
            for name, content in files.items():
                write_whole(fresh / name, partial(_write, content), force=False)
            if folder.exists():
                folder.rename(old)
            fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
    except OSError as error:
        raise NodeError(f"{folder}: cannot be written: {error.strerror}") from error


def _write(content: bytes, file: BinaryIO) -> None:
    file.write(content)
