"""A center played by a script: it speaks the protocol over the real transport, and decides nothing.

What it says is what a real center would say in its place: the same messages, frames, order, CURVE.
It mirrors the other side's hello and trunk, so it needs neither patients nor a model.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Final, TypeVar

from abps_node.config import CenterConfig
from abps_node.identity import load_own_keys
from abps_node.transport import Transport
from protocol import codec
from protocol import messages as m

INCARNATION: Final = 1
MAX_PAYLOAD: Final = 1 << 20
PATIENCE_S: Final = 60.0

M = TypeVar("M", bound=m.Message)


class ScriptError(Exception):
    """The center did not say what this script expects."""


class ScriptedPeer:
    """Talks to one real center."""

    def __init__(self, config: CenterConfig, center: str) -> None:
        """``config`` is whose part is played, ``center`` the id of the real one."""
        self.center = center
        self.declines = False
        """Whether proposals of the center are rejected without asking the script."""
        self._id = config.id
        self._number = 0
        self._center_incarnation = 0
        self._heard_at = 0.0
        self._inbox: asyncio.Queue[m.Message] = asyncio.Queue()
        self.transport = Transport(
            center_id=config.id,
            bind="tcp://127.0.0.1:0",
            keys=load_own_keys(config),
            roster={member.id: member.public_key for member in config.federation.roster},
            max_frame_bytes=codec.max_frame_bytes(MAX_PAYLOAD),
            on_frame=self._on_frame,
            on_misbehavior=self._on_misbehavior,
        )

    async def meet(self, address: str) -> None:
        """Connect and introduce each other; the center speaks first, since we mirror its hello."""
        await self.transport.start()
        self.transport.set_address(self.center, address)
        self.say(m.Ping(INCARNATION))
        hello = await self.hear(m.Hello)
        self._center_incarnation = hello.incarnation
        self.say(replace(hello, incarnation=INCARNATION, center=self._id, reply=True))
        await self.settle_down()

    async def close(self) -> None:
        """Disconnect."""
        await self.transport.close(0)

    def say(self, message: m.Message) -> None:
        """Send one message."""
        self.transport.send(self.center, codec.encode(message))

    async def hear(self, kind: type[M]) -> M:
        """Wait for the next message, which must be of this kind."""
        message = await asyncio.wait_for(self._inbox.get(), PATIENCE_S)
        if not isinstance(message, kind):
            raise ScriptError(f"found {message}, expected: {kind.kind}")
        return message

    async def settle_down(self) -> None:
        """Return once the center has handled everything said so far."""
        self.say(m.Ping(INCARNATION))
        await self.hear(m.Pong)

    def proposal(self) -> m.Propose:
        """A fresh proposal of ours."""
        self._number += 1
        session = m.SessionId(
            self._id, INCARNATION, self.center, self._center_incarnation, self._number
        )
        return m.Propose(INCARNATION, session, round=1)

    async def propose(self, kind: type[M]) -> tuple[M, float]:
        """Propose and wait for the answer, which must be of this kind; also how long it took.

        Seconds from the call that says it until the answer is decoded in the callback that brings
        frames, where a center takes it up.
        """
        proposal = self.proposal()
        start = time.perf_counter()
        self.say(proposal)
        answer = await self._inbox.get()
        if not isinstance(answer, kind):
            raise ScriptError(f"found {answer}, expected: {kind.kind}")
        return answer, self._heard_at - start

    async def withdraw(self, session: m.SessionId) -> None:
        """Free the slot that an accepted proposal holds."""
        self.say(m.Withdraw(INCARNATION, session))
        await self.settle_down()

    def decline(self, proposal: m.Propose) -> None:
        """Reject a proposal of the center."""
        self.say(m.Rejected(INCARNATION, proposal.session, m.Reject.NOT_READY))

    async def exchange(self, proposal: m.Propose) -> m.Weights:
        """Accept a proposal of the center, exchange trunks, give the final word; their trunk."""
        session = proposal.session
        self.say(m.Accept(INCARNATION, session, proposal.round))
        theirs = await self.hear(m.Weights)
        # Its own trunk would be refused as an echo: the least bit of a parameter differs.
        payload = bytes([theirs.payload[0] ^ 1]) + bytes(theirs.payload[1:])
        self.say(replace(theirs, incarnation=INCARNATION, payload=payload))
        self.say(m.Done(INCARNATION, session, verified=True, reason=""))
        await self.hear(m.Done)
        final = await self.hear(m.Settle)
        self.say(m.Settle(INCARNATION, final.merged))
        return theirs

    def _on_frame(self, peer: str, frame: bytes) -> None:
        message: Any = codec.decode(frame, MAX_PAYLOAD)
        self._heard_at = time.perf_counter()
        if isinstance(message, m.Propose) and self.declines:
            self.decline(message)
        else:
            self._inbox.put_nowait(message)

    def _on_misbehavior(self, peer: str | None, reason: str, detail: str) -> None:
        raise ScriptError(f"{peer}: {reason}, {detail}")
