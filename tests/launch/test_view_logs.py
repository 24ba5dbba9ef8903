"""The logs of all centers as one: by time, of some centers, since a time, like a pattern."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.cli.read_logs import Entry, Filter
from abps_node.errors import ConfigError
from launch.layout import FederationLayout
from launch.view.logs import Line, merged, since_time, timed, wanted_lines
from tests.support.command_line import abps
from tests.support.layouts import small_federation

NOON = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
NAMES = st.sampled_from(["met", "suspect", "round", "é"])


def entry(second: float, text: str, **more: object) -> Entry:
    time = (NOON + timedelta(seconds=second)).isoformat(timespec="milliseconds")
    return {"time": time.replace("+00:00", "Z"), "level": "info", "text": text, **more}


STREAMS = st.lists(
    st.lists(st.tuples(st.integers(0, 50), NAMES, st.booleans()), max_size=8), max_size=5
)


def made(streams: Sequence[Sequence[tuple[int, str, bool]]]) -> list[list[Line]]:
    """A stream per center; a line that is torn has no time."""
    found = []
    for place, stream in enumerate(streams):
        entries = [{"text": text} if torn else entry(at, text) for at, text, torn in stream]
        found.append(list(timed(f"c{place}", entries)))
    return found


@given(STREAMS)
def test_all_lines_by_time_and_each_center_in_its_own_order(
    streams: list[list[tuple[int, str, bool]]],
) -> None:
    lines = made(streams)
    whole = list(merged(lines))
    assert [line.at for line in whole] == sorted(line.at for line in whole)
    for place, own in enumerate(lines):
        assert [line for line in whole if line.center == f"c{place}"] == own


@given(STREAMS, NAMES)
def test_grep_keeps_exactly_what_is_shown_with_it(
    streams: list[list[tuple[int, str, bool]]], word: str
) -> None:
    wanted = Filter("debug", word)
    for line in merged(made(streams)):
        assert wanted.wants(line.entry) == (re.search(word, line.text(3)) is not None)


def test_a_clock_that_steps_back_does_not_reorder_a_center() -> None:
    lines = list(timed("c", [entry(5, "a"), entry(1, "b"), {"text": "torn"}, entry(7, "c")]))
    assert [line.at - NOON.timestamp() for line in lines] == [5, 5, 5, 7]


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("10m", 600), ("1.5 min", 90), ("2h", 7200), ("1d", 86400)]
)
def test_since_a_span(text: str, seconds: float) -> None:
    assert since_time(text, 100_000.0) == 100_000.0 - seconds


def test_since_a_time_of_day_is_the_last_one() -> None:
    now = datetime(2026, 11, 30, 12, 0, 0)
    then = datetime.fromtimestamp(since_time("11:30", now.timestamp()))
    assert then == datetime(2026, 11, 30, 11, 30)
    then = datetime.fromtimestamp(since_time("13:00:05", now.timestamp()))
    assert then == datetime(2026, 11, 29, 13, 0, 5)


def test_since_a_date() -> None:
    assert since_time("2026-11-30T12:00:00+00:00", 0.0) == NOON.timestamp()


@pytest.mark.parametrize("text", ["", "soon", "25:00", "12:61", "5 weeks", "2026-13-01", "9" * 400])
def test_since_nonsense_is_one_clear_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--since: found .*, allowed: 10m"):
        since_time(text, 0.0)


# The command ------------------------------------------------------------------------------------


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    layout = small_federation(tmp_path / "fed", ["far", "near", "quiet"])
    for center, seconds in zip(layout.centers[:2], ((1, 4), (2, 3)), strict=True):
        center.state_dir.mkdir()
        lines = [entry(at, f"{center.id} says {at}", center=center.id) for at in seconds]
        torn = '{"time": "2026-11-30T12:00:0'
        text = "".join(json.dumps(line) + "\n" for line in lines) + torn + "\n"
        (center.state_dir / "log.jsonl").write_text(text)
    return layout


def said(out: str) -> list[str]:
    return re.findall(r"(?:far|near) says \d", out)


def test_lines_of_all_centers(layout: FederationLayout) -> None:
    outcome = abps("launch", "logs", layout.directory)
    assert said(outcome.out) == ["far says 1", "near says 2", "near says 3", "far says 4"]
    assert outcome.out.count('{"time": "2026-11-30T12:00:0') == 2, "torn lines are shown"
    first = outcome.out.splitlines()[0]
    assert first.endswith("  info     far    far says 1")
    assert outcome.err == "1 of 3 have no log yet: quiet\n"


def test_some_centers_and_lines(layout: FederationLayout) -> None:
    run = layout.directory
    assert said(abps("launch", "logs", run, "--center", "near").out) == [
        "near says 2", "near says 3",
    ]  # fmt: skip
    assert said(abps("launch", "logs", run, "--grep", "says [14]").out) == [
        "far says 1", "far says 4",
    ]  # fmt: skip
    newest = abps("launch", "logs", run, "--grep", "says", "--last", "2")
    assert said(newest.out) == ["near says 3", "far says 4"]
    since = abps("launch", "logs", run, "--since", "2026-11-30T12:00:03+00:00")
    assert said(since.out) == ["near says 3", "far says 4"]


def test_json_of_all_names_the_center_of_every_line(layout: FederationLayout) -> None:
    found = json.loads(abps("launch", "logs", layout.directory, "--json").out)["log"]
    assert [each["center"] for each in found].count("near") == 3


def test_a_center_that_is_not_there(layout: FederationLayout) -> None:
    outcome = abps("launch", "logs", layout.directory, "--center", "nobody")
    assert outcome.code == 1
    assert "found no center 'nobody', allowed: far, near, quiet" in outcome.err
    assert "--grep: found '('" in abps("launch", "logs", layout.directory, "--grep", "(").err


def test_followed_lines_come_by_time_and_later_logs_too(
    layout: FederationLayout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from launch.view import logs

    quiet = layout.centers[2]
    looks = []

    def later(_: float) -> None:
        looks.append(1)
        if len(looks) == 2:
            raise KeyboardInterrupt
        quiet.state_dir.mkdir()
        line = entry(9, "near says 9", center="quiet")
        (quiet.state_dir / "log.jsonl").write_text(json.dumps(line) + "\n")

    monkeypatch.setattr("launch.view.logs.time.sleep", later)
    with pytest.raises(KeyboardInterrupt):
        logs.follow(layout.centers, Filter("debug", "says"), NOON.timestamp() + 2.5, 5, False)
    out = capsys.readouterr().out
    assert said(out) == ["near says 3", "far says 4", "near says 9"]


def test_logs_that_are_wanted_are_read_lazily(layout: FederationLayout) -> None:
    lines, silent = wanted_lines(layout.centers, Filter("warning", None), None)
    assert silent == ["quiet"]
    assert all("time" not in line.entry for line in lines), "torn ones are of no level"
