"""What users choose by name: found in its table, or one clear error."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import TypeVar

from abps_node.errors import ConfigError

T = TypeVar("T")


def chosen(what: str, name: str, table: Mapping[str, T]) -> T:
    """The entry of this name; ``ConfigError`` with those that are like it, and with all."""
    if name not in table:
        near = difflib.get_close_matches(name, table, n=3)
        hint = f"nearest: {', '.join(near)}; " if near else ""
        raise ConfigError(f"{what}: found {name!r}, {hint}allowed: {', '.join(table)}")
    return table[name]
