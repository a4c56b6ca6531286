"""The HTTP endpoint that the broker's metrics and a worker's health share, over real sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sharegroup.http_endpoint import HttpEndpoint, HttpLimits, HttpResponse, Query
from tests.support.limits import HANGING_SECONDS

LIMITS = HttpLimits(
    connections_max=2,
    request_bytes_max=1_000,
    request_seconds_max=5.0,
    answer_seconds_max=5.0,
    stall_seconds_max=5.0,
)
PIECE = b"x" * 1_000_000


async def fine() -> HttpResponse:
    return HttpResponse(200, b"fine\n")


async def pieces() -> AsyncGenerator[bytes, None]:
    yield b"first,"
    yield b"second"


async def in_pieces() -> HttpResponse:
    return HttpResponse(200, pieces)


async def repeat(query: Query) -> HttpResponse:
    return HttpResponse.json(200, query)


async def change(query: Query) -> HttpResponse:
    return HttpResponse(200, f"changed {query['name']}\n".encode())


@asynccontextmanager
async def serving(limits: HttpLimits = LIMITS) -> AsyncIterator[HttpEndpoint]:
    endpoint = HttpEndpoint(
        {"/fine": fine, "/pieces": in_pieces},
        limits,
        query_pages={"/repeat": repeat},
        actions={"/change": change},
    )
    await endpoint.listen("127.0.0.1", 0)
    try:
        yield endpoint
    finally:
        await endpoint.stop()


async def answer(endpoint: HttpEndpoint, request: bytes) -> bytes:
    """The bytes until the endpoint closes the connection; none if it is reset."""
    async with asyncio.timeout(HANGING_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(request)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


def run(scenario: Callable[[HttpEndpoint], Awaitable[None]], limits: HttpLimits = LIMITS) -> None:
    async def main() -> None:
        async with serving(limits) as endpoint:
            await scenario(endpoint)

    asyncio.run(main())


def test_response_has_all_headers() -> None:
    async def scenario(endpoint: HttpEndpoint) -> None:
        assert await answer(endpoint, b"GET /fine?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n") == (
            b"HTTP/1.1 200 OK\r\n"
            b"Content-Type: text/plain; charset=utf-8\r\n"
            b"Content-Length: 5\r\n"
            b"Cache-Control: no-store\r\n"
            b"Connection: close\r\n\r\n"
            b"fine\n"
        )

    run(scenario)


@pytest.mark.parametrize(
    ("version", "body"),
    [(b"HTTP/1.1", b"6\r\nfirst,\r\n6\r\nsecond\r\n0\r\n\r\n"), (b"HTTP/1.0", b"first,second")],
)
def test_body_in_pieces_is_chunked_unless_the_client_is_old(version: bytes, body: bytes) -> None:
    async def scenario(endpoint: HttpEndpoint) -> None:
        response = await answer(endpoint, b"GET /pieces " + version + b"\r\n\r\n")
        assert response.partition(b"\r\n\r\n")[2] == body

    run(scenario)


def test_query_is_decoded_and_a_repeated_parameter_has_its_last_value() -> None:
    async def scenario(endpoint: HttpEndpoint) -> None:
        response = await answer(endpoint, b"GET /repeat?a=1&b=x+y%2Fz&a=&b=%C3%A4 HTTP/1.1\r\n\r\n")
        assert json.loads(response.partition(b"\r\n\r\n")[2]) == {"a": "", "b": "ä"}
        response = await answer(endpoint, b"GET /repeat HTTP/1.1\r\n\r\n")
        assert json.loads(response.partition(b"\r\n\r\n")[2]) == {}

    run(scenario)


def test_action_is_called_by_post() -> None:
    async def scenario(endpoint: HttpEndpoint) -> None:
        response = await answer(endpoint, b"POST /change?name=lock HTTP/1.1\r\n\r\n")
        assert response.endswith(b"\r\n\r\nchanged lock\n")

    run(scenario)


def test_head_without_carriage_returns_is_understood() -> None:
    async def scenario(endpoint: HttpEndpoint) -> None:
        assert (await answer(endpoint, b"GET /fine HTTP/1.0\n\n")).endswith(b"\r\n\r\nfine\n")

    run(scenario)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"HEAD /elsewhere HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"PUT /fine HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody", b"405 Method Not Allowed"),
        (b"POST /fine HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /change?name=a HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"GET /repeat?name HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /repeat?" + b"a=1&" * 40 + b" HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /fine HTTP/2\r\n\r\n", b"400 Bad Request"),
        (b"GET /fine HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403 Forbidden"),
        (b"GET /fine HTTP/1.1\r\nHost: localhost\r\nhost: h\r\n\r\n", b"403 Forbidden"),
        (b"POST /change?name=a HTTP/1.1\r\nhOST:evil.example\r\n\r\n", b"403 Forbidden"),
        (
            b"POST /change?name=a HTTP/1.1\r\nHost: localhost\r\nOrigin: http://e\r\n\r\n",
            b"403 Forbidden",
        ),
        (b"GET /fine HTTP/1.1\r\nHost : localhost\r\n\r\n", b"400 Bad Request"),
        (b"GET /fine HTTP/1.1\r\nX: a\r\n Host: e\r\n\r\n", b"400 Bad Request"),
        (b"GET /fine HTTP/1.1\r\nX: a\rHost: e\r\n\r\n", b"400 Bad Request"),
        (b"GET /fine HTTP/1.1\r\nX: a\x00\r\n\r\n", b"400 Bad Request"),
        (b"GET /fine HTTP/1.1\r\nX: " + b"x" * 2_000, b"431 Request Header Fields Too Large"),
    ],
)
def test_other_requests_are_refused(request_: bytes, status: bytes) -> None:
    async def scenario(endpoint: HttpEndpoint) -> None:
        response = await answer(endpoint, request_)
        assert response.startswith(b"HTTP/1.1 " + status + b"\r\n")
        assert response.endswith(b"\r\n\r\n") == request_.startswith(b"HEAD")

    run(scenario)


def test_endless_first_line_closes_the_connection() -> None:
    async def scenario(endpoint: HttpEndpoint) -> None:
        assert await answer(endpoint, b"x" * 1_001) == b""

    run(scenario)


@pytest.mark.parametrize("limit", ["stall_seconds_max", "answer_seconds_max"])
def test_client_that_reads_nothing_is_closed(limit: str) -> None:
    ended = asyncio.Event()

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield PIECE
        finally:
            ended.set()

    async def page() -> HttpResponse:
        return HttpResponse(200, endless)

    async def scenario(endpoint: HttpEndpoint) -> None:
        endpoint.add({"/endless": page})
        _, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        writer.write(b"GET /endless HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(HANGING_SECONDS):
            await ended.wait()
        writer.transport.abort()

    run(scenario, replace(LIMITS, **{limit: 0.1}))


def test_page_that_fails_in_its_body_closes_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> AsyncGenerator[bytes, None]:
        yield b"begun"
        raise RuntimeError("no page today")

    async def page() -> HttpResponse:
        return HttpResponse(200, broken)

    async def scenario(endpoint: HttpEndpoint) -> None:
        endpoint.add({"/broken": page})
        response = await answer(endpoint, b"GET /broken HTTP/1.1\r\n\r\n")
        assert not response.endswith(b"0\r\n\r\n")  # The client knows that this is not all.
        assert (await answer(endpoint, b"GET /fine HTTP/1.1\r\n\r\n")).endswith(b"fine\n")

    run(scenario)
    assert "event=page_failed path=/broken" in caplog.text


def test_new_connection_is_refused_while_all_places_are_in_use() -> None:
    begun, waiting = asyncio.Semaphore(0), asyncio.Event()

    async def page() -> HttpResponse:
        begun.release()
        await waiting.wait()
        return HttpResponse(200, b"late\n")

    async def scenario(endpoint: HttpEndpoint) -> None:
        endpoint.add({"/late": page})
        late = [
            asyncio.ensure_future(answer(endpoint, b"GET /late HTTP/1.1\r\n\r\n"))
            for _ in range(LIMITS.connections_max)
        ]
        for _ in late:
            await begun.acquire()
        assert await answer(endpoint, b"GET /fine HTTP/1.1\r\n\r\n") == b""
        waiting.set()
        assert [(await response)[-5:] for response in late] == [b"late\n", b"late\n"]

    run(scenario)
