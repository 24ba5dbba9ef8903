"""Lines for people on a terminal, JSON elsewhere, and always JSON in the state directory."""

from __future__ import annotations

import io
import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from abps_node import logs
from abps_node.errors import StoreError

pytestmark = pytest.mark.usefixtures("restored_logging")

log = logging.getLogger("abps_node.test")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_lines_elsewhere_and_in_the_file(tmp_path: Path) -> None:
    stream = io.StringIO()
    logs.setup("north", tmp_path / "state", "info", stream)
    log.info("trunk of %s", "south", extra={"event": "merged", "fields": {"round": 3, "phi": 0.25}})
    (line,) = lines(stream.getvalue())
    assert list(line) == ["time", "level", "center", "event", "text", "round", "phi"]
    assert line["time"].endswith("Z")
    assert abs((datetime.now(UTC) - datetime.fromisoformat(line["time"])).total_seconds()) < 60
    del line["time"]
    assert line == {
        "level": "info",
        "center": "north",
        "event": "merged",
        "text": "trunk of south",
        "round": 3,
        "phi": 0.25,
    }
    (in_file,) = lines((tmp_path / "state/log.jsonl").read_text(encoding="utf-8"))
    assert (in_file["event"], in_file["round"]) == ("merged", 3)


def test_lines_for_people_on_a_terminal_json_in_the_file(tmp_path: Path) -> None:
    stream = Terminal()
    logs.setup("north", tmp_path, "info", stream)
    log.warning("slow", extra={"fields": {"peer": "south", "s": 1.23456, "why": "far away"}})
    text = stream.getvalue()
    assert text[2] == text[5] == ":"
    assert text[8:] == '  warning  north  slow peer=south s=1.235 why="far away"\n'
    (line,) = lines((tmp_path / "log.jsonl").read_text(encoding="utf-8"))
    assert (line["event"], line["why"]) == ("test", "far away")


def test_a_peers_text_cannot_forge_lines_or_act_on_the_terminal(tmp_path: Path) -> None:
    stream, forged = Terminal(), "x\n12:00:00  info  north  all well \x1b[2J"
    logs.setup("north", tmp_path, "info", stream)
    log.info("refused: %s", forged)
    assert stream.getvalue().count("\n") == 1
    assert "\x1b" not in stream.getvalue()
    (line,) = lines((tmp_path / "log.jsonl").read_text(encoding="utf-8"))
    assert line["text"] == f"refused: {forged}"


def test_reserved_names_and_odd_values_stay_valid_json(tmp_path: Path) -> None:
    stream = io.StringIO()
    logs.setup("north", tmp_path, "info", stream)
    fields = {"level": 2, "metric": float("nan"), "path": Path("a/b"), "ids": frozenset({"x"})}
    log.info("odd", extra={"fields": {**fields, "deep": {"inf": [float("inf"), None, True]}}})
    (line,) = lines(stream.getvalue())
    assert (line["level"], line["level_"]) == ("info", 2)
    assert (line["metric"], line["path"], line["ids"]) == ("nan", "a/b", ["x"])
    assert line["deep"] == {"inf": ["inf", None, True]}


def test_exceptions_are_kept(tmp_path: Path) -> None:
    stream = io.StringIO()
    logs.setup("north", tmp_path, "info", stream)
    try:
        raise ValueError("broken")
    except ValueError:
        log.exception("a bug")
    (line,) = lines(stream.getvalue())
    assert line["exception"].endswith("ValueError: broken")


def test_level_is_ours_other_libraries_speak_from_warning_on(tmp_path: Path) -> None:
    stream = io.StringIO()
    logs.setup("north", tmp_path, "debug", stream)
    log.debug("ours")
    logging.getLogger("asyncio").info("theirs")
    logging.getLogger("asyncio").warning("theirs, loud")
    assert [line["text"] for line in lines(stream.getvalue())] == ["ours", "theirs, loud"]
    logs.setup("north", tmp_path, "error", stream)
    log.warning("not said")
    assert "not said" not in stream.getvalue()


def test_second_setup_replaces_the_first(tmp_path: Path) -> None:
    first, second = io.StringIO(), io.StringIO()
    logs.setup("north", tmp_path / "n", "info", first)
    logs.setup("south", tmp_path / "s", "info", second)
    log.info("once")
    assert first.getvalue() == ""
    assert [line["center"] for line in lines(second.getvalue())] == ["south"]
    assert (tmp_path / "n/log.jsonl").read_text(encoding="utf-8") == ""


def test_file_is_rotated_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOG_BYTES", 2000)
    logs.setup("north", tmp_path, "info", io.StringIO())
    for number in range(200):
        log.info("line %d", number)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == ["log.jsonl", *(f"log.jsonl.{copy}" for copy in range(1, logs.LOG_FILES + 1))]
    assert all(path.stat().st_size <= 2000 for path in tmp_path.iterdir())
    newest = lines((tmp_path / "log.jsonl").read_text(encoding="utf-8"))
    assert newest[-1]["text"] == "line 199"


def test_unusable_directory_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file", encoding="utf-8")
    with pytest.raises(StoreError, match=r"state/log\.jsonl: the log cannot be written"):
        logs.setup("north", tmp_path / "state", "info", io.StringIO())


def test_no_text_of_a_peer_acts_on_a_terminal_or_ends_a_json_line(tmp_path: Path) -> None:
    stream, forged = io.StringIO(), "x\x9b2J\x85\u2028\u2029\x7fé"
    logs.setup("north", tmp_path, "info", stream)
    log.info("%s", forged)
    for text in (stream.getvalue(), (tmp_path / "log.jsonl").read_text(encoding="utf-8")):
        (line,) = lines(text)
        assert line["text"] == forged
        assert "\x9b" not in text and "\x7f" not in text


def test_a_name_that_is_no_utf_8_is_logged_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # pytest's own handlers would report the text, and between its processes goes UTF-8 only.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logs.setup("north", tmp_path, "info", io.StringIO())
    log.info("%s", b"card\xff".decode("utf-8", "surrogateescape"))
    (line,) = lines((tmp_path / "log.jsonl").read_text(encoding="utf-8"))
    assert line["text"] == "card\udcff"


def test_what_the_text_says_is_not_said_again(tmp_path: Path) -> None:
    stream, address = Terminal(), "tcp://127.0.0.1:5555"
    logs.setup("north", tmp_path, "info", stream)
    fields = {"endpoint": address, "address": address, "told": address + "1", "n": 5555}
    log.info("listening on %s", address, extra={"fields": {**fields, "peer": "on"}})
    assert stream.getvalue()[8:] == (
        f"  info     north  listening on {address} told={address}1 n=5555 peer=on\n"
    )
    (line,) = lines((tmp_path / "log.jsonl").read_text(encoding="utf-8"))
    assert (line["endpoint"], line["address"]) == (address, address)
