"""The hostile member of the chaos campaigns does what it is there for."""

from __future__ import annotations

import random

import pytest

from tests.chaos import wolf as wolves
from tests.chaos.wolf import KINDS, Wolf
from tests.support.residents import eventually
from tests.support.scene import Scene

pytestmark = pytest.mark.timeout(600)

TRACES = {
    "flood": "rate-limited",
    "junk": "misbehavior",
    "cards": "card-changed",
    "stall": "exchange-timeout",
    "bad-trunks": "trunk-refused",
    "echo": "trunk-refused",
}


class OnlyOne(random.Random):
    """Always draws one kind of attack."""

    def __init__(self, kind: str) -> None:
        super().__init__(1)
        self._kind = kind

    def choice(self, seq):  # type: ignore[no-untyped-def]
        return self._kind if self._kind in seq else super().choice(seq)


@pytest.mark.parametrize("kind", KINDS)
async def test_each_attack_leaves_its_trace(
    scene: Scene, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wolves, "ATTACK_S", 3.0)
    member = scene.next_attacker()
    wolf = Wolf(member, 1)
    wolf._rng = OnlyOne(kind)
    assert await wolf.attack(scene.target.center, scene.endpoint) == kind

    def traces() -> list[object]:
        events = scene.target.reader.events(kind=TRACES[kind])
        return [event for event in events if event.peer == member.id]

    await eventually(traces)
    await scene.goes_on()
