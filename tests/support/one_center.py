"""One node under test, with its peers played by hand."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from protocol.center import Identity, Memory
from protocol.contract import Contract
from protocol.effects import Effect, Exit, Merge, Note, Send
from protocol.events import Event, Heard, Merged, ModelRef, Started, Tick, Trained
from protocol.messages import (
    Accept,
    CardMessage,
    Done,
    Hello,
    Message,
    Propose,
    SessionId,
    Weights,
)
from protocol.node import Node
from protocol.record import ValidationRecord
from protocol.trunk import TrunkLayout, pack

LAYOUT = TrunkLayout((("trunk", (4,)),))
INITIAL = "0" * 64
E = TypeVar("E", bound=Effect)
M = TypeVar("M", bound=Message)


class OneCenter:
    """Node «m» with roster a, m, z and full control over time and messages."""

    def __init__(
        self,
        contract: Contract,
        roster: str = "amz",
        memory: Memory | None = None,
        incarnation: int = 1,
        **identity: Any,
    ) -> None:
        self.contract = contract
        values = {"goal": contract.policy.goal, "card": (0.2, 5.0), "size": 100, **identity}
        me = Identity("m", incarnation, 1, layout=LAYOUT, initial_trunk=INITIAL, **values)
        self.node = Node(contract, me, roster, memory or Memory())
        self.now = 0.0
        self.effects: list[Effect] = []
        self.incarnations = dict.fromkeys(roster, 1)

    def feed(self, event: Event) -> list[Effect]:
        """One stimulus; its effects, which are also kept."""
        effects = self.node.handle(event, self.now)
        self.effects += effects
        return effects

    def hear(self, peer: str, message: Message) -> list[Effect]:
        """A message from a peer."""
        return self.feed(Heard(peer, message, 100))

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass in healthy ticks."""
        effects = []
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            effects += self.feed(Tick())
        return effects

    def hello(self, peer: str, **changes: Any) -> Hello:
        """A hello that fits, with changes."""
        values: dict[str, Any] = {
            "incarnation": self.incarnations[peer],
            "center": peer,
            "protocol_version": 1,
            "contract": self.contract.digest(),
            "initial_trunk": INITIAL,
            "card": CardMessage(1, (0.2, 5.0)),
            "finished": False,
            "reply": True,
            **changes,
        }
        return Hello(**values)

    def meet(self, *peers: str) -> None:
        """Start and introduce these peers."""
        self.feed(Started())
        for peer in peers:
            self.hear(peer, self.hello(peer))

    def train(self) -> list[Effect]:
        """Finish the local step under way."""
        number = self.node.center.round.number
        trunk = np.full(4, 1.0, dtype=np.float32)
        return self.feed(Trained(number, trunk, 0.5, 0.01))

    def merge(self, value: float = 0.7, gain: float = 0.0) -> list[Effect]:
        """Finish the merge under way; each partner adds ``gain``."""
        asked = self.last(Merge)
        utilities = {s: value + gain * len(s) for s in asked.coalitions}
        validation = ValidationRecord(
            metric="auroc", value=utilities[frozenset(asked.trunks)], events=9, rows=50
        )
        model = ModelRef(f"round-{asked.round}", INITIAL)
        return self.feed(Merged(asked.round, utilities, validation, model, 0.01))

    def id_from(self, peer: str, number: int) -> SessionId:
        """The id of a proposal by a peer."""
        own = self.node.center.identity.incarnation
        return SessionId(peer, self.incarnations[peer], "m", own, number)

    def propose(self, peer: str, number: int = 1, round_number: int = 1) -> list[Effect]:
        """A peer proposes."""
        session = self.id_from(peer, number)
        return self.hear(peer, Propose(self.incarnations[peer], session, round_number))

    def accept(self, peer: str, session: SessionId) -> list[Effect]:
        """A peer accepts our proposal."""
        return self.hear(peer, Accept(self.incarnations[peer], session, 1))

    def weights(self, peer: str, session: SessionId, **changes: Any) -> list[Effect]:
        """A peer sends its trunk."""
        trunk = changes.pop("trunk", np.full(4, 1.1, dtype=np.float32))
        values: dict[str, Any] = {
            "incarnation": self.incarnations[peer],
            "session": session,
            "round": 1,
            "staleness": 0,
            "size": 50,
            "dtype": self.contract.policy.wire_dtype,
            "layout": LAYOUT.digest,
            "payload": pack(trunk, self.contract.policy.wire_dtype),
            **changes,
        }
        return self.hear(peer, Weights(**values))

    def done(self, peer: str, session: SessionId, verified: bool = True) -> list[Effect]:
        """A peer acknowledges ours."""
        reason = "" if verified else "trunk-norm"
        return self.hear(peer, Done(self.incarnations[peer], session, verified, reason))

    def last(self, kind: type[E]) -> E:
        """The newest effect of a kind."""
        return next(e for e in reversed(self.effects) if isinstance(e, kind))

    def sent(self, kind: type[M], peer: str | None = None) -> list[M]:
        """All messages of a kind that were sent (to a peer)."""
        return sent(self.effects, kind, peer)

    def notes(self, kind: str) -> list[Note]:
        """All notes of a kind."""
        return [e for e in self.effects if isinstance(e, Note) and e.kind == kind]

    @property
    def exit(self) -> Exit | None:
        """How it ended, if it did."""
        return next((e for e in self.effects if isinstance(e, Exit)), None)


def sent(effects: list[Effect], kind: type[M], peer: str | None = None) -> list[M]:
    """Messages of a kind among effects."""
    return [
        e.message
        for e in effects
        if isinstance(e, Send) and isinstance(e.message, kind) and peer in (None, e.peer)
    ]
