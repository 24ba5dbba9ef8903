"""The folder of a new center: files, keys, and nothing overwritten."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from abps_node.config import load_federation, read_toml
from abps_node.config_text import checked
from abps_node.errors import ConfigError
from abps_node.keys import KeyPair, load_key_pair, write_key_pair
from abps_node.templates import center_toml, federation_toml
from protocol.contract import CENTER_ID_PATTERN, Data

CENTER_FILE = "center.toml"
FEDERATION_FILE = "federation.toml"
_DIRECTORY_MODE = 0o700
"""Of a new folder; keys lie in it, and the patient table unless it is put elsewhere."""


@dataclass(frozen=True)
class Scaffold:
    """What was written and what was left alone."""

    center_id: str
    public_key: str
    center: Path
    federation: Path
    written: tuple[Path, ...]
    kept: tuple[Path, ...]
    """Files that were there already; they are as they were."""
    on_roster: bool
    """Whether ``federation`` knows this center by this key."""


def scaffold(
    directory: Path,
    center_id: str | None,
    federation: Path | None,
    schema: Path | None = None,
) -> Scaffold:
    """Write what a center needs and does not yet have.

    ``center_id`` None: that of an existing center.toml, else the directory's name. ``federation``
    None: a federation.toml with this center alone is written beside center.toml; its
    ``[contract.data]`` is the text of the file ``schema``, or an example.
    Raises ``ConfigError`` for an impossible id or a bad federation file, ``KeyFileError`` for keys
    that are there but unusable, both before anything is written.
    """
    center = directory / CENTER_FILE
    name = _center_id(directory, center, center_id)
    shared = directory / FEDERATION_FILE if federation is None else federation
    data = None if schema is None else _schema_text(schema, shared)
    if federation is not None or shared.exists():
        load_federation(shared)
    _make_directory(directory)
    written: list[Path] = []
    kept: list[Path] = []
    pair = _keys(directory / "keys", name, written, kept)
    named = os.path.relpath(shared.absolute(), directory.absolute())
    _write_new(center, center_toml(name, named, f"keys/{name}.secret"), written, kept)
    if federation is None:
        _write_new(shared, federation_toml(name, pair.public, data), written, kept)
    member = load_federation(shared).member(name)
    return Scaffold(
        center_id=name,
        public_key=pair.public,
        center=center,
        federation=shared,
        written=tuple(written),
        kept=tuple(kept),
        on_roster=member is not None and member.public_key == pair.public,
    )


def _center_id(directory: Path, center: Path, wanted: str | None) -> str:
    existing = read_toml(center).get("id") if center.exists() else None
    if existing is not None and wanted is not None and existing != wanted:
        raise ConfigError(
            f"{center}: id: found {existing!r}, but {wanted!r} was asked for; nothing was written"
        )
    name = wanted or existing or directory.absolute().name
    if not isinstance(name, str) or re.match(CENTER_ID_PATTERN, name) is None:
        raise ConfigError(
            f"{directory}: {name!r} cannot be a center's id, allowed: 1 to 63 of the characters "
            "a-z 0-9 . _ -, the first a letter or digit; give one with --id"
        )
    return name


def _schema_text(schema: Path, shared: Path) -> str:
    """The draft as it stands, comments and all, once it is known to be complete."""
    if shared.exists():
        raise ConfigError(
            f"--schema: {shared} exists already, allowed: a new folder; or put the text of "
            f"{schema} in the place of its [contract.data]"
        )
    tables = read_toml(schema)
    contract = tables.get("contract")
    if set(tables) != {"contract"} or not isinstance(contract, dict) or set(contract) != {"data"}:
        raise ConfigError(
            f"{schema}: found {sorted(tables)}, allowed: [contract.data] alone, as `abps schema "
            "infer` writes"
        )
    model, problems = checked(Data, contract["data"], schema)
    if model is None:
        raise ConfigError("\n".join(problems))
    return schema.read_text(encoding="utf-8")


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(_DIRECTORY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{directory}: cannot be made: {error.strerror}") from error


def _keys(folder: Path, name: str, written: list[Path], kept: list[Path]) -> KeyPair:
    secret, public = folder / f"{name}.secret", folder / f"{name}.public"
    if secret.exists():
        kept += [path for path in (secret, public) if path.exists()]
        return load_key_pair(secret)
    pair = write_key_pair(folder, name)
    written += [secret, public]
    return pair


def _write_new(path: Path, text: str, written: list[Path], kept: list[Path]) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        kept.append(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
    else:
        written.append(path)
