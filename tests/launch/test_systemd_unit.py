"""The unit for a center on its own: its exit codes, and what systemd itself says of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from abps_node.exits import ExitCode

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "launch" / "systemd" / "abps-node@.service"
CODES = ROOT / "docs" / "exit-codes.md"
EXPOSURE = "20"
"""systemd-analyze security, in tenths: 10 is «ok», 50 «medium»."""


def setting(name: str) -> str:
    lines = UNIT.read_text(encoding="utf-8").splitlines()
    (value,) = [line.partition("=")[2] for line in lines if line.startswith(f"{name}=")]
    return value


def test_restarts_follow_the_exit_codes() -> None:
    prevented = {int(code) for code in setting("RestartPreventExitStatus").split()}
    page = CODES.read_text(encoding="utf-8")
    (advice,) = re.findall(r"restart after (.*), never after (.*)", page)
    assert prevented == {ExitCode.USAGE, *map(int, re.findall(r"\d+", advice[1]))}
    assert not prevented & {int(code) for code in re.findall(r"\d+", advice[0])}
    assert prevented <= set(ExitCode)
    assert setting("SuccessExitStatus") == str(int(ExitCode.STOPPED))
    assert setting("Restart") == "on-failure"


@pytest.fixture
def analyze(tmp_path: Path) -> Path:
    """The unit as it would be installed here: with a program that exists."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze: the unit is not checked")
    program = Path(sys.executable).with_name("abps")
    text = UNIT.read_text(encoding="utf-8").replace("/opt/abps/bin/abps", str(program))
    for name in ("abps-node@.service", "abps-node@north.service"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def run(*command: str | Path) -> None:
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Unknown key" not in done.stderr and "Failed to parse" not in done.stderr, done.stderr


def test_systemd_understands_it(analyze: Path) -> None:
    run("systemd-analyze", "verify", analyze / "abps-node@north.service")


def test_it_is_hardened(analyze: Path) -> None:
    unit = analyze / "abps-node@.service"
    run(
        *("systemd-analyze", "security", "--no-pager", "--offline=true"),
        *(f"--threshold={EXPOSURE}", unit),
    )
