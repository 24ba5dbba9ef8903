"""Checks of the MQTT broker: reachable, password taken, cards readable and the own one writable."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TYPE_CHECKING, Final

from abps_node.cli.human import count
from abps_node.config import Broker, BrokerAccess, CenterConfig
from abps_node.discovery import Sighting
from abps_node.preflight.finding import Finding, ok, problem, warning

if TYPE_CHECKING:
    from aiomqtt import Client

    from abps_node.discovery.broker import BrokerDoor
    from abps_node.discovery.mqtt_cards import CardBook, Topics

NAME: Final = "broker"


def check_broker(
    config: CenterConfig, broker: Broker, access: BrokerAccess
) -> Generator[Finding, None, list[Sighting]]:
    """What the broker says now, and the sightings of the other centers (none if it says nothing).

    Connects for a moment, beside a daemon that may be running. Raises ``ConfigError`` or
    ``KeyFileError`` for certificates and passwords that cannot be used.
    """
    from abps_node.discovery.broker import BrokerDoor, BrokerTrouble
    from abps_node.discovery.mqtt_cards import CardBook, Topics

    if not broker.tls:
        yield warning(
            NAME,
            f"{broker}: without TLS the password and all else go in clear",
            "set discovery.tls = true, unless the broker is on this machine",
        )
    roster = config.federation.roster
    topics = Topics(broker.prefix)
    book = CardBook(roster, config.id, topics)
    door = BrokerDoor(broker, access, f"check-{config.id}", topics=2 * len(roster))
    try:
        complete = asyncio.run(_look(door, topics, config.id, book))
    except BrokerTrouble as trouble:
        yield problem(NAME, str(trouble), trouble.fix)
        return []
    yield ok(NAME, f"{broker} answers and takes the user {access.username}")
    own = topics.card(config.id)
    if not complete:
        yield problem(
            NAME,
            f"what is published as {own} does not come back",
            f"the broker's access rules must let the user {access.username} write {own} and read "
            f"{topics.all_cards}",
        )
        return []
    offline = sum(card.state == "offline" for card in book.cards.values())
    yield ok(
        NAME,
        f"{count(len(book.cards), 'card')} of other centers can be read, {offline} of them "
        "offline; the own one can be written",
    )
    return book.sightings()


async def _look(door: BrokerDoor, topics: Topics, center_id: str, book: CardBook) -> bool:
    """Fill the book; whether reading and writing are allowed.

    A message that is not retained is no card and changes nothing for anybody. When it comes back,
    all cards have come before it.
    """
    from abps_node.discovery.broker import ANSWER_S, subscribe

    own = topics.card(center_id)
    async with door.open() as client:
        await subscribe(client, topics.all_cards)
        await client.publish(own, b"", qos=1)
        try:
            async with asyncio.timeout(ANSWER_S):
                await _gather(client, own, book)
        except TimeoutError:
            return False
    return True


async def _gather(client: Client, own: str, book: CardBook) -> None:
    async for message in client.messages:
        topic, payload = str(message.topic), message.payload
        if topic == own:
            if not message.retain:
                return
        elif message.retain and isinstance(payload, bytes | bytearray):
            book.take(topic, bytes(payload))
