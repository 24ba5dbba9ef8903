"""One connection to an MQTT broker: bounded in time and memory, with troubles that people can read.

aiomqtt connects in a thread of the loop's executor, where paho bounds TCP connect and TLS handshake
(5 s each). A task that is cancelled meanwhile would leave a living connection behind, so nothing
here is ever cancelled while it connects: whoever wants an end waits for these bounds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import ssl
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Literal

from aiomqtt import Client, Message, MqttCodeError, MqttError, ProtocolVersion, Will
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from abps_node.config import Broker, BrokerAccess
from abps_node.discovery.base import Published, unrecorded
from abps_node.errors import ConfigError, KeyFileError

ANSWER_S: Final = 5.0
"""Each answer of the broker takes at most so long, or it counts as stuck."""
MAX_PACKET_BYTES: Final = 16 * 1024
"""The broker is asked never to send a larger one."""
_GOODBYE_S: Final = 1.0
_BAD_LOGIN: Final = (0x86, 0x87, 0x8A, 0x8C)
"""MQTT 5: bad user name or password, not authorized, banned, bad authentication method."""
_OLD_PROTOCOL: Final = 0x84
_FAILURE: Final = 0x80
"""Reason codes from here on are failures."""
_LOSSES: Final = {0x80: "the connection was lost", 0x8D: "no sign of life"}
"""Reason codes that paho gives by itself; the others come from the broker."""

_wire_log = logging.getLogger("abps_node.discovery.wire")
_wire_log.setLevel(logging.CRITICAL)  # every loss would be told there too, and not once

Trouble = Literal["away", "refused"]


class BrokerTrouble(Exception):
    """The broker cannot be used. ``away`` may pass by itself, ``refused`` needs a person."""

    def __init__(self, kind: Trouble, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.kind: Trouble = kind
        self.fix = fix


class LatestPerTopic(asyncio.Queue[Message]):
    """Keeps the newest message of each topic, and at most ``maxsize`` topics.

    So whoever floods one topic displaces nobody's card.
    """

    def _init(self, maxsize: int) -> None:
        self._queue: OrderedDict[str, Message] = OrderedDict()

    def _put(self, item: Message) -> None:
        topic = str(item.topic)
        self._queue[topic] = item
        self._queue.move_to_end(topic)  # what came before it on other topics stays before it

    def _get(self) -> Message:
        return self._queue.popitem(last=False)[1]

    def put_nowait(self, item: Message) -> None:
        """Take it, or drop it if it is of one topic too many."""
        if str(item.topic) in self._queue:
            self._put(item)
        elif not self.full():
            super().put_nowait(item)


class RecordedClient(Client):
    """A client that tells of everything before it publishes it."""

    def __init__(self, broker: str, published: Published, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._broker = broker
        self._published = published

    async def publish(self, topic: str, payload: Any = None, *args: Any, **options: Any) -> None:
        """As of ``aiomqtt``; the payload is text or bytes."""
        told = payload.encode() if isinstance(payload, str) else payload or b""
        self._published("mqtt", f"{self._broker} {topic}", "publish", told)
        await super().publish(topic, payload, *args, **options)


class BrokerDoor:
    """Opens connections to the broker, one after the other, as one user."""

    def __init__(
        self,
        broker: Broker,
        access: BrokerAccess,
        name: str,
        topics: int,
        published: Published = unrecorded,
    ) -> None:
        """``topics``: so many wait unread. Raises for unusable secrets and certificates.

        ``ConfigError`` or ``KeyFileError``, so that a start fails over them and not later.
        ``published`` hears of everything before it goes to the broker.
        """
        self.broker = broker
        self._published = published
        self._access = access
        self._topics = topics
        # The same for all connections: the next one ends a dead one at the broker. Random, since
        # whoever could guess it could end this one.
        self._identifier = f"abps-{name}-{secrets.token_hex(8)}"
        self.attempts = 0
        """Connections tried so far."""
        self._tls = _tls_context(access) if broker.tls else None
        access.password()

    @asynccontextmanager
    async def open(self, will: Will | None = None) -> AsyncIterator[Client]:
        """Connect, hand out the client, disconnect; ``BrokerTrouble`` whenever that fails."""
        self.attempts += 1
        client = self._client(will)
        try:
            await client.__aenter__()
        except MqttError as error:
            await _leave(client)
            raise self._refusal(error) from error
        try:
            yield client
        except MqttError as error:
            raise BrokerTrouble("away", f"{self.broker}: {_loss(error)}", "") from error
        finally:
            await _leave(client)

    def _client(self, will: Will | None) -> Client:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.MaximumPacketSize = MAX_PACKET_BYTES
        try:
            password = self._access.password()
        except (ConfigError, KeyFileError) as error:
            raise BrokerTrouble("refused", str(error), "correct what is named") from error
        if will is not None:
            told = will.payload if isinstance(will.payload, bytes) else b""
            self._published("mqtt", f"{self.broker} {will.topic}", "last-will", told)
        return RecordedClient(
            str(self.broker),
            self._published,
            self.broker.host,
            self.broker.port,
            username=self._access.username,
            password=password,
            identifier=self._identifier,
            protocol=ProtocolVersion.V5,
            will=will,
            keepalive=self.broker.keepalive_s,
            timeout=ANSWER_S,
            queue_type=LatestPerTopic,
            max_queued_incoming_messages=self._topics,
            properties=properties,
            tls_context=self._tls,
            logger=_wire_log,
        )

    def _refusal(self, error: MqttError) -> BrokerTrouble:
        """Why there is no connection, and what to do about it."""
        broker, cause = self.broker, error.__context__
        if isinstance(error, MqttCodeError):
            return self._rejected(error)
        if isinstance(cause, ssl.SSLCertVerificationError):
            fix = (
                "set mqtt.ca_file to the certificate of the authority that signed the broker's; "
                f"that one must be for {broker.host}"
            )
            return BrokerTrouble("refused", f"{broker}: {cause.verify_message}", fix)
        if isinstance(cause, ssl.SSLError | ConnectionResetError):
            fix = "look whether discovery.port is the broker's TLS port"
            reason = getattr(cause, "reason", None) or cause.strerror
            return BrokerTrouble("away", f"{broker}: no TLS there: {reason}", fix)
        if isinstance(cause, socket.gaierror):
            fix = "correct discovery.host, or the name service"
            return BrokerTrouble("away", f"{broker}: {cause.strerror}", fix)
        if isinstance(cause, OSError) and cause.strerror:
            fix = "start the broker, or correct discovery.host and discovery.port"
            return BrokerTrouble("away", f"{broker}: {cause.strerror}", fix)
        fix = "look at the broker and the firewall; a TLS port never answers a plain client" + (
            "" if broker.tls else " (discovery.tls)"
        )
        return BrokerTrouble("away", f"{broker}: no answer within {ANSWER_S:g} s", fix)

    def _rejected(self, error: MqttCodeError) -> BrokerTrouble:
        broker, user = self.broker, self._access.username
        code = error.rc.value if isinstance(error.rc, ReasonCode) else error.rc
        if code in _BAD_LOGIN:
            fix = (
                f"the broker must know the user {user}, and mqtt.password_file or "
                "mqtt.password_env must hold that user's password"
            )
            return BrokerTrouble("refused", f"{broker}: user {user} is refused: {error.rc}", fix)
        if code == _OLD_PROTOCOL:
            return BrokerTrouble(
                "refused", f"{broker}: it does not speak MQTT 5", "use a broker that does"
            )
        return BrokerTrouble("away", f"{broker}: it refuses: {error.rc}", "ask who runs the broker")


async def subscribe(client: Client, topics: str) -> None:
    """Hear all retained messages of these topics, now and when they change.

    They keep the mark by which what was only passed through can be told from them.
    ``BrokerTrouble`` if the broker refuses; it may also just deliver nothing.
    """
    options = SubscribeOptions(qos=1, retainAsPublished=True)
    codes = await client.subscribe(topics, options=options)
    if any((c.value if isinstance(c, ReasonCode) else c) >= _FAILURE for c in codes):
        problem = f"the broker refuses to let {topics} be read"
        raise BrokerTrouble("refused", problem, "allow it in the broker's access rules")


def _tls_context(access: BrokerAccess) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=access.ca_file)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{access.ca_file}: mqtt.ca_file: found no certificate, allowed: one or more in PEM"
        ) from error
    except OSError as error:
        raise ConfigError(
            f"{access.ca_file}: mqtt.ca_file: cannot be read: {error.strerror}"
        ) from error


async def _leave(client: Client) -> None:
    """Disconnect, whatever state the client is in; also what never got an answer is closed."""
    client.timeout = _GOODBYE_S
    with contextlib.suppress(MqttError):
        await client.__aexit__(None, None, None)
    # What aiomqtt leaves behind when a packet was unreadable: the socket, which it takes for
    # closed, and the error, which nobody has read if nobody was waiting for a message.
    if client._client.socket() is not None:
        client._client.disconnect()
    if client._disconnected.done() and not client._disconnected.cancelled():
        client._disconnected.exception()


def _loss(error: MqttError) -> str:
    """Why a connection that stood is of no use any more."""
    cause = error if isinstance(error, MqttCodeError) else error.__cause__
    if not isinstance(cause, MqttCodeError):
        return str(cause or f"no answer within {ANSWER_S:g} s")
    known = _LOSSES.get(cause.rc.value) if isinstance(cause.rc, ReasonCode) else None
    return known or f"the connection ended: {cause}"
