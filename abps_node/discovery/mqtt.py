"""Addresses and events through an MQTT broker: retained cards, a last will, an event stream.

The broker is a convenience, never a need: while it is absent, stuck or refuses the password, the
center goes on with the peers whose addresses it knows, says so once, and tries again by itself.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from aiomqtt import Client

from abps_node.addresses import is_concrete
from abps_node.config import Broker, BrokerAccess, Member
from abps_node.discovery.base import Found, Keys, Published, Say, Sighting, unrecorded
from abps_node.discovery.broker import BrokerDoor, BrokerTrouble, subscribe
from abps_node.discovery.mqtt_cards import BrokerCard, CardBook, Topics
from abps_node.discovery.mqtt_events import KINDS, EventQueue
from abps_node.discovery.mqtt_own import OwnCard
from abps_node.discovery.mqtt_reports import BrokerReports
from abps_node.errors import TransportError
from abps_node.event_sink import EventSink, NoEvents
from protocol.timing import Backoff

FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0
STEADY_S: Final = 10.0
"""A connection that lasted so long begins the next back-off anew."""
DENIED_AFTER_S: Final = 30.0
"""The own card comes back at once, or where hundreds start together on one machine in seconds."""
FAREWELL_S: Final = 2.0
CLOSE_S: Final = 12.0
"""Above what a connection attempt that is under way can take (TCP, TLS, answer)."""
SPARE_TOPICS: Final = 100

_log = logging.getLogger(__name__)


class MqttDiscovery:
    """One center at the broker. A single task holds the connection until ``withdraw``."""

    def __init__(
        self,
        broker: Broker,
        access: BrokerAccess,
        roster: Sequence[Member],
        center_id: str,
        say: Say,
        min_events: int,
        published: Published = unrecorded,
        backoff: Backoff | None = None,
    ) -> None:
        """``min_events``: as of ``EventQueue``; ``published``: hears of all that is sent.

        Raises ``ConfigError`` or ``KeyFileError`` for unusable certificates and passwords.
        """
        self._broker = broker
        topics = len(roster) + SPARE_TOPICS
        self._door = BrokerDoor(broker, access, center_id, topics, published)
        self._roster = roster
        self._own_key = next((m.public_key for m in roster if m.id == center_id), "")
        self._center_id = center_id
        self._topics = Topics(broker.prefix)
        self._book = CardBook(roster, center_id, self._topics)
        self._reports = BrokerReports(broker, say)
        self._backoff = backoff or Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
        self._wake, self._stop = asyncio.Event(), asyncio.Event()
        self._queue = EventQueue(center_id, min_events, self._wake.set)
        self.events: EventSink = self._queue if access.events else NoEvents()
        self._own: OwnCard | None = None
        self._found: Found | None = None
        self._told: dict[str, str] = {}
        self._link: asyncio.Task[None] | None = None

    async def announce(self, address: str, incarnation: int) -> None:
        """Leave the own card with the broker as soon as it answers; waits for nothing."""
        if not is_concrete(address):
            raise TransportError(f"found {address} to announce, allowed: an address others reach")
        if not self._broker.tls:
            self._reports.insecure()
        card_topic = self._topics.card(self._center_id)
        card = BrokerCard(
            id=self._center_id,
            public_key=self._own_key,
            address=address,
            incarnation=incarnation,
            state="online",
        )
        before, self._own = self._own, OwnCard(card_topic, card, self._wake.set)
        if before is not None:
            before.rest()
            self._own.renew()
        self._queue.incarnation = incarnation
        self._start()

    async def withdraw(self) -> None:
        """Take the card back, send the events that wait, disconnect; bounded, never fails."""
        self._stop.set()
        if self._link is None:
            return
        _, late = await asyncio.wait({self._link}, timeout=CLOSE_S)
        for link in late:
            link.cancel()
            _log.warning("%s: no end of the connection within %g s", self._broker, CLOSE_S)
        (error,) = await asyncio.gather(self._link, return_exceptions=True)
        if isinstance(error, Exception):
            _log.error("%s: the connection had ended by a bug", self._broker, exc_info=error)

    async def watch(self, found: Found) -> None:
        """Report the roster's addresses, then each card as it comes, until cancelled."""
        self._found = found
        for member in self._roster:
            if member.address is not None and member.id != self._center_id:
                self._report(member.id, member.address)
        for card in self._book.cards.values():
            self._report(card.id, card.address)
        await asyncio.shield(self._start())

    def admit(self, members: Keys, own_key: str) -> None:
        """Cards of new members lie with the broker already, or come."""
        self._own_key = own_key
        self._book.admit(members)
        for center in self._told.keys() - members.keys():
            del self._told[center]
        for card in self._book.cards.values():
            self._report(card.id, card.address)

    def readable(self) -> list[Sighting]:
        """What has been heard so far."""
        return self._book.sightings()

    def _report(self, center: str, address: str | None) -> None:
        if self._found is None or self._told.get(center) == address:
            return
        if address is None:
            del self._told[center]
        else:
            self._told[center] = address
        self._found(center, address)

    def _start(self) -> asyncio.Task[None]:
        if self._link is None:
            self._link = asyncio.get_running_loop().create_task(self._live(), name="broker")
        return self._link

    async def _live(self) -> None:
        """Connect, again and again, until withdrawn."""
        rng = random.Random()
        while not self._stop.is_set():
            begin = time.monotonic()
            try:
                await self._session()
            except BrokerTrouble as trouble:
                if not self._stop.is_set():
                    self._reports.trouble(trouble, len(self._told))
            if time.monotonic() - begin > STEADY_S:
                self._backoff.reset()
            await _within(self._backoff.next_delay(rng), self._stop.wait())

    async def _session(self) -> None:
        """One connection, from its first to its last word."""
        will = None if self._own is None else self._own.will()
        async with self._door.open(will) as client:
            await subscribe(client, self._topics.all_cards)
            if self._own is not None:
                await self._own.publish(client)
            self._reports.met(self._queue.take_dropped())
            doubt = asyncio.get_running_loop().call_later(DENIED_AFTER_S, self._doubt)
            try:
                await _first_of(self._listen(client), self._speak(client), self._stop.wait())
            finally:
                doubt.cancel()
                if self._own is not None:
                    self._own.rest()
            if not await _within(FAREWELL_S, self._farewell(client)):
                _log.warning("%s: no answer to the farewell, the card may stay", self._broker)

    async def _listen(self, client: Client) -> None:
        async for message in client.messages:
            topic, payload = str(message.topic), message.payload
            if not message.retain or not isinstance(payload, bytes | bytearray):
                continue  # a card that does not stay is none
            if self._own is not None and topic == self._own.topic:
                self._own.heard(bytes(payload))
                continue
            news = self._book.take(topic, bytes(payload))
            if news is not None:
                self._report(news.center, news.address)

    async def _speak(self, client: Client) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._own is not None:
                await self._own.restore(client)
            await self._send_events(client)

    async def _send_events(self, client: Client) -> None:
        while len(self._queue):
            event = self._queue.take()
            topic = self._topics.event(self._center_id, KINDS[type(event)])
            sent = False
            try:
                await client.publish(topic, event.model_dump_json(), qos=1)
                sent = True
            finally:
                if not sent:
                    self._queue.put_back(event)

    async def _farewell(self, client: Client) -> None:
        # The card first: it must not be left behind because events take their time.
        if self._own is not None:
            await self._own.withdraw(client)
        await self._send_events(client)

    def _doubt(self) -> None:
        if self._own is not None and not self._own.seen and not self._own.superseded:
            self._reports.denied(self._own.topic)


async def _within(seconds: float, work: Coroutine[Any, Any, object]) -> bool:
    """Whether it was done in time; what was not is cancelled."""
    try:
        await asyncio.wait_for(work, seconds)
    except TimeoutError:
        return False
    return True


async def _first_of(*works: Coroutine[Any, Any, object]) -> None:
    """Until one of them ends or fails; the others are cancelled."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
