"""The route table against a plain model of its rules."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from abps_node.transport.routes import MAX_ROUTES_PER_PEER, RouteTable, is_auto_generated

PEERS = st.sampled_from(["a", "b", "c"])
ROUTES = st.integers(0, 12).map(lambda number: bytes([number]))


class Routes(RuleBasedStateMachine):
    """Peers connect, are heard, break off and take over each other's routing ids."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.opened: dict[bytes, tuple[str, str]] = {}
        self.owner: dict[bytes, str] = {}
        self.next = 100

    @rule(peer=PEERS)
    def open(self, peer: str) -> None:
        if self.table.outgoing(peer) is None:
            routing_id = self.next.to_bytes(16)
            self.next += 1
            route = self.table.opened(routing_id, peer, f"tcp://{peer}:1")
            assert self.table.outgoing(peer) is route
            self.opened[routing_id] = (peer, f"tcp://{peer}:1")

    @rule(routing_id=ROUTES, peer=PEERS)
    def hear_accepted(self, routing_id: bytes, peer: str) -> None:
        known = self.table.get(routing_id)
        new = known is None or known.peer != peer
        before = self.table.best(peer)
        self.table.heard(routing_id, peer)
        found = self.table.get(routing_id)
        assert found is not None and found.peer == peer and found.heard
        # A new connection becomes the best one; one that goes on does not change the order.
        assert self.table.best(peer) is (found if new else before)
        self.owner[routing_id] = peer

    @precondition(lambda self: self.opened)
    @rule(data=st.data())
    def hear_opened(self, data: st.DataObject) -> None:
        routing_id = data.draw(st.sampled_from(sorted(self.opened)))
        peer, _ = self.opened[routing_id]
        if self.table.get(routing_id) is not None:
            self.table.heard(routing_id, peer)
            assert self.table.best(peer) is not None and self.table.best(peer).heard  # type: ignore[union-attr]

    @rule(peer=PEERS)
    def go_down(self, peer: str) -> None:
        self.table.down(f"tcp://{peer}:1")
        routes = self.table.of_peer(peer)
        outgoing = self.table.outgoing(peer)
        if outgoing is not None:
            assert routes[-1] is outgoing and not outgoing.heard

    @rule(peer=PEERS)
    def lose_the_best(self, peer: str) -> None:
        route = self.table.best(peer)
        if route is not None:
            self.table.forget(route)
            self.table.forget(route)
            assert self.table.get(route.routing_id) is None
            assert self.table.best(peer) is not route

    @invariant()
    def both_views_agree(self) -> None:
        for peer in ("a", "b", "c"):
            routes = self.table.of_peer(peer)
            assert all(self.table.get(route.routing_id) is route for route in routes)
            assert all(route.peer == peer for route in routes)
            assert len(routes) == len({route.routing_id for route in routes})
            assert sum(route.endpoint is not None for route in routes) <= 1
            assert len(routes) <= MAX_ROUTES_PER_PEER + 1
            # Nothing that was heard stands behind something that was not.
            assert [r.heard for r in routes] == sorted((r.heard for r in routes), reverse=True)


TestRoutes = Routes.TestCase
TestRoutes.settings = settings(max_examples=40)


def test_only_ids_of_libzmqs_own_form_are_auto_generated() -> None:
    assert is_auto_generated(b"\0abcd")
    for claimed in (b"", b"\0", b"\1abcd", b"\0abc", b"\0abcde", bytes(16)):
        assert not is_auto_generated(claimed)
