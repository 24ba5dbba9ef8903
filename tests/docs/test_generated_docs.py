"""What of the documentation follows from the code is what the code says now."""

from __future__ import annotations

import importlib
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest

from protocol import codec
from protocol import messages as m
from protocol.session import TRANSITIONS, Input, State

DOCS = Path(__file__).parents[2] / "docs"
Load = Callable[[str], ModuleType]
NAMES = ["protocol.md", "reproduction-fedcare.md", "round.svg", "session.svg", "settlement.svg"]


@pytest.fixture(scope="module")
def load() -> Iterator[Load]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(DOCS))
        yield importlib.import_module


@pytest.fixture(scope="module")
def generate(load: Load) -> ModuleType:
    return load("generate")


@pytest.fixture(scope="module")
def sessions(load: Load) -> ModuleType:
    return load("generator.sessions")


@pytest.fixture(scope="module")
def wire(load: Load) -> ModuleType:
    return load("generator.wire")


@pytest.fixture(scope="module")
def rendered(generate: ModuleType) -> dict[str, str]:
    pages: dict[str, str] = generate.rendered()
    return pages


@pytest.mark.parametrize("name", NAMES)
def test_committed_file_is_up_to_date(rendered: dict[str, str], name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")
    assert committed == rendered[name], "run: make docs"


def test_every_module_stands_on_the_architecture_page(rendered: dict[str, str]) -> None:
    """Its words may lag behind the docstrings until the next `make docs`."""
    committed = (DOCS / "architecture.md").read_text(encoding="utf-8")
    rows = re.compile(r"^\| `([^`]+)` \|", re.MULTILINE)
    assert rows.findall(committed) == rows.findall(rendered["architecture.md"]), "run: make docs"


def test_every_generated_file_is_compared(rendered: dict[str, str]) -> None:
    assert sorted(rendered) == ["architecture.md", *NAMES]


def test_a_missing_block_is_named(generate: ModuleType, tmp_path: Path) -> None:
    for name in ["architecture.md", *NAMES]:
        text = (DOCS / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("<!-- end states -->", ""), encoding="utf-8")
    with pytest.raises(LookupError, match="'states': found 0 times"):
        generate.rendered(tmp_path)


def test_pictures_hold_every_state_and_input(sessions: ModuleType) -> None:
    pictures = sessions.life_picture() + sessions.settlement_picture()
    for word in [*State, *Input]:
        assert f">{word}</text>" in pictures


def test_arrows_come_from_the_table(sessions: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sessions.life_picture()
    fewer = {pair: end for pair, end in TRANSITIONS.items() if pair[1] is not Input.CROSS}
    monkeypatch.setattr(sessions, "TRANSITIONS", MappingProxyType(fewer))
    assert ">cross</text>" in whole
    assert ">cross</text>" not in sessions.life_picture()


def test_a_state_without_a_place_is_an_error(
    sessions: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sessions._LIFE, State.CROSSED)
    with pytest.raises(KeyError):
        sessions.life_picture()


def test_every_message_has_a_section(wire: ModuleType) -> None:
    assert [type(example) for example in wire.EXAMPLES] == list(m.MESSAGE_KINDS.values())
    section = wire.messages_section()
    for kind in m.MESSAGE_KINDS:
        assert f"#### `{kind}`" in section


def test_the_frame_is_taken_apart_as_the_codec_puts_it_together(wire: ModuleType) -> None:
    frame = codec.encode(m.Ping(1))
    assert struct.calcsize(wire._PREFIX) + struct.unpack_from(wire._PREFIX, frame)[2] == len(frame)
    shown = "".join(line[:42].replace(" ", "") for line in wire.ping_dump().splitlines()[1:-1])
    assert bytes.fromhex(shown) == frame


def test_bounds_are_read_off_the_checks(wire: ModuleType) -> None:
    section = wire.messages_section()
    assert f"text of at most {m.MAX_TEXT} characters" in section
    assert f"1 to {m.MAX_SESSIONS_PER_MESSAGE} sessions" in section
    assert f"1 to {m.MAX_CARD} numbers" in section
    with pytest.raises(AssertionError, match="takes anything"):
        wire.allowed(lambda: m.Ping(1))
