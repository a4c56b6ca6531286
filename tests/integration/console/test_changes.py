"""Changes: who may make them, by forms and by the API, and what the log says of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest

from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.access.roles import Change, Grant, Role, Roles, UserGrant
from sharegroup.console.access.tokens import Tokens
from sharegroup.console.application import application
from sharegroup.console.pages.page import Visit
from sharegroup.console.parameters import BadQuery
from sharegroup.console.settings import ConsoleSettings
from sharegroup.console.web.changes import (
    Changed,
    ChangeRoute,
    Fields,
    has_form_token,
    named_subject,
)
from sharegroup.console.web.visitors import LOCAL, Visitors
from sharegroup.errors import NotController
from sharegroup.http_hosts import HttpHosts
from sharegroup.testing import broker
from tests.integration.console.access_scene import TOKENS, Browser, Scene, form_token

ROLES = Roles(
    grants=(
        UserGrant(users=("ada",), grant=Grant(role=Role.OPERATOR, topics=("orders*",))),
        UserGrant(users=("bob", "local"), grant=Grant(role=Role.ADMIN)),
    )
)
ASKED = {"topic": "orders\x1b\n", "group": "g", "count": "2", "value": "secret"}
NAMES = HttpHosts(frozenset({"localhost"}), is_on_loopback=True)


class Purges:
    """A change that notes what it was asked to do."""

    def __init__(self) -> None:
        self.done: list[tuple[str, Fields]] = []

    async def perform(self, visit: Visit, fields: Fields) -> Changed:
        if fields["topic"] == "orders-broken":
            raise NotController("it moves")
        if "count" not in fields:
            raise BadQuery("count: expected a number")
        self.done.append((visit.user.name, fields))
        return Changed(f"letters?topic={fields['topic']}", {"purged": int(fields["count"])})


@asynccontextmanager
async def scene(
    purges: Purges, kind: Change = Change.PURGE, **settings: Any
) -> AsyncIterator[Scene]:
    """A console with one change, and tokens unless the settings say otherwise."""
    chosen = {"allow_changes": True, "tokens": Tokens(TOKENS), "roles": ROLES, **settings}
    async with broker() as there:
        options = ClientOptions(bootstrap_servers=there.bootstrap_servers)
        app = application(
            ConsoleSettings(client_options=options, **chosen),
            hosts=NAMES,
            changes=[ChangeRoute("/purge", kind, named_subject, purges.perform, tuple(ASKED))],
        )
        async with app.router.lifespan_context(app), AsyncExitStack() as stack:
            yield Scene(app, stack)


async def send(browser: Browser, **fields: str) -> httpx.Response:
    """Send the form of a page."""
    token = form_token((await browser.get("/")).text)
    return await browser.http.post("/purge", data={"form_token": token, **fields})


def run(test: Callable[[Purges], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test(Purges()))


def test_form_changes_what_the_role_allows_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "sharegroup.console")

    async def test(purges: Purges) -> None:
        async with scene(purges) as there:
            bob, ada = await there.browser(), await there.browser()
            await bob.log_in(token=TOKENS["bob"])
            await ada.log_in(token=TOKENS["ada"])
            done = await send(bob, **ASKED)
            assert (done.status_code, done.headers["location"]) == (
                303,
                "/letters?topic=orders%1B%0A",
            )
            (user, fields) = purges.done.pop()
            assert (user, fields) == ("bob", ASKED)
            refused = await send(ada, topic="orders", count="2")
            assert refused.status_code == 403
            assert "purge of topic &#39;orders&#39; needs the role admin" in refused.text
            failed = await send(bob, topic="orders-broken", count="2")
            assert (failed.status_code, "it moves" in failed.text) == (502, True)
            unsaid = await send(bob, count="2")
            assert (unsaid.status_code, "purge of nothing" in unsaid.text) == (403, True)
            assert purges.done == []

    run(test)
    lines = [record.getMessage() for record in caplog.records]
    assert [line for line in lines if "console.changed" in line] == [
        f"event=console.changed user={asked}"
        for asked in (
            (
                "'bob' what=purge outcome=done path='/purge' group='g' topic='orders\\x1b\\n' "
                "count='2' result='{\"purged\": 2}'"
            ),
            "'ada' what=purge outcome=refused path='/purge' topic='orders' count='2'",
            "'bob' what=purge outcome=failed path='/purge' topic='orders-broken' count='2'",
            "'bob' what=purge outcome=refused path='/purge' count='2'",
        )
    ]


def test_operator_changes_only_own_topics() -> None:
    async def test(purges: Purges) -> None:
        async with scene(purges, Change.REDRIVE) as there:
            ada = await there.browser(token=TOKENS["ada"])
            for topic, status in (("orders.v2", 200), ("secrets", 403)):
                body = {"topic": topic, "count": 3}
                answer = await ada.http.post("/api/v1/purge", json=body)
                assert answer.status_code == status
            assert purges.done == [("ada", {"topic": "orders.v2", "count": "3"})]

    run(test)


@pytest.mark.parametrize(
    "kind", ["no token", "wrong token", "token of another", "cookie at the API", "foreign origin"]
)
def test_forged_changes_are_refused(kind: str) -> None:
    """Another web page has the browser send the cookie, but knows no token of a form."""

    async def test(purges: Purges) -> None:
        async with scene(purges) as there:
            bob, ada = await there.browser(), await there.browser()
            await bob.log_in(token=TOKENS["bob"])
            await ada.log_in(token=TOKENS["ada"])
            fields = {"topic": "orders", "count": "1"}
            own = form_token((await bob.get("/")).text)
            other = form_token((await ada.get("/")).text)
            http = bob.http
            answers = {
                "no token": http.post("/purge", data=fields),
                "wrong token": http.post("/purge", data={**fields, "form_token": own[:-1]}),
                "token of another": http.post("/purge", data={**fields, "form_token": other}),
                "cookie at the API": http.post("/api/v1/purge", json=fields),
                "foreign origin": http.post(
                    "/purge",
                    data={**fields, "form_token": own},
                    headers={"origin": "https://example.com"},
                ),
            }
            answer = await answers.pop(kind)
            for unsent in answers.values():
                unsent.close()
            assert answer.status_code == 403
            assert purges.done == []

    run(test)


def test_console_that_only_reads_changes_nothing() -> None:
    async def test(purges: Purges) -> None:
        async with scene(purges, allow_changes=False) as there:
            bob = await there.browser(token=TOKENS["bob"])
            answer = await bob.http.post("/api/v1/purge", json={"topic": "orders", "count": 1})
            assert (answer.status_code, "--allow-changes" in answer.json()["error"]) == (403, True)
            assert purges.done == []

    run(test)


def test_console_of_one_user_needs_the_token_of_a_form_too() -> None:
    async def test(purges: Purges) -> None:
        async with scene(purges, tokens=None) as there:
            local = await there.browser(token="any-0123456789abcdef")
            answer = await local.http.post("/api/v1/purge", json={"topic": "orders", "count": 1})
            assert (answer.status_code, "--token-file" in answer.json()["error"]) == (403, True)
            answer = await local.http.post("/purge", data={"topic": "orders", "count": "1"})
            assert answer.status_code == 403
            assert purges.done == []

    run(test)


def test_bodies_that_are_not_as_expected() -> None:
    async def test(purges: Purges) -> None:
        async with scene(purges) as there:
            bob = await there.browser(token=TOKENS["bob"])
            for body, status, text in (
                (b"{", 400, "no JSON"),
                (b"[]", 400, "expected a JSON object"),
                (b'{"topic": ["a"]}', 400, "'topic': expected a text"),
                (b'{"topic": "orders", "count": null}', 400, "count: expected a number"),
                (b"[" * 50_000, 400, "no JSON"),
                (b" " * 70_000, 413, "at most 65536 bytes"),
                (b"\xff", 400, "no JSON"),
            ):
                answer = await bob.http.post(
                    "/api/v1/purge", content=body, headers={"content-type": "application/json"}
                )
                assert (answer.status_code, text in answer.json()["error"]) == (status, True)
            plain = await bob.http.post("/api/v1/purge", data={"topic": "orders"})
            assert plain.status_code == 415
            many = {f"f{number}": "1" for number in range(200)}
            form = await bob.http.post("/purge", data=many)
            assert (form.status_code, "the form cannot be read" in form.text) == (400, True)
            assert (await bob.http.get("/purge")).status_code == 405

    run(test)


def test_form_token_of_the_local_user_is_of_this_process() -> None:
    async def tokens() -> list[str]:
        found = []
        for _ in range(2):
            visitors = Visitors(ConsoleSettings())
            first = visitors._stranger(LOCAL, has_token=False)
            again = visitors._stranger(LOCAL, has_token=False)
            assert has_form_token(first, {"form_token": again.form_token})
            found.append(first.form_token)
        return found

    first, second = asyncio.run(tokens())
    assert first != second
