"""Addresses that stand in the roster."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from abps_node.config import Member
from abps_node.discovery.base import Found, Keys, Sighting
from abps_node.event_sink import EventSink, NoEvents


class StaticDiscovery:
    """Nothing to announce, nothing changes: federation.toml says where everybody listens."""

    def __init__(self, roster: Sequence[Member], center_id: str) -> None:
        self.events: EventSink = NoEvents()
        self._others = [member for member in roster if member.id != center_id]

    async def announce(self, address: str, incarnation: int) -> None:
        """The others know it from their own copy of the roster."""

    async def withdraw(self) -> None:
        """Nothing was announced."""

    async def watch(self, found: Found) -> None:
        """Report all addresses at once, then rest until cancelled."""
        for member in self._others:
            if member.address is not None:
                found(member.id, member.address)
        await asyncio.Event().wait()

    def admit(self, members: Keys, own_key: str) -> None:
        """Addresses come with the members themselves here."""

    def readable(self) -> list[Sighting]:
        """A center without an address can only be met if it connects by itself."""
        missing = "roster: address: missing, allowed: tcp://host:port"
        return [
            Sighting(member.id, member.address, "" if member.address else missing)
            for member in self._others
        ]
