"""``lifespan=app.lifespan`` under a real uvicorn: start, readiness, and the drain at SIGTERM."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.worker.test_life import lag
from tests.support.limits import HANGING_SECONDS
from tests.support.served_application import served

WORKER = """
import asyncio, os

from sharegroup.worker import App

jobs = App("{group}", bootstrap_servers="{bootstrap}", grace="{grace}")


def note(text: str) -> None:
    print(text, flush=True)


@jobs.on_startup
async def opened() -> None:
    note("opened")


@jobs.on_shutdown
async def closed() -> None:
    note("closed")


@jobs.share_group("{group}", topics="{topic}")
async def work(seconds: float) -> None:
    note("begin")
    await asyncio.sleep(seconds)
    note("end")
"""
STARLETTE = """
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route


async def send(request):
    await work.send(float(request.path_params["seconds"]))
    return JSONResponse({{}}, 202)


async def ready(request):
    health = jobs.health()
    return JSONResponse(health.facts, 200 if health.is_healthy else 503)


routes = [Route("/jobs/{{seconds}}", send, methods=["POST"]), Route("/ready", ready)]
app = Starlette(routes=routes, lifespan=jobs.lifespan)
"""
FASTAPI = """
from fastapi import FastAPI, Response

app = FastAPI(lifespan=jobs.lifespan)


@app.post("/jobs/{{seconds}}", status_code=202)
async def send(seconds: float) -> None:
    await work.send(seconds)


@app.get("/ready")
async def ready(response: Response) -> dict[str, object]:
    health = jobs.health()
    response.status_code = 200 if health.is_healthy else 503
    return health.facts
"""


def application(bootstrap: str, group: str, topic: str, web: str, *, grace: str) -> str:
    return (WORKER + web).format(bootstrap=bootstrap, group=group, topic=topic, grace=grace)


def noted(folder: Path) -> list[str]:
    """What the application printed, without uvicorn's lines about requests."""
    lines = (folder / "log").read_text().splitlines()
    return [line for line in lines if not line.startswith("INFO:")]


def wait_until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + HANGING_SECONDS
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("web", [STARLETTE, FASTAPI], ids=["starlette", "fastapi"])
def test_sigterm_finishes_the_records_within_the_grace(
    bootstrap: str, group: str, topic: str, tmp_path: Path, web: str
) -> None:
    text = application(bootstrap, group, topic, web, grace="30s")
    with served(tmp_path, text) as there, there.browser() as client:
        assert noted(tmp_path) == ["opened"]
        wait_until(lambda: client.get("/ready").status_code == 200)
        assert client.get("/ready").json()["phase"] == "running"
        assert client.post("/jobs/2").status_code == 202
        wait_until(lambda: "begin" in noted(tmp_path))
        there.process.send_signal(signal.SIGTERM)
        there.process.wait(HANGING_SECONDS)
    assert noted(tmp_path) == ["opened", "begin", "end", "closed"]
    assert lag(bootstrap, group, topic) == 0


@pytest.mark.slow
def test_sigterm_gives_back_what_takes_longer_than_the_grace(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    text = application(bootstrap, group, topic, STARLETTE, grace="1s")
    with served(tmp_path, text) as there, there.browser() as client:
        assert client.post("/jobs/1000").status_code == 202
        wait_until(lambda: "begin" in noted(tmp_path))
        began = time.monotonic()
        there.process.send_signal(signal.SIGTERM)
        there.process.wait(HANGING_SECONDS)
        assert time.monotonic() - began < 20
    assert noted(tmp_path) == ["opened", "begin", "closed"]
    assert lag(bootstrap, group, topic) == 1


@pytest.mark.slow
def test_start_that_fails_ends_the_server(
    bootstrap: str, group: str, topic: str, tmp_path: Path
) -> None:
    refused = "\n@jobs.on_startup\nasync def refuse() -> None:\n    raise OSError('no disk')\n"
    text = application(bootstrap, group, topic, STARLETTE, grace="1s")
    with (
        pytest.raises(AssertionError, match="Application startup failed"),
        served(tmp_path, text + refused),
    ):
        pass
