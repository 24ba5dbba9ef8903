"""The file of changes to the members: read by the daemon, appended to by ``abps peers``.

JSON, always replaced as a whole, so that a reader sees all of a change or nothing. It lies beside
center.toml by default and outlives the state: a key that was revoked stays so when the state is
begun anew.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from pydantic import ValidationError

from abps_node.atomic import write_whole
from abps_node.config import CenterConfig, Federation
from abps_node.errors import ConfigError
from abps_node.membership import Change, Membership, membership
from protocol.contract import Strict

Stamp = tuple[int, int, int, int]
"""Changes whenever the file does, or who may read it."""


class MembersFile(Strict):
    """All of it."""

    format: Literal[1] = 1
    changes: tuple[Change, ...] = ()


def read_changes(path: Path) -> list[Change]:
    """All changes, oldest first; none without a file. ``ConfigError`` for a damaged one."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        return list(MembersFile.model_validate_json(content).changes)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ConfigError(f"{path}: {where}: {first['msg']}") from error


def current_membership(config: CenterConfig) -> Membership:
    """The members as the files say now; ``ConfigError`` for a damaged one."""
    return membership(config.federation.roster, read_changes(config.members), time.time())


def with_members(config: CenterConfig, own_key: str | None = None) -> Federation:
    """The federation with its members of now, oneself with the key in use if that is known."""
    key = own_key or config.member.public_key
    members = current_membership(config).members(config.id, key)
    return replace(config.federation, roster=tuple(members))


def append_change(path: Path, change: Change) -> None:
    """Add one change, durably; ``ConfigError`` for a damaged file, ``NodeError`` if unwritable."""
    with _alone(path.parent):
        file = MembersFile(changes=(*read_changes(path), change))
        text = file.model_dump_json(indent=1, exclude_none=True) + "\n"
        write_whole(path, partial(_write, text.encode()), force=True, mode=0o644)


def stamp_of(path: Path) -> Stamp | None:
    """None while there is no file, or it cannot be looked at."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size


def _write(content: bytes, file: BinaryIO) -> None:
    file.write(content)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Of two commands at once the second waits, so that no change is lost."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be opened: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
