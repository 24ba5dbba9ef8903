from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abps_node.data import CenterData, input_size, load_center
from abps_node.errors import DataError
from protocol.contract import Contract

FEATURES = [
    {"name": "age", "kind": "continuous", "missing_indicator": True},
    {"name": "sex", "kind": "binary", "levels": ["F", "M"]},
    {"name": "ward", "kind": "categorical", "levels": ["med", "surg"]},
    {"name": "always", "kind": "binary"},
]


def contract(**data: Any) -> Contract:
    return Contract.model_validate(
        {
            "name": "test",
            "data": {
                "label": "died",
                "features": FEATURES,
                "card": {"features": ["sex"], "min_patients": 1, "min_events": 1},
                **data,
            },
            "policy": {"card": "enriched"},
        }
    )


def patients(n: int = 200) -> dict[str, list[Any]]:
    """Columns of a table with every oddity that the schema forgives."""
    return {
        "patient": [f"p{row // 2}" for row in range(n)],
        "died": [int(row % 4 == 0) for row in range(n)],
        "admitted": [None if row % 10 == 0 else f"{2008 + row % 2}-05-01" for row in range(n)],
        "age": [None if row % 20 == 0 else float(row) for row in range(n)],
        "sex": ["FM"[row % 2] for row in range(n)],
        "ward": [["med", "surg", f"w{row}", "burns"][row % 4] for row in range(n)],
        "always": [1] * n,
        "note": ["free text"] * n,
    }


def write(tmp_path: Path, columns: dict[str, list[Any]], name: str = "patients.parquet") -> Path:
    path = tmp_path / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table(columns), path)
        return path
    lines = [",".join(columns)]
    for row in zip(*columns.values(), strict=True):
        lines.append(",".join("" if value is None else str(value) for value in row))
    path.write_text("\n".join(lines) + "\n")
    return path


def arrays(center: CenterData) -> list[np.ndarray]:
    splits = (center.train, center.validation, center.test)
    return [array for split in splits for array in (split.x, split.y)]


def test_splits_card_and_report(tmp_path: Path) -> None:
    shared = contract(date="admitted")
    center = load_center(shared, "north", write(tmp_path, patients()))
    sizes = [(140, 35), (30, 7), (30, 8)]
    for split, (rows, positives) in zip(
        (center.train, center.validation, center.test), sizes, strict=True
    ):
        assert split.x.shape == (rows, input_size(shared.data))
        assert split.x.dtype == split.y.dtype == np.float32
        assert split.y.sum() == positives
    np.testing.assert_allclose(center.train.x[:, 0].mean(), 0, atol=1e-6)
    np.testing.assert_allclose(center.train.x[:, 0].std(), 1, rtol=1e-5)

    report = center.report
    assert (report.rows, report.positives, report.inputs) == (200, 50, 7)
    assert [(s.rows, s.positives) for s in (report.train, report.validation, report.test)] == sizes
    assert report.missing == {"age": 10, "sex": 0, "ward": 0, "always": 0}
    ward = report.unknown_levels["ward"]
    assert (ward.rows, ward.levels, len(ward.examples)) == (100, 51, 5)
    assert next(iter(ward.examples.items())) == ("burns", 50)
    assert report.constant == ("always",)
    assert report.groups is None
    assert report.dated == 180
    assert report.ignored == ("patient", "note")


def test_the_card_counts_the_training_split(tmp_path: Path) -> None:
    shared = contract(date="admitted")
    center = load_center(shared, "north", write(tmp_path, patients()))
    rate, log_n, year, men = center.card
    assert rate == pytest.approx(35 / 140)
    assert log_n == pytest.approx(math.log(140))
    assert 2008 / 2030 < year < 2009 / 2030
    assert men == pytest.approx(float(center.train.x[:, 2].mean()))


def test_csv_and_parquet_give_the_same_center(tmp_path: Path) -> None:
    shared = contract(date="admitted", group="patient")
    first = load_center(shared, "north", write(tmp_path, patients()))
    second = load_center(shared, "north", write(tmp_path, patients(), "patients.csv"))
    for a, b in zip(arrays(first), arrays(second), strict=True):
        np.testing.assert_array_equal(a, b)
    assert first.card == second.card
    assert first.report == second.report
    assert first.encoder == second.encoder


def test_a_patients_rows_stay_together_in_all_centers(tmp_path: Path) -> None:
    shared = contract(group="patient")
    path = write(tmp_path, patients())
    center = load_center(shared, "north", path)
    assert center.report.groups == 100
    for a, b in zip(arrays(center), arrays(load_center(shared, "south", path)), strict=True):
        np.testing.assert_array_equal(a, b)  # the center's id plays no part
    other = load_center(contract(group="patient", split_seed=5), "north", path)
    assert other.train.y.size != center.train.y.size or not np.array_equal(
        other.train.x, center.train.x
    )


def test_changing_validation_and_test_rows_changes_nothing_in_training(tmp_path: Path) -> None:
    columns = patients()
    shared = contract()
    before = load_center(shared, "north", write(tmp_path, columns))
    scale = before.encoder.scales[0]
    train_ages = set(np.round(before.train.x[:, 0].astype(float) * scale.std + scale.mean, 2))
    columns["age"] = [
        age if age is None or age in train_ages else age * 1e6 for age in columns["age"]
    ]
    after = load_center(shared, "north", write(tmp_path, columns))
    assert after.encoder == before.encoder
    np.testing.assert_array_equal(after.train.x, before.train.x)
    assert not np.array_equal(after.test.x, before.test.x)


def test_a_split_without_rows_is_refused_with_its_counts(tmp_path: Path) -> None:
    path = write(tmp_path, {name: values[:3] for name, values in patients().items()})
    with pytest.raises(DataError) as caught:
        load_center(contract(), "north", path)
    assert str(path) in str(caught.value)
    expected = "the test split is empty: 3 rows gave 2 train, 1 validation, 0 test; allowed: "
    assert expected in str(caught.value)


def test_one_class_alone_is_no_error(tmp_path: Path) -> None:
    columns = {**patients(), "died": [0] * 200}
    center = load_center(contract(), "north", write(tmp_path, columns))
    assert center.report.positives == 0
    assert center.report.train.rows == 140


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("age", "old", "column 'age', row 7: found 'old', allowed: a number, or empty"),
        ("sex", "X", "column 'sex', row 7: found 'X', allowed: 'F' or 'M', or empty"),
        ("died", "", "column 'died', row 7: found a missing value (1 in all), allowed: 0/1"),
        ("died", "3", "column 'died', row 7: found '3', allowed: 0/1, true/false or yes/no"),
        ("patient", "", "column 'patient', row 7: found a missing value (1 in all), allowed: a p"),
        ("admitted", "May 08", "column 'admitted', row 7: found 'May 08', allowed: an ISO date"),
    ],
)
def test_the_first_impossible_value_is_named(
    tmp_path: Path, column: str, value: str, message: str
) -> None:
    columns = patients()
    columns[column][5] = value
    path = write(tmp_path, columns, "patients.csv")
    with pytest.raises(DataError) as caught:
        load_center(contract(group="patient", date="admitted"), "north", path)
    assert f"{path}: {message}" in str(caught.value)


def test_a_missing_column_of_the_contract_is_named(tmp_path: Path) -> None:
    columns = patients()
    columns["aged"] = columns.pop("age")
    with pytest.raises(DataError, match=r"column 'age' is missing; found 8 columns, nearest: 'ag"):
        load_center(contract(), "north", write(tmp_path, columns))
