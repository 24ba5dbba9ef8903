"""A very small HTTP server for scrapes, on the daemon's own loop and never in its way.

It knows ``GET /metrics`` and nothing else. Every connection has one request, a bounded head, and a
deadline for all of it; there are only so many at once, and one page is rendered at most once a
second, however many ask. A scraper that does not read, or says nothing, costs a descriptor and one
page until its deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable
from typing import Final

from abps_node.addresses import split_address
from abps_node.errors import BindError

MAX_CONNECTIONS: Final = 8
DEADLINE_S: Final = 5.0
MAX_HEAD_BYTES: Final = 8192
FRESH_S: Final = 1.0
"""A page is as good for all who ask within this time."""
LOOK_S: Final = 0.5
_RETRY_S: Final = 0.25
_TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsServer:
    """Serves what ``render`` returns, and measures how late the loop is meanwhile."""

    def __init__(
        self, bind: str, render: Callable[[], bytes], lagged: Callable[[float], None]
    ) -> None:
        """``bind``: ``tcp://host:port``; ``lagged`` hears, twice a second, by how much."""
        self._bind = bind
        self._render = render
        self._lagged = lagged
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._page = b""
        self._rendered_at = float("-inf")

    async def start(self, patience_s: float = 0.0) -> str:
        """Listen; returns the URL with the real port.

        ``BindError`` if the port is still taken after ``patience_s``, which an older copy of the
        center may need to give it up.
        """
        deadline = time.monotonic() + patience_s
        while self._server is None:
            try:
                self._server = await self._listen()
            except OSError as error:
                if time.monotonic() >= deadline:
                    cause = os.strerror(error.errno) if error.errno else str(error)
                    raise BindError(f"{self._bind}: cannot be bound: {cause}") from error
                await asyncio.sleep(_RETRY_S)
        self._look_later()
        host, _ = split_address(self._bind)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://{'0.0.0.0' if host == '*' else host}:{port}/metrics"

    async def close(self) -> None:
        """Stop listening and end every connection."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)

    async def _listen(self) -> asyncio.Server:
        host, port = split_address(self._bind)
        return await asyncio.start_server(
            self._accept,
            None if host == "*" else host.strip("[]"),
            port,
            limit=MAX_HEAD_BYTES,
            backlog=2 * MAX_CONNECTIONS,
            family=socket.AF_INET if host == "*" else socket.AF_UNSPEC,
        )

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Not a coroutine, so that one too many costs no task."""
        if len(self._handlers) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        handler = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(
                OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
            ):
                async with asyncio.timeout(DEADLINE_S):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self._answer(head))
                    await writer.drain()
                    writer.close()
                    await writer.wait_closed()
        finally:
            # What is not read by now is thrown away; after an orderly close this does nothing.
            writer.transport.abort()

    def _answer(self, head: bytes) -> bytes:
        words = head.split(b"\r\n", 1)[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response("400 Bad Request", b"this is no HTTP/1 request\n")
        method, target, _ = words
        if method not in (b"GET", b"HEAD"):
            return _response(
                "405 Method Not Allowed", b"allowed: GET\n", extra="Allow: GET, HEAD\r\n"
            )
        if target.split(b"?", 1)[0] != b"/metrics":
            return _response("404 Not Found", b"there is only /metrics here\n")
        return _response("200 OK", self._fresh_page(), send_body=method == b"GET")

    def _fresh_page(self) -> bytes:
        now = time.monotonic()
        if now - self._rendered_at >= FRESH_S:
            self._page, self._rendered_at = self._render(), now
        return self._page

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LOOK_S, self._look, loop.time() + LOOK_S)

    def _look(self, wanted: float) -> None:
        self._lagged(max(0.0, asyncio.get_running_loop().time() - wanted))
        self._look_later()


def _response(status: str, body: bytes, *, send_body: bool = True, extra: str = "") -> bytes:
    kind = _TEXT if status.startswith("200") else "text/plain; charset=utf-8"
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        f"Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{extra}"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (body if send_body else b"")
