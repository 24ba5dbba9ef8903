"""`--follow` prints what comes, once, and ends when the daemon has ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from abps_node.cli import read
from abps_node.exits import ExitCode
from abps_node.store import Store
from abps_node.store.reader import Reader
from abps_node.store.schema import STATE_FILE
from tests.support.records import Chronicle, make_contract

CONTRACT = make_contract()
STARTER = (
    "import sys, typer; from abps_node.cli import read; app = typer.Typer(); read.register(app);"
    "app(sys.argv[1:])"
)


def abps(*arguments: object) -> list[str]:
    """A command as a process of its own."""
    return [sys.executable, "-u", "-c", STARTER, *map(str, arguments)]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    opened = Store.open(tmp_path, "here", CONTRACT)
    opened.begin_incarnation()
    return opened


@pytest.mark.parametrize("finished", [True, False])
def test_rounds_are_followed_until_the_daemon_ends(
    tmp_path: Path, store: Store, finished: bool
) -> None:
    chronicle = Chronicle()
    store.commit_round(chronicle.with_partners({"near": 0.01}))
    store.commit_round(chronicle.resting())
    command = abps("rounds", tmp_path, "--follow", "--json", "--last", 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["round"] == 2
        store.commit_round(chronicle.with_partners({"far": 0.02}))
        store.commit_round(chronicle.with_partners({"near": 0.02}))
        assert [json.loads(process.stdout.readline())["round"] for _ in "ab"] == [3, 4]
        assert process.poll() is None
        store.commit_round(chronicle.resting(finished=finished))
        store.close()
        (last,) = process.stdout.read().splitlines()
        assert json.loads(last)["round"] == 5
        assert process.wait() == 0


def test_the_log_of_a_dead_daemon_is_shown_and_the_follower_ends(
    tmp_path: Path, store: Store
) -> None:
    store.close()
    (tmp_path / "log.jsonl").write_text('{"level": "info", "text": "goodbye"}\n')
    done = subprocess.run(
        abps("logs", tmp_path, "-f", "--json"), stdout=subprocess.PIPE, text=True, check=True
    )
    assert json.loads(done.stdout) == {"level": "info", "text": "goodbye"}


def test_a_log_without_a_state_ends_too(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"level": "error", "text": "bad key file"}\n')
    done = subprocess.run(abps("logs", tmp_path, "-f"), stdout=subprocess.PIPE, check=True)
    assert b"bad key file" in done.stdout


def test_ctrl_c_ends_a_follower_quietly(tmp_path: Path, store: Store) -> None:
    store.commit_round(Chronicle().resting())
    command = abps("rounds", tmp_path, "--follow")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().split()[0] == "round"
        assert process.stdout.readline().split()[0] == "1"
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert process.stderr.read() == ""
    store.close()


def test_following_goes_on_while_the_process_is_on_another_machine(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store._transaction() as db:
        db.execute("UPDATE meta SET host = 'another machine'")
    reader, steps, pauses = Reader(tmp_path), [], []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            store.close()

    monkeypatch.setattr(read.time, "sleep", pause)
    read._until_the_end(reader, lambda: steps.append(reader.condition()))
    assert steps == ["elsewhere", "elsewhere", "stopped"]


@pytest.mark.parametrize("command", ["status", "rounds", "peers", "isolation"])
def test_the_real_entry_reports_an_error_in_one_line(tmp_path: Path, command: str) -> None:
    (tmp_path / STATE_FILE).write_bytes(b"damaged, " * 1000)
    done = subprocess.run(
        [sys.executable, "-m", "abps_node", command, str(tmp_path)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "40"},
    )
    assert done.returncode == ExitCode.DAMAGED
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"abps: {tmp_path / STATE_FILE}: is damaged")
