"""What libzmq tells of its connections (its socket monitor), turned into what a center can use.

Among it: «peer X does not know our key» (our handshake was refused), «something else listens where
peer X should», «a stranger knocked», and which file descriptors the flood guard has to watch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import zmq
from zmq.utils.monitor import parse_monitor_message

from abps_node.transport.floods import FloodGuard
from abps_node.transport.reports import Counters, Throttle
from abps_node.transport.routes import RouteTable

EVENTS: Final = (
    zmq.EVENT_CONNECTED
    | zmq.EVENT_CONNECT_DELAYED
    | zmq.EVENT_ACCEPTED
    | zmq.EVENT_ACCEPT_FAILED
    | zmq.EVENT_DISCONNECTED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_HANDSHAKE_FAILURES: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH,
)
_MAX_ENDPOINTS: Final = 1024


class Links:
    """Reads the monitor socket and keeps routes, guard and counters in step with it."""

    def __init__(
        self,
        monitor: zmq.Socket[Any],
        *,
        routes: RouteTable,
        guard: FloodGuard,
        counters: Counters,
        misbehavior: Throttle,
        notice: Throttle,
        refused_by: Callable[[str, str], None],
        wrong_key: Callable[[str], None],
        idle_s: float,
    ) -> None:
        self._monitor = monitor
        self._routes = routes
        self._guard = guard
        self._counters = counters
        self._misbehavior = misbehavior
        self._notice = notice
        self._refused_by = refused_by
        self._wrong_key = wrong_key
        self._quiet_s = 0.9 * idle_s
        self._outgoing: dict[str, str | None] = {}

    def take(self) -> bool:
        """Receive and handle one event; False if there is none."""
        try:
            parts: list[bytes] = self._monitor.recv_multipart(zmq.NOBLOCK)
        except zmq.Again:
            return False
        self._handle(parse_monitor_message(parts))
        return True

    def _handle(self, event: Mapping[str, Any]) -> None:
        kind = zmq.Event(event["event"])
        value, endpoint = int(event["value"]), event["endpoint"].decode("utf-8", "replace")
        if kind in (zmq.EVENT_CONNECTED, zmq.EVENT_CONNECT_DELAYED):
            self._remember(endpoint)
        if kind == zmq.EVENT_CONNECTED:
            self._guard.opened(value, outgoing=True, port=_port(endpoint))
        elif kind == zmq.EVENT_ACCEPTED:
            self._guard.opened(value, outgoing=False, port=_port(endpoint))
        elif kind == zmq.EVENT_ACCEPT_FAILED:
            detail = f"{endpoint}: a connection could not be accepted, errno {value}"
            self._notice(None, "accept-failed", detail)
        elif kind == zmq.EVENT_DISCONNECTED:
            self._disconnected(value, endpoint)
        elif kind in _HANDSHAKE_FAILURES and endpoint in self._outgoing:
            self._failed_to_connect(kind, endpoint)
        elif kind == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
            self._refused_protocol(value)
        elif kind == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
            self._counters.refused_handshakes["incomplete"] += 1

    def _remember(self, endpoint: str) -> None:
        """Only connecting sockets emit these events, so the endpoint is one we connect to."""
        if endpoint not in self._outgoing and len(self._outgoing) >= _MAX_ENDPOINTS:
            self._outgoing.clear()
        self._outgoing[endpoint] = self._peer_at(endpoint)

    def _peer_at(self, endpoint: str) -> str | None:
        """Whose endpoint it is; libzmq names some by number that were given to it by host name."""
        known = list(self._routes.endpoints())
        peers = {peer for at, peer in known if at == endpoint}
        if not peers:
            peers = {peer for at, peer in known if _port(at) == _port(endpoint)}
        return peers.pop() if len(peers) == 1 else None

    def _disconnected(self, descriptor: int, endpoint: str) -> None:
        silent_s = self._guard.silent_s(descriptor)
        peer = self._guard.closed(descriptor)
        self._routes.down(endpoint)
        # After a silence, most likely its opener closed it as idle: no news for anybody.
        if peer is not None and silent_s < self._quiet_s:
            self._counters.peer(peer).connections_lost += 1
            # libzmq does not say which of these it was.
            causes = "the peer ended, or the network broke, or a frame was longer than allowed"
            self._notice(peer, "connection-lost", f"a connection ended: {causes}")

    def _failed_to_connect(self, kind: zmq.Event, endpoint: str) -> None:
        peer = self._outgoing[endpoint]
        if kind == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
            self._notice(peer, "refused-by-peer", f"{endpoint} does not know our public key")
            if peer is not None:
                self._refused_by(peer, endpoint)
        else:
            causes = "another center or another program listens there, or it is going down"
            self._notice(peer, "handshake-failed", f"{endpoint} cannot be authenticated: {causes}")
            if peer is not None:
                self._wrong_key(peer)

    def _refused_protocol(self, value: int) -> None:
        self._counters.refused_handshakes["protocol"] += 1
        try:
            name = zmq.Event(value).name or ""
        except ValueError:
            name = ""
        what = name.removeprefix("PROTOCOL_ERROR_") or f"protocol error 0x{value:x}"
        detail = f"a connection that does not speak our protocol or expects another key: {what}"
        self._misbehavior(None, "bad-handshake", detail)


def _port(endpoint: str) -> int:
    digits = endpoint.rpartition(":")[2]
    return int(digits) if digits.isdecimal() else 0
