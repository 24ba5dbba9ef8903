"""A TCP proxy that counts the bytes of both directions, to check what is said about the wire."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self


class CountingProxy:
    """Forwards every connection to one address. Use as an async context manager.

    ``address`` is where to connect instead, as ``tcp://host:port``; ``upstream`` counts what the
    connecting side sent, ``downstream`` what came back; ``connections`` how many there were.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("tcp://").rpartition(":")
        self._target = (host, int(port))
        self.upstream = 0
        self.downstream = 0
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing and not cancelling: Python 3.11 logs an error for each handler that was cancelled.
        self._server.close()
        for end in self._ends:
            end.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        self._ends.add(writer)
        there, back = await asyncio.open_connection(*self._target)
        self._ends.add(back)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, back, "upstream"))
                pumps.create_task(self._pump(there, writer, "downstream"))
        finally:
            for end in (writer, back):
                end.close()
                self._ends.discard(end)
            if task is not None:
                self._tasks.discard(task)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, counter: str
    ) -> None:
        try:
            while data := await reader.read(65536):
                setattr(self, counter, getattr(self, counter) + len(data))
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # one side went away; the other is told by closing
        finally:
            writer.close()
