"""What people wrote holds: links lead somewhere, commands and words exist, numbers are right."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from abps_node.cli.main import app
from abps_node.transport import overhead
from protocol import codec, messages, trunk
from protocol.beliefs import Belief, ucb
from protocol.messages import RefuseReason, Reject
from protocol.record import RestCause

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/*.md")]
)


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def flat(name: str) -> str:
    return " ".join(text_of(name).split())


def anchors(page: Path) -> set[str]:
    """The names that a heading gets on the usual viewers."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(words.replace(" ", "-"))
    return found


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for target in links(page):
        name, _, anchor = target.partition("#")
        file = (page.parent / name) if name else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file), f"{page.name}: {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_exist(page: Path) -> None:
    group = typer.main.get_command(app)
    known = set(group.commands)  # type: ignore[attr-defined]
    for word in re.findall(r"(?:`|\$ )abps ([a-z]+)", page.read_text(encoding="utf-8")):
        assert word in known, f"{page.name}: abps {word}"


@pytest.mark.parametrize("page", ["README.md", "docs/protocol.md"])
def test_every_rest_cause_is_explained(page: str) -> None:
    for cause in RestCause:
        assert f"| `{cause}` |" in text_of(page)


@pytest.mark.parametrize("word", [*Reject, *RefuseReason])
def test_every_reason_that_a_peer_reads_is_explained(word: str) -> None:
    assert f"| `{word}` |" in text_of("docs/protocol.md")


@pytest.mark.parametrize("module", [codec, messages, trunk])
def test_every_reason_of_a_refused_frame_or_trunk_is_named(module: object) -> None:
    source = inspect.getsource(module)  # type: ignore[arg-type]
    reasons = re.findall(r'(?:Frame|Message|Trunk)Error\(\s*"([a-z-]+)"', source)
    assert reasons
    for reason in reasons:
        assert f"`{reason}`" in text_of("docs/protocol.md")


def code_bullets() -> list[str]:
    return re.findall(r"\*\*Code:\*\*((?:.|\n(?!-|\n|#))+)", text_of("docs/decisions.md"))


def test_decisions_point_at_code_that_exists() -> None:
    assert len(code_bullets()) > 20
    for bullet in code_bullets():
        names = re.findall(r"`([^`]+)`", bullet)
        folder, sources = ROOT, []
        for name in (name for name in names if "/" in name or name.endswith(".py")):
            folder = (ROOT / name).parent if "/" in name else folder
            path = folder / Path(name).name if not name.endswith("/") else ROOT / name
            assert path.exists(), f"{name} in «{bullet.strip()}»"
            sources += [path.read_text(encoding="utf-8")] if path.is_file() else []
        for word in (name for name in names if name.isidentifier()):
            defined = re.compile(rf"^\s*(?:def |class )?{word}\b", re.MULTILINE)
            assert any(defined.search(source) for source in sources), f"{word} in «{bullet}»"


def worst_bound(t: int, gamma: float) -> float:
    """UCB of a peer that was partner in every earlier round and always earned credit 0."""
    return ucb(Belief(1.0, t, t - 1), t, gamma)


def first_rest(gamma: float) -> int:
    return next(t for t in range(1, 1000) if worst_bound(t, gamma) < 0.5)


def test_what_is_said_of_the_defaults() -> None:
    page = flat("docs/decisions.md")
    gamma = math.sqrt(2)
    first = first_rest(gamma)
    assert f"Nothing can fall below τ_acc before round {first}." in page
    before, then = worst_bound(first - 1, gamma), worst_bound(first, gamma)
    assert f"{before:.4f} in round {first - 1} and {then:.4f} in round {first}" in page
    others = [first_rest(gamma) for gamma in (1.0, 0.5, 0.1)]
    told = "With γ = 1 the first such round is {}, with γ = 0.5 it is {}, with γ = 0.1 it is {}."
    assert told.format(*others) in page


def test_fewer_observations_never_bound_lower_than_the_worst_case() -> None:
    gamma = math.sqrt(2)
    for t in range(2, 74):
        bounds = [ucb(Belief(1.0, 1.0 + n, n), t, gamma) for n in range(t)]
        assert min(bounds) == worst_bound(t, gamma)


def test_a_peer_never_tried_outranks_every_other() -> None:
    gamma = math.sqrt(2)
    for t in range(2, 230):
        best = max(ucb(Belief(1.0 + n, 1.0, n), t, gamma) for n in range(1, t))
        assert ucb(Belief(), t, gamma) > best


def test_what_is_said_of_bytes() -> None:
    page = text_of("docs/protocol.md")
    assert f"flags 1 | {overhead.CURVE_MESSAGE_BYTES} |" in page
    client = overhead.CURVE_CLIENT_HANDSHAKE_BYTES
    assert f"| {client} / {overhead.CURVE_SERVER_HANDSHAKE_BYTES} |" in page
    assert overhead.wire_bytes(1000, curve=True) == 1000 + 33 + 9
    assert overhead.wire_bytes(100, curve=True) == 100 + 33 + 2
    assert f"at most {codec.MAX_HEADER:,} |" in page
