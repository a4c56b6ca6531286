"""The port that metrics are scraped from: what it answers, and what it does not put up with."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from sharegroup.broker.app import start
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.metrics.endpoint import (
    CONNECTIONS_MAX,
    REQUEST_BYTES_MAX,
    MetricsEndpoint,
)
from sharegroup.errors import InvalidConfig
from sharegroup.testing import broker
from tests.support.limits import HANGING_SECONDS
from tests.support.scraping import Scrape

Exchange = Callable[[bytes], Awaitable[bytes]]


def run(scenario: Callable[[int], Awaitable[None]]) -> None:
    async def main() -> None:
        async with broker({"sharegroup.metrics.port": "0"}) as running:
            assert running.running.metrics is not None
            await scenario(running.running.metrics.port)

    asyncio.run(main())


async def answer(port: int, request: bytes) -> bytes:
    """All that comes back, until the other side closes; nothing when it is cut off."""
    async with asyncio.timeout(HANGING_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(request)
            return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()


def chunks(body: bytes) -> bytes:
    """What a chunked body holds; fails where it does not end as it must."""
    parts = []
    while True:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            assert body == b"\r\n"
            return b"".join(parts)
        parts.append(body[:length])
        assert body[length : length + 2] == b"\r\n"
        body = body[length + 2 :]


def test_metrics_are_sent_in_chunks() -> None:
    async def scenario(port: int) -> None:
        text = await answer(port, b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head, _, body = text.partition(b"\r\n\r\n")
        assert head.split(b"\r\n") == [
            b"HTTP/1.1 200 OK",
            b"Content-Type: text/plain; version=0.0.4; charset=utf-8",
            b"Transfer-Encoding: chunked",
            b"Cache-Control: no-store",
            b"Connection: close",
        ]
        assert Scrape(chunks(body).decode())("sharegroup_connections") == 0

    run(scenario)


def test_http_1_0_gets_no_chunks_and_head_gets_no_body() -> None:
    async def scenario(port: int) -> None:
        text = await answer(port, b"GET /metrics HTTP/1.0\r\n\r\n")
        assert b"chunked" not in text
        Scrape(text.partition(b"\r\n\r\n")[2].decode())
        text = await answer(port, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert text.partition(b"\r\n\r\n")[2] == b""

    run(scenario)


@pytest.mark.parametrize(
    ("line", "status", "why"),
    [
        (
            b"GET / HTTP/1.1",
            b"404 Not Found",
            b"not found; the paths are /metrics, /share-partitions\n",
        ),
        (b"POST /metrics HTTP/1.1", b"405 Method Not Allowed", b"only GET is answered\n"),
        (b"GET /metrics", b"400 Bad Request", b"expected an HTTP/1.0 or HTTP/1.1 request\n"),
        (b"\xff\xfe", b"400 Bad Request", b"expected an HTTP/1.0 or HTTP/1.1 request\n"),
    ],
)
def test_other_requests_are_refused_with_a_reason(line: bytes, status: bytes, why: bytes) -> None:
    async def scenario(port: int) -> None:
        head, _, body = (await answer(port, line + b"\r\n\r\n")).partition(b"\r\n\r\n")
        assert head.partition(b"\r\n")[0] == b"HTTP/1.1 " + status
        assert body == why

    run(scenario)


def test_a_request_without_end_is_cut_off() -> None:
    async def scenario(port: int) -> None:
        assert await answer(port, b"x" * 4 * REQUEST_BYTES_MAX) == b""

    run(scenario)


def test_half_requests_block_no_scraper() -> None:
    """The oldest of them gives its place up; the others stay until their time is over."""

    async def scenario(port: int) -> None:
        halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
        for _, writer in halves:
            writer.write(b"GET /metrics HTTP/1.1\r\n")
        assert (await answer(port, b"GET /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 200")
        async with asyncio.timeout(HANGING_SECONDS):
            with contextlib.suppress(ConnectionError):
                assert await halves[0][0].read() == b""
        for _, writer in halves:
            writer.close()
        # The broker stops in time, whoever is still connected.

    run(scenario)


def test_incomplete_request_is_closed_after_a_timeout() -> None:
    async def main() -> None:
        async with broker() as embedded:
            parts, server, directory, *_ = embedded.running
            endpoint = MetricsEndpoint(parts, server, directory, request_seconds_max=0.05)
            await endpoint.listen("127.0.0.1", 0)
            try:
                assert await answer(endpoint.port, b"GET /metrics HTTP/1.1\r\n") == b""
            finally:
                await endpoint.stop()

    asyncio.run(main())


def test_endpoint_on_a_non_local_listener_is_refused() -> None:
    settings = {"listeners": "PLAINTEXT://0.0.0.0:0", "sharegroup.metrics.port": "0"}
    with pytest.raises(InvalidConfig, match="accepts connections from other machines"):
        asyncio.run(start(Config.parse(settings)))


def test_endpoint_listens_on_the_address_of_its_own_key() -> None:
    settings = {"sharegroup.metrics.port": "0", "sharegroup.metrics.host": "127.0.0.9"}

    async def main() -> None:
        async with broker(settings) as running:
            metrics = running.running.metrics
            assert metrics is not None
            _, writer = await asyncio.open_connection("127.0.0.9", metrics.port)
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", metrics.port)

    asyncio.run(main())


def test_endpoint_is_absent_by_default() -> None:
    async def main() -> None:
        async with broker() as running:
            assert running.running.metrics is None

    asyncio.run(main())
