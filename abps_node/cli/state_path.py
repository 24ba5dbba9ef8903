"""From the PATH of a reading command to a state directory."""

from __future__ import annotations

from pathlib import Path

from abps_node.errors import ConfigError

CENTER_FILE = "center.toml"


def state_dir_of(path: Path) -> Path:
    """The state directory that a state directory, a center.toml or its folder stands for.

    Only ``state_dir`` is read from center.toml, so that a state can be looked at whatever else is
    wrong with the files. Raises ``ConfigError``, and ``StoreError`` for a state directory that may
    not be looked into.
    """
    from abps_node.store.connection import present
    from abps_node.store.schema import STATE_FILE

    found = _state_dir_of(path)
    present(found / STATE_FILE)
    return found


def _state_dir_of(path: Path) -> Path:
    from abps_node.logs import LOG_NAME
    from abps_node.store.connection import present
    from abps_node.store.schema import STATE_FILE

    if path.is_file():
        return _from_center_file(path)
    if not path.is_dir():
        raise ConfigError(f"{path}: found nothing, allowed: {_ALLOWED}")
    if any(present(path / name) for name in (STATE_FILE, LOG_NAME)):
        return path
    if (path / CENTER_FILE).is_file():
        return _from_center_file(path / CENTER_FILE)
    centers = sorted(file.parent for file in path.glob(f"centers/*/{CENTER_FILE}"))
    if centers:
        raise ConfigError(
            f"{path}: found a federation of {len(centers)} centers, allowed: one of them, for "
            f"instance {centers[0]}"
        )
    raise ConfigError(f"{path}: found no center in this folder, allowed: {_ALLOWED}")


_ALLOWED = f"a state directory, a {CENTER_FILE}, or a folder that holds one"


def _from_center_file(file: Path) -> Path:
    from abps_node.config import read_toml
    from abps_node.config_files import CenterFile

    named = read_toml(file).get("state_dir", CenterFile.model_fields["state_dir"].default)
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{file}: state_dir: found {named!r}, allowed: a path")
    return (file.parent / Path(named).expanduser()).resolve()
