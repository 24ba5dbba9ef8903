"""The keys of a broker in federation.toml and center.toml: defaults, bounds, what excludes what."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from abps_node.config import load_center_config
from abps_node.discovery import make_discovery
from abps_node.errors import ConfigError, KeyFileError
from tests.support.toml_files import center_tables, federation_tables, write_files


def written(tmp_path: Path, discovery: dict[str, Any], own: dict[str, Any] | None = None) -> Path:
    federation = federation_tables() | {"discovery": {"kind": "mqtt", **discovery}}
    center = center_tables() | ({} if own is None else {"mqtt": own})
    return write_files(tmp_path, federation, center)


def problem(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_center_config(path)
    return str(caught.value)


def test_a_host_is_enough(tmp_path: Path) -> None:
    config = load_center_config(written(tmp_path, {"host": "broker.example"}))
    broker, access = config.federation.discovery.broker, config.mqtt
    assert broker is not None and access is not None
    assert str(broker) == "mqtts://broker.example:8883"
    assert (broker.prefix, broker.keepalive_s) == ("abps", 30)
    assert (access.username, access.password(), access.events) == ("north", None, True)


def test_plain_broker_must_be_written_out(tmp_path: Path) -> None:
    config = load_center_config(written(tmp_path, {"host": "::1", "tls": False}))
    assert str(config.federation.discovery.broker) == "mqtt://[::1]:1883"


def test_paths_start_at_center_toml(tmp_path: Path) -> None:
    own = {"password_file": "keys/broker.password", "ca_file": "ca.crt", "username": "n"}
    access = load_center_config(written(tmp_path, {"host": "b"}, own)).mqtt
    assert access is not None
    assert access.password_file == tmp_path.resolve() / "keys/broker.password"
    assert (access.ca_file, access.username) == (tmp_path.resolve() / "ca.crt", "n")


def test_other_kinds_have_no_broker(tmp_path: Path) -> None:
    config = load_center_config(write_files(tmp_path))
    assert (config.mqtt, config.federation.discovery.broker) == (None, None)


@pytest.mark.parametrize(
    ("discovery", "text"),
    [
        ({}, 'discovery.host: missing, allowed: the broker\'s host, since kind is "mqtt"'),
        ({"host": "a b"}, 'discovery.host: found "a b", allowed: a host name'),
        ({"host": "a..b"}, 'discovery.host: found "a..b", allowed: a host name'),
        ({"host": "b:1883x", "port": 0}, "discovery.port: found 0, allowed: an integer from 1"),
        ({"host": "b", "prefix": "a/#"}, 'discovery.prefix: found "a/#", allowed: levels of'),
        ({"host": "b", "prefix": "/a"}, 'discovery.prefix: found "/a", allowed: levels of'),
        ({"host": "b", "keepalive_s": 0}, "discovery.keepalive_s: found 0, allowed"),
        ({"host": "b", "path": "x"}, 'discovery.path: found "x", allowed: nothing, since kind'),
        ({"host": "b", "username": "x"}, "discovery.username: unknown key"),
    ],
)
def test_faults_in_federation_toml(tmp_path: Path, discovery: dict[str, Any], text: str) -> None:
    assert text in problem(written(tmp_path, discovery))


def test_keys_of_a_broker_belong_to_a_broker(tmp_path: Path) -> None:
    path = written(tmp_path, {"kind": "static", "tls": False})
    assert 'discovery.tls: found false, allowed: nothing, since kind is "static"' in problem(path)
    path = write_files(tmp_path, None, center_tables() | {"mqtt": {"username": "x"}})
    assert "mqtt: found a table, allowed: nothing, since discovery.kind of" in problem(path)


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ({"password": "x"}, "mqtt.password: unknown key; nearest known: password_"),
        ({"password_file": "x", "password_env": "X"}, 'mqtt.password_env: found "X", allowed: no'),
        ({"password_env": "a b"}, "allowed: the name of an environment variable"),
        ({"username": ""}, 'mqtt.username: found "", allowed: text of 1 to 128 characters'),
    ],
)
def test_faults_in_center_toml(tmp_path: Path, own: dict[str, Any], text: str) -> None:
    assert text in problem(written(tmp_path, {"host": "b"}, own))


def test_ca_file_without_tls(tmp_path: Path) -> None:
    text = problem(written(tmp_path, {"host": "b", "tls": False}, {"ca_file": "ca.crt"}))
    assert 'mqtt.ca_file: found "ca.crt", allowed: nothing, since discovery.tls of' in text


def test_wildcard_bind_needs_an_address_for_the_card(tmp_path: Path) -> None:
    federation = federation_tables() | {"discovery": {"kind": "mqtt", "host": "b"}}
    del federation["roster"][0]["address"]
    path = write_files(tmp_path, federation, center_tables() | {"bind": "tcp://*:5555"})
    assert "advertise: missing, allowed: tcp://host:port" in problem(path)


def failure(path: Path) -> str:
    """What stops a start over the broker's secrets and certificates."""
    config = load_center_config(path)
    with pytest.raises((KeyFileError, ConfigError)) as caught:
        make_discovery(config.federation, config.id, config.mqtt)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "mode", "text"),
    [
        (b"secret", 0o640, "found mode 0640, allowed: 0600 or stricter"),
        (b"secret\nmore\n", 0o600, "found 2 lines, allowed: one, the password"),
        (b"", 0o600, "found 0 lines, allowed: one, the password"),
        (b"\n", 0o600, "found 1 empty line, allowed: one, the password"),
        (b"\xff\xfe", 0o600, "found bytes that are not UTF-8"),
        (b"s" * 5000, 0o600, "found more than 4096 bytes"),
    ],
)
def test_password_file(tmp_path: Path, content: bytes, mode: int, text: str) -> None:
    file = tmp_path / "password"
    file.write_bytes(content)
    file.chmod(mode)
    path = written(tmp_path, {"host": "b", "tls": False}, {"password_file": "password"})
    said = failure(path)
    assert said.startswith(f"{file.resolve()}: ") and text in said
    assert "secret" not in said.replace(str(tmp_path), "")


def test_password_file_that_is_missing_or_no_file(tmp_path: Path) -> None:
    path = written(tmp_path, {"host": "b", "tls": False}, {"password_file": "password"})
    assert "password: cannot be read: No such file" in failure(path)
    os.mkfifo(tmp_path / "password", 0o600)
    assert "found no regular file, allowed: a password file" in failure(path)


def test_password_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, {"host": "b", "tls": False}, {"password_env": "BROKER_PASSWORD"})
    text = "mqtt.password_env: found no environment variable BROKER_PASSWORD"
    assert f"{path}: {text}" in failure(path)
    monkeypatch.setenv("BROKER_PASSWORD", "secret")
    access = load_center_config(path).mqtt
    assert access is not None and access.password() == "secret"


def test_ca_file_that_is_missing_or_no_certificate(tmp_path: Path) -> None:
    path = written(tmp_path, {"host": "b"}, {"ca_file": "ca.crt"})
    assert "mqtt.ca_file: cannot be read: No such file" in failure(path)
    (tmp_path / "ca.crt").write_text("no certificate\n", encoding="utf-8")
    assert "mqtt.ca_file: found no certificate, allowed: one or more in PEM" in failure(path)
