"""A state belongs to the patients that it was begun with."""

from __future__ import annotations

from pathlib import Path

import pytest

from abps_node.data.fingerprint import ColumnDigest, Fingerprint
from abps_node.errors import StoreError
from abps_node.store import Store
from abps_node.store.reader import Reader
from tests.support.contracts import small_contract

CONTRACT = small_contract()


def table(age: str = "a", rows: int = 80) -> Fingerprint:
    columns = {"age": ColumnDigest(ordered=age, sorted=age)}
    return Fingerprint(rows=rows, columns=columns, splits="s", encoding="e")


def test_the_same_table_goes_on(tmp_path: Path) -> None:
    with Store.open(tmp_path, "here", CONTRACT, patients=table()) as store:
        store.begin_incarnation()
    with Store.open(tmp_path, "here", CONTRACT, patients=table()) as store:
        assert store.begin_incarnation() == 2
    assert Fingerprint.model_validate_json(Reader(tmp_path).patients() or "") == table()


def test_another_table_is_refused_and_nothing_changes(tmp_path: Path, journal: str) -> None:
    with Store.open(tmp_path, "here", CONTRACT, patients=table()) as store:
        store.begin_incarnation()
    for other, told in ((table("b"), "values changed in 'age'"), (table(rows=9), "80 rows, now 9")):
        with pytest.raises(StoreError) as caught:
            Store.open(tmp_path, "here", CONTRACT, patients=other)
        message = str(caught.value)
        assert told in message and str(tmp_path) in message
        assert "put the former table back, or set another state_dir" in message
    with Store.open(tmp_path, "here", CONTRACT, patients=table()) as store:
        assert store.begin_incarnation() == 2  # no refused start has taken a number


def test_other_objectives_are_not_called_another_table(tmp_path: Path) -> None:
    before = table()
    columns = {**before.columns, "objective stay": before.columns["age"]}
    Store.open(tmp_path, "here", CONTRACT, patients=before).close()
    with pytest.raises(StoreError) as caught:
        Store.open(
            tmp_path, "here", CONTRACT, patients=before.model_copy(update={"columns": columns})
        )
    message = str(caught.value)
    assert "center.toml has other objectives or private features than this state" in message
    assert "now 'objective stay'; put the former ones back, or set another state_dir" in message


def test_a_state_begun_without_a_table_takes_the_first(tmp_path: Path) -> None:
    Store.open(tmp_path, "here", CONTRACT).close()
    assert Reader(tmp_path).patients() is None
    Store.open(tmp_path, "here", CONTRACT, patients=table()).close()
    with pytest.raises(StoreError, match="values changed in 'age'"):
        Store.open(tmp_path, "here", CONTRACT, patients=table("b"))
