"""A console with a login, and browsers that use it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from starlette.applications import Starlette

from sharegroup.client import (
    AclBinding,
    AclOperation,
    AclResourceType,
    ConsumerRecord,
    ShareConsumer,
)
from sharegroup.client.settings.client_config import ClientOptions
from sharegroup.console.access.tokens import Tokens
from sharegroup.console.application import application
from sharegroup.console.settings import ConsoleSettings
from sharegroup.testing import AsyncTestBroker, Security
from tests.support.limits import HANGING_SECONDS

USERS = {"console": "its own secret", "ada": 'her "secret"\\', "eve": "nothing"}
TOKENS = {"ada": "ada-0123456789abcdef", "bob": "bob-0123456789abcdef"}


def allowed(
    user: str, kind: AclResourceType, name: str, *operations: AclOperation
) -> list[AclBinding]:
    return [AclBinding(kind, name, f"User:{user}", operation) for operation in operations]


SECURITY = Security(
    users=USERS,
    acls=[
        *allowed("console", AclResourceType.TOPIC, "*", AclOperation.ALL),
        *allowed("console", AclResourceType.GROUP, "*", AclOperation.ALL),
        *allowed("console", AclResourceType.CLUSTER, "kafka-cluster", AclOperation.ALL),
        *allowed("ada", AclResourceType.TOPIC, "orders", AclOperation.READ),
        *allowed("ada", AclResourceType.GROUP, "billing", AclOperation.DESCRIBE),
    ],
)
"""ada reads one topic and sees one group; eve may nothing."""


@dataclass(slots=True)
class Browser:
    """A browser: it keeps cookies, and follows no redirect by itself."""

    http: httpx.AsyncClient

    async def get(self, path: str, **query: Any) -> httpx.Response:
        return await self.http.get(path, params=query or None)

    async def data(self, path: str, **query: Any) -> Any:
        answer = await self.get(f"/api/v1{path}", **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    @property
    def cookies(self) -> tuple[bytes, bytes]:
        """The header with its cookies."""
        pairs = (f"{name}={value}" for name, value in self.http.cookies.items())
        return b"cookie", "; ".join(pairs).encode()

    async def log_in(self, **fields: str) -> httpx.Response:
        return await self.http.post("/login", data=fields)

    async def log_out(self) -> httpx.Response:
        token = form_token((await self.get("/")).text)
        return await self.http.post("/logout", data={"form_token": token})

    async def until(self, path: str, holds: Callable[[Any], bool], **query: Any) -> Any:
        """Request the data of a page until a condition holds, and return it."""
        async with asyncio.timeout(HANGING_SECONDS):
            while True:
                data = await self.data(path, **query)
                if holds(data):
                    return data
                await asyncio.sleep(0.05)


def form_token(page: str) -> str:
    """Return the token of a page's forms."""
    found = re.search(r'name="form_token" value="([^"]+)"', page)
    assert found is not None, "the page has a form with a token"
    return found[1]


@dataclass(slots=True)
class Scene:
    """A console that runs."""

    app: Starlette
    stack: AsyncExitStack

    async def browser(
        self, *, address: str = "127.0.0.1", scheme: str = "http", token: str = ""
    ) -> Browser:
        """Return a new browser at an address; with a token it is a program."""
        transport = httpx.ASGITransport(self.app, client=(address, 5))
        headers = {"authorization": f"Bearer {token}"} if token else {}
        client = httpx.AsyncClient(
            transport=transport, base_url=f"{scheme}://localhost", headers=headers
        )
        return Browser(await self.stack.enter_async_context(client))


@asynccontextmanager
async def console(options: ClientOptions, **settings: Any) -> AsyncIterator[Scene]:
    """A console with these settings, as its own program would run it."""
    app = application(ConsoleSettings(client_options=options, **settings))
    async with app.router.lifespan_context(app), AsyncExitStack() as stack:
        yield Scene(app, stack)


@asynccontextmanager
async def with_tokens(there: AsyncTestBroker, **settings: Any) -> AsyncIterator[Scene]:
    """A console with tokens on a broker without users."""
    options = ClientOptions(bootstrap_servers=there.bootstrap_servers)
    async with console(options, tokens=Tokens(TOKENS), **settings) as scene:
        yield scene


async def make_groups(there: AsyncTestBroker, user: str | None = None) -> None:
    """Make two topics, and a group for each that has fetched from it."""
    for topic, group in (("orders", "billing"), ("secrets", "spies")):
        await there.create_topic(topic)
        await there.produce(topic, '{"id": 7, "card": {"number": "4111"}}', key="k7")
        async with ShareConsumer(
            topic, **there.client_options(user), group_id=group, start_from="earliest"
        ) as consumer:
            records: list[ConsumerRecord] = await consumer.poll(timeout=HANGING_SECONDS)
            assert len(records) == 1
            await consumer.commit()
