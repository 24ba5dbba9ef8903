"""A hostile member: on everybody's roster, it attacks one center at a time in one of many ways."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import numpy as np

from abps_node.config import CenterConfig
from abps_node.transport import Undeliverable
from protocol.messages import Accept, CardMessage, Message, Ping, Propose, Weights
from protocol.trunk import pack
from tests.support.player import Player

ATTACK_S = 5.0
KINDS = ("flood", "junk", "cards", "stall", "bad-trunks", "echo")


class Wolf:
    """Plays one member; each attack is a new incarnation of it."""

    def __init__(self, member: CenterConfig, seed: int) -> None:
        self._member = member
        self._rng = random.Random(seed)
        self._incarnation = 0
        self.attacks: dict[str, int] = {}

    async def attack(self, victim: CenterConfig, endpoint: str) -> str:
        """Misbehave towards one center for some seconds; returns how."""
        self._incarnation += 1
        player = Player(self._member, victim)
        player.incarnation = self._incarnation
        await player.connect(endpoint)
        kind = self._rng.choice(KINDS)
        self.attacks[kind] = self.attacks.get(kind, 0) + 1
        self._arm(player, kind)
        deadline = asyncio.get_running_loop().time() + ATTACK_S
        try:
            number = 0
            while asyncio.get_running_loop().time() < deadline:
                number += 1
                with suppress(Undeliverable):
                    self._misbehave(player, kind, number)
                await asyncio.sleep(0.05)
        finally:
            player.their_incarnation = 0  # it says no goodbye
            await player.close()
        return kind

    def _arm(self, player: Player, kind: str) -> None:
        size = player.layout.size
        dtype = player.contract.policy.wire_dtype
        if kind == "bad-trunks":
            value = self._rng.choice([0.0, 1e38, 1e-42, float("nan")])
            payload = pack(np.full(size, value, np.float32), dtype)

            def poison(message: Message) -> None:
                if isinstance(message, Propose):
                    player.say(Accept(player.incarnation, message.session, message.round))
                elif isinstance(message, Accept | Weights):
                    player.say(player.weights(message.session, payload=payload))

            player.on_message = poison
        elif kind == "echo":

            def echo(message: Message) -> None:
                if isinstance(message, Propose):
                    player.say(Accept(player.incarnation, message.session, message.round))
                elif isinstance(message, Weights):
                    payload = bytes(message.payload)
                    player.say(player.weights(message.session, payload=payload))

            player.on_message = echo
        elif kind == "stall":

            def stall(message: Message) -> None:
                if isinstance(message, Propose):
                    player.say(Accept(player.incarnation, message.session, message.round))

            player.on_message = stall

    def _misbehave(self, player: Player, kind: str, number: int) -> None:
        if number == 1 or kind == "cards":
            sequence = player.incarnation * 1000 + number
            length = len(player.hello().card.values)
            card = CardMessage(sequence, (self._rng.random(),) * length)
            player.say(player.hello(card=card))
        elif kind == "flood":
            for _ in range(100):
                player.say(Ping(player.incarnation))
        elif kind == "junk":
            player.send(self._rng.randbytes(self._rng.randrange(1, 2000)))
        elif kind != "echo" and player.their_incarnation:
            player.propose(number)
