"""The computed bytes on the wire against a proxy that counts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.transport.overhead import (
    CURVE_CLIENT_HANDSHAKE_BYTES,
    CURVE_SERVER_HANDSHAKE_BYTES,
    NULL_HANDSHAKE_BYTES,
    wire_bytes,
)
from bench.counting_proxy import CountingProxy
from tests.support.stations import Stations, eventually

LENGTHS = [0, 1, 10, 221, 222, 223, 254, 255, 256, 1000, 50_000, 65_536, 300_000]
OPTIONS = {"max_frame_bytes": 400_000}


@pytest.mark.parametrize("curve", [True, False])
async def test_wire_bytes_are_what_the_proxy_counts(stations: Stations, curve: bool) -> None:
    if curve:
        a, b = await stations.together("a", "b", **OPTIONS)
    else:
        roster = {"a": "", "b": ""}
        a = await stations.start("a", None, roster, identify=lambda frame: "b", **OPTIONS)
        b = await stations.start("b", None, roster, identify=lambda frame: "a", **OPTIONS)
    async with CountingProxy(b.endpoint) as proxy:
        a.transport.set_address("b", proxy.address)
        a.send(b, b"x" * LENGTHS[0])
        await eventually(lambda: b.frames)
        b.send(a, b"x" * LENGTHS[0])
        await eventually(lambda: a.frames)
        first = wire_bytes(LENGTHS[0], curve)
        if curve:
            assert proxy.upstream == CURVE_CLIENT_HANDSHAKE_BYTES + first
            assert proxy.downstream == CURVE_SERVER_HANDSHAKE_BYTES + first
        else:
            # Without security a connection carries a random routing id of 16 bytes.
            assert proxy.upstream == proxy.downstream == NULL_HANDSHAKE_BYTES + 16 + first
        for number, length in enumerate(LENGTHS[1:], start=2):
            before = (proxy.upstream, proxy.downstream)
            a.send(b, b"x" * length)
            await eventually(lambda count=number: len(b.frames) == count)
            assert (proxy.upstream - before[0], proxy.downstream) == (
                wire_bytes(length, curve),
                before[1],
            )
    assert proxy.connections == 1
    assert a.transport.counters.peer("b").wire_out == sum(wire_bytes(n, curve) for n in LENGTHS)


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.booleans())
def test_longer_frames_take_more_bytes(one: int, other: int, curve: bool) -> None:
    shorter, longer = sorted((one, other))
    assert wire_bytes(shorter, curve) <= wire_bytes(longer, curve)
    assert 2 <= wire_bytes(one, curve) - one <= 42
    assert wire_bytes(one, False) < wire_bytes(one, True)
