"""What keeps a center from running: the documented exit code, and one line that names the cause.

``abps run`` with the real daemon. It runs in this process where that is possible, since each start
of an interpreter takes seconds.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from abps_node import daemon
from abps_node.config import CenterConfig
from abps_node.data import load_center
from abps_node.exits import ExitCode
from abps_node.keys import generate
from abps_node.store import Store
from abps_node.store.schema import STATE_FILE
from tests.support.center_processes import CenterProcesses
from tests.support.command_line import abps
from tests.support.wards import (
    edit_toml,
    ward_federation,
    ward_patients,
    with_own_federation,
)

pytestmark = pytest.mark.usefixtures("restored_logging")


@pytest.fixture
def center(tmp_path: Path) -> CenterConfig:
    return ward_federation(tmp_path / "f", ["amber", "birch"]).centers[0]


Spoil = Callable[[CenterConfig], str]
"""Spoils a center; returns what the one line must say."""


def no_table(center: CenterConfig) -> str:
    center.data.unlink()
    return str(center.data)


def a_label_that_is_none(center: CenterConfig) -> str:
    table = ward_patients()
    died = pa.array([2] * table.num_rows)
    parquet.write_table(table.set_column(0, "died", died), center.data)
    return (
        "column 'died', row 1: found a value not logged here (`abps check` shows it), allowed: 0/1"
    )


def a_column_less(center: CenterConfig) -> str:
    parquet.write_table(ward_patients().drop_columns("x3"), center.data)
    return "x3"


def too_few_patients(center: CenterConfig) -> str:
    parquet.write_table(ward_patients(rows=2), center.data)
    return "split is empty"


def no_key(center: CenterConfig) -> str:
    center.secret_key.unlink()
    return f"{center.secret_key}: cannot be read"


def a_key_that_others_can_read(center: CenterConfig) -> str:
    center.secret_key.chmod(0o644)
    return "found mode 0644, allowed: 0600"


def another_key(center: CenterConfig) -> str:
    center.secret_key.write_text(generate().secret, encoding="ascii")
    return "which the roster"


def another_contract(center: CenterConfig) -> str:
    store = Store.open(center.state_dir, center.id, center.federation.contract)
    store.close()
    with_own_federation(center, lambda tables: tables["contract"].update(name="another"))
    return "found the state of contract"


def another_center(center: CenterConfig) -> str:
    Store.open(center.state_dir, "birch", center.federation.contract).close()
    return "found the state of center 'birch', allowed: 'amber'"


def another_table(center: CenterConfig) -> str:
    contract = center.federation.contract
    patients = load_center(contract, center.id, center.data).fingerprint
    Store.open(center.state_dir, center.id, contract, patients=patients).close()
    table = ward_patients()
    parquet.write_table(table.slice(0, table.num_rows - 1), center.data)
    return f"it had {table.num_rows} rows, now {table.num_rows - 1}; put the former table back"


def a_damaged_state(center: CenterConfig) -> str:
    center.state_dir.mkdir()
    (center.state_dir / STATE_FILE).write_bytes(b"no database" * 1000)
    return "is damaged"


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (no_table, ExitCode.DATA),
        (a_label_that_is_none, ExitCode.DATA),
        (a_column_less, ExitCode.DATA),
        (too_few_patients, ExitCode.DATA),
        (no_key, ExitCode.KEYS),
        (a_key_that_others_can_read, ExitCode.KEYS),
        (another_key, ExitCode.KEYS),
        (another_contract, ExitCode.STORE),
        (another_center, ExitCode.STORE),
        (another_table, ExitCode.STORE),
        (a_damaged_state, ExitCode.DAMAGED),
    ],
)
def test_a_center_that_cannot_run(center: CenterConfig, spoil: Spoil, code: ExitCode) -> None:
    said = spoil(center)
    outcome = abps("run", center.path)
    assert outcome.code == code
    assert outcome.out == ""
    only_line(outcome.err, code, said)


def only_line(text: str, code: int, said: str) -> None:
    """One JSON line, since no terminal, without a traceback."""
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    (line,) = lines
    assert (line["level"], line["event"], line["exit_code"]) == ("error", "ended", code)
    assert said in line["text"]
    assert "exception" not in line


def test_a_key_that_the_file_misspells(center: CenterConfig) -> None:
    """What is wrong in the files is known before there is a log: plain text."""
    edit_toml(center.path, lambda tables: tables.update(colour="blue"))
    outcome = abps("run", center.path)
    assert (outcome.code, outcome.out) == (ExitCode.CONFIG, "")
    (line,) = outcome.err.splitlines()
    assert line.startswith(f"abps: {center.path}: colour: unknown key")


def test_a_port_that_is_taken(center: CenterConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "REBIND_S", 0.3)  # an older copy would get five seconds
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        edit_toml(center.path, lambda tables: tables.update(bind=address))
        outcome = abps("run", center.path)
    assert outcome.code == ExitCode.BIND
    only_line(outcome.err, ExitCode.BIND, f"{address}: cannot be bound: Address already in use")


def test_a_folder_that_is_none(center: CenterConfig) -> None:
    folder = center.federation.discovery.path
    assert folder is not None
    folder.rmdir()
    folder.write_text("", encoding="utf-8")
    outcome = abps("run", center.path)
    assert outcome.code == ExitCode.FAILED
    only_line(outcome.err.splitlines()[-1], ExitCode.FAILED, f"{folder}: ")


@pytest.mark.timeout(600)
def test_the_same_as_a_process(center: CenterConfig, processes: CenterProcesses) -> None:
    center.secret_key.chmod(0o644)
    process = processes.start(center)
    assert process.wait_for_end() == ExitCode.KEYS
    only_line(process.said(), ExitCode.KEYS, "found mode 0644, allowed: 0600")
