"""A worker inside of another program: a web application's lifespan, or a program's own loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from sharegroup.worker import App
from tests.support.limits import HANGING_SECONDS

WAIT_SECONDS_MAX = HANGING_SECONDS


def application(bootstrap: str, group: str, topic: str, done: asyncio.Queue[str]) -> App:
    app = App(group, bootstrap_servers=bootstrap, grace="5s")

    @app.share_group(group, topics=topic)
    async def work(text: str) -> None:
        await done.put(f"{text} by {app.state.name}")

    @app.on_startup
    async def opened() -> None:
        app.state.name = "opened"

    @app.on_shutdown
    async def closed() -> None:
        await done.put("closed")

    app.state.send = work.send
    return app


@contextlib.asynccontextmanager
async def serving(web: Starlette) -> AsyncIterator[httpx.AsyncClient]:
    """The web application as a server would run it, in this loop and without a port."""
    async with (
        web.router.lifespan_context(web),
        httpx.AsyncClient(transport=httpx.ASGITransport(web), base_url="http://web") as client,
    ):
        yield client


def test_web_application_can_send_and_handle_jobs(bootstrap: str, group: str, topic: str) -> None:
    async def work() -> None:
        done: asyncio.Queue[str] = asyncio.Queue()
        app = application(bootstrap, group, topic, done)

        async def post(request: Request) -> JSONResponse:
            written = await app.state.send(request.query_params["job"])
            return JSONResponse({"offset": written.offset}, 202)

        web = Starlette(routes=[Route("/jobs", post, methods=["POST"])], lifespan=app.lifespan)
        async with serving(web) as client:
            answer = await client.post("/jobs?job=resize")
            assert (answer.status_code, answer.json()) == (202, {"offset": 0})
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                assert await done.get() == "resize by opened"
            assert app.worker is not None
        assert done.get_nowait() == "closed"
        assert app.worker is None

    asyncio.run(work())


def test_custom_lifespan_starts_and_stops_the_worker(
    bootstrap: str, group: str, topic: str
) -> None:
    async def work() -> None:
        done: asyncio.Queue[str] = asyncio.Queue()
        app = application(bootstrap, group, topic, done)

        @contextlib.asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            await app.start()
            try:
                yield
            finally:
                report = await app.stop("1s")
                assert report is not None
                assert report.error is None

        async with serving(Starlette(lifespan=lifespan)):
            assert app.worker is not None
        assert done.get_nowait() == "closed"

    asyncio.run(work())


def test_failed_start_cleans_up_and_can_be_repeated(bootstrap: str, group: str, topic: str) -> None:
    async def work() -> None:
        done: asyncio.Queue[str] = asyncio.Queue()
        app = application(bootstrap, group, topic, done)
        attempts = []

        @app.on_startup
        async def unlucky_once() -> None:
            attempts.append(1)
            if len(attempts) == 1:
                raise RuntimeError("the database is away")

        with pytest.raises(RuntimeError, match="the database is away"):
            await app.start()
        assert app.worker is None
        assert done.get_nowait() == "closed"
        async with app:
            await app.state.send("a")
            async with asyncio.timeout(WAIT_SECONDS_MAX):
                assert await done.get() == "a by opened"

    asyncio.run(work())


def test_an_application_starts_once_at_a_time(bootstrap: str, group: str, topic: str) -> None:
    async def work() -> None:
        app = application(bootstrap, group, topic, asyncio.Queue())
        async with app:
            with pytest.raises(RuntimeError, match="is already running"):
                await app.start()
        assert await app.stop() is None

    asyncio.run(work())


def test_stop_goes_on_when_its_caller_is_cancelled(bootstrap: str, group: str, topic: str) -> None:
    """Its handlers still run, and what they send needs the producer."""

    async def work() -> None:
        done: asyncio.Queue[str] = asyncio.Queue()
        begun, goes_on = asyncio.Event(), asyncio.Event()
        app = App(group, bootstrap_servers=bootstrap, grace="60s")

        @app.share_group(group, topics=topic)
        async def bill(text: str) -> None:
            begun.set()
            await goes_on.wait()
            written = await bill.send("b")
            await done.put(f"{text}, next at {written.offset}")

        await app.start()
        await bill.send("a")
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await begun.wait()
            stopping = asyncio.ensure_future(app.stop())
            await asyncio.sleep(0)
            stopping.cancel()
            with pytest.raises(asyncio.CancelledError):
                await stopping
            assert app.worker is not None
            goes_on.set()
            assert await done.get() == "a, next at 1"
            while app.worker is not None:
                await asyncio.sleep(0)
        assert await app.stop() is None

    asyncio.run(work())
