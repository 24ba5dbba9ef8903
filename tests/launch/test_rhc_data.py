"""The shipped data set: its facts, its schema, and that it gives nothing of the outcome away."""

from __future__ import annotations

import gzip
import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from protocol.contract import Contract, Feature

RHC = Path(__file__).parents[2] / "examples" / "rhc"

UNITS = {
    "arf": (2490, 746),
    "chf": (456, 58),
    "cirrhosis": (224, 94),
    "coma": (436, 286),
    "copd": (457, 80),
    "mosf-malignancy": (399, 216),
    "mosf-sepsis": (1227, 422),
}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"rhc_{name}", RHC / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


prepare = script("prepare")
build = script("build")


@pytest.fixture(scope="module")
def table() -> pa.Table:
    return prepare.read_table()


@pytest.fixture(scope="module")
def contract() -> Contract:
    return Contract.model_validate(tomllib.loads(prepare.CONTRACT.read_text(encoding="utf-8")))


def test_patients_and_deaths(table: pa.Table) -> None:
    assert table.num_rows == build.PATIENTS == 5735
    assert pc.sum(table["death_30d"]).as_py() == build.DEATHS_30D == 1918


def test_units_that_become_centers(table: pa.Table) -> None:
    centers = prepare.split_by_unit(table)
    facts = {name: (t.num_rows, pc.sum(t["death_30d"]).as_py()) for name, t in centers.items()}
    assert facts == UNITS
    rates = [deaths / patients for patients, deaths in facts.values()]
    assert (round(min(rates), 2), round(max(rates), 2)) == (0.13, 0.66)
    assert all("unit" not in t.column_names for t in centers.values())


def test_no_column_tells_the_outcome(table: pa.Table) -> None:
    kept = {source.removeprefix("num_").removeprefix("fac_") for source in build.COLUMNS}
    after_day_1 = {"time", "event", "death", "dth30", "t3d30", "dthdte", "lstctdte", "dschdte"}
    assert not kept & (after_day_1 | {"adld3p", "surv2md1", "swang1", "ptid", "pid"})
    assert not set(build.COLUMNS) & set(build.LEFT_OUT)
    assert table.column_names == ["death_30d", *(name for name, _ in build.COLUMNS.values())]


def test_missing_values_say_nothing_of_survival(table: pa.Table) -> None:
    """The reason why the day-3 interview is left out would show here."""
    for name in table.column_names:
        missing = pc.is_null(table[name])
        if pc.any(missing).as_py():
            rates = [
                pc.mean(table.filter(mask)["death_30d"]).as_py()
                for mask in (missing, pc.invert(missing))
            ]
            assert abs(rates[0] - rates[1]) < 0.02, name


def test_file_is_small_and_its_bytes_carry_no_time() -> None:
    content = prepare.DATA.read_bytes()
    assert len(content) < 300_000
    assert content[4:8] == bytes(4), "the time stamp of gzip would differ at each rebuild"
    assert gzip.decompress(content).startswith(b"death_30d,unit,age,")


def test_every_feature_of_the_contract_fits_its_column(table: pa.Table, contract: Contract) -> None:
    for feature in contract.data.features:
        column = table[feature.name]
        assert feature.missing_indicator == (column.null_count > 0), feature.name
        assert values_fit(feature, column), feature.name


def values_fit(feature: Feature, column: pa.ChunkedArray) -> bool:
    found = set(pc.unique(column.drop_null()).to_pylist())
    if feature.kind == "continuous":
        return all(isinstance(value, int | float) for value in found) and len(found) > 5
    return found == (set(feature.levels) if feature.levels else {0, 1})


def test_contract_uses_all_columns_but_five(table: pa.Table, contract: Contract) -> None:
    used = {feature.name for feature in contract.data.features} | {contract.data.label}
    assert set(table.column_names) - used == {"unit", "race", "education", "income", "insurance"}


def test_card_features_are_the_twelve_histories(table: pa.Table, contract: Contract) -> None:
    histories = [name for name in table.column_names if name.startswith("history_")]
    assert contract.data.card.features == histories
    assert len(histories) == 12


def test_readme_gives_the_figures_of_every_unit(table: pa.Table) -> None:
    text = (RHC / "README.md").read_text(encoding="utf-8")
    for name, (patients, deaths) in UNITS.items():
        row = f"| `{name}` | {patients:,} | {deaths} | {deaths / patients:.0%} |".replace("%", " %")
        assert row in text


def test_unpickler_refuses_what_no_table_needs() -> None:
    import io
    import pickle

    class Sly:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("never",)

    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print"):
        build._FrameUnpickler(io.BytesIO(pickle.dumps(Sly()))).load()
