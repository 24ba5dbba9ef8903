"""Every bad key gives one line: file, dotted key, what was found, what is allowed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from abps_node.config import load_center_config, load_federation
from abps_node.errors import ConfigError
from tests.support.toml_files import (
    KEY_A,
    KEY_B,
    center_tables,
    drop,
    federation_tables,
    put,
    write_files,
)

GONE = object()
"""In the tables below: the key is removed."""

BAD_FEDERATION: list[tuple[str, object, str]] = [
    # unknown keys
    ("contract.policy.kapa", 2, "contract.policy.kapa: unknown key; nearest known: kappa"),
    (
        "contract.rounds",
        9,
        "contract.rounds: unknown key; known here: name, protocol_version, security, data, model, "
        "training, policy, pacing; it belongs to contract.policy.rounds",
    ),
    ("rooster", [], "rooster: unknown key; nearest known: roster"),
    (
        "contract.data.features.0.unitt",
        "years",
        "contract.data.features[age].unitt: unknown key; nearest known: unit",
    ),
    ("discovery.pol_s", 3.0, "discovery.pol_s: unknown key; nearest known: poll_s"),
    # missing keys
    ("contract", GONE, "contract: missing, allowed: a table"),
    ("contract.name", GONE, "contract.name: missing, allowed: text of 1 to 128 characters"),
    ("roster", GONE, "roster: missing, allowed: a list of 1 or more tables, [[…]]"),
    (
        "roster.1.public_key",
        GONE,
        "roster[south].public_key: missing, allowed: a public key, 40 characters of z85",
    ),
    # wrong types
    ("contract.policy.kappa", "3", 'contract.policy.kappa: found "3", allowed: an integer from 1'),
    ("contract.policy.kappa", 2.5, "contract.policy.kappa: found 2.5, allowed: an integer from 1"),
    ("contract.policy.kappa", True, "contract.policy.kappa: found true, allowed: an integer"),
    ("contract.policy", 3, "contract.policy: found 3, allowed: a table"),
    ("contract.data.features", {"a": 1}, "contract.data.features: found a table, allowed: a list"),
    (
        "contract.data.features.0",
        "age",
        'contract.data.features[#1]: found "age", allowed: a table',
    ),
    (
        "contract.model.hidden",
        [64, "x"],
        'contract.model.hidden[#2]: found "x", allowed: an integer',
    ),
    ("simulation", 1, "simulation: found 1, allowed: true or false"),
    ("contract.name", 7, "contract.name: found 7, allowed: text of 1 to 128 characters"),
    # out of range
    (
        "contract.policy.kappa",
        0,
        "contract.policy.kappa: found 0, allowed: an integer from 1 to 64",
    ),
    (
        "contract.policy.rounds",
        -5,
        "contract.policy.rounds: found -5, allowed: an integer from 1 to",
    ),
    (
        "contract.training.learning_rate",
        0.0,
        "contract.training.learning_rate: found 0.0, allowed: a number above 0 and at most 10",
    ),
    (
        "contract.model.dropout",
        1.0,
        "contract.model.dropout: found 1.0, allowed: a number of at least 0 and below 1",
    ),
    (
        "contract.policy.phi_min",
        0.0,
        "contract.policy.phi_min: found 0.0, allowed: a number below 0",
    ),
    (
        "contract.model.init_seed",
        -1,
        "contract.model.init_seed: found -1, allowed: an integer from 0 to 9223372036854775807",
    ),
    (
        "contract.pacing.negotiation_s",
        float("nan"),
        "contract.pacing.negotiation_s: found nan, allowed: a number above 0 (finite)",
    ),
    (
        "contract.pacing.linger_s",
        float("inf"),
        "contract.pacing.linger_s: found inf, allowed: a number above 0 (finite)",
    ),
    (
        "contract.model.hidden",
        [],
        "contract.model.hidden: found [], allowed: a list of 1 to 8 entries",
    ),
    (
        "contract.data.features",
        [],
        "contract.data.features: found [], allowed: a list of 1 or more",
    ),
    ("roster", [], "roster: found [], allowed: a list of 1 or more tables, [[…]]"),
    # one of
    ("contract.security", "tls", 'contract.security: found "tls", allowed: one of curve, none'),
    ("contract.protocol_version", 2, "contract.protocol_version: found 2, allowed: 1"),
    (
        "contract.policy.goal",
        "hom",
        'contract.policy.goal: found "hom", allowed: one of none, homogeneity, diversity',
    ),
    (
        "contract.policy.preset",
        "abps-y",
        'contract.policy.preset: found "abps-y", allowed: one of abps, abps+p,',
    ),
    ("contract.policy.preset", 3, "contract.policy.preset: found 3, allowed: one of abps, abps+p,"),
    ("discovery.kind", "mdns", 'discovery.kind: found "mdns", allowed: one of static, directory'),
    (
        "contract.data.features.0.kind",
        "real",
        'contract.data.features[age].kind: found "real", allowed: one of continuous, binary,',
    ),
    # what does not fit together within the contract
    (
        "contract.data.features.0.levels",
        ["a"],
        "contract.data.features[age].levels: a continuous feature has none",
    ),
    (
        "contract.data.features.2.name",
        "age",
        "contract.data.features: 'age' stands there twice",
    ),
    ("contract.data.label", "age", "contract.data.label: 'age' is also a feature"),
    (
        "contract.policy.head_layers",
        3,
        "contract.policy.head_layers: found 3, allowed: at most 2, since the model has 3 linear",
    ),
    # discovery
    (
        "discovery.kind",
        "directory",
        'discovery.path: missing, allowed: a folder, since kind is "directory"',
    ),
    (
        "discovery.path",
        "cards",
        'discovery.path: found "cards", allowed: nothing, since kind is "static"',
    ),
    # roster
    (
        "roster.0.id",
        "North",
        'roster[North].id: found "North", allowed: 1 to 63 of the characters a-z 0-9 . _ -',
    ),
    (
        "roster.1.public_key",
        "b" * 39,
        f'roster[south].public_key: found "{"b" * 39}", allowed: a public key, 40 characters',
    ),
    ("roster.1.public_key", "~" + "b" * 39, "roster[south].public_key: found"),
    ("roster.1.public_key", "#" * 40, "roster[south].public_key: found"),
    (
        "roster.1.address",
        "127.0.0.1:5555",
        'roster[south].address: found "127.0.0.1:5555", allowed: tcp://host:port, a host that',
    ),
    ("roster.1.address", "tcp://*:5555", 'roster[south].address: found "tcp://*:5555", allowed:'),
    ("roster.1.address", "tcp://b:0", 'roster[south].address: found "tcp://b:0", allowed:'),
    ("roster.1.id", "north", 'roster: found id "north" 2 times, allowed: once'),
    ("roster.1.public_key", KEY_A, f'roster: found public_key "{KEY_A}" 2 times, allowed: once'),
    (
        "roster.1.address",
        "tcp://127.0.0.1:5555",
        'roster: found address "tcp://127.0.0.1:5555" 2 times, allowed: once',
    ),
    # a goal needs a threshold
    (
        "contract.policy.goal",
        "diversity",
        'contract.policy.goal: found "diversity", allowed: none, since contract.policy has neither '
        "tau_sim nor keep_fraction",
    ),
]

BAD_CENTER: list[tuple[str, object, str]] = [
    ("dat", "x.csv", "dat: unknown key; nearest known: data"),
    ("id", GONE, "id: missing, allowed: 1 to 63 of the characters a-z 0-9 . _ -"),
    ("data", "", 'data: found "", allowed: a path'),
    ("bind", "tcp://127.0.0.1", 'bind: found "tcp://127.0.0.1", allowed: tcp://host:port, port 0'),
    ("bind", "tcp://h:65536", 'bind: found "tcp://h:65536", allowed: tcp://host:port, port 0 to'),
    ("bind", "ipc:///x", 'bind: found "ipc:///x", allowed: tcp://host:port'),
    (
        "advertise",
        "tcp://0.0.0.0:1",
        'advertise: found "tcp://0.0.0.0:1", allowed: tcp://host:port',
    ),
    ("seed", -1, "seed: found -1, allowed: an integer from 0 to 9223372036854775807"),
    ("compare_alone", "no", 'compare_alone: found "no", allowed: true or false'),
    ("log_level", "loud", 'log_level: found "loud", allowed: one of debug, info, warning, error'),
    ("id", "west", 'id: found "west", allowed: an id on the roster of'),
    (
        "goal",
        "homogeneity",
        'goal: found "homogeneity", allowed: none, since contract.policy has neither tau_sim nor',
    ),
]


def refused(path: Path) -> list[str]:
    """The lines of the one error that loading this center.toml must give."""
    with pytest.raises(ConfigError) as caught:
        load_center_config(path)
    return str(caught.value).splitlines()


def spoil(tables: dict[str, Any], key: str, value: object) -> dict[str, Any]:
    if value is GONE:
        drop(tables, key)
    else:
        put(tables, key, value)
    return tables


@pytest.mark.parametrize(("key", "value", "expected"), BAD_FEDERATION)
def test_bad_federation(tmp_path: Path, key: str, value: object, expected: str) -> None:
    path = write_files(tmp_path, spoil(federation_tables(), key, value))
    (line,) = refused(path)
    assert line.startswith(f"{tmp_path.resolve() / 'federation.toml'}: {expected}")


@pytest.mark.parametrize(("key", "value", "expected"), BAD_CENTER)
def test_bad_center(tmp_path: Path, key: str, value: object, expected: str) -> None:
    path = write_files(tmp_path, None, spoil(center_tables(), key, value))
    (line,) = refused(path)
    assert line.startswith(f"{path}: {expected}")


def test_all_problems_of_both_files_are_one_error(tmp_path: Path) -> None:
    federation, center = federation_tables(), center_tables()
    for key, value in {
        "contract.policy.preset": "nope",
        "contract.policy.kapa": 2,
        "contract.policy.kappa": 0,
        "roster.0.public_key": "short",
    }.items():
        put(federation, key, value)
    center |= {"bind": "nowhere", "sed": 3}
    lines = refused(write_files(tmp_path, federation, center))
    keys = [re.sub(r"^.*?\.toml: ", "", line).split(":")[0] for line in lines]
    assert sorted(keys) == [
        "bind",
        "contract.policy.kapa",
        "contract.policy.kappa",
        "contract.policy.preset",
        "roster[north].public_key",
        "sed",
    ]


def test_wildcard_bind_needs_an_address_that_the_folder_can_tell(tmp_path: Path) -> None:
    federation, center = federation_tables(), center_tables() | {"bind": "tcp://*:5555"}
    federation["discovery"] = {"kind": "directory", "path": "cards"}
    drop(federation, "roster.0.address")
    (line,) = refused(write_files(tmp_path, federation, center))
    assert "center.toml: advertise: missing, allowed: tcp://host:port" in line
    center["advertise"] = "tcp://north.example:5555"
    assert load_center_config(write_files(tmp_path, federation, center)).advertise is not None


def test_toml_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    path = write_files(tmp_path)
    path.write_text('id = "north"\nfederation = \n', encoding="utf-8")
    (line,) = refused(path)
    assert line.startswith(f"{path}: line 2, column 14: not TOML: ")


def test_syntax_error_in_the_federation_does_not_hide_the_center(tmp_path: Path) -> None:
    path = write_files(tmp_path, None, center_tables() | {"seed": -1})
    (tmp_path / "federation.toml").write_text("[contract\n", encoding="utf-8")
    center, federation = refused(path)
    assert center.startswith(f"{path}: seed: found -1")
    assert federation.startswith(
        f"{tmp_path.resolve() / 'federation.toml'}: line 1, column 10: not TOML"
    )


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "center.toml"
    assert refused(missing) == [f"{missing}: cannot be read: No such file or directory"]
    path = write_files(tmp_path)
    (tmp_path / "federation.toml").unlink()
    (line,) = refused(path)
    assert line.endswith("federation.toml: cannot be read: No such file or directory")
    path.write_bytes(b'id = "\xff"\n')
    (line,) = refused(path)
    assert line.startswith(f"{path}: byte 6: found bytes that are not UTF-8")


def test_long_values_are_shortened(tmp_path: Path) -> None:
    path = write_files(tmp_path, None, center_tables() | {"log_level": "x" * 5000})
    (line,) = refused(path)
    assert "…, allowed: one of debug" in line
    assert len(line) < len(str(path)) + 200


def test_federation_alone_can_be_loaded(tmp_path: Path) -> None:
    federation = federation_tables()
    put(federation, "roster.1.public_key", KEY_B[:-1])
    write_files(tmp_path, federation)
    with pytest.raises(ConfigError, match=r"roster\[south\]\.public_key"):
        load_federation(tmp_path / "federation.toml")
