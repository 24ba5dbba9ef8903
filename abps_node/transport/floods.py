"""Ends connections that pile up memory inside libzmq.

libzmq bounds the length of a frame (MAXMSGSIZE), and could bound the number of messages that wait
(RCVHWM), but not the number of frames of one message: an unfinished multipart message is kept
whole, outside of any limit, until its last part comes (measured: 413 MB from one peer became 700 MB
here in three seconds, with limits of 1 KiB and 64 messages). And a full queue is dangerous by
itself: where a connection is reset meanwhile, a ZMTP ping in what was already read ends the whole
process (4.3.5, «Assertion failed: !_io_error», zeromq/libzmq#4364). So queues have no limit there,
and this guard has one for both: bytes received on the TCP connection, which only the kernel knows,
minus those still unread in the kernel, minus those that were delivered to the application, are what
libzmq keeps. Where it keeps more than a bounded queue honestly could, the connection is reset, and
libzmq frees what no message was; whole messages still wait, so the peer may not come back before
they are read (``trust.Patience``). The guard asks once a second, and at once when the memory of the
process has grown, at which it looks several times a second, for that is cheap. What a flood can
gain is the bound plus what arrives between two looks, which is more where the loop is busy for
long; in memory that is twice as much for large frames under CURVE, up to 14 times as much for small
ones, and up to 32 times in clear, where an empty part of 2 bytes takes 64.

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
"""How often at most the memory of this process is looked at…"""
LATEST_LOOK_S: Final = 0.3
"""…and how often at least: longer than a daemon's calm tick, at which it looks on the way…"""
CALM_LOOK_S: Final = 1.0
"""…and how often the connections are, as long as it does not grow."""
FLOOD: Final = "flood"
"""The reason for which a connection is cut that piles up memory."""
UNREAD_FRAMES: Final = 4
"""So many of the longest frames of one peer may wait to be read: an honest one sends one."""
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
    taken: int = 0
    """Bytes on the wire of all that was delivered from it."""
    since: float = field(default_factory=time.monotonic)
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
        self._early: dict[int, tuple[str | None, int]] = {}
        self._accepted = 0
        self._timer: asyncio.TimerHandle | None = None
        self._memory = _Memory()
        self._looked = 0.0
        self._glanced = 0.0

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
        peer, taken = self._early.pop(descriptor, (None, 0))
        self._connections[descriptor] = _Connection(outgoing, port, family, peer, taken)
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

    def delivered(self, descriptor: int, peer: str | None, wire_bytes: int) -> None:
        """A whole message left libzmq. Cheap: it is called for every one."""
        connection = self._connections.get(descriptor)
        if connection is None:
            # Its first message was read before the news that it exists; or it is a late one of a
            # connection that is gone, of which a later one with this number must not gain much.
            self._early[descriptor] = (peer, wire_bytes)
        else:
            connection.taken += wire_bytes
            connection.peer = peer
            connection.heard_at = time.monotonic()

    def dropped(self, descriptor: int, wire_bytes: int) -> None:
        """One more part of a message of several frames left libzmq, and is of no use."""
        connection = self._connections.get(descriptor)
        if connection is not None:
            connection.taken += wire_bytes

    def cut_peer(self, peer: str, detail: str) -> None:
        """End all connections through which this peer was heard."""
        for descriptor, connection in list(self._connections.items()):
            if connection.peer == peer:
                self._end(descriptor, "revoked", detail)

    def _look_later(self) -> None:
        self._glanced = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(LATEST_LOOK_S, self._watch)

    def glance(self) -> None:
        """Look now, if it is time: whoever is awake anyway saves this guard a waking of its own.

        Hundreds of centers on one machine spend more on waking up than on looking.
        """
        if self._timer is not None and time.monotonic() - self._glanced >= LOOK_S:
            self._timer.cancel()
            self._watch()

    def _watch(self) -> None:
        self._look_later()
        if time.monotonic() - self._looked >= CALM_LOOK_S or self._memory.grew_by(_GROWTH_BYTES):
            self.look()

    def look(self) -> None:
        """Compare what is kept of every peer, over all its connections, with the bound, once."""
        self._looked = time.monotonic()
        self._memory.mark()
        kept: dict[str | int, int] = {}
        for descriptor, connection in self._connections.items():
            owner = connection.peer or descriptor
            kept[owner] = kept.get(owner, 0) + self._kept(descriptor, connection)
        for descriptor, connection in list(self._connections.items()):
            found = kept[connection.peer or descriptor]
            if found > self._bound:
                text = f"found {found} bytes received and not delivered in whole messages"
                self._end(descriptor, FLOOD, f"{text}, allowed: {self._bound}")

    def _kept(self, descriptor: int, connection: _Connection) -> int:
        """Bytes that libzmq keeps of a connection, less what pings may be among them."""
        pings = int(_ALLOWANCE_PER_S * (self._looked - connection.since))
        kept = 0
        # An OSError means that libzmq has closed it, of which the news is on its way.
        with contextlib.suppress(OSError), _borrowed(descriptor, connection) as tcp:
            kept = _received(tcp) - connection.taken - pings
            if kept > 0:
                kept -= _unread(tcp)
        return max(0, kept)

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
