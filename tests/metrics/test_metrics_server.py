"""The HTTP server of the metrics meets scrapers that do not behave."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from abps_node.errors import BindError
from abps_node.metrics import server as served
from abps_node.metrics.server import MAX_CONNECTIONS, MAX_HEAD_BYTES, MetricsServer

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Page:
    """What is served, and how often it was made."""

    def __init__(self) -> None:
        self.body = b"abps_round 1.0\n"
        self.rendered = 0

    def render(self) -> bytes:
        self.rendered += 1
        return self.body


@pytest.fixture
def page() -> Page:
    return Page()


@pytest.fixture
async def port(page: Page) -> AsyncIterator[int]:
    server = MetricsServer("tcp://127.0.0.1:0", page.render, lambda seconds: None)
    url = await server.start()
    yield int(url.removesuffix("/metrics").rpartition(":")[2])
    await server.close()
    assert asyncio.all_tasks() <= {asyncio.current_task()}


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await reader.read()
    finally:
        writer.close()


GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /metrics HTTP/1.1", b"200"),
        (b"HEAD /metrics HTTP/1.0", b"200"),
        (b"GET /metrics?name=x HTTP/1.1", b"200"),
        (b"GET / HTTP/1.1", b"404"),
        (b"GET /../../etc/passwd HTTP/1.1", b"404"),
        (b"POST /metrics HTTP/1.1", b"405"),
        (b"\x16\x03\x01\x02\x00", b"400"),
        (b"GET /metrics", b"400"),
    ],
)
async def test_answers(port: int, request_line: bytes, status: bytes) -> None:
    answer = await asked(port, request_line + b"\r\n\r\n")
    assert answer.split(b" ")[1] == status
    assert (b"abps_round" in answer) == (status == b"200" and request_line.startswith(b"GET"))


async def test_a_head_without_end_is_cut_off(port: int) -> None:
    assert await asked(port, b"x" * (2 * MAX_HEAD_BYTES)) == b""


async def test_many_connections_cost_a_fixed_number(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "DEADLINE_S", 1.0)
    silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10 * MAX_CONNECTIONS)]
    try:
        ended = 0
        async with asyncio.timeout(10):
            while ended < len(silent) - MAX_CONNECTIONS:
                await asyncio.sleep(0.01)
                ended = sum(
                    reader.at_eof() or reader.exception() is not None for reader, _ in silent
                )
            # Once the silent ones have had their time, others are served again.
            while b"200" not in await unlessreset(port):
                await asyncio.sleep(0.05)
    finally:
        for _, writer in silent:
            writer.close()


async def unlessreset(port: int) -> bytes:
    try:
        return await asked(port, GET)
    except ConnectionError:
        return b""


async def test_a_scraper_that_does_not_read_is_given_up(
    port: int, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "DEADLINE_S", 0.5)
    page.body = b"x" * 50_000_000
    loop = asyncio.get_running_loop()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, GET)
        async with asyncio.timeout(10):
            while len(asyncio.all_tasks()) < 2:
                await asyncio.sleep(0.01)
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)
        received = 0
        with suppress(ConnectionResetError):
            while data := await loop.sock_recv(client, 1 << 20):
                received += len(data)
        assert received < len(page.body)


async def test_a_page_is_rendered_once_a_second_however_many_ask(port: int, page: Page) -> None:
    answers = [await asked(port, GET) for _ in range(5)]
    assert all(answer.endswith(page.body) for answer in answers)
    assert page.rendered <= 2


async def test_the_lag_of_the_loop_is_measured() -> None:
    lags: list[float] = []
    server = MetricsServer("tcp://127.0.0.1:0", bytes, lags.append)
    await server.start()
    async with asyncio.timeout(10):
        while len(lags) < 2:
            await asyncio.sleep(0.01)
    await server.close()
    assert all(0 <= lag < 5 for lag in lags)


async def test_a_port_that_is_given_up_in_time_is_taken(port: int) -> None:
    late = MetricsServer(f"tcp://127.0.0.1:{port}", bytes, lambda seconds: None)
    with pytest.raises(BindError, match=f"tcp://127.0.0.1:{port}: cannot be bound: "):
        await late.start()
    holder = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    number = holder.sockets[0].getsockname()[1]
    patient = MetricsServer(f"tcp://127.0.0.1:{number}", bytes, lambda seconds: None)
    start = asyncio.ensure_future(patient.start(30.0))
    holder.close()
    await holder.wait_closed()
    assert await start == f"http://127.0.0.1:{number}/metrics"
    await patient.close()
