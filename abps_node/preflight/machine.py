"""Checks of the machine: the port, the disk, and what already lies in the state directory."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from abps_node.addresses import WILDCARD_HOSTS, is_loopback, split_address
from abps_node.cli.human import count
from abps_node.config import CenterConfig
from abps_node.errors import BindError, StoreError
from abps_node.filesystem import shared_file_system
from abps_node.preflight.finding import Finding, ok, problem, warning
from abps_node.store.connection import connect_to_read, readable_errors
from abps_node.store.opening import check_owner, is_empty
from abps_node.store.schema import STATE_FILE

LEAST_FREE_BYTES: Final = 100 * 1024**2
"""Below it the database cannot be trusted to take its next commits."""
GOOD_FREE_BYTES: Final = 1024**3


def check_port(config: CenterConfig) -> Iterator[Finding]:
    """Binds for a moment, as the daemon would; raises ``BindError`` if that fails."""
    if config.bind is None:
        yield from _outbound_only(config)
    else:
        yield from _port(config, config.bind)
    if config.metrics_bind is not None:
        yield from _metrics(config, config.metrics_bind)


def _outbound_only(config: CenterConfig) -> Iterator[Finding]:
    yield ok(
        "port",
        "bind is none: this center takes no connections; it opens one to every other that has an "
        "address and keeps it open",
    )
    if config.member.address is not None:
        yield warning(
            "port",
            f"the roster says {config.member.address}, but nobody will listen there",
            "take the address out of the roster, or set bind",
        )


def _port(config: CenterConfig, bind: str) -> Iterator[Finding]:
    import zmq

    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        try:
            router.bind(bind)
        except zmq.ZMQError as error:
            # libzmq's own text would repeat the address.
            cause = os.strerror(error.errno) if error.errno else str(error)
            raise BindError(
                f"{config.path}: bind: found {bind}, which cannot be bound: {cause}"
            ) from error
    yield ok("port", f"{bind} is free")
    host, _ = split_address(bind)
    told = config.advertise or config.member.address
    if is_loopback(host) and not config.federation.simulation:
        yield warning(
            "port",
            f"{bind} is reachable from this machine only",
            'set bind = "tcp://*:PORT" for centers elsewhere to connect',
        )
    if _disagrees(config, bind):
        yield warning(
            "port",
            f"the roster says {config.member.address}, this center listens on {bind} and "
            "advertises nothing else",
            "correct bind, advertise, or the address in the roster",
        )
    if host in WILDCARD_HOSTS and told is None:
        yield warning(
            "port",
            "no address of this center is known to the others; it can only connect to them",
            "set advertise, or the address in the roster",
        )


def _metrics(config: CenterConfig, bind: str) -> Iterator[Finding]:
    host, port = split_address(bind)
    name = "" if host == "*" else host.strip("[]")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    try:
        socket.create_server((name, port), family=family).close()
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        raise BindError(
            f"{config.path}: metrics.bind: found {bind}, which cannot be bound: {cause}"
        ) from error
    yield ok("port", f"metrics: {bind} is free")
    if not is_loopback(host):
        yield warning(
            "port",
            f"metrics: {bind} is open to other machines, without password or encryption",
            "let a firewall or a proxy decide who may read it, or bind to 127.0.0.1",
        )


def _disagrees(config: CenterConfig, bind: str) -> bool:
    """Whether the roster sends the others to a port or host on which nobody will listen.

    Behind a router both may be right, which is what ``advertise`` says.
    """
    if config.advertise is not None or config.member.address is None:
        return False
    (host, port), (told_host, told_port) = (
        split_address(bind),
        split_address(config.member.address),
    )
    other_host = is_loopback(host) and not is_loopback(told_host)
    return port not in (0, told_port) or port == 0 or other_host


def check_disk(config: CenterConfig) -> Iterator[Finding]:
    """Room, and leave to write, where the state will lie; raises ``StoreError`` without leave."""
    place = _nearest_existing(config.state_dir)
    try:
        with tempfile.TemporaryFile(dir=place):
            free = shutil.disk_usage(place).free
    except OSError as error:
        raise StoreError(f"{place}: cannot be written: {error.strerror}") from error
    text = f"{free / 1024**3:.1f} GiB free in {place}"
    if free < LEAST_FREE_BYTES:
        yield problem("disk", text, "free at least 1 GiB, or set another state_dir")
    elif free < GOOD_FREE_BYTES:
        yield warning("disk", text, "free at least 1 GiB, or set another state_dir")
    else:
        yield ok("disk", text)
    if (kind := shared_file_system(config.state_dir)) is not None:
        yield warning(
            "disk",
            f"{place} is on {kind}, which other machines may use too: the state is kept without a "
            "write-ahead log, and every write waits for the disk",
            "a local disk is faster; nothing, if several machines have to reach it",
        )


def check_state(config: CenterConfig) -> Iterator[Finding]:
    """Whose state is there already; raises ``StoreError`` if it is not this center's."""
    path = config.state_dir / STATE_FILE
    if not path.exists():
        yield ok("state", f"none yet in {config.state_dir}; the first start makes it")
        return
    with readable_errors(path):
        db = connect_to_read(path)
        try:
            if is_empty(db):
                yield ok("state", f"none yet in {config.state_dir}; a start has just begun it")
                return
            check_owner(path, db, config.id, config.federation.contract)
            rounds, finished = _progress(db)
        finally:
            db.close()
    goes_on = "finished" if finished else "the next start goes on from there"
    done = count(rounds, "round")
    yield ok("state", f"{done} of this contract in {config.state_dir}, {goes_on}")


def _progress(db: sqlite3.Connection) -> tuple[int, bool]:
    rounds = db.execute("SELECT count(*) FROM rounds").fetchone()[0]
    finished = db.execute("SELECT finished FROM meta").fetchone()[0]
    return int(rounds), bool(finished)


def _nearest_existing(path: Path) -> Path:
    """The directory itself, or the one in which it would be made."""
    while not path.exists():
        path = path.parent
    return path
