"""The frame of the command line: help, version, light imports, codes for what goes wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import abps_node
from abps_node.cli import main
from abps_node.errors import NodeError, Superseded
from tests.support.command_line import abps

COMMANDS = (
    ["init"],
    ["check"],
    ["run"],
    ["status"],
    ["rounds"],
    ["peers"],
    ["peers", "list"],
    ["peers", "add"],
    ["peers", "revoke"],
    ["keys"],
    ["keys", "rotate"],
    ["keys", "activate"],
    ["leave"],
    ["campaign"],
    ["isolation"],
    ["logs"],
    ["outbound"],
    ["repair"],
    ["replay"],
    ["schema"],
    ["schema", "infer"],
    ["predict"],
    ["export"],
    ["launch"],
    ["launch", "local"],
    ["data"],
    ["data", "list"],
    ["data", "show"],
    ["data", "prepare"],
    ["sim"],
    ["sim", "methods"],
    ["sim", "run"],
    ["sim", "sweep"],
    ["sim", "table"],
    ["sim", "plot"],
)

HEAVY = ("torch", "sklearn", "pyarrow", "pandas", "zmq", "numpy", "rich", "sqlite3")
HEAVY_TOO = ("pydantic", "abps_node.config", "protocol.contract")
"""Typer itself needs pydantic where a command has arguments; the list of commands has none."""

HELP_AND_LIST_MODULES = """
import sys
sys.argv = ["abps", *sys.argv[1:]]
from abps_node.cli.main import run
try:
    run()
finally:
    print("MODULES", *sorted(sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("command", [[], *COMMANDS], ids=" ".join)
def test_every_command_has_help(command: list[str]) -> None:
    outcome = abps(*command, "--help")
    assert outcome.code == 0
    assert outcome.err == ""
    assert f"Usage: abps {' '.join(command)}".rstrip() in outcome.out
    assert "Options:" in outcome.out


def test_help_lists_every_command() -> None:
    listed = abps("--help").out.partition("Commands:")[2]
    names = [
        line.split()[0]
        for line in listed.splitlines()
        if line.startswith("  ") and line[2:3] != " "
    ]
    assert sorted(names) == sorted({command[0] for command in COMMANDS})


@pytest.mark.parametrize(
    "command", [[], ["launch"], ["data"], ["sim"], ["check"], ["status"]], ids=" ".join
)
def test_help_imports_nothing_heavy(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP_AND_LIST_MODULES, *command, "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    modules = done.stderr.partition("MODULES")[2].split()
    assert "typer" in modules
    heavy = HEAVY if command else HEAVY + HEAVY_TOO
    assert [name for name in heavy if name in modules] == []


def test_version() -> None:
    assert abps("--version").out == f"abps {abps_node.__version__}\n"


def test_python_dash_m() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "abps_node", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"abps {abps_node.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [[], ["chek", "x"], ["check"], ["check", "a", "--jsn"]], ids=" ".join
)
def test_wrong_usage_is_code_2(arguments: list[str]) -> None:
    outcome = abps(*arguments)
    assert outcome.code == 2
    assert "Usage: abps" in outcome.out + outcome.err


def test_a_bad_config_is_one_message_and_code_10(tmp_path: Path) -> None:
    path = tmp_path / "center.toml"
    outcome = abps("run", path)
    assert (outcome.code, outcome.out) == (10, "")
    assert outcome.err == f"abps: {path}: cannot be read: No such file or directory\n"


def raising(error: Exception) -> object:
    def app(prog_name: str) -> None:
        raise error

    return app


def test_errors_of_the_node_end_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", raising(Superseded("a newer copy runs")))
    outcome = abps("run", "x")
    assert (outcome.code, outcome.out, outcome.err) == (15, "", "abps: a newer copy runs\n")
    monkeypatch.setattr(main, "app", raising(NodeError("something else")))
    assert abps("run", "x").code == 1


def test_a_bug_shows_its_traceback_and_has_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "app", raising(ZeroDivisionError("oops")))
    outcome = abps("run", "x")
    assert outcome.code == 70
    assert "Traceback" in outcome.err and "ZeroDivisionError: oops" in outcome.err
