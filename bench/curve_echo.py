"""The yardstick: a bare echo over CURVE sockets of pyzmq, asyncio on both sides.

Nothing but ``zmq.asyncio``: no roster, no message format, no state, nothing written. The server is
a process of its own, as a center is: ``python bench/curve_echo.py`` binds a free port of loopback,
prints endpoint and public key as one line, and ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import zmq
import zmq.asyncio


class EchoClient:
    """The asking side."""

    def __init__(self, context: zmq.asyncio.Context, endpoint: str, server_key: str) -> None:
        self._socket = context.socket(zmq.DEALER)
        public, secret = zmq.curve_keypair()
        self._socket.curve_publickey, self._socket.curve_secretkey = public, secret
        self._socket.curve_serverkey = server_key.encode()
        self._socket.connect(endpoint)

    async def round_trip(self, frame: bytes) -> float:
        """Seconds from sending a frame until it is back."""
        start = time.perf_counter()
        await self._socket.send(frame)
        echoed = await self._socket.recv()
        seconds = time.perf_counter() - start
        if echoed != frame:
            raise AssertionError(f"found {len(echoed)} other bytes, expected the frame")
        return seconds

    def close(self) -> None:
        """Close the socket at once."""
        self._socket.close(linger=0)


@asynccontextmanager
async def running_echo() -> AsyncIterator[EchoClient]:
    """A client that is connected to a server process."""
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(
        sys.executable, str(Path(__file__)), stdin=pipe, stdout=pipe
    )
    context = zmq.asyncio.Context()
    try:
        assert server.stdin is not None and server.stdout is not None
        endpoint, server_key = (await server.stdout.readline()).decode().split()
        client = EchoClient(context, endpoint, server_key)
        try:
            yield client
        finally:
            client.close()
        server.stdin.close()
        await server.wait()
    finally:
        if server.returncode is None:
            server.kill()
            await server.wait()
        context.term()


async def serve() -> None:
    """Send back whatever comes, until standard input is closed."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.ROUTER)
    public, secret = zmq.curve_keypair()
    socket.curve_publickey, socket.curve_secretkey, socket.curve_server = public, secret, True
    socket.bind("tcp://127.0.0.1:0")
    print(socket.getsockopt_string(zmq.LAST_ENDPOINT), public.decode(), flush=True)
    echo = asyncio.create_task(_echo(socket))
    await asyncio.to_thread(sys.stdin.read)
    echo.cancel()
    socket.close(linger=0)
    context.term()


async def _echo(socket: zmq.asyncio.Socket) -> None:
    while True:
        await socket.send_multipart(await socket.recv_multipart())


if __name__ == "__main__":
    asyncio.run(serve())
