"""The MQTT broker of a federation, as the program uses it: where it is, and who one is there.

What all centers share stands in federation.toml (``Broker``), what only this center knows in
center.toml (``BrokerAccess``). No secret is read before a connection is made.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from abps_node.config_files import BrokerTable, DiscoveryTable
from abps_node.errors import ConfigError, KeyFileError
from abps_node.private_files import MAX_BYTES, read_private

TLS_PORT: Final = 8883
PLAIN_PORT: Final = 1883


@dataclass(frozen=True)
class Broker:
    """Where the broker listens and how the federation uses it."""

    host: str
    port: int
    tls: bool
    prefix: str
    """First levels of all topics of the federation."""
    keepalive_s: int

    def __str__(self) -> str:
        scheme = "mqtts" if self.tls else "mqtt"
        return f"{scheme}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True)
class BrokerAccess:
    """How this center shows who it is, and what it tells."""

    file: Path
    """center.toml, for messages."""
    username: str
    password_file: Path | None = None
    password_env: str | None = None
    ca_file: Path | None = None
    """None: the authorities that the operating system trusts."""
    events: bool = True

    def password(self) -> str | None:
        """Read anew each time, so that a changed one is taken up; None if none is configured.

        ``KeyFileError`` or ``ConfigError`` name what is missing, too open, or no password.
        """
        if self.password_file is not None:
            return _only_line(self.password_file)
        if self.password_env is None:
            return None
        password = os.environ.get(self.password_env)
        if not password:
            raise ConfigError(
                f"{self.file}: mqtt.password_env: found no environment variable "
                f"{self.password_env}, allowed: the name of one that holds the password"
            )
        return password


def shared_broker(table: DiscoveryTable) -> Broker | None:
    """The broker of ``[discovery]``; None for the other kinds."""
    if table.kind != "mqtt" or table.host is None:
        return None
    port = table.port or (TLS_PORT if table.tls else PLAIN_PORT)
    return Broker(table.host, port, table.tls, table.prefix, table.keepalive_s)


def own_access(file: Path, center_id: str, table: BrokerTable | None) -> BrokerAccess:
    """The center's ``[mqtt]``, all of which may be left out; paths start at ``file``'s folder."""
    table = BrokerTable() if table is None else table

    def absolute(named: str | None) -> Path | None:
        return None if named is None else (file.parent / Path(named).expanduser()).resolve()

    return BrokerAccess(
        file=file,
        username=table.username or center_id,
        password_file=absolute(table.password_file),
        password_env=table.password_env,
        ca_file=absolute(table.ca_file),
        events=table.events,
    )


def _only_line(path: Path) -> str:
    content = read_private(path, "a password file")
    # What was found is never quoted.
    if len(content) > MAX_BYTES:
        raise KeyFileError(f"{path}: found more than {MAX_BYTES} bytes, allowed: one password")
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise KeyFileError(f"{path}: found bytes that are not UTF-8, allowed: UTF-8") from error
    if len(lines) != 1 or not lines[0]:
        found = "1 empty line" if len(lines) == 1 else f"{len(lines)} lines"
        raise KeyFileError(f"{path}: found {found}, allowed: one, the password")
    return lines[0]
