"""The edge-triggered reader: nothing is left lying, nobody is starved."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq

from abps_node.transport.edge import BURST, EdgeReader
from tests.support.stations import eventually

Pair = tuple[zmq.Socket[bytes], zmq.Socket[bytes]]


def received(socket: zmq.Socket[bytes], got: list[str]) -> bool:
    """Take one message, as a reader wants it done: False if there is none."""
    try:
        got.append(socket.recv(zmq.NOBLOCK).decode())
    except zmq.Again:
        return False
    return True


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
    reader = EdgeReader(receiver, lambda: received(receiver, order))
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
    got: list[str] = []
    reader = EdgeReader(own, lambda: received(own, got))
    await asyncio.sleep(0)
    other.send(b"while looking away")
    # This call inside libzmq consumes the signal that something came.
    own.send(b"anything")
    own.getsockopt(zmq.EVENTS)
    reader.look()
    await eventually(lambda: got == ["while looking away"])
    reader.stop()


async def test_after_stop_nothing_is_taken(pair: Pair) -> None:
    sender, receiver = pair
    got: list[str] = []

    def take() -> bool:
        took = received(receiver, got)
        if len(got) == 3:
            reader.stop()
        return took

    reader = EdgeReader(receiver, take)
    for number in range(10):
        sender.send(b"%d" % number)
    await eventually(lambda: len(got) == 3)
    reader.look()
    for _ in range(10):
        await asyncio.sleep(0)
    assert got == ["0", "1", "2"]
    reader.stop()


async def test_a_signal_without_a_message_is_harmless(pair: Pair) -> None:
    sender, receiver = pair
    got: list[str] = []
    asked: list[bool] = []

    def take() -> bool:
        asked.append(received(receiver, got))
        return asked[-1]

    reader = EdgeReader(receiver, take)
    sender.send(b"first")
    await eventually(lambda: got == ["first"])
    # Taken behind the reader's back, so that its next look finds nothing.
    sender.send(b"second")
    assert receiver.recv() == b"second"
    reader._read()
    assert asked[-1] is False
    sender.send(b"third")
    await eventually(lambda: got == ["first", "third"])
    reader.stop()
