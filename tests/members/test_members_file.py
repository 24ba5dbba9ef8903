"""The file of changes: no change is lost, a damaged one changes nothing, the daemon heeds each."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from abps_node import members as members_module
from abps_node.errors import ConfigError
from abps_node.keys import generate
from abps_node.members import Members
from abps_node.members_edit import add_member, ask_to_leave, revoke_keys
from abps_node.members_file import append_change, current_membership, read_changes
from abps_node.membership import Change
from protocol import events as ev
from protocol.agenda import CALM_TICK_S
from protocol.effects import Effect, Note
from protocol.node import Node
from tests.support.residents import Residents, eventually
from tests.support.wards import ward_federation


def test_of_many_commands_at_once_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "members.json"
    made = [
        Change(at=1.0, action="add", id=f"c{number}", public_key=generate().public)
        for number in range(24)
    ]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda change: append_change(path, change), made))
    assert sorted(change.id for change in read_changes(path)) == sorted(c.id for c in made)
    assert [each.name for each in tmp_path.iterdir()] == ["members.json"]


class Skin:
    """What the daemon does with the news, written down."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.notes: list[Note] = []
        self.found: list[tuple[str, str | None]] = []
        self.roster: Mapping[str, Any] = {}

    def set_roster(self, roster: Mapping[str, Any]) -> None:
        self.roster = roster

    def admit(self, members: Mapping[str, Any], own_key: str) -> None:
        assert members == self.roster and own_key


@pytest.fixture
async def skin() -> Skin:
    return Skin()


async def test_each_change_is_heeded_once_and_damage_changes_nothing(
    tmp_path: Path, skin: Skin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(members_module, "LOOK_S", 0.0)
    layout = ward_federation(tmp_path, ["amber", "birch", "cedar"])
    config = layout.centers[0]
    members = Members(config)

    async def announced() -> None:
        raise AssertionError("the own key has not changed")

    watching = asyncio.create_task(
        members.watch(
            skin,  # type: ignore[arg-type]
            skin,  # type: ignore[arg-type]
            skin.events.append,
            lambda *news: skin.found.append(news),
            skin.notes.append,
            announced,
        )
    )

    async def after(count: int) -> list[ev.Event]:
        def there() -> bool:
            members.glance()
            return len(skin.events) + len(skin.notes) >= count

        await eventually(there)
        assert len(skin.events) + len(skin.notes) == count
        return skin.events

    revoke_keys(config, None, "cedar")
    assert (await after(1))[-1] == ev.MemberRevoked("cedar")
    assert set(skin.roster) == {"amber", "birch"}
    good = config.members.read_bytes()
    config.members.write_bytes(good[:40])
    await after(2)
    assert [note.kind for note in skin.notes] == ["members-unreadable"]
    with pytest.raises(ConfigError, match=r"members\.json: "):
        current_membership(config)
    assert set(members.now.keys) == {"amber", "birch"}
    config.members.write_bytes(good)
    key, address = generate().public, "tcp://west.example:5555"
    add_member(config, "west", key, address, None)
    assert (await after(3))[-1] == ev.MemberAdded("west")
    assert skin.found == [("west", address)] and set(skin.roster) == {"amber", "birch", "west"}
    add_member(config, "west", generate().public, None, "1s")
    await after(4)
    assert len(skin.roster["west"]) == 2
    await after(5)
    assert len(skin.roster["west"]) == 1 and key not in skin.roster["west"]
    ask_to_leave(config)
    stop = (await after(6))[-1]
    assert isinstance(stop, ev.StopRequested) and stop.leave
    watching.cancel()
    await asyncio.wait([watching])
    # What was asked of an earlier start is no reason for the next one to leave.
    assert [c.action for c in read_changes(config.members)][-1] == "leave"
    assert set(Members(config).now.keys) == {"amber", "birch", "west"}


async def test_a_running_daemon_looks_at_every_tick_so_within_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However busy or idle it is: the slowest tick and the least time between looks add up."""
    assert CALM_TICK_S + members_module.LOOK_S < 1.0
    counted: Counter[str] = Counter()
    glance, handle = Members.glance, Node.handle

    def counted_glance(self: Members) -> None:
        counted["glances"] += 1
        glance(self)

    def counted_handle(self: Node, event: ev.Event, now: float) -> list[Effect]:
        counted["ticks"] += isinstance(event, ev.Tick)
        return handle(self, event, now)

    monkeypatch.setattr(Members, "glance", counted_glance)
    monkeypatch.setattr(Node, "handle", counted_handle)
    residents = Residents()
    residents.start(ward_federation(tmp_path, ["amber", "birch"]).centers[0])
    try:
        await eventually(lambda: counted["ticks"] >= 5)
        assert counted["glances"] >= counted["ticks"] - 1
    finally:
        await residents.close()
