"""Addresses in a shared folder: each center writes ``<id>.json`` and looks for the others'.

The folder is polled, since notifications of changes do not arrive on network file systems. Whoever
can write to it can mislead connections, not more: a card counts only as an address hint. Files that
are no card of this federation are reported once and otherwise ignored.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final

from abps_node.addresses import is_concrete
from abps_node.config import Member
from abps_node.discovery.base import Found, Sighting
from abps_node.discovery.cards import (
    SUFFIX,
    AddressCard,
    SignedCard,
    UnusableCard,
    card_path,
    read_card,
    write_card,
)
from abps_node.errors import TransportError
from abps_node.event_sink import EventSink, NoEvents

MAX_NAMES: Final = 10_000
"""So many names of the folder are looked at for files that do not belong there."""

_log = logging.getLogger(__name__)


class DirectoryDiscovery:
    """One center's view of the shared folder."""

    def __init__(
        self, folder: Path, roster: Sequence[Member], center_id: str, poll_s: float
    ) -> None:
        self.events: EventSink = NoEvents()
        self._folder = folder
        self._keys = {member.id: member.public_key for member in roster}
        self._center_id = center_id
        self._poll_s = poll_s
        self._own: AddressCard | None = None
        # A look that is under way may not restore what is being withdrawn.
        self._writing = threading.Lock()
        self._cards: dict[str, SignedCard] = {}
        self._broken: dict[str, str] = {}
        self._reported: dict[str, str] = {}

    async def announce(self, address: str, incarnation: int) -> None:
        """Write the own card; ``TransportError`` names the folder and the cause."""
        if not is_concrete(address):
            raise TransportError(f"found {address} to announce, allowed: an address others reach")
        card = AddressCard(
            id=self._center_id,
            public_key=self._keys[self._center_id],
            address=address,
            incarnation=incarnation,
        )
        try:
            await asyncio.to_thread(write_card, self._folder, card)
        except OSError as error:
            raise TransportError(
                f"{self._folder}: the own address cannot be announced: {error.strerror}"
            ) from error
        self._own = card

    async def withdraw(self) -> None:
        """Remove the own card, unless a newer copy of this center has replaced it."""
        own, self._own = self._own, None
        if own is not None:
            await asyncio.to_thread(self._remove, own)

    async def watch(self, found: Found) -> None:
        """Look into the folder every ``poll_s`` seconds until cancelled."""
        known: dict[str, str] = {}
        while True:
            sightings = await asyncio.to_thread(self._look)
            for sighting in sightings:
                address = sighting.address
                if address is not None and known.get(sighting.center) != address:
                    known[sighting.center] = address
                    found(sighting.center, address)
                elif sighting.withdrawn and known.pop(sighting.center, None) is not None:
                    found(sighting.center, None)
            await asyncio.sleep(self._poll_s)

    def readable(self) -> list[Sighting]:
        """The card of every other center, or what is wrong with it."""
        return [self._sight(center) for center in self._keys if center != self._center_id]

    # All below runs in a worker thread.

    def _look(self) -> list[Sighting]:
        sightings = self.readable()
        try:
            self._restore_own()
            strange = self._strange_files()
        except OSError as error:
            # A network folder may come back; the addresses known so far go on serving.
            self._report({"": f"cannot be used: {error.strerror}"})
        else:
            self._report(self._broken | strange)
        return sightings

    def _sight(self, center: str) -> Sighting:
        path = card_path(self._folder, center)
        self._broken.pop(path.name, None)
        try:
            signed = self._cards[center] = read_card(path, self._cards.get(center))
        except FileNotFoundError:
            missing = f"{path}: missing, the center has not announced itself"
            return Sighting(center, None, missing, withdrawn=self._folder.is_dir())
        except UnusableCard as error:
            return self._break(center, path, str(error))
        except OSError as error:
            return self._break(center, path, f"cannot be read: {error.strerror}")
        card = signed[1]
        if card.public_key != self._keys[center]:
            found = f"public_key: found {card.public_key}, allowed: the roster's"
            return self._break(center, path, found)
        return Sighting(center, card.address, "")

    def _break(self, center: str, path: Path, problem: str) -> Sighting:
        self._broken[path.name] = problem
        return Sighting(center, None, f"{path}: {problem}")

    def _strange_files(self) -> dict[str, str]:
        """Name and reason of files that are no center's card. Hidden ones are being written."""
        allowed = {center + SUFFIX for center in self._keys}
        names = (path.name for path in islice(self._folder.iterdir(), MAX_NAMES))
        reason = "belongs to no center of the roster"
        return {n: reason for n in names if n not in allowed and not n.startswith(".")}

    def _report(self, problems: dict[str, str]) -> None:
        """Say each problem once, and again only if it went away in between."""
        for name, problem in problems.items():
            if self._reported.get(name) != problem:
                _log.warning("%s: ignored: %s", self._folder / name, problem)
        self._reported = problems

    def _restore_own(self) -> None:
        """Write the own card again if somebody cleaned the folder."""
        with self._writing:
            own = self._own
            if own is not None and not card_path(self._folder, own.id).exists():
                write_card(self._folder, own)

    def _remove(self, own: AddressCard) -> None:
        path = card_path(self._folder, own.id)
        try:
            with self._writing:
                if read_card(path)[1] == own:
                    path.unlink()
        except FileNotFoundError:
            return
        except (OSError, UnusableCard) as error:
            _log.warning("%s: the own address card was not removed: %s", path, error)
