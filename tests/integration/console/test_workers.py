"""The page of workers: what it shows, who may command them, and heartbeats that lie."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from sharegroup.client import Producer
from sharegroup.console.access.roles import Grant, Role, Roles, UserGrant
from sharegroup.fleet import heartbeats
from sharegroup.testing import AsyncTestBroker, broker
from sharegroup.worker import App
from tests.integration.console.access_scene import TOKENS, Browser, Scene, form_token, with_tokens
from tests.unit.fleet.test_fleet_records import BEAT

ROLES = Roles(
    grants=(
        UserGrant(users=("ada",), grant=Grant(role=Role.OPERATOR, topics=("shop.*",))),
        UserGrant(users=("bob",), grant=Grant(role=Role.VIEWER)),
    )
)
HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e"


def app_of(there: AsyncTestBroker, name: str) -> App:
    app = App(name, bootstrap_servers=there.bootstrap_servers, announce=True)

    @app.share_group(f"{name}-group", topics=f"{name}-orders", retry=None, dead_letter=None)
    async def work(value: bytes) -> None: ...

    return app


def run(test: Callable[[AsyncTestBroker, Scene], Awaitable[None]]) -> None:
    """With an application of each name that announces itself, and a console."""

    async def scene() -> None:
        async with (
            broker() as there,
            app_of(there, "shop"),
            app_of(there, "hidden"),
            with_tokens(there, roles=ROLES, allow_changes=True) as console,
        ):
            await test(there, console)

    asyncio.run(scene())


async def steer(browser: Browser, **fields: str) -> tuple[int, str]:
    """Send the form of the page; returns status and text, or where it leads."""
    token = form_token((await browser.get("/")).text)
    answer = await browser.http.post("/workers/steer", data={"form_token": token, **fields})
    return answer.status_code, answer.headers.get("location", answer.text)


@pytest.mark.slow
def test_operator_sees_and_commands_the_workers_of_the_own_topics() -> None:
    async def test(_: AsyncTestBroker, console: Scene) -> None:
        ada = await console.browser()
        await ada.log_in(token=TOKENS["ada"])
        program = await console.browser(token=TOKENS["ada"])
        data = await program.until("/workers", lambda data: len(data["workers"]) == 1)
        [row] = data["workers"]
        assert (row["app"], row["phase"], row["groups"]) == ("shop", "running", ["shop-group"])
        page = (await ada.get("/workers", app="shop", worker=row["worker"])).text
        assert row["worker"] in page
        assert "Command this worker" in page
        status, where = await steer(ada, app="shop", worker=row["worker"], intent="quiet")
        assert (status, where) == (
            303, f"/workers?app=shop&outcomes=done%3A1&worker={row['worker']}",
        )  # fmt: skip
        assert "1 done." in (await ada.get(where)).text
        [row] = (await program.data("/workers", app="shop"))["workers"]
        assert row["phase"] == "quiet"
        body = {"app": "shop", "intent": "resume"}
        answer = await program.http.post("/api/v1/workers/steer", json=body)
        assert answer.json() == {"workers": [{"worker": row["worker"], "outcome": "done"}]}
        for fields, code in (
            ({"app": "hidden", "intent": "stop"}, 403),
            ({"app": "shop.none", "intent": "stop"}, 404),
            ({"app": "shop", "intent": "dance"}, 400),
            ({"app": "shop", "worker": "\x1b", "intent": "stop"}, 400),
            ({"app": "shop", "worker": "nobody", "intent": "stop"}, 404),
            ({"intent": "stop"}, 403),
        ):
            assert (await steer(ada, **fields))[0] == code, fields
        assert (await ada.get("/workers", app="hidden")).status_code == 404
        assert (await ada.get("/workers", app="shop", outcomes="call 0900:1")).status_code == 400

    run(test)


def test_viewer_sees_workers_and_may_not_command_them() -> None:
    async def test(_: AsyncTestBroker, console: Scene) -> None:
        bob = await console.browser()
        await bob.log_in(token=TOKENS["bob"])
        program = await console.browser(token=TOKENS["bob"])
        data = await program.until("/workers", lambda data: len(data["workers"]) == 2)
        assert {row["app"] for row in data["workers"]} == {"shop", "hidden"}
        page = (await bob.get("/workers", app="shop")).text
        assert "of topic &#39;shop.control&#39; needs the role operator" in page
        assert (await steer(bob, app="shop", intent="stop"))[0] == 403

    run(test)


def test_lying_heartbeats_are_shown_as_texts_and_lost_ones_as_lost() -> None:
    async def test(there: AsyncTestBroker, console: Scene) -> None:
        key, value = heartbeats.encoded(BEAT)
        lie = json.loads(value) | {
            "app": "hidden", "groups": [HOSTILE], "since_ms": 2**63 - 1,
            "versions": {"sharegroup": HOSTILE, "python": HOSTILE},
        }  # fmt: skip
        async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
            for content in (b"{}", json.dumps(lie).encode()):
                await producer.send_and_wait("shop.workers", content, key=key, partition=0)
        ada = await console.browser()
        await ada.log_in(token=TOKENS["ada"])
        program = await console.browser(token=TOKENS["ada"])
        data = await program.until("/workers", lambda data: len(data["workers"]) == 2)
        assert {row["app"] for row in data["workers"]} == {"shop"}  # Not what it says itself.
        page = await ada.get("/workers", app="shop")
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "\x1b" not in page.text

    run(test)
