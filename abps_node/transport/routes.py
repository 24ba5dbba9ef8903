"""Which connection leads to which peer. Pure bookkeeping, no socket.

A route is the routing id under which the ROUTER socket addresses one connection. A peer may have
several at once: the connection it opened, the one that was opened to it, and left-overs that have
not yet been noticed as dead. The best one is that which was *first heard* last: after a restart of
the peer that is the new connection, and while both sides keep talking it does not change with every
frame, so that frames keep their order.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

MAX_ROUTES_PER_PEER: Final = 8
_AUTO_ID_BYTES: Final = 5


@dataclass(slots=True, eq=False)
class Route:
    """One connection as the ROUTER socket knows it."""

    routing_id: bytes
    peer: str
    endpoint: str | None
    """Where it was opened to; None for a connection that the peer opened."""
    heard: bool
    """Whether a frame came through it since it was last known to be down."""
    used: float = field(default_factory=time.monotonic)
    """When a frame went through it last, either way; kept for opened connections only."""


class RouteTable:
    """All routes, by routing id and by peer."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, Route] = {}
        self._by_peer: dict[str, list[Route]] = {}

    def get(self, routing_id: bytes) -> Route | None:
        """The route with this routing id."""
        return self._by_id.get(routing_id)

    def best(self, peer: str) -> Route | None:
        """Where to send to the peer: the newest route that was heard, else one being opened."""
        routes = self._by_peer.get(peer)
        return routes[0] if routes else None

    def outgoing(self, peer: str) -> Route | None:
        """The connection that was opened to the peer."""
        routes = self._by_peer.get(peer, ())
        return next((route for route in routes if route.endpoint is not None), None)

    def opened(self, routing_id: bytes, peer: str, endpoint: str) -> Route:
        """Add the connection that is being opened to the peer; it ranks behind those heard."""
        route = Route(routing_id, peer, endpoint, heard=False)
        self._by_id[routing_id] = route
        self._by_peer.setdefault(peer, []).append(route)
        return route

    def heard(self, routing_id: bytes, peer: str) -> None:
        """A frame of the peer came through this connection."""
        route = self._by_id.get(routing_id)
        if route is not None and route.heard and route.peer == peer:
            return
        if route is None or route.peer != peer:
            if route is not None:
                self.forget(route)
            route = Route(routing_id, peer, None, heard=True)
            self._by_id[routing_id] = route
        else:
            self._by_peer[peer].remove(route)
        route.heard = True
        routes = self._by_peer.setdefault(peer, [])
        routes.insert(0, route)
        self._forget_oldest(routes)

    def down(self, endpoint: str) -> None:
        """The outgoing connection to this endpoint broke; it ranks last until it is heard again."""
        for route in self.to_endpoint(endpoint):
            route.heard = False
            routes = self._by_peer[route.peer]
            routes.remove(route)
            routes.append(route)

    def forget(self, route: Route) -> None:
        """Remove a route; forgetting one twice is harmless."""
        if self._by_id.get(route.routing_id) is route:
            del self._by_id[route.routing_id]
            routes = self._by_peer[route.peer]
            routes.remove(route)
            if not routes:
                del self._by_peer[route.peer]

    def to_endpoint(self, endpoint: str) -> list[Route]:
        """The outgoing routes to one endpoint: several if hints gave two peers one address."""
        return [route for route in self._by_id.values() if route.endpoint == endpoint]

    def of_peer(self, peer: str) -> list[Route]:
        """All routes of a peer, best first."""
        return list(self._by_peer.get(peer, ()))

    def endpoints(self) -> Iterable[tuple[str, str]]:
        """Endpoint and peer of every outgoing route."""
        return [(r.endpoint, r.peer) for r in self._by_id.values() if r.endpoint is not None]

    def opened_and_unused_since(self, moment: float) -> list[Route]:
        """Connections of ours through which nothing went, either way, since then."""
        return [r for r in self._by_id.values() if r.endpoint is not None and r.used <= moment]

    def _forget_oldest(self, routes: list[Route]) -> None:
        incoming = [route for route in routes if route.endpoint is None]
        for route in incoming[MAX_ROUTES_PER_PEER:]:
            self.forget(route)


def is_auto_generated(routing_id: bytes) -> bool:
    """Whether libzmq made up this routing id because the peer claimed none."""
    return len(routing_id) == _AUTO_ID_BYTES and routing_id[0] == 0
