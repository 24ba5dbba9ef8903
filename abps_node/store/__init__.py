"""A center's durable memory: one SQLite file and the model files beside it.

``store`` writes (the daemon, one connection), ``reader`` looks (the CLI and the launcher, without
ever disturbing the daemon), ``models`` keeps the tensors. See ``docs/architecture.md``.

The writer is imported on first use: it needs numpy, which a command that only looks does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from abps_node.store.store import Recovered, Store

__all__ = ["Recovered", "Store"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from abps_node.store import store

    return getattr(store, name)
