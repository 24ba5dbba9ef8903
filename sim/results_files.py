"""Results on disk: one JSON object per cell, written whole or not at all; and their summaries.

A summary is a list of results without what is only drawn (curves, centers, beliefs): what tables
are made of, small enough to be kept beside a text.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from abps_node.errors import NodeError

Result = dict[str, Any]
DRAWN: Final = ("history", "per_center", "beliefs")
"""Keys that a summary lacks."""
REQUIRED: Final = ("name", "method", "seed", "config", "mean_auroc", "rounds_run")


def file_of(directory: Path, row: str, seed: int) -> Path:
    """Where a cell's result lies."""
    return directory / f"{row}.seed-{seed}.json"


def make_folder(folder: Path) -> None:
    """The folder and those above it, before anything is computed; ``NodeError`` if it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NodeError(f"{folder}: cannot be made: {error.strerror}") from error
    if not os.access(folder, os.W_OK):
        raise NodeError(f"{folder}: cannot be written to, allowed: a folder of your own")


def write(path: Path, value: Result | list[Result]) -> None:
    """Atomically: a reader finds the old file, the new one or none, never a part.

    Raises ``NodeError`` naming the file where it cannot be written.
    """
    make_folder(path.parent)
    try:
        _replace(path, value)
    except OSError as error:
        raise NodeError(f"{path}: cannot be written: {error.strerror or error}") from error


def _replace(path: Path, value: Result | list[Result]) -> None:
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    indent = 1 if isinstance(value, list) else None
    with part.open("w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, allow_nan=False, indent=indent)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def read(paths: Iterable[Path]) -> list[Result]:
    """Results of files (one result or a summary) and directories of such files.

    Raises ``NodeError`` naming a path that holds none, and a cell that stands there twice.
    """
    found: list[Result] = []
    for path in paths:
        if path.is_dir():
            files = sorted(path.glob("*.json"))
            if not files:
                raise NodeError(f"{path}: found no *.json, allowed: results of abps sim")
            for file in files:
                found += read_file(file)
        else:
            found += read_file(path)
    seen: set[tuple[str, str, int]] = set()
    for each in found:
        key = each["config"]["data"]["name"], each["name"], each["seed"]
        if key in seen:
            raise NodeError(f"{key[1]}, seed {key[2]} on {key[0]}: found twice, allowed: once")
        seen.add(key)
    return found


def read_file(path: Path) -> list[Result]:
    """The result or results in one file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NodeError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise NodeError(f"{path}: is not JSON: {error}") from error
    results: Sequence[Any] = value if isinstance(value, list) else [value]
    for each in results:
        missing = [key for key in REQUIRED if not isinstance(each, Mapping) or key not in each]
        if missing:
            raise NodeError(f"{path}: found no {missing[0]!r}, allowed: results of abps sim")
    return [dict(each) for each in results]


def summary(results: Iterable[Result]) -> list[Result]:
    """The results without what is only drawn."""
    return [{key: each[key] for key in each if key not in DRAWN} for each in results]


def require_kind(results: Iterable[Result], tasks: bool) -> None:
    """``NodeError`` names the first result that is not of the kind wanted: of `abps sim tasks`, or
    of the methods on one task."""
    theirs = {True: "abps sim tasks", False: "abps sim"}
    for each in results:
        if ("tasks" in each) != tasks:
            raise NodeError(
                f"{each['name']}: found a result of {theirs[not tasks]}, "
                f"allowed: those of {theirs[tasks]}"
            )
