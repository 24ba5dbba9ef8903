"""How centers learn each other's addresses. Hints only: who answers there is proved by its key."""

from __future__ import annotations

from abps_node.config import BrokerAccess, Federation
from abps_node.discovery.base import Discovery, Found, Published, Say, Sighting, unrecorded
from abps_node.discovery.directory import DirectoryDiscovery
from abps_node.discovery.static import StaticDiscovery
from abps_node.errors import ConfigError
from protocol.effects import Note

__all__ = ["Discovery", "Found", "Published", "Say", "Sighting", "make_discovery"]


def _to_nobody(note: Note) -> None:
    """For those who only look."""


def make_discovery(
    federation: Federation,
    center_id: str,
    access: BrokerAccess | None = None,
    say: Say = _to_nobody,
    published: Published = unrecorded,
) -> Discovery:
    """The discovery that federation.toml asks for, seen from one of its centers.

    ``access`` is the center's own, where there is a broker; ``say`` hears of trouble with it, and
    ``published`` of all that is left where others read it.
    Raises ``ConfigError``, and ``KeyFileError`` for a password that cannot be used.
    """
    asked = federation.discovery
    if asked.broker is not None:
        # Here, since its libraries are of no use to the other kinds.
        from abps_node.discovery.mqtt import MqttDiscovery

        if access is None:
            raise ConfigError(f"{federation.path}: discovery.kind: mqtt needs a center.toml")
        least = federation.contract.data.card.min_events
        return MqttDiscovery(
            asked.broker, access, federation.roster, center_id, say, least, published
        )
    if asked.path is not None:
        return DirectoryDiscovery(asked.path, federation.roster, center_id, asked.poll_s, published)
    return StaticDiscovery(federation.roster, center_id)
