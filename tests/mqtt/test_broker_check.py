"""`abps check` with a broker: what works, what does not, how to fix it; nobody is disturbed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from abps_node.discovery import broker as door
from abps_node.preflight import Finding, check_center
from tests.support.broker import HOST, MosquittoBroker
from tests.support.broker_guests import Guests, eventually, plain_client
from tests.support.command_line import abps
from tests.support.made_center import make_center
from tests.support.toml_files import center_tables, federation_tables


def center(folder: Path, broker: MosquittoBroker, *, tls: bool = True) -> Path:
    """A healthy center north that uses this broker."""
    discovery = {"kind": "mqtt", "host": HOST, "port": broker.port}
    own = {"password_file": str(broker.folder / "users" / "north.password")}
    if tls:
        own["ca_file"] = str(broker.folder / "ca.crt")
    else:
        discovery["tls"] = False
    folder.mkdir(exist_ok=True)
    federation = federation_tables() | {"discovery": discovery}
    return make_center(folder, federation=federation, center=center_tables() | {"mqtt": own})


def about_broker(path: Path) -> list[Finding]:
    found = check_center(path)
    return [finding for finding in found if finding.check in ("broker", "peers")]


def the_problem(path: Path) -> tuple[str, str]:
    """The finding and its fix."""
    (finding,) = [one for one in about_broker(path) if one.severity == "problem"]
    return finding.finding, finding.fix


async def test_all_is_well_and_nobody_notices(
    broker: MosquittoBroker, guests: Guests, tmp_path: Path
) -> None:
    path = center(tmp_path / "north", broker)
    north = await guests.center(broker, "north", 1001)
    south = await guests.center(broker, "south", 1002)
    await eventually(lambda: north.knows("south", "tcp://127.0.0.1:1002"))
    findings = await asyncio.to_thread(about_broker, path)
    texts = [finding.finding for finding in findings]
    assert f"mqtts://{HOST}:{broker.port} answers and takes the user north" in texts
    assert "1 card of other centers can be read, 0 of them offline; the own one" in texts[1]
    assert "1 of 1 other center has an address (mqtt discovery)" in texts
    assert {finding.severity for finding in findings} == {"ok"}
    assert (await asyncio.to_thread(abps, "check", path)).code == 0
    assert north.said == south.said == ["broker-met"] and south.knows(
        "north", "tcp://127.0.0.1:1001"
    )


def test_nobody_there_yet_is_a_warning(broker: MosquittoBroker, tmp_path: Path) -> None:
    (missing,) = [one for one in about_broker(center(tmp_path, broker)) if one.fix]
    assert missing.severity == "warning"
    assert "south: abps/card/south: missing, the center has not announced itself" in missing.finding


def test_broker_is_down(still: MosquittoBroker, tmp_path: Path) -> None:
    finding, fix = the_problem(center(tmp_path, still))
    assert finding == f"mqtts://{HOST}:{still.port}: Connection refused"
    assert fix == "start the broker, or correct discovery.host and discovery.port"


def test_wrong_password(broker: MosquittoBroker, tmp_path: Path) -> None:
    path = center(tmp_path, broker)
    (broker.folder / "users" / "north.password").write_text("wrong", encoding="utf-8")
    finding, fix = the_problem(path)
    assert "user north is refused: Not authorized" in finding
    assert "the broker must know the user north" in fix


def test_password_that_others_can_read(broker: MosquittoBroker, tmp_path: Path) -> None:
    path = center(tmp_path, broker)
    (broker.folder / "users" / "north.password").chmod(0o644)
    assert "found mode 0644, allowed: 0600 or stricter" in the_problem(path)[0]
    assert abps("check", path).code == 1


def test_unknown_authority(broker: MosquittoBroker, tmp_path: Path) -> None:
    path = center(tmp_path, broker)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("ca_file", "# ca_file"), encoding="utf-8")
    finding, fix = the_problem(path)
    assert "self-signed certificate in certificate chain" in finding or "local issuer" in finding
    assert "set mqtt.ca_file" in fix


def test_plain_client_at_the_tls_port(
    broker: MosquittoBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "ANSWER_S", 0.5)
    path = center(tmp_path, broker, tls=False)
    warnings = [one.finding for one in about_broker(path) if one.severity == "warning"]
    assert "without TLS the password and all else go in clear" in warnings[0]
    finding, fix = the_problem(path)
    assert "no answer within 0.5 s" in finding and "(discovery.tls)" in fix


def test_name_that_nobody_knows(broker: MosquittoBroker, tmp_path: Path) -> None:
    path = center(tmp_path, broker)
    federation = tmp_path / "federation.toml"
    text = federation.read_text(encoding="utf-8")
    federation.write_text(text.replace(f'host = "{HOST}"', 'host = "no.such.invalid"'), "utf-8")
    finding, fix = the_problem(path)
    assert "no.such.invalid" in finding and fix == "correct discovery.host, or the name service"


async def test_rules_that_deny_the_own_card(
    still: MosquittoBroker, guests: Guests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "ANSWER_S", 0.5)
    rules = still.folder / "acl"
    rules.write_text("pattern read abps/card/+\n", encoding="utf-8")
    still.start()
    finding, fix = await asyncio.to_thread(the_problem, center(tmp_path, still))
    assert finding == "what is published as abps/card/north does not come back"
    assert "must let the user north write abps/card/north and read abps/card/+" in fix


async def test_faulty_card_of_another_is_named(broker: MosquittoBroker, tmp_path: Path) -> None:
    async with plain_client(broker, "south") as client:
        await client.publish("abps/card/south", b"junk", qos=1, retain=True)
    findings = await asyncio.to_thread(about_broker, center(tmp_path, broker))
    (faulty,) = [one for one in findings if one.severity == "warning"]
    assert "abps/card/south: the card: " in faulty.finding
