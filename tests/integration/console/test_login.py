"""Logging in to the console by token or with credentials of the cluster; what each user sees."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any

import pytest
from starlette.requests import Request

from sharegroup.client.settings.option_values import SaslMechanism
from sharegroup.console.access.attempts import PER_ADDRESS_MAX
from sharegroup.console.access.masks import Mask, Masks, parsed_path
from sharegroup.console.access.roles import Grant, Role, Roles, UserGrant
from sharegroup.testing import broker
from tests.integration.console.access_scene import (
    SECURITY,
    TOKENS,
    USERS,
    Browser,
    console,
    form_token,
    make_groups,
    with_tokens,
)
from tests.integration.console.live_pages import LivePage
from tests.support.limits import HANGING_SECONDS

PAGES = ("/", "/groups", "/topics", "/letters", "/records", "/brokers", "/access")


def names(data: Any, key: str, name: str) -> list[str]:
    return [row[name] for row in data[key]]


def test_nothing_but_the_login_is_open() -> None:
    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            stranger = await scene.browser()
            for page in PAGES:
                answer = await stranger.get(page)
                assert (answer.status_code, answer.headers["location"][:12]) == (
                    303,
                    "/login?next=",
                )
                answer = await stranger.get(f"/api/v1{page}")
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
                assert "a token" in answer.json()["error"]
            live = await stranger.http.get("/", headers={"accept": "text/event-stream"})
            assert live.status_code == 401
            assert (await stranger.http.post("/logout")).status_code == 401
            assert (await stranger.get("/none")).status_code == 303
            for path in ("/login", "/static/console.css", "/static/icon.svg"):
                assert (await stranger.get(path)).status_code == 200
            for path in ("/static/../", "/static/%2e%2e/settings.py", "/login/../topics"):
                assert (await stranger.get(path)).status_code in (303, 404)

    asyncio.run(run())


def test_user_logs_in_by_token_and_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sharegroup.console")

    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            ada = await scene.browser()
            wanted = (await ada.get("/groups", find="a b")).headers["location"]
            page = await ada.get(wanted)
            assert 'name="token"' in page.text
            assert 'value="/groups?find=a+b"' in page.text
            assert 'name="password"' not in page.text.replace('type="password"', "")
            wrong = await ada.log_in(token="wrong-0123456789abcdef")
            assert (wrong.status_code, "no token of the console" in wrong.text) == (401, True)
            done = await ada.log_in(token=TOKENS["ada"], next="/groups?find=a+b")
            assert (done.status_code, done.headers["location"]) == (303, "/groups?find=a+b")
            cookie = done.headers["set-cookie"].lower()
            assert "httponly" in cookie
            assert "samesite=strict" in cookie
            assert "secure" not in cookie
            session = dict(ada.http.cookies)
            assert "Log out" in (await ada.get("/")).text
            out = await ada.log_out()
            assert (out.status_code, out.headers["location"]) == (303, "/login")
            assert (await ada.get("/")).status_code == 303
            # The cookie itself is worth nothing any more.
            ada.http.cookies.update(session)
            assert (await ada.get("/")).status_code == 303

    asyncio.run(run())
    lines = [record.getMessage() for record in caplog.records if "login" in record.getMessage()]
    assert lines[0].startswith("event=console.login user='' address='127.0.0.1' outcome=refused")
    assert lines[1].startswith("event=console.login user='ada' address='127.0.0.1' outcome=done")
    assert not any(secret in line for line in lines for secret in TOKENS.values())


@pytest.mark.parametrize(
    "wanted", ["https://example.com/", "//example.com", "/\\example.com", "/a\r\nx: y", "groups"]
)
def test_login_leads_to_no_other_site(wanted: str) -> None:
    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            ada = await scene.browser()
            answer = await ada.log_in(token=TOKENS["ada"], next=wanted)
            assert answer.headers["location"] == "/"

    asyncio.run(run())


def test_cookie_is_for_encrypted_connections_only_if_the_browser_has_one() -> None:
    async def run() -> None:
        async with broker() as there, with_tokens(there, is_behind_proxy=True) as scene:
            plain = await scene.browser()
            answer = await plain.get("/login")
            assert (answer.status_code, "X-Forwarded-Proto" in answer.text) == (403, True)
            ada = await scene.browser(scheme="https")
            cookie = (await ada.log_in(token=TOKENS["ada"])).headers["set-cookie"]
            assert cookie.startswith("__Host-sharegroup-console-")
            assert "; secure" in cookie.lower()
            assert (await ada.get("/")).status_code == 200

    asyncio.run(run())


def test_attempts_are_limited_for_each_address(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            mallory = await scene.browser(address="10.0.0.66")
            for number in range(PER_ADDRESS_MAX - 1):
                answer = await mallory.log_in(token=f"guess-{number:020}")
                assert answer.status_code == 401
            program = await scene.browser(address="10.0.0.66", token="guess-0123456789abcdef")
            assert (await program.get("/api/v1/groups")).status_code == 401
            # From now on not even the right one is looked at.
            answer = await mallory.log_in(token=TOKENS["ada"])
            assert (answer.status_code, "Too many attempts" in answer.text) == (429, True)
            right = await scene.browser(address="10.0.0.66", token=TOKENS["ada"])
            answer = await right.get("/api/v1/groups")
            assert answer.status_code == 429
            assert 0 < int(answer.headers["retry-after"]) <= 300
            ada = await scene.browser(address="10.0.0.7")
            assert (await ada.log_in(token=TOKENS["ada"])).status_code == 303

    asyncio.run(run())
    assert "outcome=limited" in caplog.text


def test_programs_read_with_a_token_and_cannot_use_a_cookie_to_log_out() -> None:
    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            program = await scene.browser(token=TOKENS["bob"])
            assert await program.data("/groups") == {"groups": []}
            wrong = await scene.browser(token="wrong-0123456789abcdef")
            assert (await wrong.get("/api/v1/groups")).status_code == 401
            ada = await scene.browser()
            await ada.log_in(token=TOKENS["ada"])
            # Another site cannot know the form's token.
            for fields in ({"x": "y"}, {"form_token": "x"}, {"form_token": "ä"}):
                assert (await ada.http.post("/logout", data=fields)).status_code == 403
            large = await ada.http.post("/logout", data={"x": "y" * 70_000})
            assert large.status_code == 413
            odd = await ada.http.post("/logout", content=b"\xff", headers={"content-type": "x/y"})
            assert odd.status_code == 415
            assert (await ada.get("/")).status_code == 200

    asyncio.run(run())


ROLES = Roles(
    grants=(
        UserGrant(users=("ada",), grant=Grant(groups=("billing",), topics=("orders",))),
        UserGrant(users=("bob",), grant=Grant(values=True)),
    ),
    masks=Masks((Mask(topics=("orders",), values=(parsed_path("$.card.number"),), keys=True),)),
)


def test_roles_hide_groups_topics_and_values(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sharegroup.console")

    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            async with with_tokens(there, roles=ROLES) as scene:
                bob = await scene.browser(token=TOKENS["bob"])
                await bob.until("/groups", lambda data: len(data["groups"]) == 2)
                await bob.until("/topics", lambda data: len(data["topics"]) > 2)
                ada = await scene.browser(token=TOKENS["ada"])
                assert names(await ada.data("/groups"), "groups", "group") == ["billing"]
                assert names(await ada.data("/topics"), "topics", "name") == ["orders"]
                assert "spies" not in (await ada.get("/")).text
                for page, query in (
                    ("/group", {"id": "spies"}),
                    ("/topic", {"name": "secrets"}),
                    ("/records", {"topic": "secrets"}),
                    ("/record", {"topic": "secrets", "partition": 0, "offset": 0}),
                    ("/letters", {"topic": "secrets"}),
                    ("/letter", {"topic": "secrets", "partition": 0, "offset": 0}),
                    ("/topic", {"name": "none"}),
                ):
                    answer = await ada.get(f"/api/v1{page}", **query)
                    assert answer.status_code == 404, page
                    assert "or you may not see it" in answer.json()["error"]
                assert (await ada.get("/api/v1/access")).status_code == 403
                assert (await bob.get("/api/v1/access")).status_code == 200
                await values_of(ada, bob)

    asyncio.run(run())
    lines = [line for line in caplog.text.splitlines() if "values_seen" in line]
    assert all("user='bob'" in line for line in lines)
    seen = "event=console.values_seen user='bob' topic='orders' partition=0 offset=0"
    assert any(seen in line for line in lines)


async def values_of(ada: Browser, bob: Browser) -> None:
    """ada has no right to see values; what bob sees is masked, and cannot be searched for."""
    where = {"topic": "orders", "partition": 0, "offset": 0}
    assert (await ada.data("/record", **where))["value"] == "hidden"
    (row,) = (await ada.data("/records", topic="orders"))["records"]
    assert (row["key"], row["value"]) == ("hidden", "hidden")
    answer = await ada.get("/api/v1/records", topic="orders", value="4111")
    assert (answer.status_code, "cannot search" in answer.json()["error"]) == (400, True)
    for condition in ({"value": "4111"}, {"where": 'card.number == "4111"'}, {"key": "k7"}):
        found = await bob.data("/records", topic="orders", **condition)
        assert (found["looked_at"], found["records"]) == (1, [])
    (row,) = (await bob.data("/records", topic="orders", value='"id": 7'))["records"]
    assert row["value"] == '{"id": 7, "card": {"number": "•••"}}'
    record = await bob.data("/record", **where)
    assert "4111" not in record["value"]
    assert record["key"] == "•••"
    (row,) = (await bob.data("/records", topic="secrets", value="4111"))["records"]
    assert row["key"] == "k7"


@pytest.mark.slow
def test_users_of_the_cluster_see_what_their_own_connection_lists() -> None:
    async def run() -> None:
        async with broker(security=SECURITY) as there:
            await make_groups(there, "console")
            for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"):
                async with console(
                    there.client_options("console", mechanism="SCRAM-SHA-512"),
                    login_mechanism=SaslMechanism(mechanism),
                ) as scene:
                    ada = await scene.browser()
                    wrong = await ada.log_in(name="ada", password="wrong")
                    assert "does not accept this name and password" in wrong.text
                    assert wrong.status_code == 401
                    done = await ada.log_in(name="ada", password=USERS["ada"])
                    assert done.status_code == 303, done.text
                    data = await ada.until("/groups", lambda data: data["groups"] != [])
                    assert names(data, "groups", "group") == ["billing"]
                    data = await ada.until("/topics", lambda data: data["topics"] != [])
                    assert names(data, "topics", "name") == ["orders"]
                    eve = await scene.browser()
                    await eve.log_in(name="eve", password=USERS["eve"])
                    assert await eve.data("/groups") == {"groups": []}
                    assert await eve.data("/topics") == {"topics": []}
                    assert (await eve.get("/group", id="billing")).status_code == 404

    asyncio.run(run())


def test_what_a_user_of_the_cluster_reads_is_read_by_their_own_connection() -> None:
    async def run() -> None:
        async with broker(security=SECURITY) as there:
            await make_groups(there, "console")
            async with console(
                there.client_options("console"), login_mechanism=SaslMechanism.SCRAM_SHA_512
            ) as scene:
                ada = await scene.browser()
                await ada.log_in(name="ada", password=USERS["ada"])
                await ada.until("/topics", lambda data: data["topics"] != [])
                (row,) = (await ada.data("/records", topic="orders"))["records"]
                assert row["key"] == "k7"
                # ACLs need DESCRIBE on the cluster, which is the user's own matter.
                access = await ada.data("/access")
                assert "error" in access["acls"]
                # The state topic is not hers; the coordinator lists the runs of what she describes.
                group = await ada.data("/group", id="billing")
                assert group["runs_source"] == "live"
                clients = [
                    session.owned.connection.clients.admin.principal
                    for session in scene_sessions(scene)
                ]
                assert clients == ["User:ada"]
                await ada.log_out()
                assert scene_sessions(scene) == []

    asyncio.run(run())


def scene_sessions(scene: Any) -> list[Any]:
    """Return the sessions of a console, which no page shows."""
    return list(visitors_of(scene)._sessions._sessions.values())


def visitors_of(scene: Any) -> Any:
    """Return the visitors of a console."""
    gate = next(each for each in scene.app.user_middleware if each.cls.__name__ == "Gate")
    return gate.args[0]


@pytest.mark.slow
def test_cluster_that_is_away_is_told_from_a_wrong_password() -> None:
    async def run() -> None:
        async with broker(security=SECURITY) as there:
            options = there.client_options("console")
            async with console(options, login_mechanism=SaslMechanism.SCRAM_SHA_512) as scene:
                ada = await scene.browser()
                await there.stop()
                answer = await ada.log_in(name="ada", password=USERS["ada"])
                assert (answer.status_code, "does not answer" in answer.text) == (503, True)
                assert visitors_of(scene)._attempts._total == deque()
                empty = await ada.log_in(name="ada", password="")
                assert (empty.status_code, "Give a name and a password" in empty.text) == (
                    400,
                    True,
                )
                nul = await ada.log_in(name="ada\0", password="x")
                assert (nul.status_code, "NUL" in nul.text) == (400, True)

    asyncio.run(run())


def test_form_token_is_of_the_session() -> None:
    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            ada, bob = await scene.browser(), await scene.browser()
            await ada.log_in(token=TOKENS["ada"])
            await bob.log_in(token=TOKENS["bob"])
            other = form_token((await bob.get("/")).text)
            assert (await ada.http.post("/logout", data={"form_token": other})).status_code == 403

    asyncio.run(run())


def test_live_page_of_somebody_who_has_logged_out_ends() -> None:
    """A page that is left open shows nothing after the logout in another tab."""

    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            ada = await scene.browser()
            await ada.log_in(token=TOKENS["ada"])
            async with LivePage(scene.app, "/", ada.cookies) as page:
                await page.parts()
                await ada.log_out()
                async with asyncio.timeout(HANGING_SECONDS):
                    await page.stream

    asyncio.run(run())


def test_page_that_only_refreshes_itself_keeps_no_session_alive() -> None:
    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            ada = await scene.browser()
            await ada.log_in(token=TOKENS["ada"])
            (session,) = scene_sessions(scene)
            for is_live, moves in ((True, False), (False, True)):
                before = session.used_at
                request = Request(
                    {
                        "type": "http", "server": ("localhost", None),
                        "headers": [(b"cookie", f"{name}={value}".encode())
                                    for name, value in ada.http.cookies.items()],
                    }
                )  # fmt: skip
                visitor = await visitors_of(scene).visitor(request, is_use=not is_live)
                assert visitor is not None
                assert (session.used_at > before) == moves

    asyncio.run(run())


def test_jobs_and_resets_keep_to_what_their_user_may_see() -> None:
    """A plan counts, so it could tell what a value is; a job writes to the topic that it names."""
    grants = (
        UserGrant(
            users=("ada",),
            grant=Grant(role=Role.ADMIN, groups=("*",), topics=("orders",), values=True),
        ),
    )

    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            for masks, text in ((ROLES.masks, "values are masked"), (Masks(), "")):
                roles = Roles(grants=grants, masks=masks)
                async with with_tokens(there, roles=roles, allow_changes=True) as scene:
                    ada = await scene.browser(token=TOKENS["ada"])
                    plan = {"kind": "redrive", "topic": "orders", "where": "id > 1"}
                    answer = await ada.get("/api/v1/plan", **plan)
                    assert (answer.status_code, text in answer.text) == (400 if text else 200, True)
            async with with_tokens(there, roles=roles, allow_changes=True) as scene:
                ada = await scene.browser(token=TOKENS["ada"])
                plan = {"kind": "redrive", "topic": "orders", "everything": "yes"}
                for confirm, status in (("orders", 200), ("orders,secrets", 403)):
                    other = {"target": "original", "confirm": confirm}
                    answer = await ada.get("/api/v1/plan", **plan, **other)
                    assert answer.status_code == status, answer.text
                data = await ada.data("/reset", group="spies", to="latest")
                assert data["plan"] == []
                body = {"group": "spies", "plan": "secrets:0:0"}
                answer = await ada.http.post("/api/v1/groups/reset", json=body)
                assert (answer.status_code, "may not see it" in answer.text) == (404, True)

    asyncio.run(run())


def test_deletions_need_the_role_and_the_topics_of_the_group() -> None:
    """bob is operator; ada is admin of `billing` and its topic, and sees no topic of `spies`."""
    grants = (
        UserGrant(users=("ada",), grant=Grant(role=Role.ADMIN, topics=("orders",))),
        UserGrant(users=("bob",), grant=Grant(role=Role.OPERATOR)),
    )

    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            roles = Roles(grants=grants)
            async with with_tokens(there, roles=roles, allow_changes=True) as scene:
                ada, bob = [await scene.browser(token=TOKENS[name]) for name in ("ada", "bob")]
                offsets = {"group": "billing", "what": "offsets", "topic": "orders"}
                plan = (await bob.data("/delete", **offsets))["plan"]
                body = {"group": "billing", "topic": "orders", "plan": plan}
                for path in ("delete-offsets", "delete"):
                    answer = await bob.http.post(f"/api/v1/groups/{path}", json=body)
                    assert (answer.status_code, "needs the role admin" in answer.text) == (
                        403,
                        True,
                    )
                for query, status in (
                    ({"group": "spies", "what": "offsets", "topic": "secrets"}, 404),
                    ({"group": "spies", "what": "group"}, 403),
                    ({"group": "billing", "what": "else"}, 400),
                ):
                    answer = await ada.get("/api/v1/delete", **query)
                    assert (answer.status_code, "secrets" in answer.text) == (
                        status, query.get("topic") == "secrets",
                    )  # fmt: skip
                for path, hidden in (
                    ("delete-offsets", {"group": "spies", "topic": "secrets", "plan": ""}),
                    ("delete", {"group": "spies", "plan": ""}),
                ):
                    answer = await ada.http.post(f"/api/v1/groups/{path}", json=hidden)
                    assert answer.status_code == 403
                answer = await ada.http.post("/api/v1/groups/delete-offsets", json=body)
                assert (answer.status_code, answer.json()) == (
                    200, {"group": "billing", "topic": "orders", "deleted": 1},
                )  # fmt: skip

    asyncio.run(run())


def test_browsers_send_forms_with_their_origin() -> None:
    """With the policy no-referrer they would send ``Origin: null``, which is refused."""

    async def run() -> None:
        async with broker() as there, with_tokens(there) as scene:
            ada = await scene.browser()
            for path in ("/login", "/", "/static/console.css"):
                answer = await ada.get(path)
                assert answer.headers["referrer-policy"] == "same-origin"

    asyncio.run(run())


def test_two_users_who_look_at_the_same_page_at_once_see_their_own() -> None:
    """What is made for one user must never be given to another one of the same address."""

    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            async with with_tokens(there, roles=ROLES) as scene:
                ada, bob = await scene.browser(), await scene.browser()
                await ada.log_in(token=TOKENS["ada"])
                await bob.log_in(token=TOKENS["bob"])
                await bob.until("/groups", lambda data: len(data["groups"]) == 2)
                for _ in range(3):
                    pages = await asyncio.gather(
                        *(browser.get(path) for path in ("/", "/groups") for browser in (bob, ada))
                    )
                    tokens = {form_token(page.text) for page in pages}
                    assert len(tokens) == 2
                    assert ["spies" in page.text for page in pages] == [True, False] * 2
                    of_bob, of_ada = await asyncio.gather(bob.data("/groups"), ada.data("/groups"))
                    assert (len(of_bob["groups"]), len(of_ada["groups"])) == (2, 1)
                    where = {"topic": "orders", "partition": 0, "offset": 0}
                    of_bob, of_ada = await asyncio.gather(
                        bob.data("/record", **where), ada.data("/record", **where)
                    )
                    assert (of_bob["key"], of_ada["key"]) == ("•••", "hidden")
                programs = [await scene.browser(token=TOKENS[name]) for name in ("bob", "ada")]
                of_bob, of_ada = await asyncio.gather(*(each.data("/groups") for each in programs))
                assert (len(of_bob["groups"]), len(of_ada["groups"])) == (2, 1)

    asyncio.run(run())
