"""`abps logs`: rotated files in order, filters, torn lines, hostile text."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from abps_node import logs
from abps_node.cli import read, read_logs
from abps_node.errors import ConfigError, StoreError

APP = typer.Typer()
read.register(APP)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(APP, ["logs", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def entry(text: str, level: str = "info", **fields: object) -> str:
    line = {"time": "2026-05-01T12:00:00.000Z", "level": level, "center": "here", "event": "x"}
    return json.dumps({**line, "text": text, **fields}) + "\n"


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    (tmp_path / "log.jsonl.2").write_text(entry("oldest"))
    (tmp_path / "log.jsonl.1").write_text(entry("older", "warning", peer="near", loss=0.123456))
    (tmp_path / "log.jsonl").write_text(entry("newer", "debug") + entry("newest", "error"))
    (tmp_path / "log.jsonl.swp").write_text("no log")
    return tmp_path


def shown(output: str) -> list[str]:
    return [line.split()[3] for line in output.splitlines()]


def test_rotated_files_come_first(state_dir: Path) -> None:
    output = run(state_dir)
    assert shown(output) == ["oldest", "older", "newer", "newest"]
    assert output.splitlines()[1].endswith("  warning  older peer=near loss=0.1235")


def test_filters(state_dir: Path) -> None:
    assert shown(run(state_dir, "--level", "warning")) == ["older", "newest"]
    assert shown(run(state_dir, "--grep", "old(er|est)")) == ["oldest", "older"]
    assert shown(run(state_dir, "--grep", "peer=near")) == ["older"]
    assert shown(run(state_dir, "--last", 3, "--level", "info")) == ["oldest", "older", "newest"]
    assert run(state_dir, "--grep", "nothing like it") == "No line of the log is like that.\n"
    with pytest.raises(ConfigError, match=r"--grep: found '\(', allowed: a regular expression"):
        run(state_dir, "--grep", "(")


def test_json_is_one_document(state_dir: Path) -> None:
    found = json.loads(run(state_dir, "--json", "--level", "warning"))["log"]
    assert [line["text"] for line in found] == ["older", "newest"]
    assert found[0]["loss"] == 0.123456


def test_torn_and_hostile_lines_are_shown_harmlessly(tmp_path: Path) -> None:
    torn = entry("cut off by a crash")[:60]
    hostile = entry("look \x1b[2J", peer="\x1b]0;title\x07")
    (tmp_path / "log.jsonl").write_text(hostile + "[1]\n" + torn)
    output = run(tmp_path)
    assert "\x1b" not in output and "\x07" not in output
    assert "look \\x1b[2J" in output and torn in output
    assert len(json.loads(run(tmp_path, "--json"))["log"]) == 3


def test_no_log_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "center.toml").write_text("")
    with pytest.raises(StoreError, match=r"state: found no log\.jsonl"):
        run(tmp_path)
    with pytest.raises(StoreError, match=r"state: found no log\.jsonl"):
        run(tmp_path, "--follow")


def test_what_the_daemon_logs_is_what_is_shown(tmp_path: Path) -> None:
    log = logging.getLogger("abps_node.made")
    with (tmp_path / "console").open("w") as stream:
        logs.setup("here", tmp_path, "info", stream)
        log.info("merged %s", "near", extra={"event": "merge", "fields": {"round": 3}})
        try:
            raise RuntimeError("a bug")
        except RuntimeError:
            log.exception("it broke")
    merged, broke, *trace = run(tmp_path).splitlines()
    assert merged.endswith("  info     merged near round=3")
    assert broke.endswith("  error    it broke")
    assert trace[-1] == "RuntimeError: a bug"


def test_a_follower_prints_whole_lines_once_and_survives_rotation(
    state_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed() -> list[str]:
        return shown(capsys.readouterr().out)

    path = state_dir / "log.jsonl"
    wanted = read_logs.Filter("debug", None)
    with read_logs.Follower(state_dir, wanted, last=1, as_json=False) as follower:
        follower.step()
        assert printed() == ["newest"]
        follower.step()
        assert printed() == []

        whole = entry("halved")
        with path.open("a") as file:
            file.write(whole[:20])
            file.flush()
            follower.step()
            assert printed() == []
            file.write(whole[20:] + entry("last-of-the-old"))

        path.rename(state_dir / "log.jsonl.1")
        follower.step()
        assert printed() == ["halved", "last-of-the-old"], "the name belongs to no file just now"
        path.write_text(entry("first-of-the-new"))
        follower.step()
        follower.step()
        assert printed() == ["first-of-the-new"]
