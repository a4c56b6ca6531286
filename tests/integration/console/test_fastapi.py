"""The console in an application of FastAPI that a real uvicorn serves, with live pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from sharegroup.client import TopicPartition
from sharegroup.client.sync import AdminClient
from sharegroup.testing import TestBroker, run_broker
from tests.support.console_scene import wait_until_seen
from tests.support.limits import HANGING_SECONDS
from tests.support.served_application import served

pytest.importorskip("fastapi", reason="make setup installs it")

APPLICATION = """
from contextlib import asynccontextmanager

from fastapi import FastAPI
from starlette.requests import Request

from sharegroup.console import Grant, Role, User, console


async def who(request: Request) -> User | None:
    name = request.headers.get("x-user")
    return None if name is None else User(name, (Grant(role=Role.ADMIN, values=True),))


queues = console(bootstrap_servers="{address}", auth=who, allow_changes=True)


@asynccontextmanager
async def lifespan(_: FastAPI):
    async with queues.running():
        yield
    print("the lifespan has ended", flush=True)


app = FastAPI(lifespan=lifespan)


@app.get("/orders/{{number}}")
async def order(number: int) -> dict[str, int]:
    return {{"number": number}}


app.mount("/queues", queues)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with run_broker() as there:
        with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
            there.create_topic("orders")
            admin.alter_share_group_offsets("billing", {TopicPartition("orders", 0): 0})
        yield there


def test_pages_data_and_changes_are_below_its_path(broker: TestBroker, tmp_path: Path) -> None:
    with (
        served(tmp_path, APPLICATION.format(address=broker.bootstrap_servers)) as app,
        app.browser("ada") as ada,
    ):
        wait_until_seen(f"{app.url}/queues", "billing", headers={"x-user": "ada"})
        assert ada.get("/orders/7").json() == {"number": 7}
        assert list(ada.get("/openapi.json").json()["paths"]) == ["/orders/{number}"]
        assert 'href="group?id=billing"' in ada.get("/queues", follow_redirects=True).text
        page = ada.get("/queues/produce", params={"topic": "orders"}).text
        (token,) = re.findall(r'name="form_token" value="([^"]+)"', page)
        fields = {"topic": "orders", "key": "k", "value": "v", "form_token": token}
        assert ada.post("/queues/records/produce", data=fields).status_code == 303
        where = {"topic": "orders", "partition": 0, "offset": 0}
        assert ada.get("/queues/api/v1/record", params=where).json()["key"] == "k"
        with app.browser() as stranger:
            assert stranger.get("/queues/").status_code == 401
            assert stranger.get("/orders/7").status_code == 200


@pytest.mark.slow
def test_open_live_page_does_not_hold_up_the_stop(broker: TestBroker, tmp_path: Path) -> None:
    """A stream that is open at SIGTERM ends in order; then the application's lifespan does."""
    with (
        served(tmp_path, APPLICATION.format(address=broker.bootstrap_servers)) as app,
        app.browser("ada") as ada,
    ):
        wait_until_seen(f"{app.url}/queues", "billing", headers={"x-user": "ada"})
        events = {"accept": "text/event-stream"}
        with ada.stream("GET", "/queues/groups", headers=events) as stream:
            lines = stream.iter_lines()
            parts = next(line for line in lines if line.startswith("data: "))
            assert "billing" in json.loads(parts.removeprefix("data: "))["live_groups"]
            app.process.terminate()
            assert [line for line in lines if line.startswith("event: end")] == []
        app.process.wait(HANGING_SECONDS)
        assert (tmp_path / "log").read_text().endswith("the lifespan has ended\n")
