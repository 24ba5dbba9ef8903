"""Addresses in a shared folder: each center writes ``<id>.json`` and looks for the others'.

The folder is polled, since notifications of changes do not arrive on network file systems. A card
is always put in place by a rename, which changes the folder and the card's inode: only such cards
are opened, and now and then all, so that hundreds of centers can watch hundreds of cards. Once
every card is known, looks become rarer.

Whoever can write to the folder can mislead connections, not more: a card counts only as an address
hint. Files that are no card of this federation are reported once and otherwise ignored.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from abps_node.addresses import is_concrete
from abps_node.config import Member
from abps_node.discovery.base import Found, Keys, Published, Sighting, unrecorded
from abps_node.discovery.cards import (
    SUFFIX,
    AddressCard,
    SignedCard,
    UnusableCard,
    card_path,
    card_text,
    read_card,
    write_card,
)
from abps_node.errors import StoreError, TransportError
from abps_node.event_sink import EventSink, NoEvents

FULL_LOOK_S: Final = 30.0
"""So often every file is opened, whether the folder has changed or not."""
CALM: Final = 10
"""When all cards are known and nothing changes, looks come up to so many times more rarely."""
MAX_NAMES: Final = 10_000
"""So many names of the folder are looked at for files that do not belong there."""

_log = logging.getLogger(__name__)


class DirectoryDiscovery:
    """One center's view of the shared folder."""

    def __init__(
        self,
        folder: Path,
        roster: Sequence[Member],
        center_id: str,
        poll_s: float,
        published: Published = unrecorded,
    ) -> None:
        """``published``: hears of every card before it is put into the folder, or taken out."""
        self.events: EventSink = NoEvents()
        self._folder = folder
        self._keys: Keys = {member.id: (member.public_key,) for member in roster}
        self._own_key = next((m.public_key for m in roster if m.id == center_id), "")
        self._center_id = center_id
        self._poll_s = poll_s
        self._published = published
        self._own: AddressCard | None = None
        # A look that is under way may not restore what is being withdrawn.
        self._writing = threading.Lock()
        self._cards: dict[str, SignedCard] = {}
        self._broken: dict[str, str] = {}
        self._reported: dict[str, str] = {}
        self._stamp: tuple[int, int] | None = None
        self._again = False
        self._looked = -math.inf
        self._gone: set[str] = set()
        """Who was a member: told again if it comes back."""
        self._admitted = asyncio.Event()

    async def announce(self, address: str, incarnation: int) -> None:
        """Write the own card; ``TransportError`` names the folder and the cause."""
        if not is_concrete(address):
            raise TransportError(f"found {address} to announce, allowed: an address others reach")
        card = AddressCard(
            id=self._center_id,
            public_key=self._own_key,
            address=address,
            incarnation=incarnation,
        )
        try:
            await asyncio.to_thread(self._write, card)
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
        calm = 1
        while True:
            changed = await asyncio.to_thread(self._has_changed)
            sightings = await asyncio.to_thread(self._look) if changed else []
            for sighting in sightings:
                address = sighting.address
                if address is not None and known.get(sighting.center) != address:
                    known[sighting.center] = address
                    found(sighting.center, address)
                elif sighting.withdrawn and known.pop(sighting.center, None) is not None:
                    found(sighting.center, None)
            settled = not changed and len(known) == len(self._keys) - 1
            calm = min(CALM, calm + 1) if settled else 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._admitted.wait(), self._poll_s * calm)
                self._admitted.clear()
            while self._gone:
                known.pop(self._gone.pop(), None)

    def admit(self, members: Keys, own_key: str) -> None:
        """If that is news, the next look comes at once and opens every card again."""
        if members == self._keys and own_key == self._own_key:
            return
        self._gone |= self._keys.keys() - members.keys()
        self._keys, self._own_key = dict(members), own_key
        self._looked = -math.inf
        self._admitted.set()

    def readable(self) -> list[Sighting]:
        """The card of every other center, or what is wrong with it."""
        return [self._sight(center) for center in self._keys if center != self._center_id]

    # All below runs in a worker thread.

    def _has_changed(self) -> bool:
        """Whether the files have to be looked at.

        Once more after each change, since two changes within one tick of the file system's clock
        leave the same stamp, and always while there is a file that may be mended in place.
        """
        stamp, before = self._folder_stamp(), self._stamp
        # Taken before the files are read: what changes meanwhile is seen at the next look.
        self._stamp = stamp
        moved = stamp is None or stamp != before
        again, self._again = self._again, moved
        due = time.monotonic() - self._looked >= FULL_LOOK_S
        return moved or again or due or bool(self._broken)

    def _folder_stamp(self) -> tuple[int, int] | None:
        """Changes with every card that is put there, replaced or removed; None if out of reach.

        Opened, and not only asked for, because on NFS only that makes the client ask the server.
        """
        try:
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            found = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return found.st_ino, found.st_mtime_ns

    def _look(self) -> list[Sighting]:
        """Where every center is whose card is new or gone, or now and then of all."""
        now = time.monotonic()
        complete = now - self._looked >= FULL_LOOK_S or bool(self._broken)
        try:
            self._restore_own()
            names = self._names()
            if complete:
                self._looked = now
                sightings = self.readable()
            else:
                sightings = [self._sight(center) for center in self._moved(names)]
        except OSError as error:
            # A network folder may come back; the addresses known so far go on serving.
            self._report({"": f"cannot be used: {error.strerror}"})
            return []
        self._report(self._broken | self._strange(names))
        return sightings

    def _names(self) -> dict[str, int]:
        """The files of the folder with their inodes, which a listing tells without opening any."""
        with os.scandir(self._folder) as entries:
            return {entry.name: entry.inode() for entry in islice(entries, MAX_NAMES)}

    def _moved(self, names: Mapping[str, int]) -> list[str]:
        """Centers whose card is another file than the one that was read, or no longer there."""
        return [
            center
            for center in self._keys
            if center != self._center_id and names.get(center + SUFFIX) != self._inode_of(center)
        ]

    def _inode_of(self, center: str) -> int | None:
        known = self._cards.get(center)
        return None if known is None else known[0][0]

    def _sight(self, center: str) -> Sighting:
        path = card_path(self._folder, center)
        self._broken.pop(path.name, None)
        try:
            signed = self._cards[center] = read_card(path, self._cards.get(center))
        except FileNotFoundError:
            self._cards.pop(center, None)
            missing = f"{path}: missing, the center has not announced itself"
            return Sighting(center, None, missing, withdrawn=self._folder.is_dir())
        except UnusableCard as error:
            return self._break(center, path, str(error))
        except OSError as error:
            return self._break(center, path, f"cannot be read: {error.strerror}")
        card = signed[1]
        if card.public_key not in self._keys.get(center, ()):
            found = f"public_key: found {card.public_key}, allowed: the roster's"
            return self._break(center, path, found)
        return Sighting(center, card.address, "")

    def _break(self, center: str, path: Path, problem: str) -> Sighting:
        self._broken[path.name] = problem
        return Sighting(center, None, f"{path}: {problem}")

    def _strange(self, names: Iterable[str]) -> dict[str, str]:
        """Name and reason of files that are no center's card. Hidden ones are being written."""
        allowed = {center + SUFFIX for center in self._keys}
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
                self._write(own)

    def _write(self, card: AddressCard) -> None:
        place = str(card_path(self._folder, card.id))
        self._published("directory", place, "card", card_text(card).encode())
        write_card(self._folder, card)

    def _remove(self, own: AddressCard) -> None:
        path = card_path(self._folder, own.id)
        try:
            with self._writing:
                if read_card(path)[1] == own:
                    self._published("directory", str(path), "card-removed", b"")
                    path.unlink()
        except FileNotFoundError:
            return
        except (OSError, UnusableCard, StoreError) as error:
            _log.warning("%s: the own address card was not removed: %s", path, error)
