"""Addresses of the form ``tcp://host:port``."""

from __future__ import annotations

import ipaddress
import re
from typing import Final

_ADDRESS: Final = re.compile(
    r"^tcp://(?P<host>\[[0-9A-Fa-f:.]+\]|\*|[A-Za-z0-9._-]+):(?P<port>\d{1,5})$"
)
WILDCARD_HOSTS: Final = ("*", "0.0.0.0", "[::]")


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``tcp://host:port``; ``ValueError`` for anything else."""
    match = _ADDRESS.match(address)
    if match is None or int(match["port"]) > 65535:
        raise ValueError(f"found {address!r}, allowed: tcp://host:port")
    return match["host"], int(match["port"])


def is_concrete(address: str) -> bool:
    """Whether others can connect to it: a host that is not a wildcard, a port that is not 0."""
    host, port = split_address(address)
    return host not in WILDCARD_HOSTS and port != 0


def with_real_port(address: str, endpoint: str) -> str:
    """The address itself; its port 0 stands for the port that ``endpoint`` has got."""
    host, port = split_address(address)
    return address if port else f"tcp://{host}:{split_address(endpoint)[1]}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the host."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
