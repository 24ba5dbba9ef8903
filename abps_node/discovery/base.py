"""The interface of every kind of discovery."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from abps_node.event_sink import EventSink
from protocol.effects import Note

Found = Callable[[str, str | None], None]
"""Called with a center's id and its address, ``tcp://host:port``; None: the address is gone."""

Keys = Mapping[str, tuple[str, ...]]
"""Public keys (z85) of each member."""

Say = Callable[[Note], None]
"""Called with what belongs into the log and among the center's events."""

Published = Callable[[str, str, str, bytes], None]
"""Called before something is left where others read it: by which way (``directory`` or ``mqtt``),
where, what, and its bytes. May be called from any thread."""


def unrecorded(via: str, to: str, what: str, payload: bytes) -> None:
    """A ``Published`` for those who leave nothing anywhere, and for tests."""


@dataclass(frozen=True)
class Sighting:
    """What is known of one center of the roster: an address, or why there is none."""

    center: str
    address: str | None
    problem: str
    """Empty if there is an address."""
    withdrawn: bool = False
    """There is certainly no announcement, as opposed to one that cannot be read just now."""


class Discovery(Protocol):
    """Tells the own address and watches for those of the others.

    Everything it reports is a hint. An address of a wrong or hostile source costs a refused
    connection, never trust.
    """

    events: EventSink
    """Where the center tells what it does; kinds that reach nobody tell nobody."""

    async def announce(self, address: str, incarnation: int) -> None:
        """Tell the others where this center listens. ``TransportError`` if that is impossible."""

    async def withdraw(self) -> None:
        """Take the own announcement back; never fails."""

    async def watch(self, found: Found) -> None:
        """Report each address when it is first seen, changes, or is withdrawn, until cancelled."""

    def admit(self, members: Keys, own_key: str) -> None:
        """From now on these are the members, by these keys, and the own one in use is this.

        May be called at any time; what is announced carries the key as of then.
        """

    def readable(self) -> list[Sighting]:
        """One look, for the preflight: every other center of the roster, in its order."""
