"""The links between real daemons, through proxies of this process that break and delay them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, for a harness that otherwise waits for processes."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links")
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        """Run it there and wait for it."""
        return self.begin(work).result(timeout_s)

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it there meanwhile."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what still runs, and end the thread."""
        self.do(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Link:
    """All connections that others open to one center. Everything happens in the loop's thread."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._ends: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cut = False
        """Nobody gets through, and who had is cut off."""
        self.delay_s = 0.0
        """Each piece of data waits so long."""

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def set(self, *, cut: bool = False, delay_s: float = 0.0) -> None:
        """Break, delay, or neither."""
        self.cut, self.delay_s = cut, delay_s
        if cut:
            for end in self._ends:
                end.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ends.add(writer)
        back: asyncio.StreamWriter | None = None
        try:
            if not self.cut:
                with suppress(OSError):
                    there, back = await asyncio.open_connection("127.0.0.1", self._target_port)
                    self._ends.add(back)
                    await asyncio.gather(self._pump(reader, back), self._pump(there, writer))
        finally:
            for end in (writer, back):
                if end is not None:
                    end.transport.abort()
                    self._ends.discard(end)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                writer.write(data)
                await writer.drain()
        writer.close()
