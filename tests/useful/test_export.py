"""An export computes what the model computes, and its card tells nothing about few patients."""

from __future__ import annotations

import csv
import json
import re
import shutil
import stat
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from abps_node.export import bundle
from abps_node.export.contents import collaboration
from abps_node.store.reader import Reader
from protocol.record import PartnerRecord, RoundRecord
from tests.support.command_line import abps
from tests.support.made_center import write_rows
from tests.support.trained_center import patient_rows, train_center

NUMBERS = ("age", "lactate", "diabetes")
TEXTS = ("sex", "ward")


def run_graph(path: Path, rows: list[dict[str, str]]) -> np.ndarray:
    """Probabilities of rows as they stand in a CSV, by ONNX Runtime alone."""
    feeds = {
        name: np.array([[float(row[name] or "nan")] for row in rows], dtype=np.float64)
        for name in NUMBERS
    }
    feeds |= {name: np.array([[row[name]] for row in rows], dtype=object) for name in TEXTS}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["probability"], feeds)[0])


@pytest.fixture(scope="module")
def exported(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("export") / "out"
    outcome = abps("export", trained, "--out", out)
    assert outcome.code == 0, outcome.err
    assert "checked    ONNX Runtime against PyTorch on 400 rows" in outcome.out
    return out


def test_the_graph_takes_the_columns_of_the_table(
    trained: Path, exported: Path, tmp_path: Path
) -> None:
    table, out = tmp_path / "new.csv", tmp_path / "scores.csv"
    write_rows(table, patient_rows(60))
    assert abps("predict", trained, "--input", table, "--out", out).code == 0
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    expected = [float(row["probability"]) for row in csv.DictReader(out.open(encoding="utf-8"))]
    found = run_graph(exported / "model.onnx", rows)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.ptp(found) > 1e-3  # or agreement would say little


def test_the_files_describe_each_other(exported: Path) -> None:
    assert sorted(each.name for each in exported.iterdir()) == sorted(bundle.FILES)
    assert stat.S_IMODE(exported.stat().st_mode) == 0o700
    graph = onnx.load(exported / "model.onnx")
    about = json.loads((exported / "preprocessing.json").read_text(encoding="utf-8"))
    assert [each.name for each in graph.graph.input] == [each["name"] for each in about["inputs"]]
    assert [each.name for each in graph.graph.output] == list(about["outputs"].values())
    card = (exported / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert about["graph_sha256"] in card and about["contract"] in card
    assert "![Predicted against observed](calibration.svg)" in card
    assert (exported / "calibration.svg").read_bytes().startswith(b"<?xml")
    for text in ("not a medical device", "| all | 400 |", "| `no-peers` | 3 | no |", "onnxruntime"):
        assert text in card
    assert not re.search(r"P\d{4}|burns", card + json.dumps(about))


def test_metrics_of_the_last_model_are_those_of_the_test_report(
    trained: Path, tmp_path: Path
) -> None:
    assert abps("export", trained, "--out", tmp_path / "out", "--model", "last").code == 0
    card = (tmp_path / "out/MODEL_CARD.md").read_text(encoding="utf-8")
    status = json.loads(abps("status", trained.parent, "--json").out)
    report = status["reports"]["federated"]
    low, high = report["auroc_low"], report["auroc_high"]
    assert f"| AUROC | {report['auroc']:.3f} | {low:.3f} to {high:.3f} |" in card
    assert f"| Brier score | {report['brier']:.3f} |" in card


def test_small_counts_are_not_told(tmp_path: Path) -> None:
    (tmp_path / "center").mkdir()
    path = train_center(tmp_path / "center", rounds=1, rows=40)
    assert abps("export", path, "--out", tmp_path / "out").code == 0
    card = (tmp_path / "out/MODEL_CARD.md").read_text(encoding="utf-8")
    table = dict(re.findall(r"^\| (train|validation|test|all) \| (.+) \|$", card, re.MULTILINE))
    assert table["test"].startswith("– | –") and table["all"] == "– | –"
    assert "«–»: not told" in card and "Not told: the test split is too small" in card
    assert "Not told: the test split has too few patients" in card
    assert not (tmp_path / "out/calibration.svg").exists()
    assert "on all rows of this center" in card and "40" not in card.split("## How it was made")[0]


def test_another_table_is_refused(trained: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained.parent, copy)
    write_rows(copy / "patients.csv", patient_rows(399))
    outcome = abps("export", copy / "center.toml", "--out", tmp_path / "out")
    assert outcome.code == 14 and "it had 400 rows, now 399" in outcome.err
    assert not (tmp_path / "out").exists()


def test_a_graph_that_disagrees_is_not_written(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abps_node.export.agreement.TOLERANCE", 0.0)
    outcome = abps("export", trained, "--out", tmp_path / "out")
    assert outcome.code == 1 and "the exported graph differs from the model" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_without_the_packages_it_says_what_to_install(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "abps_node.export.agreement", raising=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    outcome = abps("export", trained, "--out", tmp_path / "out")
    assert outcome.code == 1 and "pip install 'abps-node[export]'" in outcome.err


def test_nothing_is_replaced_unless_asked(trained: Path, exported: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(exported, out)
    (out / "MODEL_CARD.md").write_text("mine", encoding="utf-8")
    outcome = abps("export", trained, "--out", out)
    assert outcome.code == 1 and "exists already; --force replaces it" in outcome.err
    assert abps("export", trained, "--out", out, "--force").code == 0
    assert (out / "MODEL_CARD.md").read_text(encoding="utf-8").startswith("# Model card: died")
    (out / "letter.txt").write_text("mine", encoding="utf-8")
    outcome = abps("export", trained, "--out", out, "--force")
    assert outcome.code == 1 and "found 'letter.txt', allowed: a new or empty folder" in outcome.err
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out"]


def test_partners_and_rests_are_counted(trained: Path) -> None:
    rested = [entry.record for entry in Reader(trained.parent / "state").rounds()]

    def record(number: int, *peers: str, refused: str | None = None) -> RoundRecord:
        partners = [
            PartnerRecord(peer=peer, session="s", outcome="complete", weight=0.5, refused=refused)
            for peer in peers
        ]
        return rested[0].model_copy(update={"round": number, "partners": partners, "rest": None})

    refused = record(5, "d", refused="trunk-norm")
    found = collaboration([record(1, "b", "c"), record(2, "c"), record(4, "c"), refused, *rested])
    assert found.merged == (("c", 3, 4), ("b", 1, 1))
    assert found.isolated == (("no-peers", 3, False),)
