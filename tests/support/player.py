"""A member of the roster played by the test, over a real transport with the member's keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from abps_node.config import CenterConfig
from abps_node.identity import load_own_keys
from abps_node.learning import initial_trunk, initial_trunk_digest, trunk_layout
from abps_node.transport import Transport
from protocol import PROTOCOL_VERSION, codec
from protocol.goal import card_length
from protocol.messages import (
    Accept,
    CardMessage,
    Done,
    Goodbye,
    Hello,
    Message,
    Propose,
    SessionId,
    Weights,
)
from protocol.trunk import pack

M = TypeVar("M", bound=Message)
LONGEST_FRAME = 16 * 1024 * 1024


class Player:
    """Introduces itself, keeps what it hears, and otherwise says only what the test wants."""

    def __init__(self, member: CenterConfig, opposite: CenterConfig) -> None:
        """``member``: whose keys and name; ``opposite``: the center it talks to."""
        self.member = member
        self.id, self.opposite = member.id, opposite.id
        self.contract = member.federation.contract
        self.layout = trunk_layout(self.contract)
        self.heard: list[Message] = []
        self.on_message: Callable[[Message], None] = lambda message: None
        self.their_incarnation = 0
        self.incarnation = 1
        self.transport = Transport(
            center_id=self.id,
            bind="tcp://127.0.0.1:0",
            keys=load_own_keys(member),
            roster={each.id: each.public_key for each in member.federation.roster},
            max_frame_bytes=LONGEST_FRAME,
            on_frame=self._take,
            on_misbehavior=lambda *report: None,
        )

    async def connect(self, endpoint: str) -> None:
        """Open the transport; the first word goes to this endpoint."""
        await self.transport.start()
        self.transport.set_address(self.opposite, endpoint)

    def _take(self, peer: str, frame: bytes) -> None:
        message = codec.decode(frame, LONGEST_FRAME)
        if isinstance(message, Hello):
            self.their_incarnation = message.incarnation
        self.heard.append(message)
        self.on_message(message)

    def of(self, kind: type[M]) -> list[M]:
        """All messages of one kind that were heard."""
        return [message for message in self.heard if isinstance(message, kind)]

    def say(self, message: Message) -> None:
        """Send one message."""
        self.send(codec.encode(message))

    def send(self, frame: bytes) -> None:
        """Send bytes, whatever they are."""
        self.transport.send(self.opposite, frame)

    def hello(self, **changes: Any) -> Hello:
        """A hello that fits, with changes."""
        card = CardMessage(self.incarnation, (0.3,) * card_length(self.contract))
        values: dict[str, Any] = {
            "incarnation": self.incarnation,
            "center": self.id,
            "protocol_version": PROTOCOL_VERSION,
            "contract": self.contract.digest(),
            "initial_trunk": initial_trunk_digest(self.contract),
            "card": card,
            "finished": False,
            "reply": False,
            **changes,
        }
        return Hello(**values)

    def propose(self, number: int) -> SessionId:
        """Propose; the session is the ``number``-th of this incarnation."""
        session = SessionId(
            self.id, self.incarnation, self.opposite, self.their_incarnation, number
        )
        self.say(Propose(self.incarnation, session, 1))
        return session

    def weights(self, session: SessionId, **changes: Any) -> Weights:
        """A good trunk for a session, with changes."""
        dtype = self.contract.policy.wire_dtype
        values: dict[str, Any] = {
            "incarnation": self.incarnation,
            "session": session,
            "round": 1,
            "staleness": 0,
            "size": 84,
            "dtype": dtype,
            "layout": self.layout.digest,
            "payload": pack(initial_trunk(self.contract), dtype),
            **changes,
        }
        return Weights(**values)

    def be_partner(self, **changes: Any) -> None:
        """From now on accept every proposal, and answer each trunk with ``weights(**changes)``."""

        def answer(message: Message) -> None:
            match message:
                case Propose(session=session):
                    self.say(Accept(self.incarnation, session, message.round))
                case Weights(session=session):
                    self.say(Done(self.incarnation, session, True, ""))
                    self.say(self.weights(session, **changes))
                case _:
                    pass

        self.on_message = answer

    async def close(self) -> None:
        """Say goodbye and close; a second time nothing."""
        if self.their_incarnation:
            self.say(Goodbye(self.incarnation, False, False))
            self.their_incarnation = 0
        await self.transport.close()
