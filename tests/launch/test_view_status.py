"""Every center in a line whatever its state is like, those that need somebody first."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from launch.layout import FederationLayout
from launch.view import status
from launch.view.attention import Level
from launch.view.watch import watched
from tests.support import half_dead as made
from tests.support.command_line import abps
from tests.support.layouts import small_federation


@pytest.fixture
def layout(tmp_path: Path) -> Iterator[FederationLayout]:
    layout = made.half_dead(tmp_path / "fed")
    with made.holding(next(c for c in layout.centers if c.id == "held")):
        yield layout


def shown(overview: status.Overview, width: int = 160, height: int | None = None) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    console.print(status.render(overview, console, everyone=False, height=height))
    return out.getvalue()


def test_every_kind_of_trouble_has_its_level_and_the_others_are_shown(
    layout: FederationLayout,
) -> None:
    overview = status.collect(layout, time.time())
    assert [(row.look.id, row.attention.level) for row in overview.rows] == [
        ("broken", Level.UNREADABLE),
        ("held", Level.UNREADABLE),
        ("dead", Level.DEAD),
        ("stopped", Level.STOPPED),
        ("absent", Level.ABSENT),
        ("lonely", Level.LONELY),
        ("choosy", Level.FINE),
        ("done", Level.DONE),
    ]
    reasons = {row.look.id: row.attention.reason for row in overview.rows}
    assert "is damaged or not a state file" in reasons["broken"]
    assert "another process has held the file" in reasons["held"]
    assert re.fullmatch(
        r"died .* ago in phase gathering of round 4; process \d+ is gone; "
        r"last words: Killed \\x1b\[31mby nobody",
        reasons["dead"],
    )
    assert reasons["stopped"] == "stopped on request after round 2"
    assert reasons["absent"] == "never started"
    assert reasons["lonely"] == "no partner for 4 rounds, now no-peers"
    assert reasons["choosy"] == reasons["done"] == "", "chosen isolation is no trouble"


def test_people_see_reasons_first_and_then_a_line_each(layout: FederationLayout) -> None:
    text = shown(status.collect(layout, time.time()))
    lines = text.splitlines()
    assert lines[0].startswith("made: 8 centers, rounds 2 to 4 of 9 · 2 unreadable, 1 dead, ")
    assert lines[1] == "6 centers need attention:"
    assert "\x1b" not in text
    (done,) = [line for line in lines if line.startswith("done ")]
    assert re.split(r"  +", done.strip())[:7] == [
        "done", "finished", "3/9", "–", "1 all-busy", "0.700", "0.600 → 0.650",
    ]  # fmt: skip
    (choosy,) = [line for line in lines if line.startswith("choosy ")]
    assert re.split(r"  +", choosy.strip())[1:5] == ["gathering", "4/9", "–", "4 below-threshold"]


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_narrow_terminal_cuts_nothing_of_what_is_needed(
    layout: FederationLayout, width: int
) -> None:
    overview = status.collect(layout, time.time())
    lines = shown(overview, width).splitlines()
    assert max(map(len, lines)) <= width
    (heading,) = [line for line in lines if line.split()[:2] == ["center", "state"]]
    legend = " ".join(lines)
    assert "Seen: " in legend
    assert ("Bytes: " in legend) == (" bytes " in heading)
    assert ("Validation: " in legend) == (" validation " in heading)
    assert {line.split()[0] for line in lines if line and line.split()[0] in made.CENTERS} == set(
        made.CENTERS
    )


def test_json_holds_all_of_it(layout: FederationLayout) -> None:
    outcome = abps("launch", "status", layout.directory, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert (found["federation"], found["needs_somebody"]) == ("made", 6)
    assert found["states"] == {
        "unreadable": 2, "dead": 1, "stopped": 1, "not started": 1, "running": 2, "finished": 1,
    }  # fmt: skip
    centers = {each["id"]: each for each in found["centers"]}
    done = centers["done"]
    assert done["isolated"] == {"all-busy": 1}
    assert [done["test"][name]["auroc"] for name in ("alone", "federated")] == [0.6, 0.65]
    assert done["sent_bytes"] == 120_900
    assert centers["absent"]["seen"] is None and "phase" not in centers["absent"]
    assert "damaged" in centers["broken"]["problem"]


def test_a_center_elsewhere_that_says_nothing_is_silent(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", ["near", "far"], rounds=9)
    for center in layout.centers:
        made.write(center, made.some(center, 2), pid=1)
    far, near = layout.centers
    made.elsewhere(far, silent_s=3600.0)
    made.elsewhere(near, silent_s=5.0)
    rows = status.collect(layout, time.time()).rows
    assert [(row.look.id, row.attention.level) for row in rows] == [
        ("far", Level.SILENT),
        ("near", Level.FINE),
    ]
    assert rows[0].attention.reason == "no sign of life on far-away for 60 min"


def test_nothing_has_begun(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", rounds=9)
    text = shown(status.collect(layout, time.time()))
    assert "2 centers, no round of 9 · 2 not started" in text
    assert "  far, near: never started\n" in text


def test_a_finished_center_without_its_reports_is_named(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", rounds=9)
    far, near = layout.centers
    made.write(far, made.finished(far), reports=("federated",))
    made.write(near, made.finished(near), reports=("federated", "alone"))
    rows = status.collect(layout, time.time()).rows
    assert rows[0].attention.reason == (
        "finished, without its test report (alone); start it again to measure"
    )
    assert rows[1].attention.level is Level.DONE


def test_of_many_the_most_urgent_are_listed(tmp_path: Path) -> None:
    names = [f"c{number:03d}" for number in range(60)]
    layout = small_federation(tmp_path / "fed", names, rounds=9)
    begin = time.monotonic()
    overview = status.collect(layout, time.time())
    text = shown(overview)
    assert time.monotonic() - begin < 20.0
    assert "… and 30 centers more; --all lists them." in text
    assert "c000, c001, c002, c003, c004, c005, c006, c007 and 52 more: never started" in text
    assert len(abps("launch", "status", layout.directory, "--all").out.splitlines()) > 60


@pytest.mark.parametrize("height", [12, 24, 50])
def test_a_screen_is_not_overrun(layout: FederationLayout, height: int) -> None:
    overview = status.collect(layout, time.time())
    lines = shown(overview, width=200, height=height).splitlines()
    assert len(lines) <= max(height, 14)
    assert any("is damaged" in line for line in lines), "the most urgent is there"


def test_watching_ends_when_all_have_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = small_federation(tmp_path / "fed", rounds=9)
    far, near = layout.centers
    made.write(far, made.finished(far), reports=("federated", "alone"))

    def later(_: float) -> None:
        made.write(near, made.finished(near), reports=("federated", "alone"))

    monkeypatch.setattr("launch.view.watch.time.sleep", later)
    console = Console(file=io.StringIO(), width=120)
    watched(lambda: status.collect(layout, time.time()), console, everyone=False, as_json=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["states"] == {"not started": 1, "finished": 1}
    assert second["states"] == {"finished": 2}


def test_a_terminal_is_drawn_over(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", rounds=9)
    for center in layout.centers:
        made.write(center, made.finished(center), reports=("federated", "alone"))
    out = io.StringIO()
    console = Console(file=out, width=120, height=30, force_terminal=True)
    watched(lambda: status.collect(layout, time.time()), console, everyone=False, as_json=False)
    assert "\x1b[?1049l" in out.getvalue(), "the screen is given back"
    assert "Nobody needs attention." in out.getvalue().rpartition("\x1b[?1049l")[2]


def test_a_directory_that_is_no_federation(tmp_path: Path) -> None:
    for command in ("status", "isolation", "logs", "report", "stop"):
        outcome = abps("launch", command, tmp_path)
        assert outcome.code == 1
        assert outcome.err.startswith(f"abps: {tmp_path}: not a federation directory")
        assert outcome.err.count("\n") == 1
