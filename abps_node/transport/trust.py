"""Who may connect: an allow-list of public keys, asked by libzmq through ZAP (ZeroMQ RFC 27).

A connection whose key is not on the list is refused in the handshake, before it can send a byte to
the application. Of an accepted one, libzmq attaches the key to every frame as its ``User-Id``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import zmq
from zmq.auth import Authenticator

from abps_node.errors import TransportError
from abps_node.keys import is_public_key
from abps_node.transport.edge import EdgeReader
from protocol.timing import TokenBucket

ZAP_DOMAIN: Final = "abps"
"""Must be the same on the socket and here, else libzmq refuses everybody without a word."""

Keys = str | tuple[str, ...]
"""Of one center: its public key (z85), or several."""

HOLD_S: Final = 30.0
"""Whoever flooded may not connect for so long, the next time for twice as long…"""
MOST_HOLD_S: Final = 1800.0
"""…up to this; and it is forgotten so long after the last time."""
HANDSHAKES: Final = 32
"""So many connections one peer may open at once, and one more each second."""

_log = logging.getLogger(__name__)


class Patience:
    """With peers that are known and yet flood, or open connections without end.

    What a peer sent before its connection ended still waits to be read: whoever could come back at
    once would pile up one rest upon the other.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._held: dict[str, tuple[float, float]] = {}
        """Until when, and for how long."""
        self._handshakes: dict[str, TokenBucket] = {}

    def hold_off(self, peer: str) -> float:
        """Refuse its connections for a while, in seconds; 0 if that is so already."""
        until, last = self._held.get(peer, (0.0, 0.0))
        if self._now() < until:
            return 0.0
        again = last and self._now() - until < MOST_HOLD_S
        seconds = min(2 * last, MOST_HOLD_S) if again else HOLD_S
        self._held[peer] = (self._now() + seconds, seconds)
        return seconds

    def holds_off(self, peer: str) -> bool:
        """Whether it may not connect now, nor is connected to."""
        return self._now() < self._held.get(peer, (0.0, 0.0))[0]

    def bears(self, peer: str) -> bool:
        """Whether one more connection of this peer is borne; counts it."""
        bucket = self._handshakes.setdefault(peer, TokenBucket(1.0, HANDSHAKES))
        return not self.holds_off(peer) and bucket.take(self._now())


class AllowList:
    """The centers that may talk to us, and their public keys (z85) where keys are used.

    Changes take effect at once, on open connections too. A center may have several keys at a time,
    while it changes from one to another: it proves itself by any of them.
    """

    def __init__(self, center_id: str, roster: Mapping[str, Keys], with_keys: bool) -> None:
        self._center_id = center_id
        self._with_keys = with_keys
        self._keys: dict[str, tuple[str, ...]] = {}
        self._owners: dict[str, str] = {}
        self.replace(roster)

    def replace(self, roster: Mapping[str, Keys]) -> set[str]:
        """Set the roster, the own entry being left out; returns those of whom a key is void.

        ``TransportError`` if a key is malformed, or if two centers have the same, since the key is
        the identity. Then nothing changes.
        """
        keys = {
            peer: (found,) if isinstance(found, str) else tuple(found)
            for peer, found in roster.items()
            if peer != self._center_id
        }
        owners = _owners(keys) if self._with_keys else {}
        void = {peer for peer, old in self._keys.items() if not set(old) <= set(keys.get(peer, ()))}
        self._keys, self._owners = keys, owners
        return void

    def __contains__(self, peer: str) -> bool:
        return peer in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def key_of(self, peer: str) -> str:
        """The public key that a center on the list is expected to answer with."""
        return self._keys[peer][0]

    def expect_another_key(self, peer: str) -> bool:
        """It did not answer with the key expected: next time its next one; False if it has none."""
        first, *others = self._keys.get(peer, ("",))
        if others:
            self._keys[peer] = (*others, first)
        return bool(others)

    def owner(self, key: str) -> str | None:
        """The center whose key this is."""
        return self._owners.get(key)


def _owners(keys: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    owners: dict[str, str] = {}
    for peer, key in ((peer, key) for peer, found in keys.items() for key in found):
        if not is_public_key(key):
            raise TransportError(f"roster: {peer}: found {key!r}, allowed: a public key in z85")
        if key in owners:
            raise TransportError(f"roster: {peer} and {owners[key]} have the same public key")
        owners[key] = peer
    return owners


class Gatekeeper(Authenticator):
    """Answers libzmq's ZAP requests on the event loop, from an allow-list.

    A handshake may wait for an answer as long as ``HANDSHAKE_IVL``, so a loop that is busy for a
    while delays newcomers and harms nobody.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        allowed: AllowList,
        patience: Patience,
        refused: Callable[[str | None, str, str], None],
    ) -> None:
        super().__init__(context, log=_log)
        self._allow_list = allowed
        self._patience = patience
        self._refused = refused
        self._address = ""
        self._reader: EdgeReader | None = None
        self._answering: asyncio.Task[None] | None = None
        self.configure_curve_callback(ZAP_DOMAIN, self)

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether this key (z85) may connect; ``refused`` hears of peer, key and address if not."""
        text = key.decode("ascii")
        peer = self._allow_list.owner(text)
        welcome = peer is not None and self._patience.bears(peer)
        if not welcome:
            self._refused(peer, text, self._address)
        return welcome

    def start(self) -> None:
        """Bind the ZAP address of the context and serve it. Must precede the socket's bind."""
        super().start()
        self._reader = EdgeReader(self.zap_socket, self._take)

    async def close(self) -> None:
        """Serve no longer; no task and no descriptor is left on the loop."""
        if self._reader is not None:
            self._reader.stop()
        if self._answering is not None:
            await asyncio.wait([self._answering])
        self.stop()

    def _take(self) -> bool:
        # There is one request at a time: the next can be received when this one is answered.
        if self._answering is not None and not self._answering.done():
            return False
        try:
            request = self.zap_socket.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._answering = asyncio.create_task(self._answer(request), name="zap")
        return True

    async def _answer(self, request: list[bytes]) -> None:
        self._address = request[3].decode("ascii", "replace") if len(request) > 3 else ""
        await self.handle_zap_message(request)
        if self._reader is not None:
            self._reader.look()
