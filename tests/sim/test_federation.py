"""A table in memory and a directory of files are one federation, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from abps_node.data import CenterData
from abps_node.errors import ConfigError, DataError
from launch.layout import write_federation
from protocol.contract import Contract, Policy
from sim.division import Least, divide, rows_of
from sim.federation import Federation, federation_from_table, load_federation_directory

FEATURES = [
    {"name": "age", "kind": "continuous", "missing_indicator": True},
    {"name": "sex", "kind": "binary", "levels": ["F", "M"]},
    {"name": "ward", "kind": "categorical", "levels": ["1", "2"]},
]


def contract(policy: dict[str, Any] | None = None, **data: Any) -> Contract:
    card = {"features": ["sex"], "min_patients": 1, "min_events": 1}
    values = {"label": "died", "features": FEATURES, "card": card, **data}
    return Contract.model_validate({"name": "test", "data": values, "policy": policy or {}})


def patients(n: int = 400) -> pa.Table:
    """Four centers, 100 rows each; wards are floats, one of which is not whole."""
    return pa.table(
        {
            "hospital": [f"North {row % 4}" for row in range(n)],
            "patient": [f"p{row // 2}" for row in range(n)],
            "died": [int(row % 5 == 0) for row in range(n)],
            "admitted": [2008 + row % 7 for row in range(n)],
            "age": [None if row % 20 == 0 else float(row) for row in range(n)],
            "sex": ["FM"[row % 3 % 2] for row in range(n)],
            "ward": [[1.0, None, 2.0, 3.0, 2.5, 1.0][row % 6] for row in range(n)],
        }
    )


def assert_same(first: CenterData, second: CenterData) -> None:
    for part in ("train", "validation", "test"):
        np.testing.assert_array_equal(getattr(first, part).x, getattr(second, part).x)
        np.testing.assert_array_equal(getattr(first, part).y, getattr(second, part).y)
    assert first.card == second.card
    assert first.counts == second.counts
    assert first.report == second.report
    assert first.encoder == second.encoder


def written(directory: Path, shared: Contract, table: pa.Table) -> Path:
    division = divide(shared, table, "hospital")
    rest = table.drop_columns(["hospital"])
    tables = {center: rows_of(rest, rows) for center, rows in division.rows.items()}
    write_federation(directory, shared, tables)
    return directory


@pytest.mark.parametrize("group", [None, "patient"])
def test_memory_and_files_give_the_same_centers(tmp_path: Path, group: str | None) -> None:
    shared = contract(date="admitted", group=group)
    memory = federation_from_table(shared, patients(), "hospital")
    files = load_federation_directory(written(tmp_path / "fed", shared, patients()))
    assert [center.id for center in memory.centers] == [f"north-{n}" for n in range(4)]
    assert [center.id for center in files.centers] == [center.id for center in memory.centers]
    assert (memory.name, memory.contract) == (files.name, files.contract)
    for one, other in zip(memory.centers, files.centers, strict=True):
        assert_same(one.data, other.data)
        assert one.goal == other.goal
    unknown = memory.centers[0].data.report.unknown_levels["ward"]
    assert set(unknown.examples) <= {"3", "2.5"}


def test_every_row_is_in_exactly_one_split_of_one_center_or_left_out() -> None:
    table = patients(402)
    few = pa.array(["few" if row > 398 else name for row, name in enumerate(names(table))])
    federation = federation_from_table(contract(), with_hospitals(table, few), "hospital")
    assert [(out.id, out.rows) for out in federation.left_out] == [("few", 3)]
    assert federation.left_out[0].reason == "3 rows gave 2 train, 1 validation, 0 test"
    sizes = [
        getattr(center.data, part).y.size
        for center in federation.centers
        for part in ("train", "validation", "test")
    ]
    assert sum(sizes) == 399
    assert min(sizes) > 0


def names(table: pa.Table) -> list[str]:
    found: list[str] = table["hospital"].to_pylist()
    return found


def with_hospitals(table: pa.Table, hospitals: pa.Array) -> pa.Table:
    return table.set_column(0, "hospital", hospitals)


@pytest.mark.parametrize(
    ("least", "reason"),
    [
        (Least(rows=101), "100 rows, fewer than 101"),
        (Least(per_class=21), "20 of 100 rows positive, fewer than 21 of each class"),
    ],
)
def test_more_can_be_asked_of_a_center(least: Least, reason: str) -> None:
    table = patients(404)
    more = pa.array(["big" if row > 150 else name for row, name in enumerate(names(table))])
    federation = federation_from_table(
        contract(), with_hospitals(patients(404), more), "hospital", least=least
    )
    assert [center.id for center in federation.centers] == ["big"]
    assert len(federation.left_out) == 4
    with pytest.raises(DataError) as caught:
        federation_from_table(contract(), patients(), "hospital", least=least)
    assert str(caught.value) == f"test: none of 4 centers can take part; 'north-0': {reason}"


def test_a_center_with_one_class_takes_part() -> None:
    table = patients().set_column(2, "died", pa.array([0] * 200 + [1] * 200))
    halves = with_hospitals(table, pa.array(["a"] * 200 + ["b"] * 200))
    federation = federation_from_table(contract(), halves, "hospital")
    assert [center.data.report.positives for center in federation.centers] == [0, 200]


@pytest.mark.parametrize(
    ("hospitals", "message"),
    [
        (["a", None] * 200, "test: column 'hospital', row 2: found a missing value (200 in all)"),
        (["A b", "a-b"] * 200, "test: centers 'A b' and 'a-b' both become 'a-b', allowed: names"),
        (["a", "?"] * 200, "center: found '?', allowed: a name with letters a-z or digits"),
    ],
)
def test_an_impossible_center_is_named(hospitals: list[str | None], message: str) -> None:
    with pytest.raises(DataError) as caught:
        federation_from_table(
            contract(), with_hospitals(patients(), pa.array(hospitals)), "hospital"
        )
    assert str(caught.value).startswith(message)


def test_faults_of_the_table_name_the_source() -> None:
    with pytest.raises(
        DataError, match=r"^mine: column 'hospita' is missing; found 7 columns, nea"
    ):
        federation_from_table(contract(), patients(), "hospita", name="mine")
    with pytest.raises(DataError, match=r"^test: column 'ward': found as center and in the contra"):
        federation_from_table(contract(), patients(), "ward")
    empty = patients().slice(0, 0)
    with pytest.raises(DataError, match=r"^test: found no rows, allowed: at least one patient"):
        federation_from_table(contract(), empty, "hospital")


def test_another_policy_changes_the_cards_and_nothing_else() -> None:
    base = federation_from_table(contract(date="admitted"), patients(), "hospital")
    enriched = federation_from_table(
        contract({"preset": "abps-x"}, date="admitted"), patients(), "hospital"
    )
    changed = base.with_policy(Policy(preset="abps-x"))
    assert changed.contract == enriched.contract
    assert isinstance(changed, Federation)
    for one, other in zip(changed.centers, enriched.centers, strict=True):
        assert_same(one.data, other.data)
        assert len(one.data.card) == 4
    assert len(base.centers[0].data.card) == 3


def test_an_own_goal_comes_from_the_centers_file(tmp_path: Path) -> None:
    shared = contract({"keep_fraction": 0.5})
    table = patients().drop_columns(["hospital"])
    write_federation(
        tmp_path / "fed", shared, dict.fromkeys(("a", "b"), table), goals={"b": "diversity"}
    )
    goals = [center.goal for center in load_federation_directory(tmp_path / "fed").centers]
    assert goals == [None, "diversity"]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ('[[objective]]\nname = "death"\nkind = "bce"\ncolumn = "died"', "objective: found death"),
        ('[[private]]\nname = "lactate"\nkind = "continuous"', "private: found lactate"),
        ("[stage2]\nepochs = 3", "stage2: found epochs = 3"),
    ],
)
def test_a_center_with_objectives_of_its_own_is_not_trained_as_something_else(
    words: str, key: str, tmp_path: Path
) -> None:
    directory = written(tmp_path / "fed", contract({"head_layers": 1}), patients())
    file = directory / "centers" / "north-2" / "center.toml"
    file.write_text(f"{file.read_text(encoding='utf-8')}\n{words}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=f"^{file}: {key}, allowed: none, since [^\n]*$"):
        load_federation_directory(directory)


def test_a_center_that_is_not_there_is_named(tmp_path: Path) -> None:
    directory = written(tmp_path / "fed", contract(), patients())
    (directory / "centers" / "north-2" / "center.toml").rename(tmp_path / "elsewhere.toml")
    with pytest.raises(ConfigError, match=r"north-2/center.toml: cannot be read"):
        load_federation_directory(directory)
    with pytest.raises(ConfigError, match=r"federation.toml: cannot be read"):
        load_federation_directory(tmp_path)
