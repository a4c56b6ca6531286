"""The console as a part of an application."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from sharegroup.console import Grant, MountedConsole, Role, User, console
from sharegroup.testing import AsyncTestBroker, broker
from tests.integration.console.access_scene import Browser, make_groups
from tests.integration.console.live_pages import LivePage

LINK = re.compile(r'(?:href|src|action)="([^"#]+)"')


async def who(request: Request) -> User | None:
    """The application's own users, by a header that its login would set."""
    name = request.headers.get("x-user")
    grants = {"root": (Grant(role=Role.ADMIN, values=True),), "nobody": ()}
    return None if name is None else User(name, grants.get(name))


@asynccontextmanager
async def application(mounted: MountedConsole, *, root_path: str = "") -> AsyncIterator[Any]:
    """An application with the console under /queues; yields browsers of its users."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with mounted.running():
            yield

    async def home(_: Request) -> PlainTextResponse:
        return PlainTextResponse("home")

    app = Starlette(
        routes=[Route("/", home), Mount("/queues", app=mounted)],
        lifespan=lifespan,
    )
    async with app.router.lifespan_context(app), AsyncExitStack() as stack:

        async def browser(user: str = "") -> Browser:
            transport = httpx.ASGITransport(app, root_path=root_path)
            client = httpx.AsyncClient(
                transport=transport,
                base_url=f"http://app{root_path}",
                headers={"x-user": user} if user else {},
                follow_redirects=True,
            )
            return Browser(await stack.enter_async_context(client))

        yield browser


@pytest.mark.parametrize("root_path", ["", "/proxied"])
def test_every_link_of_a_mounted_console_stays_in_it(root_path: str) -> None:
    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            mounted = console(bootstrap_servers=there.bootstrap_servers, auth=who)
            async with application(mounted, root_path=root_path) as browser:
                root = await browser("root")
                await until_groups(root)
                pages, seen = ["/queues"], set()
                while pages:
                    path = pages.pop()
                    answer = await root.get(path)
                    assert answer.status_code == 200, (path, answer.text)
                    if answer.headers["content-type"].startswith("text/html"):
                        for link in LINK.findall(answer.text):
                            found = answer.url.join(link.replace("&amp;", "&"))
                            assert found.path.startswith(f"{root_path}/queues"), (path, link)
                            if found.path not in seen:
                                seen.add(found.path)
                                pages.append(found.raw_path.decode().removeprefix(root_path))
                kinds = ("/static/console.css", "/group", "/topic", "/records", "/api/v1/group")
                assert {f"{root_path}/queues{kind}" for kind in kinds} <= seen
                assert (await root.get("/")).text == "home"

    asyncio.run(run())


async def until_groups(browser: Browser) -> None:
    async with asyncio.timeout(60):
        while len((await browser.get("/queues/api/v1/groups")).json()["groups"]) < 2:
            await asyncio.sleep(0.05)


def test_application_says_who_somebody_is(tmp_path: Path) -> None:
    roles = tmp_path / "roles.toml"
    roles.write_text('[[grants]]\nusers = ["ada"]\ngroups = ["billing"]\ntopics = ["orders"]\n')

    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            mounted = console(
                bootstrap_servers=there.bootstrap_servers, auth=who, roles=roles, form_secret="s"
            )
            async with application(mounted) as browser:
                await until_groups(await browser("root"))
                seen = {}
                for name in ("root", "ada", "eve", "nobody"):
                    answer = await (await browser(name)).get("/queues/api/v1/groups")
                    seen[name] = [row["group"] for row in answer.json()["groups"]]
                assert seen == {
                    "root": ["billing", "spies"], "ada": ["billing"], "eve": [], "nobody": [],
                }  # fmt: skip
                stranger = await browser()
                assert (await stranger.get("/queues/")).status_code == 401
                assert (await stranger.get("/queues/login")).status_code == 404
                page = (await (await browser("ada")).get("/queues/")).text
                assert "Log out" not in page

    asyncio.run(run())


def test_without_auth_it_only_reads_and_shows_no_values() -> None:
    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            mounted = console(bootstrap_servers=there.bootstrap_servers, allow_changes=True)
            async with application(mounted) as browser:
                anybody = await browser()
                await until_groups(anybody)
                assert "read only" in (await anybody.get("/queues/")).text
                where = {"topic": "orders", "partition": 0, "offset": 0}
                record = (await anybody.get("/queues/api/v1/record", **where)).json()
                assert (record["key"], record["value"]) == ("hidden", "hidden")

    asyncio.run(run())


def test_mounted_console_that_nobody_runs_says_what_to_do() -> None:
    async def run() -> None:
        mounted = console(bootstrap_servers="127.0.0.1:1", auth=who)
        app = Starlette(routes=[Mount("/queues", app=mounted)])
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://app") as client:
            answer = await client.get("/queues/")
            assert (answer.status_code, "async with console.running()" in answer.text) == (
                503,
                True,
            )

    asyncio.run(run())


def test_live_parts_come_under_its_path_too() -> None:
    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            mounted = console(bootstrap_servers=there.bootstrap_servers, auth=who)
            async with application(mounted) as browser:
                await until_groups(await browser("root"))
                user, host = (b"x-user", b"root"), (b"host", b"app")
                scope = {"root_path": "/queues", "server": ("app", 80)}
                async with LivePage(mounted, "/queues/groups", user, host, **scope) as page:
                    first = await page.parts()
                assert "live_groups" in first
                assert 'href=\\"group?id=billing\\"' in first

    asyncio.run(run())


def test_form_token_is_of_the_user_and_of_the_secret() -> None:
    async def run(there: AsyncTestBroker, secret: str, user: str) -> str:
        mounted = console(bootstrap_servers=there.bootstrap_servers, auth=who, form_secret=secret)
        async with application(mounted) as browser:
            visitors = mounted._console.visitors
            scope = {"type": "http", "headers": [(b"x-user", user.encode())]}
            visitor = await visitors.visitor(Request(scope))
            assert visitor is not None
            assert browser is not None
            return visitor.form_token

    async def compare() -> None:
        async with broker() as there:
            first = await run(there, "s", "ada")
            assert first == await run(there, "s", "ada")
            assert first != await run(there, "s", "bob")
            assert first != await run(there, "t", "ada")

    asyncio.run(compare())


def test_without_the_extra_the_import_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['starlette'] = None\n"
        "import sharegroup.console.access.exposure\n"
        "from sharegroup.console import Grant, User\n"
        "from sharegroup.errors import MissingExtra\n"
        "try:\n    from sharegroup.console import console\n"
        "except MissingExtra as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("the console needs an extra: pip install")


def test_example_of_the_documentation() -> None:
    page = (Path(__file__).parents[3] / "docs" / "console.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]

    async def run() -> None:
        async with broker() as there:
            await make_groups(there)
            names: dict[str, Any] = {}
            exec(code.replace("127.0.0.1:9092", there.bootstrap_servers), names)
            app = names["app"]
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(
                    transport=httpx.ASGITransport(app), base_url="http://app"
                ) as client,
            ):
                seen = {}
                for name in ("root", "ada"):
                    where = {"topic": "orders", "partition": 0, "offset": 0}
                    answer = await client.get(
                        "/queues/api/v1/record", params=where, headers={"x-user": name}
                    )
                    seen[name] = answer.json()["key"]
                assert seen == {"root": "k7", "ada": "hidden"}

    asyncio.run(run())
