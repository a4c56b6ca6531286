"""Files of tokens and roles that change while a console runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.access.roles_file import read_roles
from sharegroup.console.access.tokens import read_tokens
from sharegroup.testing import broker
from tests.integration.console.access_scene import TOKENS, Scene, console
from tests.integration.console.live_pages import LivePage
from tests.support.limits import HANGING_SECONDS

ADA, BOB = (f"{name}:{TOKENS[name]}\n" for name in ("ada", "bob"))
ALL = '[[grants]]\nrole = "admin"\nvalues = true\n'


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[tuple[Scene, Path, Path]]:
    """A console with both files, on a broker with two topics."""
    tokens, roles = folder / "tokens", folder / "roles.toml"
    tokens.write_text(ADA + BOB)
    roles.write_text(ALL)
    async with broker() as there:
        for topic in ("orders", "secrets"):
            await there.create_topic(topic)
        async with console(
            ClientOptions(bootstrap_servers=there.bootstrap_servers),
            tokens=read_tokens(tokens),
            roles=read_roles(roles),
            token_file=tokens,
            roles_file=roles,
        ) as running:
            yield running, tokens, roles


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(HANGING_SECONDS):
        while not await holds():
            await asyncio.sleep(0.05)


def test_withdrawn_token_works_no_more_and_its_sessions_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sharegroup.console")

    async def run() -> None:
        async with scene(tmp_path) as (running, tokens, _):
            browsers = {name: await running.browser() for name in TOKENS}
            programs = {name: await running.browser(token=TOKENS[name]) for name in TOKENS}
            for name, browser in browsers.items():
                await browser.log_in(token=TOKENS[name])
                assert (await browser.get("/")).status_code == 200
            ada = browsers["ada"]
            bearer = (b"authorization", f"Bearer {TOKENS['ada']}".encode())
            async with (
                LivePage(running.app, "/", ada.cookies) as one,
                LivePage(running.app, "/", bearer) as other,
            ):
                await asyncio.gather(one.parts(), other.parts())
                # Ada's token is another one now; a name alone keeps no session.
                tokens.write_text("ada:another-0123456789abcdef\n" + BOB)
                async with asyncio.timeout(HANGING_SECONDS):
                    await asyncio.gather(one.stream, other.stream)

            async def is_out() -> bool:
                return (await ada.get("/")).status_code == 303

            await until(is_out)
            assert (await programs["ada"].get("/api/v1/topics")).status_code == 401
            assert (await browsers["bob"].get("/")).status_code == 200
            assert (await programs["bob"].get("/api/v1/topics")).status_code == 200
            new = await running.browser(token="another-0123456789abcdef")
            assert (await new.get("/api/v1/topics")).status_code == 200

    asyncio.run(run())
    ended = [line for line in caplog.messages if "session_ended" in line]
    assert ended == ["event=console.session_ended user='ada' reason='its token was withdrawn'"]


def test_roles_change_for_sessions_that_have_begun(tmp_path: Path) -> None:
    async def run() -> None:
        async with scene(tmp_path) as (running, _, roles):
            ada, bob = await running.browser(), await running.browser(token=TOKENS["bob"])
            await ada.log_in(token=TOKENS["ada"])
            for user in (ada, bob):
                await user.until("/topics", lambda data: "secrets" in str(data))
            roles.write_text('[[grants]]\ntopics = ["orders"]\n')
            for user in (ada, bob):
                await user.until("/topics", lambda data: "secrets" not in str(data))
                assert (await user.get("/records", topic="secrets")).status_code == 404

    asyncio.run(run())


@pytest.mark.slow
def test_file_with_a_mistake_changes_nothing_and_the_overview_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sharegroup.console")

    async def run() -> None:
        async with scene(tmp_path) as (running, tokens, roles):
            ada = await running.browser(token=TOKENS["ada"])
            for file, bad, good, text in (
                (tokens, BOB + "ada:short\n", ADA + BOB, "line 2: expected a token of 16"),
                (roles, '[[grants]]\nrole = "king"\n', ALL, "expected one of viewer"),
            ):
                file.write_text(bad)

                def says(data: Any, text: str = text) -> bool:
                    return text in str(data["attention"])

                await ada.until("/", says)
                assert "short" not in str(await ada.data("/"))
                file.write_text(good)
                await ada.until("/", lambda data: not says(data))

    asyncio.run(run())
    kept = [line for line in caplog.messages if "rules_kept" in line]
    assert len(kept) == 2, "once for each mistake"
