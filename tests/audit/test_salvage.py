"""Which model a center goes on from when files in ``models/`` are damaged or gone."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from abps_node.errors import Damaged
from abps_node.store import Store
from abps_node.store.models import MODELS_DIR, prune, write_model
from abps_node.store.reader import Reader
from abps_node.store.salvage import salvage
from abps_node.store.schema import STATE_FILE
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract()
VALUES = (0.70, 0.80, 0.75, 0.76)
"""Of the validation split, round by round: the second is the best."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Four rounds; on disk are the models of the last two and of the best."""
    chronicle = Chronicle()
    with Store.open(tmp_path, "here", CONTRACT) as opened:
        opened.begin_incarnation()
        for number, value in enumerate(VALUES, start=1):
            ref = write_model(tmp_path, number, {"w": torch.full((3,), float(number))})
            commit = chronicle.with_partners({"near": 0.01}, validation=value)
            opened.commit_round(replace(commit, model=ref))
            prune(tmp_path, opened.models_in_use())
        yield opened


def damage(state_dir: Path, number: int) -> None:
    (path,) = (state_dir / MODELS_DIR).glob(f"round-{number:06d}-*")
    path.write_bytes(path.read_bytes()[:-1])


def gone_on_from(state_dir: Path, store: Store) -> tuple[float, int, float | None]:
    """The round that made the tensors; the best round, and its value."""
    found = salvage(state_dir, store)
    assert found.tensors is not None and found.recovered.model is not None
    assert found.recovered.last_round == len(VALUES)
    best = found.recovered
    return float(found.tensors["w"][0]), best.best_round, best.best_metric


def told(state_dir: Path) -> list[str]:
    return [event.text for event in Reader(state_dir).events(kind="model-lost")]


def test_the_files_are_those_of_the_last_two_and_the_best(tmp_path: Path, store: Store) -> None:
    names = sorted(path.name[:12] for path in (tmp_path / MODELS_DIR).iterdir())
    assert names == ["round-000002", "round-000003", "round-000004"]
    assert gone_on_from(tmp_path, store) == (4.0, 2, 0.80)
    assert told(tmp_path) == []


def test_the_round_before_stands_in(tmp_path: Path, store: Store) -> None:
    damage(tmp_path, 4)
    assert gone_on_from(tmp_path, store) == (3.0, 2, 0.80)
    (text,) = told(tmp_path)
    assert "that of round 3 (validation 0.7500)" in text


def test_the_best_stands_in_for_both(tmp_path: Path, store: Store) -> None:
    damage(tmp_path, 4)
    damage(tmp_path, 3)
    assert gone_on_from(tmp_path, store) == (2.0, 2, 0.80)
    assert "that of round 2" in told(tmp_path)[0]


def test_a_damaged_best_is_replaced(tmp_path: Path, store: Store) -> None:
    damage(tmp_path, 2)
    assert gone_on_from(tmp_path, store) == (4.0, 4, 0.76)
    assert "round 4 counts as the best" in told(tmp_path)[0]
    assert store.recover().rounds_without_gain == 0
    assert gone_on_from(tmp_path, store) == (4.0, 4, 0.76)
    assert len(told(tmp_path)) == 1


@pytest.mark.parametrize(
    ("newest", "kind", "words"),
    [(5, "round-redone", "round 5 is done again"), (7, "rounds-lost", "up to round 7")],
)
def test_rounds_that_the_database_has_lost_are_told(
    tmp_path: Path, store: Store, newest: int, kind: str, words: str
) -> None:
    """Of a write-ahead log that was damaged SQLite takes the whole beginning and says nothing."""
    write_model(tmp_path, newest, {"w": torch.zeros(3)})
    assert gone_on_from(tmp_path, store) == (4.0, 2, 0.80)
    (event,) = (e for e in Reader(tmp_path).events() if e.kind in ("round-redone", "rounds-lost"))
    assert event.kind == kind and words in event.text


def test_a_damaged_write_ahead_log_costs_rounds_but_not_in_silence(
    tmp_path: Path, store: Store
) -> None:
    crashed = tmp_path.with_name(f"{tmp_path.name}-crashed")
    shutil.copytree(tmp_path, crashed)
    log = crashed / f"{STATE_FILE}-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    with Store.open(crashed, "here", CONTRACT) as opened:
        opened.begin_incarnation()
        assert opened.recover().last_round < len(VALUES)
        with suppress(Damaged):  # where the models of the rounds that are left are gone already
            salvage(crashed, opened)
    assert [e for e in Reader(crashed).events() if e.kind in ("round-redone", "rounds-lost")]


def test_nothing_whole_is_an_error(tmp_path: Path, store: Store) -> None:
    for number in (2, 3, 4):
        damage(tmp_path, number)
    with pytest.raises(Damaged, match="round-000004"):
        salvage(tmp_path, store)


def test_a_new_center_has_nothing_to_salvage(tmp_path: Path) -> None:
    with Store.open(tmp_path / "new", "here", CONTRACT) as opened:
        opened.begin_incarnation()
        assert salvage(tmp_path / "new", opened).tensors is None
