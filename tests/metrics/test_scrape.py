"""A running federation, scraped over HTTP as a Prometheus server does it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from abps_node.config import CenterConfig, load_center_config
from abps_node.errors import BindError, ConfigError
from tests.support.residents import Resident, Residents, eventually
from tests.support.wards import edit_toml, free_ports, ward_contract, ward_federation

DASHBOARD = Path(__file__).parents[2] / "examples" / "grafana" / "center.json"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def with_metrics(center: CenterConfig, **table: object) -> CenterConfig:
    edit_toml(center.path, lambda tables: tables.update(metrics=table))
    return load_center_config(center.path)


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def scraped(port: int) -> tuple[str, Samples]:
    def get() -> str:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert answer.status == 200
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            return str(answer.read().decode("utf-8"))

    text = await asyncio.to_thread(get)
    return text, parsed(text)


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


async def test_a_scrape_tells_how_the_center_fares(tmp_path: Path, residents: Residents) -> None:
    contract = ward_contract({"rounds": 1000}, {"round_min_s": 0.05})
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], contract)
    (port,) = free_ports(1)
    watched = residents.start(with_metrics(layout.centers[0], bind=f"tcp://127.0.0.1:{port}"))
    residents.start(layout.centers[1])
    await eventually(lambda: any(e.record.partners for e in reader_rounds(watched)))
    await eventually(lambda: watched.last_round() >= 3)
    text, samples = await scraped(port)
    told = watched.reader
    assert value(samples, "abps_committed_rounds_total") >= 3
    assert value(samples, "abps_planned_rounds") == 1000
    assert value(samples, "abps_round") >= 3
    assert value(samples, "abps_incarnation") == 1
    assert value(samples, "abps_peers", status="met") == 1
    assert sum(v for (name, _), v in samples.items() if name == "abps_phase") == 1
    assert value(samples, "abps_exchanges_total", outcome="complete") >= 1
    assert value(samples, "abps_round_seconds_count") >= 3
    assert value(samples, "process_resident_memory_bytes") > 1e6
    assert value(samples, "abps_queue_depth", queue="events") >= 0
    for direction in ("in", "out"):
        assert value(samples, "abps_wire_bytes_total", peer="birch", direction=direction) > 1000
    isolated = [v for (name, _), v in samples.items() if name == "abps_isolated_rounds_total"]
    assert len(isolated) == 10 and sum(isolated) <= told.status().last_round
    assert value(samples, "abps_validation_utility", metric="auroc") == pytest.approx(
        round(value(samples, "abps_validation_utility", metric="auroc"), 3), abs=0
    )
    await eventually(lambda: watched.last_round() >= 8)
    await eventually_lagged(port)
    assert_every_panel_finds_its_metric(text)


def reader_rounds(resident: Resident) -> list:  # type: ignore[type-arg]
    return resident.reader.rounds() if resident.last_round() else []


async def eventually_lagged(port: int) -> None:
    """The loop keeps an appointment twice a second, and the page is rendered anew each second."""
    for _ in range(600):
        _, samples = await scraped(port)
        if value(samples, "abps_event_loop_lag_seconds_count") >= 2:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the lag of the loop is not measured")


def assert_every_panel_finds_its_metric(text: str) -> None:
    """Whoever renames a metric changes the example dashboard, too."""
    known = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    asked = {name for expression in expressions() for name in metric_names(expression)}
    assert asked, "the dashboard asks for nothing"
    for name in asked:
        assert known & {name, re.sub(r"_(bucket|count|sum)$", "", name)}, name


def expressions() -> Iterator[str]:
    board = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]


def metric_names(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:abps|process)_\w+", expression))


async def test_few_patients_are_told_nothing_about(tmp_path: Path, residents: Residents) -> None:
    data = {
        "label": "died",
        "features": [{"name": f"x{number}", "kind": "continuous"} for number in range(5)],
        "card": {"min_events": 40},
    }
    contract = ward_contract({"rounds": 1000}, {"round_min_s": 0.05}, data=data)
    layout = ward_federation(tmp_path / "f", ["amber", "birch"], contract)
    (port,) = free_ports(1)
    watched = residents.start(with_metrics(layout.centers[0], bind=f"tcp://127.0.0.1:{port}"))
    residents.start(layout.centers[1])
    await eventually(lambda: watched.last_round() >= 2)
    text, samples = await scraped(port)
    assert value(samples, "abps_committed_rounds_total") >= 2
    assert "abps_validation_utility" not in text


async def test_a_port_that_is_taken_ends_the_start(tmp_path: Path, residents: Residents) -> None:
    layout = ward_federation(tmp_path / "f", ["amber", "birch"])
    server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    center = with_metrics(layout.centers[0], bind=f"tcp://127.0.0.1:{port}")
    resident = residents.start(center)
    with pytest.raises(BindError, match=r"metrics\.bind in .*center\.toml: tcp://127.* change it"):
        await resident.task
    residents.forget(resident)
    server.close()


@pytest.mark.parametrize("host", ["*", "0.0.0.0", "[::]", "192.0.2.1", "hospital.example"])
def test_only_this_machine_unless_stated(tmp_path: Path, host: str) -> None:
    center = ward_federation(tmp_path / "f", ["amber", "birch"]).centers[0]
    with pytest.raises(ConfigError, match=r"metrics.*beyond_loopback = true"):
        with_metrics(center, bind=f"tcp://{host}:9464")
    stated = with_metrics(center, bind=f"tcp://{host}:9464", beyond_loopback=True)
    assert stated.metrics_bind == f"tcp://{host}:9464"


@pytest.mark.parametrize("bind", ["none", "http://127.0.0.1:9464", "tcp://127.0.0.1", 9464])
def test_what_is_no_address(tmp_path: Path, bind: object) -> None:
    center = ward_federation(tmp_path / "f", ["amber", "birch"]).centers[0]
    with pytest.raises(ConfigError, match=r"metrics\.bind"):
        with_metrics(center, bind=bind)


def test_off_the_library_is_not_even_imported() -> None:
    code = "import abps_node.daemon, sys; print('prometheus_client' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
