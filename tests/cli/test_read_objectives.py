"""`abps rounds --objectives` and its picture, on made states."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from abps_node.store import Store
from protocol.record import ObjectiveRecord, ObjectivesRecord
from tests.support.command_line import abps
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract()


def told(number: int) -> ObjectivesRecord:
    """Two objectives that part more and more."""
    objectives = [
        ObjectiveRecord(
            name=name, kind=kind, loss=loss, mu=mu, mu_batches=mu, norm=0.01, utility=utility
        )
        for name, kind, loss, mu, utility in (
            ("mortality", "bce", 0.61, 0.75, 0.7123),
            ("stay", "huber-log", 0.22, 0.25, 0.31),
        )
    ]
    cosine = 0.2 - 0.2 * number
    return ObjectivesRecord(
        step="pareto",
        objectives=objectives,
        cosines=[[1.0, cosine], [cosine, 1.0]],
        conflicts=0.43,
        stationarity=1.25e-4,
        epochs=2,
    )


def state(directory: Path, with_objectives: Sequence[bool]) -> Path:
    chronicle = Chronicle(contract=CONTRACT, peers=("near", "far"))
    with Store.open(directory / "state", "here", CONTRACT) as store:
        store.begin_incarnation()
        for number, wanted in enumerate(with_objectives, start=1):
            commit = chronicle.with_partners({"near": 0.01})
            if wanted:
                record = commit.record.model_copy(update={"objectives": told(number)})
                commit = replace(commit, record=record)
            store.commit_round(commit)
    return directory / "state"


def test_rounds_tell_how_the_objectives_stood(tmp_path: Path) -> None:
    outcome = abps("rounds", state(tmp_path, [True, True]), "--objectives")
    assert outcome.code == 0, outcome.err
    head, *lines = outcome.out.splitlines()
    assert head.split()[:2] == ["round", "objective"]
    assert lines[0].split() == [
        *("1", "mortality", "0.6100", "0.7123", "0.75", "0.75", "1.00e-02"),
        *("stay", "+0.000"),
    ]
    assert lines[1].split()[0] == "stay"
    assert "pareto, 2 epochs: conflict in 43% of the mini-batches, ‖Σ μ*g‖² 1.25e-04" in lines[2]
    assert "stay -0.200" in lines[3]


def test_json_holds_them_anyway(tmp_path: Path) -> None:
    found = json.loads(abps("rounds", state(tmp_path, [True, False]), "--json").out)
    first, second = found["rounds"]
    assert first["objectives"]["cosines"][0][1] == pytest.approx(0.0)
    assert second["objectives"] is None


def test_a_center_without_objectives_says_so(tmp_path: Path) -> None:
    there = state(tmp_path, [False])
    assert "no objectives of its own" in abps("rounds", there, "--objectives").out
    outcome = abps("rounds", there, "--plot", tmp_path / "conflict.svg")
    assert outcome.code != 0
    assert "has no committed round with objectives of its own" in outcome.err


@pytest.mark.parametrize(("name", "begins"), [("c.svg", b"<?xml"), ("c.png", b"\x89PNG")])
def test_the_picture_is_drawn(tmp_path: Path, name: str, begins: bytes) -> None:
    outcome = abps("rounds", state(tmp_path, [True] * 4), "--plot", tmp_path / name)
    assert (outcome.code, outcome.err) == (0, "")
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_another_format_is_refused(tmp_path: Path) -> None:
    outcome = abps("rounds", state(tmp_path, [True]), "--plot", tmp_path / "conflict.doc")
    assert outcome.code != 0
    assert "allowed: a name that ends in .png, .svg or .pdf" in outcome.err


def duration(error: float) -> dict[str, object]:
    values = {"mae": error, "mae_low": 1.0, "mae_high": 2.0, "mae_of_median": 2.5, "rows": 9}
    return {"objectives": {"stay": {"kind": "huber-log", "column": "days", **values}}}


def test_status_tells_of_fine_tuning_with_and_without_partners(tmp_path: Path) -> None:
    there = state(tmp_path, [True])
    with Store.open(there, "here", CONTRACT) as store:
        store.begin_incarnation()
        tuned = {"kept": "after", "validation_before": 0.1, "validation_after": 0.2}
        tuned |= {"epochs": 3, "stationary": False, "diverged": False}
        store.save_report("alone", {**duration(1.7), "stage2": {**duration(1.6), **tuned}})
    shown = abps("status", there).out
    assert re.search(r"test alone, stay +mean error 1\.70 days", shown)
    assert re.search(r"test alone stage2, stay +mean error 1\.60 days", shown)
    assert re.search(r"alone stage2 kept +the model after fine-tuning", shown)
