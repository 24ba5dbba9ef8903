"""A center that takes no connections: keeps its own in use, and names whom it cannot reach."""

from __future__ import annotations

from typing import Any

from protocol.effects import Effect, Note, Send
from protocol.events import Reachable, Started
from protocol.introduction import KEEP_S
from protocol.messages import Hello, Ping, Pong
from tests.support.federations import contract
from tests.support.one_center import OneCenter


def begun(outbound_only: bool = True, **pacing: Any) -> OneCenter:
    """Started, with the address of «a» known, and none of «z»."""
    center = OneCenter(contract(**pacing), outbound_only=outbound_only)
    center.feed(Started())
    center.feed(Reachable("a"))
    return center


def sent(effects: list[Effect], peer: str) -> list[type]:
    return [type(e.message) for e in effects if isinstance(e, Send) and e.peer == peer]


def test_silence_is_broken_so_that_the_other_side_keeps_a_way_back() -> None:
    center = begun(min_peers=5, start_wait_s=600.0)
    center.hear("a", center.hello("a"))
    silent, longest, pings = 0.0, 0.0, 0
    for _ in range(200):
        kinds = sent(center.wait(0.1), "a")
        silent += 0.1
        longest = max(longest, silent)
        if Ping in kinds:
            pings += 1
            center.hear("a", Pong(1))
            silent = 0.0
    assert KEEP_S <= longest <= KEEP_S + 0.5
    assert pings == 3


def test_a_center_that_takes_connections_need_not_break_it() -> None:
    center = begun(outbound_only=False, min_peers=5, start_wait_s=600.0)
    center.hear("a", center.hello("a"))
    assert Ping not in sent(center.wait(20.0), "a")


def test_all_are_greeted_even_where_connections_are_opened_only_when_needed() -> None:
    for outbound_only, greeted in ((True, [Hello]), (False, [])):
        center = begun(outbound_only, greet="needed", min_peers=0, start_wait_s=0.0)
        assert sent(center.wait(0.5), "a") == greeted


def test_whoever_has_no_address_is_unreachable_until_one_is_known() -> None:
    center = begun(start_wait_s=1.0)
    center.hear("a", center.hello("a"))
    center.wait(1.2)
    peers = center.node.center.peers
    assert (peers["a"].status, peers["z"].status) == ("met", "unreachable")
    (note,) = [e for e in center.effects if isinstance(e, Note) and e.kind == "peer-unreachable"]
    assert note.peer == "z"
    center.feed(Reachable("z"))
    assert peers["z"].status == "unmet"
    assert sent(center.wait(0.5), "z") == [Hello]
