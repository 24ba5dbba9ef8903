from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.data import Encoder, input_names, input_size
from abps_node.data.features import RawFeatures, read_features
from abps_node.data.table import read_table
from abps_node.errors import DataError
from protocol.contract import Data, Feature

SCHEMA = Data(
    label="died",
    features=[
        Feature(name="age", kind="continuous", missing_indicator=True),
        Feature(name="sex", kind="binary", levels=["F", "M"]),
        Feature(name="ward", kind="categorical", levels=["med", "surg"], missing_indicator=True),
    ],
)
NAN = float("nan")


def raw(age: Sequence[float], sex: Sequence[float], ward: Sequence[float]) -> RawFeatures:
    return RawFeatures(("age", "sex", "ward"), np.array([age, sex, ward], dtype=np.float64), {})


def rows(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.intp)


def test_names_follow_from_the_contract() -> None:
    names = ["age", "age missing", "sex", "ward=med", "ward=surg", "ward=«other»", "ward missing"]
    assert input_names(SCHEMA) == names
    assert input_size(SCHEMA) == 7


def test_what_each_kind_becomes() -> None:
    table = raw([10, 20, NAN, 60, 30], [1, 1, 0, NAN, NAN], [0, 1, 2, NAN, 0])
    x = Encoder.fit(SCHEMA, table, rows(0, 1, 2, 3)).transform(table)
    filled = np.array([10, 20, 20, 60])  # the median of 10, 20, 60
    scaled = (np.array([10, 20, 20, 60, 30]) - filled.mean()) / filled.std()
    np.testing.assert_allclose(x[:, 0], scaled, rtol=1e-6)
    assert x.dtype == np.float32
    assert x[:, 1:].tolist() == [
        [0, 1, 1, 0, 0, 0],
        [0, 1, 0, 1, 0, 0],
        [1, 0, 0, 0, 1, 0],  # an undeclared ward is «other», but not missing
        [0, 1, 0, 0, 1, 1],  # the training mode of sex; a missing ward is «other»
        [0, 1, 1, 0, 0, 0],
    ]


@pytest.mark.parametrize("age", [[0.1] * 4, [NAN] * 4, [1e30] * 4])
def test_a_constant_or_absent_column_becomes_zero(age: list[float]) -> None:
    table = raw(age, [0] * 4, [0] * 4)
    x = Encoder.fit(SCHEMA, table, rows(0, 1, 2, 3)).transform(table)
    np.testing.assert_allclose(x[:, 0], 0, atol=1e-12)


NUMBERS = st.one_of(st.floats(-1e30, 1e30), st.just(NAN))
FLAGS = st.sampled_from([0.0, 1.0, NAN])
CODES = st.sampled_from([0.0, 1.0, 2.0, NAN])
PATIENTS = st.lists(st.tuples(NUMBERS, FLAGS, CODES), min_size=1, max_size=12)


@given(PATIENTS, PATIENTS, PATIENTS)
def test_only_training_rows_are_fitted_and_inputs_are_finite(
    train: list[tuple[float, ...]],
    rest: list[tuple[float, ...]],
    other_rest: list[tuple[float, ...]],
) -> None:
    chosen = np.arange(len(train))
    tables = [raw(*zip(*(train + tail), strict=True)) for tail in (rest, other_rest)]
    fitted = [Encoder.fit(SCHEMA, table, chosen) for table in tables]
    assert fitted[0] == fitted[1]
    encoded = [encoder.transform(table) for encoder, table in zip(fitted, tables, strict=True)]
    np.testing.assert_array_equal(encoded[0][chosen], encoded[1][chosen])
    assert np.isfinite(encoded[0]).all()
    restored = Encoder.from_dict(json.loads(json.dumps(fitted[0].to_dict())))
    assert restored == fitted[0]


def test_a_damaged_encoder_is_refused() -> None:
    table = raw([1, 2], [0, 1], [0, 1])
    saved = Encoder.fit(SCHEMA, table, rows(0, 1)).to_dict()
    with pytest.raises(DataError, match="encoder: inputs: found"):
        Encoder.from_dict({**saved, "features": saved["features"][:2]})
    with pytest.raises(DataError, match="encoder: version: found 1, allowed: 2"):
        Encoder.from_dict({**saved, "version": 1})
    with pytest.raises(DataError, match="encoder: features: found None"):
        Encoder.from_dict({**saved, "features": None})
    with pytest.raises(DataError, match="encoder: features: 'age'"):
        Encoder.from_dict({**saved, "features": [{**saved["features"][0], "kind": "odd"}]})
    for broken in ("1.0", None, NAN):
        entries = [{**saved["features"][0], "std": broken}, *saved["features"][1:]]
        with pytest.raises(DataError, match="encoder: std of 'age': found"):
            Encoder.from_dict({**saved, "features": entries})


def test_features_are_read_by_kind(tmp_path: Path) -> None:
    path = tmp_path / "patients.csv"
    path.write_text("ward,sex,age\nmed,F,1\nburns,M,\nburns,,3\nsurg,F,4\n,F,5\n")
    table = read_table(path, ["age", "sex", "ward"])
    features = read_features(table, SCHEMA.features)
    np.testing.assert_array_equal(features.column("age"), [1, NAN, 3, 4, 5])
    np.testing.assert_array_equal(features.column("sex"), [0, 1, NAN, 0, 0])
    np.testing.assert_array_equal(features.column("ward"), [0, 2, 2, 1, NAN])
    assert features.unknown() == {"ward": {"burns": 2}}
    assert features.missing() == {"age": 1, "sex": 1, "ward": 1}
