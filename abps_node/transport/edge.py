"""Reading a plain ZeroMQ socket from asyncio.

Data sockets are not ``zmq.asyncio`` sockets: their futures and timers cost more than the round trip
itself. The socket's file descriptor is registered with the loop instead. That descriptor is edge
triggered in a sense of its own: it becomes readable when libzmq has *something* to say, and any
call on the socket, sending included, may swallow that signal. Three rules follow: read until
``EVENTS`` no longer says POLLIN, look again after every send, and after a full burst go on in the
next turn of the loop, since no new signal needs to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import zmq

_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)
BURST: Final = 64


class EdgeReader:
    """Calls ``take`` once for each thing that can be read, at most ``BURST`` times a turn.

    ``take`` returns False if there was nothing. After a signal it is called without asking first:
    most often there is one message, and to ask libzmq takes longer than to receive it.
    """

    def __init__(self, socket: zmq.Socket[Any], take: Callable[[], bool]) -> None:
        self._socket = socket
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._reading = False
        self._scheduled = False
        self._descriptor = int(socket.FD)
        self._open = True
        self._loop.add_reader(self._descriptor, self._read)
        self.look()

    def look(self) -> None:
        """Schedule reading if there is something to read; call it after every send."""
        if not self._open or self._reading or self._scheduled:
            return
        if self._readable():
            self._schedule()

    def stop(self) -> None:
        """Read no more; must come before the socket is closed."""
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)

    def _readable(self) -> bool:
        return bool(int(self._socket.getsockopt(_EVENTS)) & _POLLIN)

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._scheduled = False
        self._read()

    def _read(self) -> None:
        if not self._open or self._reading:
            return
        self._reading = True
        exhausted = False
        try:
            for turn in range(BURST):
                exhausted = (turn > 0 and not self._readable()) or not self._take()
                if exhausted or not self._open:
                    return
        finally:
            self._reading = False
            # Also after an exception: its signal is spent, the rest would wait for the next one.
            if self._open and not exhausted:
                self._schedule()
