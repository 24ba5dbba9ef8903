"""The edge-triggered reader: nothing is left lying, nobody is starved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq

from abps_node.transport.edge import BURST, EdgeReader
from tests.support.stations import eventually

Pair = tuple[zmq.Socket[bytes], zmq.Socket[bytes]]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as two:
        one.linger = two.linger = 0
        one.bind("inproc://edge")
        two.connect("inproc://edge")
        yield one, two


async def test_a_burst_gives_others_a_turn(pair: Pair) -> None:
    sender, receiver = pair
    for number in range(3 * BURST):
        sender.send(b"%d" % number)
    order: list[str] = []
    reader = EdgeReader(receiver, lambda: order.append(receiver.recv(zmq.NOBLOCK).decode()))
    loop = asyncio.get_running_loop()

    def other_work() -> None:
        order.append("other")
        if len(order) < 3 * BURST:
            loop.call_soon(other_work)

    loop.call_soon(other_work)
    await eventually(lambda: str(3 * BURST - 1) in order)
    reader.stop()
    assert [entry for entry in order if entry != "other"] == [str(n) for n in range(3 * BURST)]
    assert "other" in order[: 2 * BURST + 2]


async def test_what_came_while_nobody_looked_is_found_after_a_send(pair: Pair) -> None:
    other, own = pair
    got: list[bytes] = []
    reader = EdgeReader(own, lambda: got.append(own.recv(zmq.NOBLOCK)))
    await asyncio.sleep(0)
    other.send(b"while looking away")
    # This call inside libzmq consumes the signal that something came.
    own.send(b"anything")
    own.getsockopt(zmq.EVENTS)
    reader.look()
    await eventually(lambda: got == [b"while looking away"])
    reader.stop()


async def test_after_stop_nothing_is_taken(pair: Pair) -> None:
    sender, receiver = pair
    got: list[bytes] = []

    def take() -> None:
        got.append(receiver.recv(zmq.NOBLOCK))
        if len(got) == 3:
            reader.stop()

    reader = EdgeReader(receiver, take)
    for number in range(10):
        sender.send(b"%d" % number)
    await eventually(lambda: len(got) == 3)
    reader.look()
    for _ in range(10):
        await asyncio.sleep(0)
    assert got == [b"0", b"1", b"2"]
    reader.stop()
