"""The members of a running center: watches the file of changes, and has them take effect.

At the daemon's ticks, several times a second, the file is looked at, which costs a stat; a key
whose time is over ends by the clock. A file that cannot be read changes nothing, and is said once:
who was revoked stays so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from abps_node.config import CenterConfig
from abps_node.errors import ConfigError, KeyFileError
from abps_node.identity import load_own_keys
from abps_node.keys import KeyPair
from abps_node.members_file import Stamp, read_changes, stamp_of
from abps_node.membership import Change, Membership, membership
from protocol import events as ev
from protocol.effects import Note

if TYPE_CHECKING:
    from abps_node.discovery import Discovery
    from abps_node.transport import Transport

LOOK_S: Final = 0.2
"""Least time between two looks at the file."""


class Members:
    """Who is a member now, in step with the file."""

    def __init__(self, config: CenterConfig) -> None:
        """Raises ``ConfigError`` for a damaged file, ``KeyFileError`` for an unusable own key."""
        self._config = config
        self._key_stamp = stamp_of(config.secret_key)
        self._pair = (
            load_own_keys(config) if config.federation.contract.security == "curve" else None
        )
        self._stamp: Stamp | None = stamp_of(config.members)
        self._changes = read_changes(config.members)
        self._news = asyncio.Event()
        self._due = 0.0
        self.now = membership(config.federation.roster, self._changes, time.time())

    @property
    def own_keys(self) -> KeyPair | None:
        """In use; None without security."""
        return self._pair

    @property
    def own_key(self) -> str:
        """The public one; without security that of the roster."""
        return self._config.member.public_key if self._pair is None else self._pair.public

    def glance(self) -> None:
        """Whether there is news; costs next to nothing, and is to be called at every tick."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + LOOK_S
        files = (
            (stamp_of(self._config.members), self._stamp),
            (stamp_of(self._config.secret_key) if self._pair else None, self._key_stamp),
        )
        changed = any(stamp is not None and stamp != known for stamp, known in files)
        if changed or (self.now.changes_at is not None and time.time() >= self.now.changes_at):
            self._news.set()

    async def watch(
        self,
        transport: Transport,
        discovery: Discovery,
        feed: Callable[[ev.Event], None],
        found: Callable[[str, str | None], None],
        say: Callable[[Note], None],
        announce: Callable[[], Awaitable[object]],
    ) -> None:
        """Have every change take effect, until cancelled: keys first, then what is decided.

        ``announce`` is awaited when the own key pair has become another one.
        """
        for name in sorted(self.now.revoked):
            feed(ev.MemberRevoked(name))
        while True:
            await self._news.wait()
            self._news.clear()
            before, news = self.now, self._look(say)
            if self.now != before:
                transport.set_roster(self.now.keys)
                discovery.admit(self.now.keys, self.own_key)
                self._tell(before, feed, found, say)
            if (pair := self._new_pair(say)) is not None:
                await transport.change_keys(pair)
                discovery.admit(self.now.keys, self.own_key)
                await announce()
                say(Note("own-key", "info", None, f"the own key is {self.own_key} now", {}))
            if any(c.action == "leave" and c.id == self._config.id for c in news):
                feed(ev.StopRequested("asked to leave", leave=True))

    def _new_pair(self, say: Callable[[Note], None]) -> KeyPair | None:
        """The own key pair, if its file is another one now and the new key is one of the own."""
        stamp = stamp_of(self._config.secret_key)
        if self._pair is None or stamp is None or stamp == self._key_stamp:
            return None
        self._key_stamp = stamp
        try:
            pair = load_own_keys(self._config)
        except (ConfigError, KeyFileError) as error:
            say(Note("own-key-refused", "error", None, str(error), {}))
            return None
        if pair == self._pair:
            return None
        self._pair = pair
        return pair

    def _look(self, say: Callable[[Note], None]) -> list[Change]:
        """Read the file again if it is another one; returns what was added to it."""
        stamp, known = stamp_of(self._config.members), len(self._changes)
        if stamp is not None and stamp != self._stamp:
            self._stamp = stamp
            try:
                self._changes = read_changes(self._config.members)
            except ConfigError as error:
                say(Note("members-unreadable", "error", None, str(error), {}))
        due = self.now.changes_at is not None and time.time() >= self.now.changes_at
        if due or len(self._changes) != known:
            self.now = membership(self._config.federation.roster, self._changes, time.time())
        return self._changes[known:]

    def _tell(
        self,
        before: Membership,
        feed: Callable[[ev.Event], None],
        found: Callable[[str, str | None], None],
        say: Callable[[Note], None],
    ) -> None:
        for name in sorted(before.keys.keys() - self.now.keys.keys()):
            feed(ev.MemberRevoked(name))
        for name, keys in self.now.keys.items():
            known = before.keys.get(name)
            if known is None:
                feed(ev.MemberAdded(name))
            elif known != keys:
                text = f"keys of {name} that count now: {', '.join(keys)}"
                say(Note("member-keys", "info", name, text, {"keys": list(keys)}))
            address = self.now.addresses.get(name)
            new = known is None or before.addresses.get(name) != address
            if address is not None and new and name != self._config.id:
                found(name, address)
