"""Address hints from the roster and from a shared folder."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from abps_node.config import Member
from abps_node.discovery.cards import MAX_CARD_BYTES
from abps_node.discovery.directory import DirectoryDiscovery
from abps_node.discovery.static import StaticDiscovery
from abps_node.errors import TransportError
from abps_node.keys import generate
from tests.support.stations import eventually

ROSTER = tuple(Member(id=name, public_key=generate().public) for name in ("a", "b", "c"))
KEYS = {member.id: member.public_key for member in ROSTER}


def discovery(folder: Path, center: str) -> DirectoryDiscovery:
    return DirectoryDiscovery(folder, ROSTER, center, poll_s=0.005)


def card(name: str, **values: object) -> str:
    content: dict[str, object] = {
        "version": 1,
        "id": name,
        "public_key": KEYS.get(name, ""),
        "address": "tcp://127.0.0.1:7001",
        "incarnation": 1,
    }
    return json.dumps(content | values)


@asynccontextmanager
async def watching(
    watch: Callable[[Callable[..., None]], object],
) -> AsyncIterator[list[tuple[str, str]]]:
    """What a discovery reports, while it runs."""
    found: list[tuple[str, str]] = []

    def report(center: str, address: str) -> None:
        found.append((center, address))

    task = asyncio.ensure_future(watch(report))  # type: ignore[arg-type]
    try:
        yield found
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_centers_find_each_other_and_changes(tmp_path: Path) -> None:
    a, b = discovery(tmp_path, "a"), discovery(tmp_path, "b")
    await a.announce("tcp://127.0.0.1:7001", 1)
    async with watching(a.watch) as seen_by_a, watching(b.watch) as seen_by_b:
        await eventually(lambda: seen_by_b == [("a", "tcp://127.0.0.1:7001")])
        await b.announce("tcp://[::1]:7002", 3)
        await eventually(lambda: seen_by_a == [("b", "tcp://[::1]:7002")])
        await a.announce("tcp://icu.example.org:7003", 2)
        await eventually(lambda: seen_by_b[1:] == [("a", "tcp://icu.example.org:7003")])
    content = json.loads((tmp_path / "a.json").read_text())
    assert content == {
        "version": 1,
        "id": "a",
        "public_key": KEYS["a"],
        "address": "tcp://icu.example.org:7003",
        "incarnation": 2,
    }
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


async def test_what_is_no_card_is_reported_once_and_harms_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "b.json").write_text("{ not json")
    (tmp_path / "stranger.json").write_text(card("stranger", public_key=KEYS["b"]))
    (tmp_path / "README").write_text("hello")
    (tmp_path / "folder").mkdir()
    (tmp_path / ".c.77.partial").write_text("being written")
    a = discovery(tmp_path, "a")
    looks = 0
    look = a.readable

    def counted() -> object:
        nonlocal looks
        looks += 1
        return look()

    a.readable = counted  # type: ignore[method-assign, assignment]
    with caplog.at_level(logging.WARNING):
        async with watching(a.watch) as found:
            await eventually(lambda: looks >= 5)
            assert not found
            (tmp_path / "b.json").write_text(card("b"))
            await eventually(lambda: found == [("b", "tcp://127.0.0.1:7001")])
    told = sorted(record.message.split(": ")[0] for record in caplog.records)
    expected = [str(tmp_path / name) for name in ("README", "b.json", "folder", "stranger.json")]
    assert told == sorted(expected)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "JSON"),
        ("[]", "object"),
        (card("a"), "id: found 'a', allowed: the name of the file"),
        (card("b", public_key=KEYS["c"]), "public_key: found .*, allowed: the roster's"),
        (card("b", public_key="short"), "public_key"),
        (card("b", address="tcp://127.0.0.1:0"), "address"),
        (card("b", address="tcp://*:7001"), "address"),
        (card("b", address="ipc:///etc/passwd"), "address"),
        (card("b", address="tcp://127.0.0.1:7001;evil"), "address"),
        (card("b", incarnation=0), "incarnation"),
        (card("b", incarnation="1"), "incarnation"),
        (card("b", version=2), "version"),
        (card("b", more=1), "more"),
        (card("b", address="x" * MAX_CARD_BYTES), f"more than {MAX_CARD_BYTES} bytes"),
    ],
)
def test_bad_cards_say_why(tmp_path: Path, content: str, problem: str) -> None:
    (tmp_path / "b.json").write_text(content)
    sighting = discovery(tmp_path, "a").readable()[0]
    assert (sighting.center, sighting.address) == ("b", None)

    assert re.search(problem, sighting.problem), sighting.problem
    assert str(tmp_path / "b.json") in sighting.problem


def test_links_pipes_and_folders_are_no_cards(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text(card("b"))
    (tmp_path / "b.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "c.json")
    link, pipe = discovery(tmp_path, "a").readable()
    assert "found a link" in link.problem
    assert "found no regular file" in pipe.problem
    (tmp_path / "c.json").unlink()
    (tmp_path / "c.json").mkdir()
    assert discovery(tmp_path, "a").readable()[1].address is None


async def test_a_planted_link_leads_no_card_astray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = tmp_path / "cards"
    folder.mkdir()
    (folder / f".a.{os.getpid()}.partial").symlink_to(precious)
    await discovery(folder, "a").announce("tcp://127.0.0.1:7001", 1)
    assert json.loads((folder / "a.json").read_text())["id"] == "a"
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (folder / ".b.guessed.partial").symlink_to(precious)
    with pytest.raises(TransportError, match="cannot be announced"):
        await discovery(folder, "b").announce("tcp://127.0.0.1:7002", 1)
    assert precious.read_text() == "mine"


def test_one_look_tells_of_everybody_else(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(card("b"))
    found = discovery(tmp_path, "a").readable()
    assert [(s.center, s.address) for s in found] == [("b", "tcp://127.0.0.1:7001"), ("c", None)]
    assert found[0].problem == "" and "c.json: missing" in found[1].problem


async def test_a_folder_that_goes_away_and_comes_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "cards"
    a, b = discovery(folder, "a"), discovery(folder, "b")
    await a.announce("tcp://127.0.0.1:7001", 1)
    await b.announce("tcp://127.0.0.1:7002", 1)
    async with watching(a.watch) as found:
        await eventually(lambda: found)
        (folder / "a.json").unlink()
        await eventually((folder / "a.json").exists)
        folder.rename(tmp_path / "moved")
        await eventually((folder / "a.json").exists)
        await b.announce("tcp://127.0.0.1:7003", 2)
        await eventually(lambda: ("b", "tcp://127.0.0.1:7003") in found)


async def test_withdrawing_removes_the_own_card_only(tmp_path: Path) -> None:
    old, new = discovery(tmp_path, "a"), discovery(tmp_path, "a")
    await old.withdraw()
    await old.announce("tcp://127.0.0.1:7001", 1)
    await new.announce("tcp://127.0.0.1:7002", 2)
    await old.withdraw()
    assert (tmp_path / "a.json").exists()
    await new.withdraw()
    assert not list(tmp_path.iterdir())
    await new.withdraw()


async def test_announcing_what_nobody_can_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match=r"found tcp://0\.0\.0\.0:1 to announce"):
        await discovery(tmp_path, "a").announce("tcp://0.0.0.0:1", 1)
    nowhere = tmp_path / "not mounted" / "cards"
    with pytest.raises(TransportError, match=f"{nowhere}: .*No such file"):
        await discovery(nowhere, "a").announce("tcp://127.0.0.1:1", 1)


async def test_static_addresses_come_from_the_roster() -> None:
    roster = (
        ROSTER[0],
        Member(id="b", public_key=KEYS["b"], address="tcp://b.example.org:5555"),
        ROSTER[2],
    )
    static = StaticDiscovery(roster, "a")
    await static.announce("tcp://127.0.0.1:1", 1)
    async with watching(static.watch) as found:
        await eventually(lambda: found)
        assert found == [("b", "tcp://b.example.org:5555")]
    await static.withdraw()
    known, unknown = static.readable()
    assert (known.address, known.problem) == ("tcp://b.example.org:5555", "")
    assert unknown.address is None and "address: missing" in unknown.problem
