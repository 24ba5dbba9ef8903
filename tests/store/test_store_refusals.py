"""A state that cannot be used is refused with one message that says what and why."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from abps_node.errors import StoreError
from abps_node.store import Store
from abps_node.store.reader import Reader
from abps_node.store.schema import STATE_FILE
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state with some rounds, cleanly closed."""
    chronicle = Chronicle()
    with Store.open(tmp_path, "here", CONTRACT) as store:
        store.begin_incarnation()
        for _ in range(30):
            store.commit_round(chronicle.with_partners({"near": 0.01}))
    return tmp_path


def refusal(state_dir: Path, center: str = "here", contract: object = CONTRACT) -> str:
    with pytest.raises(StoreError) as caught:
        Store.open(state_dir, center, contract)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_state_of_another_center(state_dir: Path) -> None:
    text = refusal(state_dir, center="elsewhere")
    assert str(state_dir / STATE_FILE) in text
    assert "'here'" in text and "'elsewhere'" in text


def test_the_state_of_another_contract(state_dir: Path) -> None:
    other = make_contract(rounds=51)
    text = refusal(state_dir, contract=other)
    assert CONTRACT.digest()[:12] in text and other.digest()[:12] in text


def test_a_refused_opening_leaves_the_state_alone(state_dir: Path) -> None:
    refusal(state_dir, center="elsewhere")
    assert Reader(state_dir).status().center == "here"
    assert Reader(state_dir).status().last_round == 30


def test_the_state_of_another_version(state_dir: Path) -> None:
    database = sqlite3.connect(state_dir / STATE_FILE)
    database.execute("PRAGMA user_version = 7")
    database.close()
    assert "found state version 7, allowed: 2" in refusal(state_dir)
    with pytest.raises(StoreError, match="found state version 7"):
        Reader(state_dir)


def test_a_database_of_another_program(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / STATE_FILE)
    database.execute("CREATE TABLE recipes (cake TEXT)")
    database.close()
    assert "another program" in refusal(tmp_path)


def test_a_file_that_is_no_database(state_dir: Path) -> None:
    (state_dir / STATE_FILE).write_bytes(b"not a database, " * 1000)
    assert "backup" in refusal(state_dir)
    with pytest.raises(StoreError, match="backup"):
        Reader(state_dir)


@pytest.mark.parametrize("page", range(1, 12))
def test_a_damaged_page(state_dir: Path, page: int) -> None:
    path = state_dir / STATE_FILE
    whole = bytearray(path.read_bytes())
    whole[page * 4096 : (page + 1) * 4096] = b"\xa5" * 4096
    path.write_bytes(whole)
    text = refusal(state_dir)
    assert str(path) in text and "backup" in text


def test_a_state_directory_that_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "state"
    file.write_text("")
    assert str(file) in refusal(file)


def test_no_state_at_all(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"found no state\.sqlite"):
        Reader(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"found no state\.sqlite"):
        Reader(tmp_path)
    (tmp_path / STATE_FILE).touch()
    with pytest.raises(StoreError, match="no state yet"):
        Reader(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [STATE_FILE]
