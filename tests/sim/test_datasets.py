"""Every adapter: stated facts, one split per patient, no leak, errors that name file and key."""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from abps_node.data import split_rows
from abps_node.errors import ConfigError, DataError
from sim.datasets import DATASETS, diabetes, eicu, ist, load, mimic, rhc
from sim.datasets.base import CENTER, Dataset
from sim.datasets.charlson import CONDITIONS
from sim.division import Division
from tests.support.public_data import data_dir

ADAPTERS: list[tuple[str, dict[str, Any]]] = [
    ("rhc", {}),
    ("ist", {}),
    ("eicu-demo", {}),
    ("eicu-demo", {"stays": "first"}),
    ("diabetes130", {}),
    ("diabetes130", {"partition": "natural"}),
    ("mimic-iv", {"window_years": 200}),
    ("synthetic", {}),
]


@cache
def _read(name: str, options: str) -> Dataset:
    return load(name, data_dir(name), json.loads(options))


def read(name: str, **options: Any) -> Dataset:
    return _read(name, json.dumps(options))  # reading one often is most of the time


def positives(dataset: Dataset) -> int:
    return int(np.sum(dataset.table[dataset.data.label].to_numpy()))


def split_of_rows(dataset: Dataset, division: Division) -> np.ndarray:
    """0, 1, 2 for train, validation, test; -1 where the row's center is left out."""
    patients = division.patients
    found = np.full(dataset.table.num_rows, -1)
    for center, rows in division.rows.items():
        groups = None if patients.groups is None else patients.groups[rows]
        split = split_rows(dataset.data, center, patients.labels[rows], groups)
        for number, part in enumerate((split.train, split.validation, split.test)):
            assert (found[rows[part]] == -1).all()
            found[rows[part]] = number
    return found


@pytest.mark.parametrize(("name", "options"), ADAPTERS)
def test_no_row_is_lost_and_no_patient_is_in_two_splits(name: str, options: dict[str, Any]) -> None:
    dataset = read(name, **options)
    division = dataset.division(dataset.contract())
    split = split_of_rows(dataset, division)
    out = {center.id: center.rows for center in division.left_out}
    within = [center for center in division.left_out if center.cause != "not-largest"]
    assert (split == -1).sum() == sum(center.rows for center in within)
    assert all(center.reason for center in division.left_out)
    assert not set(out) & set(division.rows)
    if dataset.data.group is not None:
        splits: dict[str, set[int]] = defaultdict(set)
        for patient, number in zip(division.patients.groups, split, strict=True):
            splits[patient].add(int(number))
        assert all(len(found - {-1}) <= 1 for found in splits.values())


@pytest.mark.parametrize(("name", "options"), ADAPTERS)
def test_the_table_carries_its_schema_and_nothing_else(name: str, options: dict[str, Any]) -> None:
    dataset = read(name, **options)
    data = dataset.data
    roles = [role for role in (data.label, data.group, data.date) if role is not None]
    columns = [CENTER, *roles, *(feature.name for feature in data.features)]
    assert sorted(dataset.table.column_names) == sorted(columns)
    assert len(data.card.features) >= 7
    assert dataset.title and dataset.notes
    federation = dataset.federation()
    assert federation.contract.name == dataset.title
    for center in federation.centers:
        assert not center.data.report.unknown_levels
        assert np.isfinite(center.data.train.x).all()


def test_rhc_is_the_demo() -> None:
    dataset = read("rhc")
    federation = dataset.federation()
    assert (dataset.table.num_rows, positives(dataset)) == (5735, 1918)
    assert len(federation.centers) == 7
    assert {center.id for center in federation.centers} >= {"arf", "mosf-sepsis"}
    assert [out.id for out in federation.left_out] == ["colon-cancer", "lung-cancer"]
    assert federation.contract.policy.preset == "abps-live"


def test_ist_facts() -> None:
    dataset = read("ist")
    assert "19435 patients of 466 hospitals in the file" in dataset.notes
    federation = dataset.federation()
    sizes = [center.data.report.rows for center in federation.centers]
    assert (len(sizes), sum(sizes), min(sizes), max(sizes)) == (230, 17_031, 23, 524)
    assert np.median(sizes) == 50
    assert sum(center.data.report.positives == 0 for center in federation.centers) == 14
    assert len(federation.left_out) == 236
    everyone = read("ist", centers=466)
    assert (everyone.table.num_rows, positives(everyone)) == (19_435, 1_781)
    for unknown in ("atrial_fibrillation", "aspirin_3d"):
        assert everyone.table[unknown].null_count == 984
    years = {value.as_py().year for value in everyone.table["randomized"].unique()}
    assert years == set(range(1991, 1997))


def test_eicu_facts() -> None:
    dataset = read("eicu-demo")
    assert dataset.notes[0] == (
        "2520 stays of 1841 patients in the files; left out: 28 whose outcome is unknown, "
        "313 without APACHE values of day 1"
    )
    assert (dataset.table.num_rows, positives(dataset)) == (2179, 196)
    sizes = dataset.table.group_by(CENTER).aggregate([([], "count_all")])["count_all"]
    assert (len(sizes), np.median(sizes)) == (186, 12)
    ages = dataset.table["age"].to_numpy()
    assert (np.nansum(ages == 90), np.nanmax(ages)) == (83, 90)
    for feature in dataset.data.features:
        if feature.kind == "continuous":
            assert np.nanmin(dataset.table[feature.name].to_numpy()) >= 0
    one_each = read("eicu-demo", stays="first")
    assert one_each.table.num_rows == 1765
    assert one_each.data.group is None


def test_diabetes_facts() -> None:
    dataset = read("diabetes130")
    assert "101766 encounters in the file; left out: 2423 that ended in death" in dataset.notes[0]
    assert (dataset.table.num_rows, positives(dataset)) == (99_343, 11_314)
    assert len(dataset.table["patient"].unique()) == 69_990
    assert len(dataset.table[CENTER].unique()) == 100
    assert dataset.title == "diabetes130, Dirichlet(0.5) draw of 100 centers"
    assert "the file names no hospital" in dataset.notes
    assert (
        "100 centers drawn at random (Dirichlet(0.5), seed 0): no real hospitals" in dataset.notes
    )
    proxy = read("diabetes130", partition="natural")
    assert any("specialties, a proxy" in note for note in proxy.notes)
    assert all(name.as_py().startswith("proxy-") for name in proxy.table[CENTER].unique())
    groups = {name: proxy.table[f"any_{name}"].to_numpy().mean() for name in diabetes.DIAGNOSES}
    assert groups["diabetes"] > 0.3 and groups["circulatory"] > 0.5
    assert min(groups.values()) > 0.01


def test_mimic_facts() -> None:
    dataset = read("mimic-iv", min_hours=0, window_years=200)
    assert dataset.notes[0] == (
        "140 ICU stays in the files, 135 taken; left out: 5 in other units, 0 of other ages than "
        "18 to 95, 0 shorter than 0 h"
    )
    units = {name.as_py().rsplit("-", 2)[0] for name in dataset.table[CENTER].unique()}
    assert units == set(mimic.UNITS)
    narrow = read("mimic-iv", min_hours=0)
    windows = [name.as_py().rsplit("-", 2)[1:] for name in narrow.table[CENTER].unique()]
    assert all(int(last) == int(first) + 1 and int(first) % 2 == 0 for first, last in windows)
    with pytest.raises(DataError, match=r"mimic-iv: none of \d+ centers can take part"):
        narrow.federation()


def rows_of_csv(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_mimic_vitals_and_conditions_by_hand() -> None:
    folder = data_dir("mimic-iv")
    assert folder is not None
    dataset = load("mimic-iv", folder, {"min_hours": 0, "window_years": 200})
    stays = rows_of_csv(folder / "icu/icustays.csv.gz")
    units = set(mimic.UNITS.values())
    taken = sorted(
        (stay for stay in stays if stay["first_careunit"] in units),
        key=lambda stay: int(stay["stay_id"]),
    )
    events = defaultdict(list)
    for event in rows_of_csv(folder / "icu/chartevents.csv.gz"):
        events[event["stay_id"]].append(event)
    codes = defaultdict(set)
    for row in rows_of_csv(folder / "hosp/diagnoses_icd.csv.gz"):
        codes[row["hadm_id"]].add((row["icd_version"], row["icd_code"]))
    table = dataset.table.to_pylist()
    assert [row["patient"] for row in table] == [stay["subject_id"] for stay in taken]
    for row, stay in zip(table, taken, strict=True):
        start = np.datetime64(stay["intime"])
        celsius = [
            float(event["valuenum"])
            if event["itemid"] == "223762"
            else (float(event["valuenum"]) - 32) / 1.8
            for event in events[stay["stay_id"]]
            if event["itemid"] in ("223761", "223762")
            and start <= np.datetime64(event["charttime"]) < start + np.timedelta64(24, "h")
        ]
        celsius = [value for value in celsius if 10 < value < 50]
        expected = (np.mean(celsius), min(celsius), max(celsius)) if celsius else (None,) * 3
        found = tuple(row[f"temperature_{summary}"] for summary in ("mean", "min", "max"))
        assert found == (expected if not celsius else pytest.approx(expected, abs=1e-3))
        diabetic = any(
            code.startswith("250" if version == "9" else ("E10", "E11", "E12", "E13", "E14"))
            for version, code in codes[stay["hadm_id"]]
        )
        assert row["diabetes"] == diabetic


@pytest.mark.parametrize(
    ("condition", "version", "yes", "no"),
    [
        ("myocardial_infarction", 9, "410 412 41071", "411 4139"),
        ("myocardial_infarction", 10, "I21 I2109 I22 I252", "I20 I25 I251"),
        ("heart_failure", 9, "4280 39891 40201 40493 4254 4259", "40200 40492 4253"),
        ("heart_failure", 10, "I50 I099 I130 I132 I420 I429", "I131 I421 I424"),
        ("peripheral_vascular", 9, "4400 441 0930 4431 4439 V434", "4430 4372 442"),
        ("cerebrovascular", 9, "430 438 36234", "439 429 36233"),
        ("cerebrovascular", 10, "I60 I69 G45 H340", "I70 G47"),
        ("dementia", 10, "F00 F039 G30 F051 G311", "F04 F050 G310"),
        ("chronic_pulmonary", 9, "490 496 505 4168 5064", "506 489 4167"),
        ("chronic_pulmonary", 10, "J40 J449 J67 I278", "J48 J68 J59"),
        ("rheumatic", 9, "725 4465 7100 7142 7148", "7105 7143"),
        ("liver", 9, "570 5712 07032 07054 4560 5722 5728", "07020 5720 5729 572"),
        ("liver", 10, "K700 K704 K709 K721 K767 K768 B18 I850", "K705 K710 K761 K720 I851"),
        ("diabetes", 9, "25000 25093", "249 2510"),
        ("diabetes", 10, "E101 E119 E145", "E15 E09"),
        ("renal", 9, "585 5859 5880 V451 5830 5837 40301 40412", "5838 584 40300 40401"),
        ("renal", 10, "N18 N19 I120 N032 N057 Z992", "N17 N031 N058 Z49"),
        ("cancer", 9, "140 172 1740 1958 196 199 200 208 2386", "173 209 2385 139"),
        ("cancer", 10, "C00 C26 C34 C43 C58 C76 C77 C80 C85 C97", "C44 C27 C42 C59 C86 C98"),
        ("hiv", 9, "042 044", "045"),
        ("hiv", 10, "B20 B22 B24", "B23 B25"),
    ],
)
def test_charlson_codes(condition: str, version: int, yes: str, no: str) -> None:
    pattern = CONDITIONS[condition][0 if version == 9 else 1]
    matched = [code for code in f"{yes} {no}".split() if re.match(f"({pattern})", code)]
    assert matched == yes.split()


def test_there_are_twelve_conditions() -> None:
    assert len(CONDITIONS) == 12


@pytest.mark.parametrize(
    ("name", "module", "leaks"),
    [
        ("ist", ist, ["DDEAD", "FDEAD", "EXPD14", "TD", "OCCODE", "H14", "CMPLASP", "DEAD1"]),
        (
            "eicu-demo",
            eicu,
            [
                "diedinhospital",
                "dischargelocation",
                "actualhospitalmortality",
                "actualiculos",
                "predictedhospitalmortality",
                "unitdischargeoffset",
            ],
        ),
        ("diabetes130", diabetes, ["readmitted", "patient_nbr"]),
        ("mimic-iv", mimic, ["hospital_expire_flag", "dod", "los", "discharge_location"]),
        ("rhc", rhc, ["death_30d", "surv2md1", "adld3p", "race"]),
    ],
)
def test_leaks_are_refused_by_name(name: str, module: Any, leaks: list[str]) -> None:
    folder = data_dir(name)
    for leak in leaks:
        with pytest.raises(
            ConfigError, match=f"{name}: features: found '{leak}', which would leak"
        ):
            load(name, folder, {"features": ["age", leak]})
    for column in getattr(module, "COLUMNS", ()):
        words = set(re.findall(r"\w+", re.sub(r"'[^']*'", "", column.sql))) - {"DOUBLE"}
        for word in words:
            assert not any(re.fullmatch(p, word, re.IGNORECASE) for p in module.LEAKS), column


def test_ist_takes_nothing_that_came_after_randomization() -> None:
    folder = data_dir("ist")
    assert folder is not None
    with gzip.open(folder / "ist.csv.gz", "rt") as file:
        header = next(csv.reader(file))
    known = {"HOSPNUM", "COUNTRY", "CNTRYNUM", "RDATE", "HOURLOCAL", "MINLOCAL", "DAYLOCAL"}
    known |= {"AGE", "SEX", "RDELAY", "RCONSC", "RSLEEP", "RATRIAL", "RCT", "RVISINF", "RHEP24"}
    known |= {"RASP3", "RSBP", "STYPE", "RXASP", "RXHEP", *(f"RDEF{n}" for n in range(1, 9))}
    used = {word for column in ist.COLUMNS for word in re.findall(r"\w+", column.sql)}
    assert used & set(header) <= known
    refused = {name for name in header if any(re.fullmatch(p, name) for p in ist.LEAKS)}
    assert refused == set(header) - known


def test_features_can_be_chosen_and_a_wrong_one_is_named() -> None:
    some = read("rhc", features=["sex", "age", "history_renal"])
    assert [feature.name for feature in some.data.features] == ["age", "sex", "history_renal"]
    assert some.data.card.features == ["history_renal"]
    with pytest.raises(ConfigError, match="rhc: features: found 'agee', allowed: age"):
        read("rhc", features=["agee"])


def test_a_drawn_partition_says_so() -> None:
    drawn = read("rhc", partition="iid", centers=9, seed=4)
    assert drawn.title == "rhc, IID draw of 9 centers"
    assert "9 centers drawn at random (IID, seed 4): no real hospitals" in drawn.notes
    assert len(drawn.federation().centers) == 9
    skewed = read("rhc", partition="dirichlet", alpha=0.1, centers=9)
    rates = [c.data.report.positives / c.data.report.rows for c in skewed.federation().centers]
    assert max(rates) - min(rates) > 0.5


def test_the_split_seed_moves_patients() -> None:
    first, second = (read("rhc", split_seed=seed).federation() for seed in (0, 1))
    assert not np.array_equal(first.centers[0].data.train.x, second.centers[0].data.train.x)


# Bad input.


def test_an_unknown_data_set_or_option_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="data set: found 'eicu', nearest: eicu-demo; allowed: rhc"
    ):
        load("eicu")
    with pytest.raises(ConfigError, match="rhc: centres: unknown key; nearest known: centers"):
        load("rhc", None, {"centres": 3})
    with pytest.raises(ConfigError, match=r"rhc: alpha: found 0, allowed: a number above 0"):
        load("rhc", None, {"alpha": 0})


def test_missing_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ABPS_DATA_DIR", raising=False)
    with pytest.raises(ConfigError, match=r"ist: needs --data-dir or ABPS_DATA_DIR; the data: doi"):
        load("ist")
    with pytest.raises(DataError) as caught:
        load("ist", tmp_path)
    assert f"ist.csv.gz is in neither of {tmp_path}/ist and {tmp_path}; " in str(caught.value)
    (tmp_path / "patient.csv.gz").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        load("eicu-demo", tmp_path)
    missing = "missing apacheApsVar.csv.gz, apachePredVar.csv.gz; the data: "
    assert f"{tmp_path}: {missing}" in str(caught.value)


def test_a_faulty_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"HOSPNUM,ID14\n1,0\n" * 1000)
    path = tmp_path / "ist.csv.gz"
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=re.escape(f"{path}: ")):
        load("ist", tmp_path)
    path.write_bytes(whole)
    with pytest.raises(DataError, match=r"ist.csv.gz: Binder Error: .*RDATE"):
        load("ist", tmp_path)
    (tmp_path / "dataset_diabetes.zip").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"dataset_diabetes\.zip: cannot be read"):
        load("diabetes130", tmp_path)


# The user's own table.

CONTRACT = """
name = "mine"
[data]
label = "died"
group = "patient"
features = [
    { name = "age", kind = "continuous" },
    { name = "sex", kind = "binary", levels = ["F", "M"] },
]
"""


def own_table(rows: int = 300) -> pa.Table:
    return pa.table(
        {
            "clinic": [f"Clinic {row % 3}" for row in range(rows)],
            "patient": [row // 2 for row in range(rows)],
            "died": [row % 4 // 3 for row in range(rows)],
            "age": [float(row % 90) for row in range(rows)],
            "sex": ["FM"[row % 2] for row in range(rows)],
            "note": ["text"] * rows,
        }
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_of_ones_own(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"own{suffix}"
    (pacsv.write_csv if suffix == ".csv" else pq.write_table)(own_table(), str(path))
    (tmp_path / "contract.toml").write_text(CONTRACT)
    options: dict[str, Any] = {
        "file": str(path),
        "contract": str(tmp_path / "contract.toml"),
        "center_column": "clinic",
    }
    dataset = load("table", None, options)
    assert dataset.notes == ("300 rows; columns not used: note",)
    federation = dataset.federation()
    assert [center.id for center in federation.centers] == ["clinic-0", "clinic-1", "clinic-2"]
    assert federation.contract.name == "mine"
    drawn = load("table", None, {**options, "partition": "iid", "centers": 4})
    assert len(drawn.federation().centers) == 4
    other = load("table", None, {**options, "split_seed": 3})
    assert other.contract().data.split_seed == 3
    with pytest.raises(DataError, match="column 'center' is missing; found 6 columns"):
        load("table", None, {**options, "center_column": "center"})
    with pytest.raises(DataError, match="column 'sex': found as center and in the contract"):
        load("table", None, {**options, "center_column": "sex"})
    with pytest.raises(ConfigError, match="table: features: the contract file says which"):
        load("table", None, {**options, "features": ["age"]})


def test_a_row_without_a_center_or_a_wrong_contract_is_named(tmp_path: Path) -> None:
    path, contract = tmp_path / "own.parquet", tmp_path / "contract.toml"
    clinics = pa.array([None if row == 6 else "a" for row in range(300)])
    pq.write_table(own_table().set_column(0, "center", clinics), path)
    contract.write_text(CONTRACT)
    options = {"file": str(path), "contract": str(contract)}
    with pytest.raises(DataError, match="column 'center', row 7: found a missing value"):
        load("table", None, options)
    contract.write_text(CONTRACT.replace("label", "lable"))
    with pytest.raises(ConfigError, match=r"contract.toml: data.label: missing"):
        load("table", None, options)
    with pytest.raises(ConfigError, match=r"table: file: missing"):
        load("table", None, {"contract": str(contract)})


def test_every_data_set_has_an_adapter_with_options() -> None:
    assert set(DATASETS) == {
        "rhc", "ist", "eicu-demo", "diabetes130", "mimic-iv", "synthetic", "table",
    }  # fmt: skip
