"""The table per center: figures from the stores, and no winner where intervals overlap."""

from __future__ import annotations

import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from abps_node.config import CenterConfig
from abps_node.store import Store
from launch import cli, summary
from launch.layout import FederationLayout
from launch.summary import Auroc, CenterSummary, summarize
from protocol.effects import CommitRound
from protocol.record import RestCause
from tests.support.half_dead import damage
from tests.support.layouts import small_federation
from tests.support.records import Chronicle


def report(auroc: float | None, low: float | None, high: float | None) -> dict[str, object]:
    return {"rows": 60, "events": 15, "auroc": auroc, "auroc_low": low, "auroc_high": high}


def ran(center: CenterConfig, alone: dict[str, object], federated: dict[str, object]) -> None:
    """A finished state with two partners, two kinds of rest, traffic and both reports."""
    chronicle = Chronicle(center.id, center.federation.contract, peers=("p", "q", "r"))
    commits: list[CommitRound] = [
        chronicle.with_partners({"p": 0.05, "q": None}),
        chronicle.with_partners({"p": 0.01, "r": -0.02}),
        chronicle.resting(RestCause.BELOW_THRESHOLD),
        chronicle.resting(RestCause.ALL_BUSY),
        chronicle.resting(RestCause.BELOW_THRESHOLD, finished=True),
    ]
    with Store.open(center.state_dir, center.id, center.federation.contract) as store:
        store.begin_incarnation()
        store.set_runtime("tcp://127.0.0.1:5555", 1)
        for commit in commits:
            store.commit_round(commit)
        store.add_traffic(
            {
                ("p", "out", "weights"): (2, 900_000, 1_000_000),
                ("r", "out", "propose"): (3, 400, 600),
                ("p", "in", "weights"): (2, 40_000, 50_000),
            }
        )
        store.save_report("alone", alone)
        store.save_report("federated", federated)


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    """«apart» gained, «both» cannot tell, «dead» never wrote a thing."""
    layout = small_federation(tmp_path / "fed", ["apart", "both", "dead"], rounds=5)
    ran(layout.centers[0], report(0.60, 0.50, 0.65), report(0.80, 0.70, 0.90))
    ran(layout.centers[1], report(0.70, 0.60, 0.80), report(0.75, 0.65, 0.85))
    return layout


def test_figures_of_a_center(layout: FederationLayout) -> None:
    apart = summarize(layout)[0]
    assert apart == CenterSummary(
        id="apart",
        finished=True,
        patients=40,
        test_rows=60,
        test_events=15,
        alone=Auroc(0.60, 0.50, 0.65),
        federated=Auroc(0.80, 0.70, 0.90),
        rounds=5,
        partners=("p", "r"),
        isolated={"below-threshold": 2, "all-busy": 1},
        sent_bytes=1_000_600,
        received_bytes=50_000,
    )


def test_a_center_that_never_wrote_is_a_row_too(layout: FederationLayout) -> None:
    dead = summarize(layout)[2]
    assert (dead.id, dead.finished, dead.rounds, dead.patients) == ("dead", False, 0, 40)
    assert dead.verdict is None and dead.problem is None


def test_a_damaged_state_is_not_taken_for_an_empty_one(layout: FederationLayout) -> None:
    damage(layout.centers[1])
    rows = summarize(layout)
    assert [row.problem is not None for row in rows] == [False, True, False]
    (line,) = [line for line in summary.remarks(rows) if line.startswith("both: ")]
    assert str(layout.centers[1].state_dir) in line and "damaged" in line


def center(alone: Auroc | None, federated: Auroc | None) -> CenterSummary:
    return CenterSummary("c", True, 9, 9, 3, alone, federated, 1, (), {}, 0, 0)


@pytest.mark.parametrize(
    ("alone", "federated", "verdict"),
    [
        (Auroc(0.6, 0.5, 0.7), Auroc(0.8, 0.71, 0.9), "federated"),
        (Auroc(0.6, 0.5, 0.7), Auroc(0.8, 0.70, 0.9), "overlap"),
        (Auroc(0.9, 0.8, 1.0), Auroc(0.6, 0.5, 0.7), "alone"),
        (Auroc(0.6, 0.5, 0.7), Auroc(0.6, 0.5, 0.7), "overlap"),
        (Auroc(None, None, None), Auroc(0.8, 0.7, 0.9), None),
        (Auroc(0.6, 0.5, 0.7), Auroc(None, None, None), None),
        (None, Auroc(0.8, 0.7, 0.9), None),
        (Auroc(0.6, 0.5, 0.7), None, None),
    ],
)
def test_a_winner_needs_intervals_that_are_apart(
    alone: Auroc | None, federated: Auroc | None, verdict: str | None
) -> None:
    assert center(alone, federated).verdict == verdict


def test_remarks_name_a_winner_only_where_there_is_one(layout: FederationLayout) -> None:
    text = "\n".join(summary.remarks(summarize(layout)))
    assert "In 1 of 2 centers the two intervals overlap: there this run names no winner." in text
    assert "Federated is higher, with the intervals apart: apart." in text
    assert "Alone is higher" not in text
    assert "6 rounds were spent without a partner, 4 of them intentionally" in text
    once = replace(center(None, None), isolated={"all-busy": 1})
    assert any(line.startswith("1 round was spent") for line in summary.remarks([once]))
    assert "Not finished: dead." in text


def shown(layout: FederationLayout, width: int = 120) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=True, color_system=None)
    console.print(summary.as_text(summarize(layout), console))
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


def test_the_table_shows_what_the_stores_hold(layout: FederationLayout) -> None:
    lines = shown(layout).splitlines()
    row = next(line for line in lines if line.startswith("apart"))
    after = lines[lines.index(row) + 1]
    assert re.split(r" {2,}", row.strip()) == [
        "apart", "40", "15 of 60", "0.600", "0.800", "5", "2", "2 below-threshold", "1.0 MB",
    ]  # fmt: skip
    assert re.split(r" {2,}", after.strip()) == [
        "0.50–0.65", "0.70–0.90", "1 all-busy", "50.0 kB",
    ]  # fmt: skip
    dead = next(line for line in lines if line.startswith("dead"))
    assert re.split(r" {2,}", dead.strip())[2:] == ["–", "–", "–", "0", "0", "none", "0.0 kB"]


def test_a_test_split_with_one_class_is_said(layout: FederationLayout) -> None:
    ran(layout.centers[2], report(None, None, None), report(None, None, None))
    assert re.search(r"one class +one class .*\n +only +only", shown(layout))


@pytest.mark.parametrize("width", [80, 100, 120])
def test_nothing_is_cut_on_a_terminal(tmp_path: Path, width: int) -> None:
    names = ["mosf-malignancy", "colon-cancer"]
    layout = small_federation(tmp_path / "fed", names, rounds=5)
    for each in layout.centers:
        ran(each, report(0.70, 0.60, 0.80), report(0.75, 0.65, 0.85))
    text = shown(layout, width)
    lines = text.splitlines()
    assert "…" not in text and max(map(len, lines)) <= width
    assert all(any(line.startswith(name) for line in lines) for name in names)
    for whole in ("2 below-threshold", "1 all-busy", "15 of 60", "0.60–0.80", "0.65–0.85"):
        assert text.count(whole) == len(names)
    assert ("Isolated rounds" in lines) == (width < 110)


def test_a_very_long_name_is_folded_not_cut(tmp_path: Path) -> None:
    name = "general-hospital-of-a-city-with-a-long-name"
    layout = small_federation(tmp_path / "fed", [name, "b"], rounds=5)
    for each in layout.centers:
        ran(each, report(0.70, 0.60, 0.80), report(0.75, 0.65, 0.85))
    lines = shown(layout, 80).splitlines()
    assert max(map(len, lines)) <= 80 and "0.65–0.85" in "".join(lines)
    row = next(number for number, line in enumerate(lines) if line.startswith(name[:8]))
    assert "".join(line.split(" ")[0] for line in lines[row : row + 3]) == name
    assert f"  {name}: 2 below-threshold, 1 all-busy" in lines


def test_most_isolated_center_is_worth_a_look(layout: FederationLayout) -> None:
    rows = summarize(layout)
    command, where = summary.worth_a_look(layout, rows)
    assert (command, where) == ("isolation", str(layout.directory / "centers" / "apart"))
    assert summary.worth_a_look(layout, rows[2:])[0] == "peers"


def test_a_choice_is_worth_more_than_bad_luck(layout: FederationLayout) -> None:
    unlucky = replace(center(None, None), id="unlucky", isolated={"all-busy": 9})
    choosy = replace(center(None, None), id="choosy", isolated={"filter-empty": 1})
    _, where = summary.worth_a_look(layout, [unlucky, choosy])
    assert where.endswith("/choosy")


def test_bytes_for_people() -> None:
    assert summary.megabytes(0) == "0.0 kB"
    assert summary.megabytes(99_999) == "100.0 kB"
    assert summary.megabytes(1_234_567) == "1.2 MB"


# The command ------------------------------------------------------------------------------------


@pytest.fixture
def finished(tmp_path: Path) -> FederationLayout:
    layout = small_federation(tmp_path / "fed", ["apart", "both"], rounds=5)
    for each in layout.centers:
        ran(each, report(0.70, 0.60, 0.80), report(0.75, 0.65, 0.85))
    return layout


def test_json_is_alone_on_stdout(finished: FederationLayout) -> None:
    result = CliRunner().invoke(cli.app, ["local", str(finished.directory), "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["federation"] == "made"
    assert [each["verdict"] for each in found["centers"]] == ["overlap", "overlap"]
    assert found["centers"][0]["alone"] == {"value": 0.70, "low": 0.60, "high": 0.80}
    assert "nothing to start" in result.stderr


def test_the_last_line_says_what_to_type(
    finished: FederationLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/abps"])
    result = CliRunner().invoke(cli.app, ["local", str(finished.directory)])
    assert result.exit_code == 0
    where = finished.directory / "centers" / "apart"
    assert result.stdout.splitlines()[-2:] == [
        f"State of each center: {finished.directory}/centers/ID/state",
        f"Look into one: .venv/bin/abps isolation {where}",
    ]


def test_abps_is_named_as_it_was_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "abps"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    assert cli._abps() == str(program)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli._abps() == "abps"
    monkeypatch.setattr(sys, "argv", ["/somewhere/abps_node/__main__.py"])
    assert cli._abps() == f"{sys.executable} -m abps_node"
