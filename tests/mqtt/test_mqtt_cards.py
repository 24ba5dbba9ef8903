"""What the broker says about cards: hints about centers of the roster, whatever else it says."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiomqtt import Message
from hypothesis import given
from hypothesis import strategies as st

from abps_node.discovery.broker import LatestPerTopic
from abps_node.discovery.mqtt_cards import MAX_STRANGERS, BrokerCard, CardBook, News, Topics
from tests.support.broker_guests import ROSTER

TOPICS = Topics("abps")
SOUTH = TOPICS.card("south")


def card(**changes: Any) -> bytes:
    """South's card, with changes."""
    values = {
        "id": "south",
        "public_key": "b" * 40,
        "address": "tcp://10.0.0.2:5555",
        "incarnation": 3,
        "state": "online",
        **changes,
    }
    return BrokerCard.model_validate(values).payload()


def book() -> CardBook:
    return CardBook(ROSTER, "north", TOPICS)


any_topic = st.one_of(
    st.text(),
    st.sampled_from([SOUTH, TOPICS.card("north"), TOPICS.card("nobody"), "abps/event/south/round"]),
)
any_payload = st.one_of(
    st.binary(max_size=200),
    st.just(card()),
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=10,
    ).map(lambda value: json.dumps(value).encode()),
)


@given(st.lists(st.tuples(any_topic, any_payload), max_size=20))
def test_whatever_comes_nobody_is_invented(messages: list[tuple[str, bytes]]) -> None:
    made = book()
    for topic, payload in messages:
        news = made.take(topic, payload)
        assert news in (
            None,
            News("south", None),
            News("south", "tcp://10.0.0.2:5555"),
            News("west", None),
        )
    assert set(made.cards) <= {"south"}
    assert [sighting.center for sighting in made.sightings()] == ["south", "west"]


def test_the_will_tells_nothing_of_an_address_that_is_known() -> None:
    made = book()
    assert made.take(SOUTH, card()) == News("south", "tcp://10.0.0.2:5555")
    late = card(state="offline", incarnation=2, address="tcp://10.0.0.9:1")
    assert made.take(SOUTH, late) is None
    assert made.cards["south"].state == "online", "an older start's will came late"
    assert made.take(SOUTH, card(state="offline")) is None
    assert made.cards["south"].state == "offline"
    assert made.take(SOUTH, card(incarnation=4)) == News("south", "tcp://10.0.0.2:5555")


def test_offline_card_of_one_never_met_is_a_hint() -> None:
    assert book().take(SOUTH, card(state="offline")) == News("south", "tcp://10.0.0.2:5555")


def test_faulty_card_leaves_the_last_good_one() -> None:
    made = book()
    made.take(SOUTH, card())
    assert made.take(SOUTH, card(public_key="c" * 40)) is None
    assert made.sightings()[0].address == "tcp://10.0.0.2:5555"
    assert made.take(SOUTH, b"") == News("south", None)
    sighting = made.sightings()[0]
    assert sighting.withdrawn and f"{SOUTH}: missing" in sighting.problem


def test_ten_thousand_strangers_and_faulty_cards_are_few_lines(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = book()
    for number in range(10_000):
        made.take(TOPICS.card(f"stranger{number}"), b"x")
        made.take(SOUTH, card(public_key=f"{number:040d}"))
    assert len(caplog.records) == MAX_STRANGERS + 1


def test_prefix_and_levels_belong_to_the_topic() -> None:
    topics = Topics("hospitals/trial-7")
    assert topics.card("south") == "hospitals/trial-7/card/south"
    assert topics.center_of("hospitals/trial-7/card/south") == "south"
    for other in ("abps/card/south", "hospitals/trial-7/card/south/x", "card/south", "south", ""):
        assert topics.center_of(other) != "south"


async def test_a_flood_on_one_topic_displaces_nobody() -> None:
    queue = LatestPerTopic(maxsize=2)

    def put(topic: str, payload: bytes) -> None:
        queue.put_nowait(Message(topic, payload, 1, False, 0, None))

    put("a", b"first")
    for number in range(1000):
        put("b", b"%d" % number)
    put("c", b"too many topics")
    put("a", b"second")
    got = [(str(m.topic), m.payload) for m in [await queue.get() for _ in range(queue.qsize())]]
    assert got == [("b", b"999"), ("a", b"second")], "the newest of each, in the order they came"
    waiting = asyncio.create_task(queue.get())
    await asyncio.sleep(0)
    put("d", b"there is room again")
    assert str((await waiting).topic) == "d"
