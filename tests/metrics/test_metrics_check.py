"""What `abps check` says of the port for metrics."""

from __future__ import annotations

import socket
from pathlib import Path

from abps_node.preflight import check_center
from tests.support.made_center import make_center
from tests.support.toml_files import center_tables


def told(path: Path, severity: str) -> list[str]:
    findings = [line.finding for line in check_center(path) if line.severity == severity]
    return [text for text in findings if "metrics: " in text or "metrics.bind" in text]


def center(tmp_path: Path, **table: object) -> Path:
    return make_center(tmp_path, center=center_tables() | {"metrics": table})


def test_a_free_port(tmp_path: Path) -> None:
    path = center(tmp_path, bind="tcp://127.0.0.1:0")
    assert told(path, "ok") == ["metrics: tcp://127.0.0.1:0 is free"]
    assert told(path, "warning") == []


def test_without_metrics_nothing_is_said(tmp_path: Path) -> None:
    assert told(make_center(tmp_path), "ok") == []


def test_a_taken_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        path = center(tmp_path, bind=f"tcp://127.0.0.1:{port}")
        (problem,) = told(path, "problem")
    assert f"metrics.bind: found tcp://127.0.0.1:{port}, which cannot be bound: Address" in problem


def test_open_to_others(tmp_path: Path) -> None:
    path = center(tmp_path, bind="tcp://*:0", beyond_loopback=True)
    (warning,) = told(path, "warning")
    assert "open to other machines, without password or encryption" in warning
