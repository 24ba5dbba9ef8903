"""What a run came to where centers have objectives of their own: each is told, and no other."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from abps_node.store import Store
from launch import summary
from launch.layout import FederationLayout
from launch.summary import summarize
from launch.view.report import write_report
from tests.support.layouts import small_federation
from tests.support.records import Chronicle

NOTHING = dict.fromkeys(("auroc", "auroc_low", "auroc_high", "brier"))


def risk(auroc: float) -> dict[str, Any]:
    figures = {"auroc": auroc, "auroc_low": auroc - 0.1, "auroc_high": auroc + 0.1, "brier": 0.2}
    return {"kind": "bce", "column": "died", "rows": 60, "events": 15, **figures}


def stay(error: float) -> dict[str, Any]:
    figures = {"mae": error, "mae_low": error - 0.5, "mae_high": error + 0.5, "mae_of_median": 2.5}
    return {"kind": "huber-log", "column": "days", "rows": 58, **figures}


def report(**objectives: dict[str, Any]) -> dict[str, Any]:
    label = objectives.get("death", {"rows": 58, "events": 0, **NOTHING})
    return {**{key: label[key] for key in ("rows", "events", *NOTHING)}, "objectives": objectives}


@pytest.fixture
def layout(tmp_path: Path) -> FederationLayout:
    """«both» wants two things and fine-tunes, «other» a duration alone, «plain» nothing more."""
    layout = small_federation(tmp_path / "fed", ["both", "other", "plain"], rounds=1)
    reports: list[dict[str, Any]] = [
        {
            "federated": report(death=risk(0.70), stay=stay(1.50)),
            "alone": {
                **report(death=risk(0.65), stay=stay(1.60)),
                "stage2": report(death=risk(0.66), stay=stay(1.55)),
            },
            "stage2": report(death=risk(0.71), stay=stay(1.45)),
        },
        {"federated": report(stay=stay(2.00)), "alone": report(stay=stay(2.10))},
        {"federated": {key: risk(0.8)[key] for key in ("rows", "events", *NOTHING)}},
    ]
    for center, told in zip(layout.centers, reports, strict=True):
        with Store.open(center.state_dir, center.id, center.federation.contract) as store:
            store.begin_incarnation()
            chronicle = Chronicle(center.id, center.federation.contract, peers=("p",))
            store.commit_round(chronicle.with_partners({"p": 0.01}, finished=True))
            for name, values in told.items():
                store.save_report(name, values)
    return layout


def test_the_table_tells_every_objective_of_every_model(layout: FederationLayout) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None)
    console.print(summary.as_text(summarize(layout), console))
    lines = [re.split(r" {2,}", line.strip()) for line in out.getvalue().splitlines()]
    assert ["both", "death", "AUROC", "0.650", "0.700", "0.660", "0.710"] in lines
    assert ["stay", "days (2.50)", "1.60", "1.50", "1.55", "1.45"] in lines
    assert ["huber-log", "1.10–2.10", "1.00–2.00", "1.05–2.05", "0.95–1.95"] in lines
    assert ["other", "stay", "days (2.50)", "2.10", "2.00", "–", "–"] in lines
    assert not any(line[:2] == ["plain", "label"] for line in lines)


def test_a_center_without_the_label_is_no_center_of_one_class(layout: FederationLayout) -> None:
    other = summarize(layout)[1]
    assert (other.answers_label, other.alone, other.federated) == (False, None, None)
    assert (other.test_rows, other.test_events) == (None, None)
    text = "\n".join(summary.remarks(summarize(layout)))
    assert "No objective on the contract's label, so no AUROC of it: other." in text
    page = write_report(layout).read_text(encoding="utf-8")
    assert "so no AUROC of it: other." in page
    assert "one class" not in page and "No federated test report" not in page


def test_the_report_has_a_section_where_there_are_any(layout: FederationLayout) -> None:
    page = write_report(layout).read_text(encoding="utf-8")
    for cell in ("stay (huber-log)", "1.45 (0.95–1.95)", "0.660 (0.56–0.76)"):
        assert f"<td>{cell}</td>" in page
    plain = small_federation(layout.directory.parent / "plain", rounds=1)
    assert 'id="objectives"' in page
    assert 'id="objectives"' not in write_report(plain).read_text(encoding="utf-8")
