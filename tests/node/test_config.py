"""Valid files become what the program uses: absolute paths, defaults, the own goal."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from abps_node.config import load_center_config, load_federation
from tests.support.toml_files import (
    KEY_A,
    center_tables,
    federation_tables,
    put,
    write_files,
)


def test_minimal_files_load_with_the_documented_defaults(tmp_path: Path) -> None:
    config = load_center_config(write_files(tmp_path))
    assert config.id == "north"
    assert config.path == tmp_path / "center.toml"
    assert (config.seed, config.compare_alone, config.log_level) == (0, True, "info")
    assert (config.advertise, config.goal) == (None, "none")
    assert config.member.public_key == KEY_A
    federation = config.federation
    assert [member.id for member in federation.roster] == ["north", "south"]
    assert federation.simulation is False
    assert (federation.discovery.kind, federation.discovery.path) == ("static", None)
    assert federation.contract.policy.kappa == 3
    south = federation.member("south")
    assert south is not None and south.address is None
    assert federation.member("west") is None


def test_relative_paths_start_at_the_file_in_which_they_stand(tmp_path: Path) -> None:
    federation, center = federation_tables(), center_tables()
    federation["discovery"] = {"kind": "directory", "path": "cards"}
    center["federation"] = "../shared/federation.toml"
    (tmp_path / "shared").mkdir()
    (tmp_path / "north").mkdir()
    write_files(tmp_path / "shared", federation)
    config = load_center_config(write_files(tmp_path / "north", None, center))
    root = tmp_path.resolve()
    assert config.federation.path == root / "shared/federation.toml"
    assert config.federation.discovery.path == root / "shared/cards"
    assert config.data == root / "north/patients.csv"
    assert config.state_dir == root / "north/state"
    assert config.secret_key == root / "north/keys/north.secret"


def test_paths_do_not_depend_on_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    config = load_center_config("center.toml")
    monkeypatch.chdir(os.sep)
    assert config.data == tmp_path.resolve() / "patients.csv"


def test_home_and_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    center = center_tables() | {"data": "~/patients.csv", "state_dir": str(tmp_path / "elsewhere")}
    config = load_center_config(write_files(tmp_path, None, center))
    assert config.data == (tmp_path / "home/patients.csv").resolve()
    assert config.state_dir == (tmp_path / "elsewhere").resolve()


@pytest.mark.parametrize(
    ("contract_goal", "own", "expected"),
    [
        ("homogeneity", None, "homogeneity"),
        ("homogeneity", "diversity", "diversity"),
        ("homogeneity", "none", "none"),
        ("none", "alignment", "alignment"),
    ],
)
def test_own_goal_wins_over_the_contracts(
    tmp_path: Path, contract_goal: str, own: str | None, expected: str
) -> None:
    federation, center = federation_tables(), center_tables()
    federation["contract"]["policy"] = {"goal": contract_goal, "keep_fraction": 0.5}
    if own is not None:
        center["goal"] = own
    assert load_center_config(write_files(tmp_path, federation, center)).goal == expected


def test_numbers_may_be_written_without_a_point(tmp_path: Path) -> None:
    federation = federation_tables()
    put(federation, "contract.pacing.round_min_s", 2)
    write_files(tmp_path, federation)
    seconds = load_federation(tmp_path / "federation.toml").contract.pacing.round_min_s
    assert (seconds, type(seconds)) == (2.0, float)


def test_roster_and_discovery_are_outside_the_hash(tmp_path: Path) -> None:
    def digest(**changes: Any) -> str:
        write_files(tmp_path, federation_tables() | changes)
        return load_federation(tmp_path / "federation.toml").contract.digest()

    one = [{"id": "north", "public_key": KEY_A}]
    plain = digest()
    assert digest(roster=one) == plain
    assert digest(discovery={"kind": "directory", "path": "x"}) == plain
    assert digest(simulation=True) == plain
    other = federation_tables()["contract"] | {"policy": {"kappa": 2}}
    assert digest(contract=other) != plain
