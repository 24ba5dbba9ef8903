"""How centers learn each other's addresses. Hints only: who answers there is proved by its key."""

from __future__ import annotations

from abps_node.config import Federation
from abps_node.discovery.base import Discovery, Found, Sighting
from abps_node.discovery.directory import DirectoryDiscovery
from abps_node.discovery.static import StaticDiscovery
from abps_node.errors import ConfigError

__all__ = ["Discovery", "Found", "Sighting", "make_discovery"]


def make_discovery(federation: Federation, center_id: str) -> Discovery:
    """The discovery that federation.toml asks for, seen from one of its centers."""
    if federation.discovery.kind == "static":
        return StaticDiscovery(federation.roster, center_id)
    folder = federation.discovery.path
    if folder is None:
        raise ConfigError(f"{federation.path}: discovery.path: missing, allowed: a folder")
    return DirectoryDiscovery(folder, federation.roster, center_id, federation.discovery.poll_s)
