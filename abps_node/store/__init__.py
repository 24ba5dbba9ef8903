"""A center's durable memory: one SQLite file and the model files beside it.

``store`` writes (the daemon, one connection), ``reader`` looks (the CLI and the launcher, without
ever disturbing the daemon), ``models`` keeps the tensors. See ``docs/architecture.md``.
"""

from abps_node.store.store import Recovered, Store

__all__ = ["Recovered", "Store"]
