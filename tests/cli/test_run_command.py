"""`abps run`: exit codes of the daemon, and that it never ends without leaving the reason."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from abps_node.config import CenterConfig
from abps_node.errors import BindError
from tests.support.command_line import Outcome, abps
from tests.support.toml_files import center_tables, write_files

pytestmark = pytest.mark.usefixtures("restored_logging")


Daemon = Callable[[CenterConfig], int]


def run_with(
    daemon: Daemon, path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Outcome, list[dict[str, Any]]]:
    """How `abps run` ends with this daemon, and what is in the log."""
    fake = SimpleNamespace(run_center=lambda config, begin: daemon(config))
    monkeypatch.setitem(sys.modules, "abps_node.daemon", fake)
    outcome = abps("run", path)
    text = (path.parent / "state/log.jsonl").read_text(encoding="utf-8")
    return outcome, [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("code", [0, 3, 15, 16])
def test_exit_code_is_the_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    seen: list[str] = []

    def daemon(config: CenterConfig) -> int:
        seen.append(config.id)
        logging.getLogger("abps_node.daemon").info("round done")
        return code

    outcome, log = run_with(daemon, write_files(tmp_path), monkeypatch)
    assert (outcome.code, seen) == (code, ["north"])
    assert [line["text"] for line in log] == ["round done"]
    assert json.loads(outcome.err)["text"] == "round done", "JSON lines, since no terminal"


def test_error_of_the_node_is_one_line_in_both_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def daemon(config: CenterConfig) -> int:
        raise BindError(f"{config.bind}: in use")

    outcome, (line,) = run_with(daemon, write_files(tmp_path), monkeypatch)
    assert outcome.code == 13
    assert json.loads(outcome.err) == line
    assert (line["level"], line["event"], line["exit_code"]) == ("error", "ended", 13)
    assert line["text"] == "tcp://127.0.0.1:0: in use"


def test_bug_leaves_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def daemon(config: CenterConfig) -> int:
        raise KeyError("gone")

    outcome, (line,) = run_with(daemon, write_files(tmp_path), monkeypatch)
    assert outcome.code == 70
    assert (line["level"], line["exit_code"]) == ("critical", 70)
    assert line["exception"].endswith("KeyError: 'gone'")


STOPPED_WHILE_STARTING = """
import signal, sys
from types import SimpleNamespace
number, path = int(sys.argv[1]), sys.argv[2]
sys.modules["abps_node.daemon"] = SimpleNamespace(run_center=lambda *_: signal.raise_signal(number))
sys.argv = ["abps", "run", path]
from abps_node.cli.main import run
run()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_request_to_stop_before_the_daemon_listens(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", STOPPED_WHILE_STARTING, str(int(number))]
    done = subprocess.run([*command, str(write_files(tmp_path))], capture_output=True, text=True)
    assert done.returncode == 3
    line = json.loads(done.stderr)
    assert (line["level"], line["event"], line["exit_code"]) == ("info", "ended", 3)
    assert line["text"] == f"{number.name} received before the start"
    assert json.loads((tmp_path / "state/log.jsonl").read_text(encoding="utf-8")) == line


def test_signal_handlers_are_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    during = []

    def daemon(config: CenterConfig) -> int:
        during.extend([signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)])
        return 0

    run_with(daemon, write_files(tmp_path), monkeypatch)
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
    assert not set(during) & set(before)


def test_log_level_of_the_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def daemon(config: CenterConfig) -> int:
        logging.getLogger("abps_node.daemon").info("not heard")
        return 0

    path = write_files(tmp_path, None, center_tables() | {"log_level": "warning"})
    _, log = run_with(daemon, path, monkeypatch)
    assert log == []


def test_unwritable_state_directory_is_code_14(tmp_path: Path) -> None:
    path = write_files(tmp_path)
    (tmp_path / "state").write_text("", encoding="utf-8")
    outcome = abps("run", path)
    assert outcome.code == 14
    assert outcome.err.startswith(f"abps: {tmp_path.resolve() / 'state/log.jsonl'}: the log cannot")
