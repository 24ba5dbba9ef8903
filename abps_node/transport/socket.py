"""One center's connection to all others: a single ROUTER socket that accepts and connects.

Security. With keys, every connection is CURVE: encrypted, and both sides proved. Accepted ones must
come from a key on the roster (``trust``), opened ones must meet the roster's key of that peer. Only
``keys=None`` turns this off; then a frame's sender is whom its first frame names.

Bounds. Length of a frame, frames waiting per connection and direction, number of accepted
connections, memory of unfinished multipart messages (``floods``), time of each handshake. A send
never waits: a peer that reads too slowly costs ``queue_frames`` frames and then ``Undeliverable``.
An oversized frame ends its connection inside libzmq, which tells no cause; it shows as
``connections_lost`` and a notice.

Delivery. At most once, in order on one connection. A connection that breaks is opened again by
libzmq; frames already handed to the kernel are lost. Whether the peer got a frame is for the
protocol above to find out.

Number. A connection is opened by the first send, and closed by its opener when it has been idle for
``idle_s``.

What is left open: a center on the roster may, by raw ZMTP, claim a routing id of the form that
libzmq generates itself; to meet another's it must guess 32 random bits.
"""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Final

import zmq

from abps_node.addresses import is_concrete
from abps_node.errors import BindError, TransportError
from abps_node.keys import KeyPair
from abps_node.transport import options
from abps_node.transport.edge import EdgeReader
from abps_node.transport.floods import FLOOD, UNREAD_FRAMES, FloodGuard
from abps_node.transport.inbox import Identify, Inbox
from abps_node.transport.links import EVENTS, Links
from abps_node.transport.memory import give_back
from abps_node.transport.overhead import wire_bytes
from abps_node.transport.reports import Counters, Report, Throttle
from abps_node.transport.routes import Route, RouteTable
from abps_node.transport.trust import HANDSHAKES, AllowList, Gatekeeper, Keys, Patience
from abps_node.transport.undeliverable import Reason, Undeliverable

REFUSAL_HOLD_S: Final = 2.0
"""After a peer refused our key, the next attempt to connect waits so long."""
_ROUTING_ID_BYTES: Final = 16
_SEND_HEAD: Final = int(zmq.SNDMORE) | int(zmq.NOBLOCK)
_SEND_LAST: Final = int(zmq.NOBLOCK)


class Transport:
    """Sends and receives whole frames to and from the centers of a roster."""

    def __init__(
        self,
        *,
        center_id: str,
        bind: str | None,
        keys: KeyPair | None,
        roster: Mapping[str, Keys],
        max_frame_bytes: int,
        on_frame: Callable[[str, bytes], None],
        on_misbehavior: Report,
        on_notice: Report | None = None,
        identify: Identify | None = None,
        queue_frames: int = 64,
        dead_after_s: float = 15.0,
        idle_s: float = 10.0,
        report_every_s: float = 5.0,
    ) -> None:
        """Nothing is opened before ``start``.

        ``bind``: None for a center that takes no connections and only opens them.
        ``roster``: center id to public key (z85), or several; the own entry is ignored.
        ``on_frame(peer, frame)``: a frame of an authenticated peer. ``on_misbehavior(peer or None,
        reason, detail)``: something was refused. ``on_notice``: the same form for what is nobody's
        fault, such as ``refused-by-peer`` (they do not know our key), ``handshake-failed``,
        ``connection-lost``.
        ``dead_after_s``: a connection whose other end does not even confirm bytes is closed.
        ``idle_s``: an opened connection through which nothing went for so long is closed; the next
        send opens it again.
        Reports come at most once per peer and reason in ``report_every_s``; the counters count all.
        ``identify``: needed if and only if ``keys`` is None; the sender that a frame names.
        """
        if (keys is None) == (identify is None):
            raise TransportError("keys, identify: exactly one of the two must be given")
        options.check(max_frame_bytes, queue_frames, dead_after_s)
        self.counters = Counters()
        self._center_id = center_id
        self._bind = bind
        self._keys = keys
        self._max_frame_bytes = max_frame_bytes
        self._queue_frames = queue_frames
        self._dead_after_s = dead_after_s
        self._idle_s = idle_s
        self._idle_timer: asyncio.TimerHandle | None = None
        self._given_back = 0
        self._on_frame = on_frame
        self._identify = identify
        self._misbehavior = Throttle(on_misbehavior, report_every_s)
        self._notice = Throttle(on_notice or _ignore, report_every_s)
        self._allowed = AllowList(center_id, roster, with_keys=keys is not None)
        self._patience = Patience()
        self._routes = RouteTable()
        self._addresses: dict[str, str] = {}
        self._refused_until: dict[str, float] = {}
        self._guard = self._new_guard()
        self._readers: list[EdgeReader] = []
        self._endpoint = ""
        self._open = False

    # -- life --

    async def start(self) -> str:
        """Bind and begin to read; returns the endpoint with the real port, empty without one.

        ``BindError`` names the address and the cause; starting may be tried again after it.
        """
        if self._open:
            raise TransportError(f"{self._center_id}: the transport is open already")
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._gatekeeper = Gatekeeper(
            self._context, self._allowed, self._patience, self._refuse_key
        )
        self._gatekeeper.start()
        self._socket = self._context.socket(zmq.ROUTER)
        self._monitor = self._socket.get_monitor_socket(EVENTS)
        try:
            self._configure()
            if self._bind is not None:
                self._socket.bind(self._bind)
        except zmq.ZMQError as error:
            await self._close_sockets(0)
            # libzmq's own text would repeat the address.
            cause = os.strerror(error.errno) if error.errno else str(error)
            raise BindError(f"{self._bind}: cannot be bound: {cause}") from error
        self._open = True
        self._read()
        self._guard.start()
        self._look_for_idle_later()
        if self._bind is not None:
            self._endpoint = str(self._socket.getsockopt_string(zmq.LAST_ENDPOINT))
        return self._endpoint

    async def close(self, linger_ms: int = 1000) -> None:
        """Flush for at most ``linger_ms``, close everything; afterwards the port is free."""
        if not self._open:
            return
        self._open = False
        for reader in self._readers:
            reader.stop()
        self._guard.close()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        await self._close_sockets(linger_ms)

    def glance(self) -> None:
        """Look after connections; may be called at any time, and as often as it suits."""
        self._guard.glance()

    async def change_keys(self, keys: KeyPair) -> None:
        """Go on under another key pair, on the same port; every connection is opened anew.

        For a fraction of a second what is on its way is lost, and a send is ``Undeliverable``.
        """
        endpoint = self._endpoint
        await self.close(200)
        self._keys = keys
        self._bind = endpoint or None
        self._routes, self._guard = RouteTable(), self._new_guard()
        self._refused_until.clear()
        await self.start()

    # -- peers --

    def set_roster(self, roster: Mapping[str, Keys]) -> None:
        """Admit and revoke at run time. A revoked key is cut off, its frames dropped at once.

        Of a center that has another key all connections are ended too, to be opened again by it.
        """
        for peer in self._allowed.replace(roster):
            self._revoke(peer)
        self._guard.limit_accepted(self._max_accepted())

    def set_address(self, peer: str, address: str) -> None:
        """Where discovery says that the peer listens; a hint, nothing more.

        A changed address drops the connection that was opened to the old one; the next send opens
        the new one. ``TransportError`` for an address of the wrong form; a peer that is not on the
        roster is ignored.
        """
        try:
            concrete = is_concrete(address)
        except ValueError as error:
            raise TransportError(f"address of {peer}: {error}") from error
        if not concrete:
            raise TransportError(f"address of {peer}: found {address}, allowed: one host and port")
        if peer not in self._allowed:
            return
        if self._addresses.get(peer) != address:
            self._addresses[peer] = address
            self._refused_until.pop(peer, None)
            self.drop(peer)

    def has_address(self, peer: str) -> bool:
        """Whether a connection to the peer could be opened."""
        return peer in self._addresses

    def drop(self, peer: str) -> None:
        """Close the connection that was opened to the peer, if any; its address stays known."""
        route = self._routes.outgoing(peer)
        if route is not None:
            self._disconnect(route)

    # -- sending --

    def send(self, peer: str, frame: bytes) -> int:
        """Hand one frame to the best connection with the peer; returns its length in bytes.

        Opens a connection if there is none. Never waits; ``Undeliverable`` says why it cannot be.
        """
        self._check(peer, frame)
        while (route := self._routes.best(peer)) is not None:
            if self._hand_over(route, frame):
                return self._sent(peer, frame)
        if not self._hand_over(self._connect(peer), frame):
            raise Undeliverable(peer, Reason.BAD_ADDRESS, f"{self._addresses[peer]} is gone")
        return self._sent(peer, frame)

    def _check(self, peer: str, frame: bytes) -> None:
        if not self._open:
            raise Undeliverable(peer, Reason.CLOSED, "the transport is not open")
        if peer not in self._allowed:
            raise Undeliverable(peer, Reason.UNKNOWN_PEER, "not on the roster")
        if len(frame) > self._max_frame_bytes:
            found = f"found a frame of {len(frame)} bytes, allowed: {self._max_frame_bytes}"
            raise Undeliverable(peer, Reason.TOO_LARGE, found)

    def _hand_over(self, route: Route, frame: bytes) -> bool:
        """True if a connection took the frame, False if it is gone (then its route is, too)."""
        try:
            self._socket.send(route.routing_id, _SEND_HEAD)
            self._socket.send(frame, _SEND_LAST)
        except zmq.Again:
            # No other connection is tried: the same peer reads them all, and order would be lost.
            found = f"{self._queue_frames} frames wait already"
            raise Undeliverable(route.peer, Reason.QUEUE_FULL, found) from None
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._disconnect(route)
            return False
        route.used = time.monotonic()
        return True

    def _sent(self, peer: str, frame: bytes) -> int:
        self.counters.sent(peer, len(frame), curve=self._keys is not None)
        self._inbox_reader.look()
        return len(frame)

    def _connect(self, peer: str) -> Route:
        address = self._addresses.get(peer)
        if address is None:
            raise Undeliverable(peer, Reason.NO_ADDRESS, "discovery has told none")
        if self._patience.holds_off(peer):
            raise Undeliverable(peer, Reason.HELD_OFF, "it flooded this center")
        if time.monotonic() < self._refused_until.get(peer, 0.0):
            raise Undeliverable(peer, Reason.REFUSED_BY_PEER, f"{address} does not know our key")
        options.allow_ipv6(self._socket, address)
        if self._keys is not None:
            options.demand_key(self._socket, self._allowed.key_of(peer))
        routing_id = secrets.token_bytes(_ROUTING_ID_BYTES)
        self._socket.setsockopt(zmq.CONNECT_ROUTING_ID, routing_id)
        try:
            self._socket.connect(address)
        except zmq.ZMQError as error:
            raise Undeliverable(peer, Reason.BAD_ADDRESS, f"{address}: {error.strerror}") from error
        self.counters.opened_connections += 1
        return self._routes.opened(routing_id, peer, address)

    def _look_for_idle_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._idle_timer = loop.call_later(self._idle_s / 4, self._close_idle)

    def _close_idle(self) -> None:
        """Close what this side opened and nobody uses. What the other side opened is its to close.

        In a federation of hundreds everybody would else end up connected with everybody.
        """
        self._look_for_idle_later()
        if self.counters.idle_connections > self._given_back:
            # Those of the last look: libzmq closes them in a thread of its own.
            self._given_back = self.counters.idle_connections
            give_back()
        for route in self._routes.opened_and_unused_since(time.monotonic() - self._idle_s):
            self.counters.idle_connections += 1
            self._disconnect(route)

    def _disconnect(self, route: Route) -> None:
        """Forget a route, and close it if we opened it.

        libzmq closes by endpoint, so all routes that share it are gone with it.
        """
        self._routes.forget(route)
        if route.endpoint is None:
            return
        for sharing in self._routes.to_endpoint(route.endpoint):
            self._routes.forget(sharing)
        try:
            self._socket.disconnect(route.endpoint)
        except zmq.ZMQError as error:
            # A connection whose handshake was refused has ended by itself.
            if error.errno != errno.ENOENT:
                raise

    # -- trouble --

    def _revoke(self, peer: str) -> None:
        if peer not in self._allowed:
            self._addresses.pop(peer, None)
        for route in self._routes.of_peer(peer):
            self._disconnect(route)
        self._guard.cut_peer(peer, "its key is no longer on the roster")

    def _refuse_key(self, peer: str | None, key: str, address: str) -> None:
        if peer is None:
            self.counters.refused_handshakes["unknown-key"] += 1
            detail = f"found the key {key} from {address}, allowed: the roster"
            self._misbehavior(None, "unknown-key", detail)
            return
        self.counters.refused_handshakes["too-often"] += 1
        detail = f"found one more connection from {address}, allowed: {HANDSHAKES}, then 1 a second"
        if not self._patience.holds_off(peer):
            self._misbehavior(peer, "too-often", detail)

    def _refused_by(self, peer: str, endpoint: str) -> None:
        self._refused_until[peer] = time.monotonic() + REFUSAL_HOLD_S
        self.drop(peer)

    def _wrong_key(self, peer: str) -> None:
        """Somebody else, or the peer under the other one of its keys."""
        if self._allowed.expect_another_key(peer):
            self.drop(peer)

    def _was_cut(self, peer: str | None, reason: str, detail: str) -> None:
        self.counters.cut_connections[reason] += 1
        if reason == FLOOD and peer is not None:
            seconds = self._patience.hold_off(peer)
            if seconds:
                detail = f"{detail}; no connection with it for {seconds:g} s"
            self.drop(peer)
        self._misbehavior(peer, reason, detail)

    def _new_guard(self) -> FloodGuard:
        most = wire_bytes(self._max_frame_bytes, self._keys is not None)
        return FloodGuard(
            undelivered_bytes=UNREAD_FRAMES * most,
            max_accepted=self._max_accepted(),
            cut=self._was_cut,
        )

    def _max_accepted(self) -> int:
        return 64 + 8 * len(self._allowed)

    # -- sockets --

    def _configure(self) -> None:
        options.apply_common(
            self._socket,
            max_frame_bytes=self._max_frame_bytes,
            queue_frames=self._queue_frames,
            dead_after_s=self._dead_after_s,
            curve=self._keys is not None,
        )
        if self._bind is not None:
            options.allow_ipv6(self._socket, self._bind)
        if self._keys is not None:
            options.serve_curve(self._socket, self._keys)
        else:
            self._socket.setsockopt(zmq.ROUTING_ID, secrets.token_bytes(_ROUTING_ID_BYTES))

    def _read(self) -> None:
        inbox = Inbox(
            self._socket,
            allowed=self._allowed,
            routes=self._routes,
            guard=self._guard,
            counters=self.counters,
            misbehavior=self._misbehavior,
            deliver=self._on_frame,
            wrong_center=self.drop,
            max_frame_bytes=self._max_frame_bytes,
            identify=self._identify,
        )
        links = Links(
            self._monitor,
            routes=self._routes,
            guard=self._guard,
            counters=self.counters,
            misbehavior=self._misbehavior,
            notice=self._notice,
            refused_by=self._refused_by,
            wrong_key=self._wrong_key,
            idle_s=self._idle_s,
        )
        self._inbox_reader = EdgeReader(self._socket, inbox.take)
        self._readers = [self._inbox_reader, EdgeReader(self._monitor, links.take)]

    async def _close_sockets(self, linger_ms: int) -> None:
        # The monitor first: libzmq's own thread would wait for ever on one that nobody reads.
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)
        await self._gatekeeper.close()
        await asyncio.to_thread(self._context.term)


def _ignore(peer: str | None, reason: str, detail: str) -> None:
    """Where no notices are wanted."""
