"""Cards that lie with a broker: retained messages, one per center, under a topic of its own.

What a broker says is a hint. A card counts only if its id is the topic's and on the roster and its
public key is the roster's; then its address is tried, and who answers there is proved by its key.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import ValidationError

from abps_node.config import Member
from abps_node.discovery.base import Keys, Sighting
from abps_node.discovery.cards import MAX_CARD_BYTES, AddressCard, UnusableCard, first_problem

REPORT_AGAIN_S: Final = 600.0
"""One center's faulty cards are reported at most so often, however many come."""
MAX_STRANGERS: Final = 20
"""So many topics of no center on the roster are reported; the rest is ignored in silence."""

_SHOWN_CHARACTERS: Final = 200

_log = logging.getLogger(__name__)


class BrokerCard(AddressCard):
    """An address card, and whether its center is at the broker."""

    state: Literal["online", "offline"]
    """The broker itself turns it to offline when the center falls silent (last will)."""

    def offline(self) -> BrokerCard:
        """The same card as the last will leaves it."""
        return self.model_copy(update={"state": "offline"})

    def payload(self) -> bytes:
        """As it lies with the broker."""
        return self.model_dump_json().encode("utf-8")


@dataclass(frozen=True)
class Topics:
    """The topics of one federation, all below its prefix."""

    prefix: str

    def card(self, center_id: str) -> str:
        """Where one center's card lies."""
        return f"{self.prefix}/card/{center_id}"

    @property
    def all_cards(self) -> str:
        """The filter for the cards of all centers."""
        return self.card("+")

    def event(self, center_id: str, kind: str) -> str:
        """Where one center tells of one kind of event."""
        return f"{self.prefix}/event/{center_id}/{kind}"

    def center_of(self, topic: str) -> str | None:
        """The last level of a card's topic; None for any other topic."""
        head, _, center_id = topic.rpartition("/")
        return center_id if f"{head}/+" == self.all_cards else None


def parse_card(payload: bytes, center_id: str, *public_keys: str) -> BrokerCard:
    """The card of this center; ``UnusableCard`` says what was found and what is allowed."""
    if len(payload) > MAX_CARD_BYTES:
        raise UnusableCard(f"found {len(payload)} bytes, allowed: {MAX_CARD_BYTES}")
    try:
        card = BrokerCard.model_validate_json(payload)
    except ValidationError as error:
        raise UnusableCard(first_problem(error, "the card")) from error
    if card.id != center_id:
        raise UnusableCard(f"id: found {card.id!r}, allowed: the last level of the topic")
    if card.public_key not in public_keys:
        raise UnusableCard(f"public_key: found {card.public_key}, allowed: the roster's")
    return card


@dataclass(frozen=True)
class News:
    """A hint about a center: where it listens, or None where it took its card back."""

    center: str
    address: str | None


class CardBook:
    """What the broker has said about the other centers; holds no more than one card for each."""

    def __init__(self, roster: Sequence[Member], center_id: str, topics: Topics) -> None:
        self._center_id = center_id
        self._keys: Keys = {m.id: (m.public_key,) for m in roster if m.id != center_id}
        self._strange: dict[str, bytes] = {}
        self._topics = topics
        self._problems: dict[str, str] = {}
        self._quiet_until: dict[str, float] = {}
        self._strangers: set[str] = set()
        self.cards: dict[str, BrokerCard] = {}
        """The newest usable card of each center that has one."""

    def take(self, topic: str, payload: bytes) -> News | None:
        """Enter what came; None if it says nothing about an address."""
        center = self._topics.center_of(topic)
        if center is None or center not in self._keys:
            self._report_stranger(topic)
            if center is not None and center != self._center_id:
                self._keep_for_later(center, payload)
            return None
        self._problems.pop(center, None)
        if not payload:
            self.cards.pop(center, None)
            return News(center, None)
        try:
            card = parse_card(payload, center, *self._keys[center])
        except UnusableCard as error:
            self._problems[center] = str(error)
            self._report(center, str(error))
            return None
        return self._enter(card)

    def admit(self, members: Keys) -> None:
        """Other members; cards of those that were strangers count from now on."""
        self._keys = {name: keys for name, keys in members.items() if name != self._center_id}
        for center in [name for name in self.cards if name not in self._keys]:
            self._keep_for_later(center, self.cards.pop(center).payload())
        for center in [name for name in self._strange if name in self._keys]:
            self.take(self._topics.card(center), self._strange.pop(center))

    def _keep_for_later(self, center: str, payload: bytes) -> None:
        """A new member's card may come before the word that it is one."""
        self._strange.pop(center, None)
        if payload and len(payload) <= MAX_CARD_BYTES and len(self._strange) < MAX_STRANGERS:
            self._strange[center] = payload

    def _enter(self, card: BrokerCard) -> News | None:
        known = self.cards.get(card.id)
        if card.state == "offline" and known is not None:
            # Away from the broker is not away from us. The will of an older connection may also
            # come late.
            if card.incarnation >= known.incarnation:
                self.cards[card.id] = known.offline()
            return None
        self.cards[card.id] = card
        return News(card.id, card.address)

    def sightings(self) -> list[Sighting]:
        """Every other center of the roster, in its order."""
        return [self._sighting(center) for center in self._keys]

    def _sighting(self, center: str) -> Sighting:
        card = self.cards.get(center)
        if card is not None:
            return Sighting(center, card.address, "")
        problem = self._problems.get(center, "missing, the center has not announced itself")
        text = f"{self._topics.card(center)}: {problem}"
        return Sighting(center, None, text, withdrawn=center not in self._problems)

    def _report(self, center: str, problem: str) -> None:
        now = time.monotonic()
        if now >= self._quiet_until.get(center, now):
            self._quiet_until[center] = now + REPORT_AGAIN_S
            _log.warning("%s: ignored: %s", self._topics.card(center), problem)

    def _report_stranger(self, topic: str) -> None:
        shown = topic[:_SHOWN_CHARACTERS]
        if shown not in self._strangers and len(self._strangers) < MAX_STRANGERS:
            self._strangers.add(shown)
            _log.warning("%s: ignored: belongs to no center of the roster", shown)
