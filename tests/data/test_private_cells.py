"""A message to people may quote a cell; the log may not."""

from __future__ import annotations

from pathlib import Path

import pytest

from abps_node.data import load_center
from abps_node.errors import DataError
from tests.support.contracts import small_contract


@pytest.mark.parametrize("cell", ["secret-4711", "allowed", "row 2", "a"])
def test_what_a_cell_held_is_in_the_message_and_not_in_the_log(tmp_path: Path, cell: str) -> None:
    path = tmp_path / "patients.csv"
    path.write_text(f"age,diabetes,cancer,ward,died\n{cell},0,no,a,1\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_center(small_contract(), "north", path)
    assert f"'{cell}'" in str(caught.value)
    logged = caught.value.without_cell
    assert f"'{cell}'" not in logged
    shown = "found a value not logged here (`abps check` shows it), allowed: a number"
    assert f"column 'age', row 2: {shown}" in logged
