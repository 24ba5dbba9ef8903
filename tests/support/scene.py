"""A running center under attack, its honest companion, and members that a test plays."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Protocol

import zmq

from abps_node.config import CenterConfig
from abps_node.keys import KeyPair
from abps_node.store.views import EventView
from launch.layout import FederationLayout
from protocol.messages import Hello
from tests.support.center_processes import CenterProcess, CenterProcesses
from tests.support.player import Player
from tests.support.residents import eventually

ATTACKERS = [f"crow-{number:02d}" for number in range(48)]
Play = Callable[[], Awaitable[Player]]


class Scene:
    """The attacked center, its honest companion, and members that nobody else plays."""

    def __init__(self, layout: FederationLayout, processes: CenterProcesses) -> None:
        centers = {center.id: center for center in layout.centers}
        self.target, self.companion = processes.start_all([centers["amber"], centers["birch"]])
        self._attackers = [centers[name] for name in ATTACKERS]
        for process in (self.target, self.companion):
            process.wait_for_round(2)

    @property
    def target_key(self) -> str:
        return self.target.center.member.public_key

    @property
    def endpoint(self) -> str:
        endpoint = self.target.reader.status().endpoint
        assert endpoint is not None
        return endpoint

    def next_attacker(self) -> CenterConfig:
        return self._attackers.pop()

    def refusals(self, reason: str, peer: str, kind: str = "misbehavior") -> list[EventView]:
        events = self.target.reader.events(kind=kind)
        found = [event for event in events if event.data.get("reason") == reason]
        return [event for event in found if event.peer == peer]

    async def refuses(self, reason: str, peer: str, kind: str = "misbehavior") -> EventView:
        """Wait for the refusal in the events; it must stand in the log, and rounds must go on."""
        await eventually(lambda: self.refusals(reason, peer, kind))
        (event,) = self.refusals(reason, peer, kind)
        # The event is written a moment before its line.
        await eventually(lambda: self.logged(event, reason))
        await self.goes_on()
        return event

    def logged(self, event: EventView, reason: str) -> bool:
        lines = [line for line in self.log() if line["event"] == event.kind]
        return event.text in [line["text"] for line in lines if line.get("reason") == reason]

    def log(self) -> list[dict[str, Any]]:
        text = (self.target.center.state_dir / "log.jsonl").read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]  # the last line may be under way
        return [json.loads(line) for line in whole.splitlines()]

    async def goes_on(self) -> None:
        """From now on it commits two rounds, at least one of them with its companion."""
        before = self.target.last_round()

        def gone_on() -> bool:
            later = [entry.record for entry in self.target.reader.rounds(since=before)]
            partners = {partner.peer for record in later for partner in record.partners}
            return len(later) >= 2 and self.companion.center.id in partners

        await eventually(gone_on)
        assert self.target.exit_code is None


class Raw(Protocol):
    """Makes bare ZeroMQ clients of the target."""

    def __call__(self, keys: KeyPair, endpoint: str | None = None) -> zmq.Socket[bytes]: ...


def peak_memory(process: CenterProcess) -> float:
    """Bytes that the process has ever had in memory at once."""
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return next(1024.0 * int(x.split()[1]) for x in status.splitlines() if x.startswith("VmHWM"))


async def introduced(player: Player) -> None:
    """Say hello as a good member does, and be welcomed."""
    player.say(player.hello())
    await eventually(lambda: player.of(Hello))
