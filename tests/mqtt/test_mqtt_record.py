"""What a center says to have left at the broker is what others hear there, byte for byte."""

from __future__ import annotations

from protocol.effects import Note
from tests.support.broker import MosquittoBroker
from tests.support.broker_guests import Guests, eventually


async def test_everything_is_told_before_it_goes(broker: MosquittoBroker, guests: Guests) -> None:
    ear = await guests.dashboard(broker)
    north = await guests.center(broker, "north", 4711)
    await eventually(lambda: ear.of("abps/card/north"))
    north.discovery.events.note(Note("peer-suspect", "warning", "south", "is suspect"), 3)
    await eventually(lambda: ear.of("abps/event/north/suspect"))
    await guests.gone(north)
    await eventually(lambda: ear.of("abps/card/north")[-1:] == [b""])

    place = str(broker.shared())
    published = [(to, told) for via, to, what, told in north.left if what == "publish"]
    assert published == [(f"{place} {topic}", payload) for topic, payload in ear.heard]
    (will,) = [(to, told) for _, to, what, told in north.left if what == "last-will"]
    assert will[0] == f"{place} abps/card/north" and b'"offline"' in will[1]
    assert {via for via, *_ in north.left} == {"mqtt"}
