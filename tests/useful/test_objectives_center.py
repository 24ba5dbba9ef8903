"""A center with objectives of its own: what the commands that look at it afterwards say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from abps_node.config import load_center_config
from abps_node.store.models import read_preprocessing
from abps_node.store.reader import Reader
from tests.support.command_line import abps
from tests.support.trained_center import train_center

OWN = """
[[objective]]
name = "death"
kind = "bce"
column = "died"

[[objective]]
name = "birthday"
kind = "huber-log"
column = "row_days"

[[private]]
name = "shift"
kind = "continuous"

[stage2]
epochs = 2
"""


@pytest.fixture(scope="module")
def center(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train_center(
        tmp_path_factory.mktemp("objectives"),
        own=OWN,
        more=lambda number: {"row_days": number % 11, "shift": number % 3},
    )


def test_status_tells_every_objective_and_what_stage_2_kept(center: Path) -> None:
    shown = " ".join(abps("status", center).out.split())
    for words in (
        "test federated, death",
        "test federated, birthday",
        "for always saying the training median",
        "stage2 kept",
        "fine-tuning; validation",
        "mean over objectives",
    ):
        assert words in shown, shown
    reports = json.loads(abps("status", center, "--json").out)["reports"]
    assert set(reports) == {"federated", "stage2"}


def test_rounds_tell_how_the_objectives_stood(center: Path) -> None:
    shown = abps("rounds", center, "--objectives").out
    assert "death" in shown and "birthday" in shown and "conflict in" in shown


def test_commands_for_one_output_refuse_several_by_name(center: Path, tmp_path: Path) -> None:
    table = center.parent / "patients.csv"
    scored = abps("predict", center, "--input", table, "--out", tmp_path / "scores.csv")
    exported = abps("export", center, "--out", tmp_path / "bundle")
    for outcome in (scored, exported):
        assert outcome.code != 0
        assert "found a model with a head for each of death, birthday" in outcome.err
    assert list(tmp_path.iterdir()) == []


def test_the_models_file_holds_what_its_heads_are(center: Path) -> None:
    state_dir = load_center_config(center).state_dir
    found = Reader(state_dir).model("last")
    assert found is not None
    fitted = read_preprocessing(state_dir, found[1])
    assert [each["name"] for each in fitted["objectives"]] == ["death", "birthday"]
    assert fitted["private"]["inputs"] == ["shift"]
