"""The own card at the broker: announced, kept right, called offline by the will, taken back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from aiomqtt import Client, Will

from abps_node.discovery.cards import UnusableCard
from abps_node.discovery.mqtt_cards import BrokerCard, parse_card

RESTORE_S: Final = 1.0
"""The own card is put back at most so often, whoever changes it."""

_log = logging.getLogger(__name__)


class OwnCard:
    """What should lie under the own topic, and what is seen there."""

    def __init__(self, topic: str, card: BrokerCard, wake: Callable[[], None]) -> None:
        """``wake``: called when ``restore`` has something to do."""
        self.topic = topic
        self._card = card
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._restore_due = False
        self.superseded = False
        """A newer copy of this center is at the broker; its card stays untouched."""
        self.seen = False
        """The broker has given the card back since it was last published."""

    def will(self) -> Will:
        """What the broker is to publish when this center falls silent."""
        return Will(self.topic, self._card.offline().payload(), qos=1, retain=True)

    async def publish(self, client: Client) -> None:
        """Leave the card, retained; over whatever lies there, but never over a newer copy's."""
        self.rest()
        self.seen = False
        if not self.superseded:
            await client.publish(self.topic, self._card.payload(), qos=1, retain=True)

    async def restore(self, client: Client) -> None:
        """Publish again if the card was found changed."""
        if self._restore_due:
            await self.publish(client)

    async def withdraw(self, client: Client) -> None:
        """Clear the topic; a disconnect in order sends no will."""
        if not self.superseded:
            await client.publish(self.topic, b"", qos=1, retain=True)

    def heard(self, payload: bytes) -> None:
        """The echo of the card, or something in its place that is to be put right.

        The will of an earlier connection may come late, a retained message may get lost with the
        broker's memory, and without access rules anybody can write here.
        """
        if payload == self._card.payload():
            self.seen = True
            return
        try:
            found = parse_card(payload, self._card.id, self._card.public_key) if payload else None
        except UnusableCard:
            found = None
        if found is not None and found.incarnation > self._card.incarnation:
            self.superseded = True
            _log.warning("%s: a newer copy of this center is there; its card stays", self.topic)
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(RESTORE_S, self._is_due)

    def renew(self) -> None:
        """Leave the card where an older one of this center lies."""
        self._is_due()

    def _is_due(self) -> None:
        self._restore_due = True
        self._wake()

    def rest(self) -> None:
        """Nothing is to be restored any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._restore_due = None, False
