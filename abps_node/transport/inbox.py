"""From the ROUTER socket to the application: who sent it, is it one frame, may it pass.

The sender of a frame is, in this order,

- the peer whose server key was demanded when *this side* opened the connection; its routing id is
  128 random bits that never leave the process, so nobody can claim it;
- the owner of the ``User-Id`` that the handshake attached to the frame, whatever routing id the
  connection goes by. A routing id that the peer chose itself is never used to send to: the peer
  could have chosen one that was another's;
- without security, the center that the first frame of the connection names.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import zmq

from abps_node.transport.floods import FloodGuard
from abps_node.transport.overhead import wire_bytes
from abps_node.transport.reports import Counters, Throttle
from abps_node.transport.routes import Route, RouteTable, is_auto_generated
from abps_node.transport.trust import AllowList

Identify = Callable[[bytes], str | None]

_NOBLOCK: Final = int(zmq.NOBLOCK)
_SOURCE_DESCRIPTOR: Final = int(zmq.SRCFD)
_MAX_NAMED_CONNECTIONS: Final = 4096


class Inbox:
    """Takes one part of a message after the other from the socket."""

    def __init__(
        self,
        socket: zmq.Socket[Any],
        *,
        allowed: AllowList,
        routes: RouteTable,
        guard: FloodGuard,
        counters: Counters,
        misbehavior: Throttle,
        deliver: Callable[[str, bytes], None],
        wrong_center: Callable[[str], None],
        max_frame_bytes: int,
        identify: Identify | None,
    ) -> None:
        self._socket = socket
        self._allowed = allowed
        self._routes = routes
        self._guard = guard
        self._counters = counters
        self._misbehavior = misbehavior
        self._deliver = deliver
        self._wrong_center = wrong_center
        self._max_frame_bytes = max_frame_bytes
        self._identify = identify
        self._named: OrderedDict[bytes, str] = OrderedDict()
        self._in_multipart = False

    def take(self) -> bool:
        """Receive one message, or one more part of a multipart message that is being dropped.

        False if there is nothing.
        """
        try:
            head = self._socket.recv(_NOBLOCK, copy=False)
        except zmq.Again:
            return False
        if self._in_multipart:
            self._in_multipart = head.more
            self._guard.dropped(_descriptor(head), self._wire_bytes(len(head)))
        else:
            self._take_message(head)
        return True

    def _take_message(self, head: zmq.Frame) -> None:
        body = self._socket.recv(_NOBLOCK, copy=False)
        frame = body.bytes
        peer = self._sender(head, frame)
        self._guard.delivered(_descriptor(head), peer, self._wire_bytes(len(frame)))
        self._in_multipart = body.more
        if peer is None:
            return
        if body.more:
            self._drop(peer, "multipart", "found a message of several frames, allowed: one frame")
        elif len(frame) > self._max_frame_bytes:
            found = f"found a frame of {len(frame)} bytes, allowed: {self._max_frame_bytes}"
            self._drop(peer, "oversized", found)
        else:
            self._deliver(peer, frame)
            self._counters.received(peer, len(frame), curve=self._identify is None)

    def _wire_bytes(self, frame_bytes: int) -> int:
        return wire_bytes(frame_bytes, curve=self._identify is None)

    def _sender(self, head: zmq.Frame, frame: bytes) -> str | None:
        routing_id = head.bytes
        route = self._routes.get(routing_id)
        if route is not None and route.endpoint is not None:
            return self._sender_of_opened(route, frame)
        if self._identify is not None:
            return self._named_sender(routing_id, self._identify, frame)
        key = _user_id(head)
        peer = None if key is None else self._allowed.owner(key)
        if peer is None:
            # Nobody without a key gets here; a key that was revoked does until it is cut off.
            self._drop(None, "unknown-key", f"found a frame of the key {key}, allowed: the roster")
        elif is_auto_generated(routing_id):
            self._routes.heard(routing_id, peer)
        return peer

    def _sender_of_opened(self, route: Route, frame: bytes) -> str | None:
        if self._identify is not None and not route.heard:
            named = self._identify(frame)
            if named is not None and named != route.peer:
                detail = f"found {named} at {route.endpoint}, expected {route.peer}"
                self._drop(route.peer, "wrong-center", detail)
                self._wrong_center(route.peer)
                return None
        self._routes.heard(route.routing_id, route.peer)
        route.used = time.monotonic()
        return route.peer

    def _named_sender(self, routing_id: bytes, identify: Identify, frame: bytes) -> str | None:
        peer = self._named.get(routing_id)
        if peer is None:
            peer = identify(frame)
            if peer is None:
                detail = "found a first frame that names no center"
                self._drop(None, "unidentified", detail)
                return None
            self._named[routing_id] = peer
            if len(self._named) > _MAX_NAMED_CONNECTIONS:
                self._named.popitem(last=False)
        if peer not in self._allowed:
            self._drop(None, "unknown-center", f"found {peer!r}, allowed: the roster")
            return None
        self._routes.heard(routing_id, peer)
        return peer

    def _drop(self, peer: str | None, reason: str, detail: str) -> None:
        self._counters.dropped_frames[reason] += 1
        self._misbehavior(peer, reason, detail)


def _user_id(head: zmq.Frame) -> str | None:
    try:
        found = head.get("User-Id")
    except zmq.ZMQError:
        return None
    return found if isinstance(found, str) else None


def _descriptor(head: zmq.Frame) -> int:
    try:
        return int(head.get(_SOURCE_DESCRIPTOR))
    except zmq.ZMQError:
        return -1
