"""The port for health and metrics, over real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sharegroup.http_endpoint import HttpEndpoint, HttpResponse
from sharegroup.worker.lifecycle import health as module
from sharegroup.worker.lifecycle.health import new_endpoint, pages
from sharegroup.worker.telemetry.state import HandlerCounts, Phase, WorkerGroupState, WorkerState


class Standing:
    """A worker that stands as it is told."""

    def __init__(self, phase: Phase, *, joined: bool = True) -> None:
        self.state = WorkerState(phase, (WorkerGroupState("billing", "m1", joined),))
        self.counts = (HandlerCounts("billing", "bill"),)


@asynccontextmanager
async def serving(worker: Standing | None = None, **limits: float) -> AsyncIterator[HttpEndpoint]:
    number = new_endpoint(pages(lambda: worker, {"app": "orders"}), **limits)
    await number.listen("127.0.0.1", 0)
    try:
        yield number
    finally:
        await number.stop()


async def say(number: HttpEndpoint, request: bytes) -> bytes:
    """What the endpoint sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", number.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def get(number: HttpEndpoint, path: str) -> tuple[int, str]:
    answer = await say(number, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize(
    ("worker", "live", "ready", "text"),
    [
        (None, 200, 503, "starting\n"),
        (Standing(Phase.STARTING), 200, 503, "starting\n"),
        (Standing(Phase.RUNNING), 200, 200, "running\n"),
        (Standing(Phase.RUNNING, joined=False), 200, 503, "running; not joined: billing\n"),
        (Standing(Phase.QUIET), 200, 503, "quiet\n"),
        (Standing(Phase.STOPPING), 200, 503, "stopping\n"),
        (Standing(Phase.FAILED), 503, 503, "failed\n"),
    ],
)
def test_health_by_phase(worker: Standing | None, live: int, ready: int, text: str) -> None:
    async def ask() -> None:
        async with serving(worker) as endpoint:
            assert (await get(endpoint, "/live"))[0] == live
            assert await get(endpoint, "/ready") == (ready, text)

    asyncio.run(ask())


def test_status_is_json() -> None:
    async def ask() -> None:
        async with serving(Standing(Phase.RUNNING)) as endpoint:
            code, body = await get(endpoint, "/status?verbose=1")
            facts = json.loads(body)
            assert code == 200
            assert facts["app"] == "orders"
            assert facts["phase"] == "running"
            assert facts["groups"][0]["group"] == "billing"
            assert facts["handlers"][0]["succeeded"] == 0

    asyncio.run(ask())


def test_unknown_path_gets_a_list_of_paths() -> None:
    async def ask() -> None:
        async with serving() as endpoint:
            assert await get(endpoint, "/") == (
                404,
                "not found; the paths are /live, /ready, /status\n",
            )
            answer = await say(
                endpoint, b"POST /live HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
            )
            assert answer.startswith(b"HTTP/1.1 405 ")

    asyncio.run(ask())


def test_head_has_no_body() -> None:
    async def ask() -> None:
        async with serving() as endpoint:
            answer = await say(endpoint, b"HEAD /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert answer.endswith(b"\r\n\r\n")
            assert b"Content-Length: 9\r\n" in answer

    asyncio.run(ask())


def test_request_that_is_no_http_is_refused() -> None:
    async def ask() -> None:
        async with serving() as endpoint:
            assert (await say(endpoint, b"\x00\x01\x02\r\n\r\n")).startswith(b"HTTP/1.1 400 ")
            endless = b"GET / HTTP/1.1\r\nX: " + b"x" * (2 * module.REQUEST_BYTES_MAX)
            assert (await say(endpoint, endless)).startswith(b"HTTP/1.1 431 ")

    asyncio.run(ask())


def test_silent_connection_is_closed_after_a_timeout() -> None:
    async def ask() -> None:
        async with serving(request_seconds_max=0.05) as endpoint:
            reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(ask())


def test_half_requests_block_no_probe() -> None:
    """A failing liveness probe has the worker restarted."""

    async def ask() -> None:
        async with serving() as endpoint:
            halves = [
                await asyncio.open_connection("127.0.0.1", endpoint.port)
                for _ in range(2 * module.CONNECTIONS_MAX)
            ]
            for _, writer in halves:
                writer.write(b"GET /live HTTP/1.1\r\n")
            assert (await get(endpoint, "/live"))[0] == 200
            for _, writer in halves:
                writer.close()

    asyncio.run(ask())


def test_a_page_that_fails_closes_its_connection_and_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken() -> HttpResponse:
        raise RuntimeError("no page today")

    async def fine() -> HttpResponse:
        return HttpResponse(200, b"fine\n")

    async def ask() -> None:
        number = new_endpoint({"/broken": broken, "/fine": fine})
        await number.listen("127.0.0.1", 0)
        assert (await get(number, "/broken")) == (500, "RuntimeError: no page today\n")
        assert (await get(number, "/fine")) == (200, "fine\n")
        await number.stop()

    asyncio.run(ask())
    assert "event=page_failed path=/broken" in caplog.text


def test_a_port_in_use_is_named() -> None:
    async def ask() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(OSError, match=f"can't listen on 127.0.0.1:{port}"):
                await new_endpoint({}).listen("127.0.0.1", port)

    asyncio.run(ask())
