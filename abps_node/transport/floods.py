"""Ends connections that pile up memory inside libzmq.

libzmq bounds the length of a frame (MAXMSGSIZE) and the number of messages that wait (RCVHWM), but
not the number of frames of one message: an unfinished multipart message is kept whole, outside of
any limit, until its last part comes (measured: 413 MB from one peer became 700 MB here in three
seconds, with limits of 1 KiB and 64 messages). Only the kernel knows how much such a connection has
swallowed. So this guard asks it: bytes received on the TCP connection minus those still unread in
the kernel are what libzmq has read; where it has read more since the last delivery to the
application than its queue can honestly hold, the connection is shut down, and libzmq frees what it
kept. It asks once a second, and at once when the memory of the process has grown, at which it looks
several times a second, for that costs next to nothing. What a flood can gain is the bound plus what
arrives between two looks; in memory that is about twice as much under CURVE, and up to 32 times in
clear, where an empty part of 2 bytes takes 64.

It also bounds the number of accepted connections, so that no stranger can use up the descriptors
that the store needs. TCP_INFO is Linux; elsewhere the guard is off and says so once.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

AVAILABLE: Final = hasattr(socket, "TCP_INFO")
LOOK_S: Final = 0.2
"""How often the memory of this process is looked at…"""
CALM_LOOK_S: Final = 1.0
"""…and how often the connections are, as long as it does not grow."""
_ALLOWANCE_BYTES: Final = 256 * 1024
"""Handshake, libzmq's read buffer, pings of other programs between two looks."""
_GROWTH_BYTES: Final = _ALLOWANCE_BYTES
"""Resident memory gained since the last look that calls for the next."""
_ALLOWANCE_PER_S: Final = 128
"""ZMTP pings of an otherwise silent connection, bytes per second; none from this program."""
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_TCP_INFO_BYTES: Final = 136
_BYTES_RECEIVED_AT: Final = 128
"""Offset of ``tcpi_bytes_received`` (64 bit) in Linux's ``struct tcp_info``, since Linux 4.1."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Connection:
    outgoing: bool
    port: int
    """The listening side's port: proof that the descriptor still is this connection."""
    family: int
    peer: str | None = None
    delivered: bool = False
    read_then: int = 0
    """Bytes that libzmq had read at the last look that saw a delivery."""
    then: float = 0.0
    heard_at: float = field(default_factory=time.monotonic)
    """When it delivered a message last, or began to exist."""


class _Memory:
    """Resident memory of this process, in comparison with the last mark."""

    def __init__(self) -> None:
        self._file: int | None = None
        self._marked = 0

    def mark(self) -> None:
        """Compare with the present size from now on."""
        self._marked = self._resident()

    def grew_by(self, bound: int) -> bool:
        """Whether it has grown by more than so many bytes."""
        return self._resident() - self._marked > bound

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _resident(self) -> int:
        if self._file is None:
            self._file = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        return int(os.pread(self._file, 128, 0).split()[1]) * _PAGE_BYTES


class FloodGuard:
    """Watches the TCP connections of one socket by their file descriptors."""

    def __init__(
        self,
        undelivered_bytes: int,
        max_accepted: int,
        cut: Callable[[str | None, str, str], None],
    ) -> None:
        self._bound = undelivered_bytes + _ALLOWANCE_BYTES
        self._max_accepted = max_accepted
        self._cut = cut
        self._connections: dict[int, _Connection] = {}
        self._early: dict[int, str | None] = {}
        self._accepted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._memory = _Memory()
        self._looked = 0.0

    def start(self) -> None:
        """Begin to look."""
        if AVAILABLE:
            self._look_later()
        else:
            _log.warning("No TCP_INFO on this system: multipart floods of peers are not bounded")

    def close(self) -> None:
        """Look no longer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._memory.close()

    def limit_accepted(self, most: int) -> None:
        """Set how many accepted connections may exist."""
        self._max_accepted = most

    def opened(self, descriptor: int, outgoing: bool, port: int) -> None:
        """libzmq connected or accepted; ``port`` is the listening side's."""
        self.closed(descriptor)
        family = _family(descriptor)
        if family is None:
            return
        early = descriptor in self._early
        self._connections[descriptor] = _Connection(
            outgoing, port, family, delivered=early, then=time.monotonic()
        )
        self._connections[descriptor].peer = self._early.pop(descriptor, None)
        if not outgoing:
            self._accepted += 1
            if self._accepted > self._max_accepted:
                self._end(
                    descriptor,
                    "too-many-connections",
                    f"found {self._accepted} accepted connections, allowed: {self._max_accepted}",
                )

    def closed(self, descriptor: int) -> str | None:
        """libzmq closed it; returns the peer that was heard through it, if any."""
        connection = self._connections.pop(descriptor, None)
        if connection is None:
            return None
        if not connection.outgoing:
            self._accepted -= 1
        return connection.peer

    def silent_s(self, descriptor: int) -> float:
        """Seconds since it delivered a message, or began to exist; 0 if it is not known."""
        connection = self._connections.get(descriptor)
        return 0.0 if connection is None else time.monotonic() - connection.heard_at

    def delivered(self, descriptor: int, peer: str | None) -> None:
        """A whole message left libzmq. Cheap: it is called for every one."""
        connection = self._connections.get(descriptor)
        if connection is None:
            # Its first message was read before the news that it exists.
            self._early[descriptor] = peer
        else:
            connection.delivered = True
            connection.peer = peer
            connection.heard_at = time.monotonic()

    def cut_peer(self, peer: str, detail: str) -> None:
        """End all connections through which this peer was heard."""
        for descriptor, connection in list(self._connections.items()):
            if connection.peer == peer:
                self._end(descriptor, "revoked", detail)

    def _look_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._watch)

    def _watch(self) -> None:
        self._look_later()
        if time.monotonic() - self._looked >= CALM_LOOK_S or self._memory.grew_by(_GROWTH_BYTES):
            self.look()

    def look(self) -> None:
        """Compare every connection with its bound, once."""
        now = self._looked = time.monotonic()
        self._memory.mark()
        for descriptor, connection in list(self._connections.items()):
            allowed = self._bound + int(_ALLOWANCE_PER_S * (now - connection.then))
            kept = 0
            # An OSError means that libzmq has closed it, of which the news is on its way.
            with contextlib.suppress(OSError), _borrowed(descriptor, connection) as tcp:
                if connection.delivered:
                    connection.delivered = False
                    connection.read_then, connection.then = _received(tcp) - _unread(tcp), now
                elif _received(tcp) - connection.read_then > allowed:
                    kept = _received(tcp) - _unread(tcp) - connection.read_then
            if kept > allowed:
                found = f"found {kept} bytes received without one whole message"
                self._end(descriptor, "flood", f"{found}, allowed: {allowed}")

    def _end(self, descriptor: int, reason: str, detail: str) -> None:
        connection = self._connections[descriptor]
        with contextlib.suppress(OSError), _borrowed(descriptor, connection) as tcp:
            if not _is_still(tcp, connection):
                return
            address = tcp.getpeername()[0]
            # With this, closing resets the connection: the kernel keeps none of it, and a sender
            # that waits for room learns at once.
            tcp.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            tcp.shutdown(socket.SHUT_RDWR)
            # Reported once: the next look may come before libzmq has closed it.
            self.closed(descriptor)
            self._cut(connection.peer, reason, f"connection with {address}: {detail}")


@contextlib.contextmanager
def _borrowed(descriptor: int, connection: _Connection) -> Iterator[socket.socket]:
    """The connection as a socket object. Its descriptor stays libzmq's, so it is not closed."""
    tcp = socket.socket(connection.family, socket.SOCK_STREAM, fileno=descriptor)
    try:
        yield tcp
    finally:
        tcp.detach()


def _family(descriptor: int) -> int | None:
    """IPv4 or IPv6; None if libzmq has already closed it."""
    try:
        tcp = socket.socket(fileno=descriptor)
    except OSError:
        return None
    family = int(tcp.family)
    tcp.detach()
    return family


def _is_still(tcp: socket.socket, connection: _Connection) -> bool:
    """Whether the descriptor has not meanwhile become something else."""
    name = tcp.getpeername() if connection.outgoing else tcp.getsockname()
    return isinstance(name, tuple) and bool(name[1] == connection.port)


def _received(tcp: socket.socket) -> int:
    """Bytes that the kernel has received on the connection."""
    info = tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return 0
    found: int = struct.unpack_from("=Q", info, _BYTES_RECEIVED_AT)[0]
    return found


def _unread(tcp: socket.socket) -> int:
    """Bytes of these that still wait in the kernel, where their number is bounded."""
    found: int = struct.unpack("i", fcntl.ioctl(tcp, termios.FIONREAD, b"\0" * 4))[0]
    return found
