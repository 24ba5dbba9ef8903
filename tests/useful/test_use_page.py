"""What docs/use-the-model.md shows is what the program does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from abps_node.export import FILES
from tests.support.command_line import abps
from tests.support.made_center import write_rows
from tests.support.trained_center import patient_rows

PAGE = (Path(__file__).parents[2] / "docs/use-the-model.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_print_what_it_shows(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = patient_rows(40)
    rows[15] = {**rows[15], "lactate": "high"}
    write_rows(tmp_path / "new.csv", rows)
    monkeypatch.chdir(tmp_path)
    Path("north").symlink_to(trained.parent)
    blocks = re.findall(r"```\n\$ abps (.+)\n((?:.+\n)+?)```", PAGE)
    assert [command.split()[0] for command, _ in blocks] == ["predict", "export"]
    for command, shown in blocks:
        outcome = abps(*command.split())
        printed = (outcome.out + outcome.err).splitlines()
        assert {line.split()[0] for line in shown.splitlines()} == {
            line.split()[0] for line in printed
        }
    assert "abps: new.csv: row 17: lactate is not a number, or empty for missing" in PAGE
    assert (
        "row 17: lactate is not a number, or empty for missing"
        in abps("predict", "north", "--input", "new.csv", "--out", "again.csv").err
    )
    assert {each.name for each in Path("export").iterdir()} == set(FILES)
    assert all(f"`{name}`" in PAGE or f"export/{name}" in PAGE for name in FILES)
