"""`abps status` after the end: the test reports of the center."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from abps_node.cli.main import app
from abps_node.store import Store
from tests.support.records import make_contract

REPORT = {
    "rows": 374,
    "events": 112,
    "train_rows": 1743,
    "auroc": 0.7961,
    "auroc_low": 0.744,
    "auroc_high": 0.843,
    "auprc": 0.61,
    "brier": 0.172,
    "calibration_slope": 0.94,
    "selected": "best",
    "best_round": 12,
    "rounds": 41,
}


def finished_center(directory: Path, **changes: object) -> Path:
    with Store.open(directory, "arf", make_contract()) as store:
        store.begin_incarnation()
        store.save_report("federated", REPORT)
        store.save_report("alone", {**REPORT, "auroc": 0.7012, **changes})
    return directory


def test_both_reports_stand_in_the_status(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["status", str(finished_center(tmp_path / "state"))])
    assert shown.exit_code == 0, shown.output
    text = " ".join(shown.output.split())
    assert "test federated auroc 0.7961, 95 % 0.74 to 0.84 (112 events in 374 rows)" in text
    assert "auprc 0.610, brier 0.172, calibration slope 0.94" in text
    assert "test alone auroc 0.7012" in text


def test_what_is_undefined_is_said_to_be_so(tmp_path: Path) -> None:
    none = dict.fromkeys(("auroc", "auroc_low", "auroc_high", "auprc", "calibration_slope"))
    state = finished_center(tmp_path / "state", **none)
    text = " ".join(CliRunner().invoke(app, ["status", str(state)]).output.split())
    assert "test alone auroc undefined (112 events in 374 rows); brier 0.1720" in text


def test_json_holds_the_reports_whole(tmp_path: Path) -> None:
    state = finished_center(tmp_path / "state")
    shown = CliRunner().invoke(app, ["status", str(state), "--json"])
    assert json.loads(shown.output)["reports"]["federated"] == REPORT
