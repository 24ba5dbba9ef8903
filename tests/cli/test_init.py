"""`abps init`: what a new center gets, and that nothing of an old one is touched."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from abps_node.config import load_center_config, load_federation
from abps_node.keys import load_key_pair
from tests.support.command_line import abps
from tests.support.toml_files import KEY_A, federation_tables, write_files


def tree(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and content of every file."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {
        str(path.relative_to(directory)): (path.stat().st_mode, path.read_bytes()) for path in files
    }


def test_new_folder_loads_as_it_is(tmp_path: Path) -> None:
    outcome = abps("init", tmp_path / "north")
    assert (outcome.code, outcome.err) == (0, "")
    config = load_center_config(tmp_path / "north/center.toml")
    assert config.id == "north"
    pair = load_key_pair(config.secret_key)
    assert config.member.public_key == pair.public
    assert sorted(tree(tmp_path / "north")) == [
        "center.toml",
        "federation.toml",
        "keys/north.public",
        "keys/north.secret",
    ]


def test_secret_is_for_its_owner_only(tmp_path: Path) -> None:
    abps("init", tmp_path / "north")
    keys = tmp_path / "north/keys"
    for folder in (keys, keys.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((keys / "north.secret").stat().st_mode) == 0o600


def test_says_what_it_wrote_and_what_comes_next(tmp_path: Path) -> None:
    outcome = abps("init", tmp_path / "north")
    public = load_key_pair(tmp_path / "north/keys/north.secret").public
    secret = load_key_pair(tmp_path / "north/keys/north.secret").secret
    assert f"wrote  {tmp_path / 'north/center.toml'}\n" in outcome.out
    assert f'public_key = "{public}"' in outcome.out
    assert f"abps check {tmp_path / 'north/center.toml'}\n" in outcome.out
    assert str(tmp_path / "north/patients.csv") in outcome.out
    assert secret not in outcome.out + outcome.err


def test_second_time_nothing_changes_and_code_1_says_so(tmp_path: Path) -> None:
    abps("init", tmp_path / "north")
    before = tree(tmp_path)
    outcome = abps("init", tmp_path / "north")
    assert outcome.code == 1
    assert outcome.err == "Nothing was written: all of it was there.\n"
    assert outcome.out.count("kept ") == 4
    assert tree(tmp_path) == before


@pytest.mark.parametrize("name", ["center.toml", "federation.toml"])
def test_only_what_is_missing_is_written(tmp_path: Path, name: str) -> None:
    abps("init", tmp_path / "north")
    before = tree(tmp_path / "north")
    (tmp_path / "north" / name).unlink()
    outcome = abps("init", tmp_path / "north")
    assert outcome.code == 0
    assert [line for line in outcome.out.splitlines() if line.startswith("wrote")] == [
        f"wrote  {tmp_path / 'north' / name}"
    ]
    assert tree(tmp_path / "north") == before, "the same text for the same center and key"


def test_edited_files_stay_as_they_are(tmp_path: Path) -> None:
    abps("init", tmp_path / "north")
    center = tmp_path / "north/center.toml"
    center.write_text(center.read_text(encoding="utf-8") + "# mine\n", encoding="utf-8")
    (tmp_path / "north/federation.toml").unlink()
    outcome = abps("init", tmp_path / "north")
    assert f"kept   {center} (it was there)" in outcome.out
    assert center.read_text(encoding="utf-8").endswith("# mine\n")


def test_lone_public_key_is_not_overwritten(tmp_path: Path) -> None:
    abps("init", tmp_path / "north")
    (tmp_path / "north/keys/north.secret").unlink()
    before = tree(tmp_path)
    outcome = abps("init", tmp_path / "north")
    assert outcome.code == 12
    assert "north.public" in outcome.err and "never overwritten" in outcome.err
    assert tree(tmp_path) == before


def test_id_given_or_from_the_folder(tmp_path: Path) -> None:
    assert abps("init", tmp_path / "Bad Name").code == 10
    assert not (tmp_path / "Bad Name").exists()
    assert abps("init", tmp_path / "Bad Name", "--id", "north").code == 0
    assert load_center_config(tmp_path / "Bad Name/center.toml").id == "north"
    outcome = abps("init", tmp_path / "x", "--id", "-x")
    assert outcome.code == 10
    assert "'-x' cannot be a center's id, allowed: 1 to 63 of" in outcome.err


def test_existing_center_keeps_its_id(tmp_path: Path) -> None:
    abps("init", tmp_path / "folder", "--id", "north")
    before = tree(tmp_path)
    outcome = abps("init", tmp_path / "folder", "--id", "south")
    assert outcome.code == 10
    assert "id: found 'north', but 'south' was asked for" in outcome.err
    assert tree(tmp_path) == before
    (tmp_path / "folder/federation.toml").unlink()
    assert abps("init", tmp_path / "folder").code == 0
    assert tree(tmp_path) == before


def test_existing_federation_is_referred_to(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    write_files(tmp_path / "shared", federation_tables())
    federation = tmp_path / "shared/federation.toml"
    outcome = abps("init", tmp_path / "north", "--federation", federation)
    assert outcome.code == 0
    assert f"Get this entry into {federation}" in outcome.out, (
        "the roster has another key for north"
    )
    config = load_center_config(tmp_path / "north/center.toml")
    assert config.federation.path == federation.resolve()
    assert config.member.public_key == KEY_A
    assert not (tmp_path / "north/federation.toml").exists()


def test_bad_federation_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    federation = federation_tables()
    del federation["contract"]["name"]
    write_files(tmp_path, federation)
    outcome = abps("init", tmp_path / "north", "--federation", tmp_path / "federation.toml")
    assert outcome.code == 10
    assert "contract.name: missing" in outcome.err
    assert not (tmp_path / "north").exists()


def test_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    outcome = abps("init", tmp_path / "file/north")
    assert outcome.code == 10
    assert f"{tmp_path / 'file/north'}: cannot be made: Not a directory" in outcome.err


def test_example_federation_shows_every_table(tmp_path: Path) -> None:
    abps("init", tmp_path / "north")
    contract = load_federation(tmp_path / "north/federation.toml").contract
    assert {feature.kind for feature in contract.data.features} == {
        "continuous",
        "binary",
        "categorical",
    }
    assert contract.data.card.features == ["diabetes"]
