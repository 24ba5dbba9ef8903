"""The interface of every kind of discovery."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

Found = Callable[[str, str], None]
"""Called with a center's id and its address, ``tcp://host:port``."""


@dataclass(frozen=True)
class Sighting:
    """What is known of one center of the roster: an address, or why there is none."""

    center: str
    address: str | None
    problem: str
    """Empty if there is an address."""


class Discovery(Protocol):
    """Tells the own address and watches for those of the others.

    Everything it reports is a hint. An address of a wrong or hostile source costs a refused
    connection, never trust.
    """

    async def announce(self, address: str, incarnation: int) -> None:
        """Tell the others where this center listens. ``TransportError`` if that is impossible."""

    async def withdraw(self) -> None:
        """Take the own announcement back; never fails."""

    async def watch(self, found: Found) -> None:
        """Report each address when it is first seen and when it changes, until cancelled."""

    def readable(self) -> list[Sighting]:
        """One look, for the preflight: every other center of the roster, in its order."""
