"""A federation directory: what is written is what is read, and nothing else is overwritten."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from abps_node.errors import ConfigError
from abps_node.keys import load_key_pair
from launch.layout import LayoutError, read_layout, write_federation
from launch.toml import federation_text
from protocol.contract import Contract
from protocol.presets import PRESETS
from tests.support.layouts import patients, small_federation
from tests.support.records import make_contract


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_written_is_what_is_read(tmp_path: Path) -> None:
    written = small_federation(tmp_path / "fed", ["near", "far"], rounds=7)
    layout = read_layout(tmp_path / "fed")
    assert layout == written
    assert [center.id for center in layout.centers] == ["far", "near"]
    assert layout.contract == make_contract(rounds=7)
    for center in layout.centers:
        assert center.federation.simulation
        assert center.federation.discovery.path == layout.directory / "cards"
        assert center.state_dir == layout.directory / "centers" / center.id / "state"
        assert center.bind == "tcp://127.0.0.1:0"
        assert pq.read_table(center.data).equals(patients())
    assert (tmp_path / "fed" / "SIMULATION").is_file()
    assert (tmp_path / "fed" / "cards").is_dir()


def test_each_key_is_its_centers_own_and_on_the_roster(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed")
    keys = {center.id: load_key_pair(center.secret_key).public for center in layout.centers}
    assert keys == {center.id: center.member.public_key for center in layout.centers}
    assert len(set(keys.values())) == 2


def test_secrets_are_for_the_owner_alone(tmp_path: Path) -> None:
    for center in small_federation(tmp_path / "fed").centers:
        assert mode(center.path.parent) == 0o700
        assert mode(center.secret_key.parent) == 0o700
        assert mode(center.secret_key) == 0o600


def test_centers_draw_from_different_seeds_which_one_number_shifts(tmp_path: Path) -> None:
    contract, tables = make_contract(), dict.fromkeys("abc", patients())
    first = write_federation(tmp_path / "first", contract, tables)
    other = write_federation(tmp_path / "other", contract, tables, seed=10)
    assert [center.seed for center in first.centers] == [1, 2, 3]
    assert [center.seed for center in other.centers] == [11, 12, 13]


def test_a_center_may_have_its_own_goal(tmp_path: Path) -> None:
    layout = write_federation(
        tmp_path / "fed",
        make_contract(keep_fraction=0.5),
        dict.fromkeys("ab", patients()),
        goals={"b": "diversity"},
        compare_alone=False,
    )
    assert {center.id: center.goal for center in layout.centers} == {"a": "none", "b": "diversity"}
    assert not any(center.compare_alone for center in layout.centers)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_keeps_its_contract(tmp_path: Path, preset: str) -> None:
    layout = small_federation(tmp_path / "fed", preset=preset, rounds=3)
    assert layout.contract.digest() == make_contract(preset=preset, rounds=3).digest()
    raw = tomllib.loads(layout.federation.read_text(encoding="utf-8"))
    assert raw["contract"]["policy"]["preset"] == preset


names = st.text(min_size=1, max_size=20)


@given(
    st.lists(
        st.tuples(names, names, st.lists(names, min_size=2, max_size=2, unique=True)),
        min_size=1,
        max_size=4,
        unique_by=lambda feature: feature[0],
    ),
)
def test_any_column_name_unit_and_level_survives(
    columns: list[tuple[str, str, list[str]]],
) -> None:
    features = [
        {"name": name, "kind": "binary", "unit": unit, "levels": levels, "missing_indicator": True}
        for name, unit, levels in columns
    ]
    data = {"label": "\x7f" * 30, "features": features}
    contract = Contract.model_validate({"name": "made", "data": data})
    raw = tomllib.loads(federation_text(contract, {"near": "k" * 40}))
    assert Contract.model_validate(raw["contract"]) == contract


def test_the_files_explain_themselves(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed", rounds=3)
    text = layout.federation.read_text(encoding="utf-8")
    assert text.startswith("# What all centers of this federation share.")
    assert '    { name = "age", kind = "continuous" },\n' in text
    assert "gamma" not in text, "a value that nobody gave is left to its default"


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(LayoutError, match="exists and is not an empty directory"):
        small_federation(tmp_path)
    with pytest.raises(LayoutError, match="not an empty directory"):
        small_federation(tmp_path / "precious")
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_an_empty_directory_is_welcome(tmp_path: Path) -> None:
    assert len(small_federation(tmp_path).centers) == 2


@pytest.mark.parametrize("bad", ["Upper", "../up", "", "a" * 64])
def test_a_bad_center_id_is_named(tmp_path: Path, bad: str) -> None:
    with pytest.raises(LayoutError, match="center id: found"):
        write_federation(tmp_path / "fed", make_contract(), {bad: patients()})
    assert not (tmp_path / "fed").exists()


def test_no_centers_and_goals_of_strangers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LayoutError, match="at least one center"):
        write_federation(tmp_path / "fed", make_contract(), {})
    with pytest.raises(LayoutError, match="'c' is none of the centers a"):
        write_federation(tmp_path / "fed", make_contract(), {"a": patients()}, goals={"c": "none"})


def test_a_mapping_that_is_no_contract_names_the_key(tmp_path: Path) -> None:
    bad = {"name": "made", "data": {"label": "died", "features": []}, "polizy": {}}
    with pytest.raises(ConfigError, match=r"contract: polizy: unknown key; nearest known: policy"):
        write_federation(tmp_path / "fed", bad, {"a": patients()})
    assert not (tmp_path / "fed").exists()


def test_broken_off_halfway_is_no_federation(tmp_path: Path) -> None:
    wrong: dict[str, pa.Table] = {"a": patients(), "b": "no table"}
    with pytest.raises(AttributeError):
        write_federation(tmp_path / "fed", make_contract(), wrong)
    assert (tmp_path / "fed" / "centers" / "a" / "center.toml").is_file()
    with pytest.raises(LayoutError, match=r"not a federation directory.*federation\.toml"):
        read_layout(tmp_path / "fed")


def test_a_federation_without_centers_is_named(tmp_path: Path) -> None:
    (tmp_path / "federation.toml").write_text("")
    with pytest.raises(LayoutError, match="no center found"):
        read_layout(tmp_path)


def test_two_centers_with_one_id_are_named(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed")
    near = layout.centers[1].path
    near.write_text(near.read_text().replace('id = "near"', 'id = "far"'))
    with pytest.raises(LayoutError, match=r"near/center\.toml: id: found 'far'.*far/center\.toml"):
        read_layout(layout.directory)


def test_a_center_of_another_federation_is_named(tmp_path: Path) -> None:
    layout = small_federation(tmp_path / "fed")
    other = small_federation(tmp_path / "other")
    near = layout.centers[1].path
    text = near.read_text().replace("../../federation.toml", str(other.federation))
    near.write_text(text)
    with pytest.raises(LayoutError, match=r"near/center\.toml: federation: found .*other"):
        read_layout(layout.directory)
