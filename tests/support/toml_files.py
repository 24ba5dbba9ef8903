"""A small valid federation as TOML files, to be spoiled by a test in one place."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import tomli_w

KEY_A, KEY_B = "a" * 40, "b" * 40

FEATURES: list[dict[str, Any]] = [
    {"name": "age", "kind": "continuous"},
    {"name": "diabetes", "kind": "binary"},
    {"name": "ward", "kind": "categorical", "levels": ["icu", "surgery"]},
]


def federation_tables() -> dict[str, Any]:
    """A valid federation.toml of the centers north and south."""
    return {
        "contract": {
            "name": "test",
            "data": {"label": "died", "features": deepcopy(FEATURES)},
            "policy": {},
        },
        "discovery": {"kind": "static"},
        "roster": [
            {"id": "north", "public_key": KEY_A, "address": "tcp://127.0.0.1:5555"},
            {"id": "south", "public_key": KEY_B},
        ],
    }


def center_tables() -> dict[str, Any]:
    """A valid center.toml of the center north."""
    return {
        "id": "north",
        "federation": "federation.toml",
        "data": "patients.csv",
        "secret_key": "keys/north.secret",
        "bind": "tcp://127.0.0.1:0",
    }


def put(tables: dict[str, Any], key: str, value: object) -> None:
    """Set a dotted key; a step that is a number counts the entries of a list from 0."""
    *steps, last = [int(step) if step.isdigit() else step for step in key.split(".")]
    node: Any = tables
    for step in steps:
        node = node.setdefault(step, {}) if isinstance(step, str) else node[step]
    node[last] = value


def drop(tables: dict[str, Any], key: str) -> None:
    """Remove a dotted key."""
    *steps, last = key.split(".")
    node: Any = tables
    for step in steps:
        node = node[int(step)] if step.isdigit() else node[step]
    del node[last]


def write_files(
    directory: Path,
    federation: dict[str, Any] | None = None,
    center: dict[str, Any] | None = None,
) -> Path:
    """Write both files into ``directory``; returns the path of center.toml."""
    text = tomli_w.dumps(federation_tables() if federation is None else federation)
    (directory / "federation.toml").write_text(text, encoding="utf-8")
    path = directory / "center.toml"
    path.write_text(tomli_w.dumps(center_tables() if center is None else center), encoding="utf-8")
    return path
