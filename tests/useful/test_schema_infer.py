"""A draft that a newcomer edits: it guesses well, says why, tells nobody's value, always parses."""

from __future__ import annotations

import csv
import os
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from abps_node.config_text import FILL_IN
from abps_node.errors import DataError
from abps_node.schema import draft_schema
from protocol.contract import Contract, Data
from tests.support.command_line import abps
from tests.support.made_center import write_rows
from tests.support.trained_center import patient_rows


def drafted(path: Path, label: str | None = None) -> tuple[str, dict[str, Any]]:
    draft = draft_schema(path, label)
    return draft.text, tomllib.loads(draft.text)["contract"]["data"]


def odd_rows() -> list[dict[str, object]]:
    """Patients with everything that must not become a feature."""
    return [
        {
            **row,
            "visit_no": number,
            "ward_code": 10 * (number % 4),
            "constant": "x",
            "empty": "",
            "weight": f"{60 + number % 30},5",
            "birth": f"{1 + number % 28}.{1 + number % 12}.1950",
            "note": f"free text {number}",
            "discharged_dead": "Y" if row["died"] else "N",
            "death_day": "7" if row["died"] else "",
            "smoker": ("yes", "no", "")[number % 3],
            "state": ("?", "a", "b")[number % 3],
            "twice": "seen twice" if number in (3, 5) else "usual",
            "rare": "seen once" if number == 7 else ("often", "also", "too")[number % 3],
        }
        for number, row in enumerate(patient_rows(200))
    ]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    write_rows(path, odd_rows())
    return path


def test_what_is_guessed(odd: Path) -> None:
    text, data = drafted(odd)
    assert data["label"] == "died"
    features = {
        each["name"]: {k: each[k] for k in each if k != "name"} for each in data["features"]
    }
    assert features == {
        "age": {"kind": "continuous", "unit": FILL_IN},
        "lactate": {"kind": "continuous", "unit": FILL_IN, "missing_indicator": True},
        "diabetes": {"kind": "binary"},
        "sex": {"kind": "binary", "levels": ["F", "M"]},
        "ward": {"kind": "binary", "levels": ["burns", "icu"], "missing_indicator": True},
        "ward_code": {"kind": "categorical", "levels": ["0", "10", "20", "30"]},
        "weight": {"kind": "continuous", "unit": FILL_IN},
        "smoker": {"kind": "binary", "missing_indicator": True},
        "state": {"kind": "categorical", "levels": ["?", "a", "b"]},
        "rare": {"kind": "categorical", "levels": ["also", "often", "too"]},
    }
    Contract(name="draft", data=Data.model_validate(data))
    for line in (
        '# "patient": an identifier: another value in every row',
        '# "admitted": a date; the time since another event would do',
        '# date = "admitted"',
        '# "visit_no": ',
        '# "constant": has one and the same value in all rows',
        '# "empty": has no value in any row',
        '# "birth": a date, and not written as 2020-12-31',
        '# "note": an identifier or free text: another value in every row',
        "has decimal commas; the table needs decimal points",
        '# { name = "discharged_dead", kind = "binary" },  # tells the label almost by itself',
        "1 rarer level counts as «other»",
        "is '?' a missing value? then leave the cell empty",
    ):
        assert line in text, line
    assert '# "twice": one of its two values stands in fewer than 5 rows' in text
    assert "seen once" not in text and "seen twice" not in text and "P0" not in text
    assert "death_day" in text and '    { name = "death_day"' not in text


def test_the_label_can_be_named_and_is_marked_where_it_is_unclear(
    odd: Path, tmp_path: Path
) -> None:
    assert drafted(odd, "smoker")[1]["label"] == "smoker"
    assert "some rows have no value" in drafted(odd, "smoker")[0]
    text, data = drafted(odd, "sex")
    assert data["label"] == "sex" and f"# {FILL_IN}: not written as 0/1" in text
    with pytest.raises(DataError, match="--label: found 0 columns 'sx', allowed: one of 'patient'"):
        draft_schema(odd, "sx")
    plain = tmp_path / "plain.csv"
    write_rows(plain, [{"age": number, "w": number % 2} for number in range(30)])
    text, data = drafted(plain)
    assert data["label"] == FILL_IN and "which one is the outcome?" in text
    filled = Data.model_validate({**data, "label": "w", "features": data["features"][:1]})
    assert filled.label == "w"


def test_patients_with_several_rows_become_the_group(tmp_path: Path) -> None:
    rows = [{**row, "patient": f"P{n // 2}"} for n, row in enumerate(patient_rows(100))]
    write_rows(tmp_path / "stays.csv", rows)
    assert drafted(tmp_path / "stays.csv")[1]["group"] == "patient"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a;b\n1;2\n", "its header has semicolons, allowed: commas"),
        ("a;b\n1,5;2\n", "its header has semicolons, allowed: commas"),
        ("a\tb\n1\t2\n", "its header has tabs, allowed: commas"),
        ("a,b\n", "found no rows"),
        ("a,b\n1\n", "row 2: found 1 cells, allowed: 2"),
    ],
)
def test_unreadable_tables_are_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "patients.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=told):
        draft_schema(path)


def test_from_table_to_a_center_that_runs(odd: Path, tmp_path: Path) -> None:
    """Every marked place filled in, the draft is a contract that the table fits."""
    rows = [{**row, "weight": str(row["weight"]).replace(",", ".")} for row in odd_rows()]
    write_rows(odd, rows)
    schema = tmp_path / "schema.toml"
    outcome = abps("schema", "infer", odd, "--out", schema)
    assert outcome.code == 0, outcome.err
    assert "label 'died', 10 features, 10 columns left out" in outcome.out
    assert "3 places to fill in" in outcome.out
    again = abps("schema", "infer", odd, "--out", schema)
    assert again.code == 1 and "--force replaces it" in again.err
    assert abps("schema", "infer", odd).out == schema.read_text(encoding="utf-8")
    schema.write_text(schema.read_text(encoding="utf-8").replace(FILL_IN, "kg"), encoding="utf-8")
    assert abps("init", tmp_path / "north", "--schema", schema).code == 0
    text = (tmp_path / "north/federation.toml").read_text(encoding="utf-8")
    assert '# "constant": has one and the same value' in text  # comments and all
    (tmp_path / "north/patients.csv").write_bytes(odd.read_bytes())
    checked = abps("check", tmp_path / "north/center.toml")
    assert "200 rows" in checked.out and "problem" not in checked.out
    refused = abps("init", tmp_path / "north", "--schema", schema)
    assert refused.code == 10 and "federation.toml exists already" in refused.err


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[contract.data]\nlabel = 3\nfeatures = []\n", "label"),
        ("[contract]\nname = 'x'\n", "allowed: [contract.data] alone"),
        ("[roster]\n", "allowed: [contract.data] alone"),
    ],
)
def test_init_refuses_a_schema_that_is_none(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "schema.toml").write_text(text, encoding="utf-8")
    outcome = abps("init", tmp_path / "north", "--schema", tmp_path / "schema.toml")
    assert outcome.code == 10 and told in outcome.err
    assert not (tmp_path / "north").exists()


NAMES = st.text(max_size=12)
CELLS = st.one_of(
    st.sampled_from(["", "0", "1", "yes", "no", "1,5", "2020-01-02", "1.2.2020", "NA", "7", "x"]),
    st.text(max_size=6),
    st.floats().map(str),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    names = draw(st.lists(NAMES, min_size=2, max_size=6))
    row = st.lists(CELLS, min_size=len(names), max_size=len(names))
    few = draw(st.lists(row, min_size=1, max_size=6))
    return names, few * draw(st.integers(1, 8))


def loads(path: Path) -> None:
    """The draft parses; with the marked places filled in it is a schema, if there is a feature."""
    text, data = drafted(path)
    text.encode("utf-8")
    if data["features"]:
        names = {each["name"] for each in data["features"]}
        label = data["label"] if data["label"] != FILL_IN else "outcome of nobody"
        assert label not in names
        Data.model_validate({**data, "label": label})


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(tables())
def test_whatever_table_goes_in_the_draft_parses(
    tmp_path: Path, made: tuple[list[str], list[list[str]]]
) -> None:
    names, rows = made
    path = tmp_path / "any.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    loads(path)


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.dictionaries(
        NAMES,
        st.one_of(
            st.lists(st.one_of(st.none(), st.floats()), min_size=9, max_size=9),
            st.lists(st.one_of(st.none(), st.integers(-3, 2**40)), min_size=9, max_size=9),
            st.lists(st.one_of(st.none(), st.booleans()), min_size=9, max_size=9),
            st.lists(st.one_of(st.none(), st.dates()), min_size=9, max_size=9),
            st.lists(st.lists(st.integers(0, 3)), min_size=9, max_size=9),
            st.lists(st.text(max_size=5), min_size=9, max_size=9),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_parquet_goes_in_the_draft_parses(
    tmp_path: Path, columns: dict[str, list[Any]]
) -> None:
    path = tmp_path / "any.parquet"
    pq.write_table(pa.table(columns), path)
    loads(path)


def data_file(name: str) -> Path:
    folder = os.environ.get("ABPS_DATA_DIR")
    path = Path(folder or ".") / name
    if folder is None or not path.is_file():
        pytest.skip(f"{name} is not there; ABPS_DATA_DIR names the folder of the public data sets")
    return path


def test_on_the_stroke_trial(tmp_path: Path) -> None:
    path = tmp_path / "ist.csv.gz"
    path.symlink_to(data_file("ist/ist.csv.gz"))
    text, data = drafted(path, "ID14")
    features = {each["name"]: each for each in data["features"]}
    assert len(features) > 80
    assert features["AGE"]["kind"] == "continuous" and features["SEX"]["levels"] == ["F", "M"]
    assert features["STYPE"]["levels"] == ["LACS", "OTH", "PACS", "POCS", "TACS"]
    for leak in ("DDEADD", "FDEADD", "TD"):
        assert leak not in features and f'# {{ name = "{leak}"' in text
    assert "known before the outcome?" in text  # others that look suspicious are pointed out


def test_on_the_diabetes_data(tmp_path: Path) -> None:
    with zipfile.ZipFile(data_file("diabetes130/dataset_diabetes.zip")) as archive:
        (member,) = [name for name in archive.namelist() if name.endswith("diabetic_data.csv")]
        path = tmp_path / "diabetic_data.csv"
        path.write_bytes(archive.read(member))
    text, data = drafted(path)
    assert data["group"] == "patient_nbr" and data["label"] == FILL_IN
    assert "'readmitted' is named like an outcome, but has not two values" in text
    features = {each["name"]: each for each in data["features"]}
    assert {"encounter_id", "patient_nbr", "examide", "citoglipton"}.isdisjoint(features)
    assert features["admission_type_id"]["kind"] == "categorical"
    assert "is '?' a missing value?" in text
