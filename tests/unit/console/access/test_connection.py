"""The names that a user's own connection lists, over time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import pytest

from sharegroup.console.access.connection import (
    FRESH_SECONDS,
    RETRY_SECONDS,
    STALE_SECONDS,
    Connection,
    UserConnection,
)
from sharegroup.console.access.roles import NOTHING
from sharegroup.errors import (
    ClusterAuthorizationFailed,
    KafkaError,
    NetworkException,
    SaslAuthenticationFailed,
)


class Listed(NamedTuple):
    group_id: str


class Admin:
    """An admin client whose cluster is these names, or an error."""

    principal = "User:ada"

    def __init__(self) -> None:
        self.names: list[str] | KafkaError = ["a"]
        self.calls = 0

    async def list_topics(self, **_: Any) -> list[str]:
        self.calls += 1
        await asyncio.sleep(0)
        if isinstance(self.names, KafkaError):
            raise self.names
        return self.names

    async def list_groups(self, **_: Any) -> list[Listed]:
        assert not isinstance(self.names, KafkaError)
        return [Listed(name) for name in self.names]


class Clients(NamedTuple):
    admin: Admin


def run(test: Callable[[UserConnection, Admin], Any]) -> None:
    admin = Admin()
    connection = UserConnection(cast("Connection", Clients(admin)))

    async def both() -> None:
        await connection.list_names(0.0)
        await test(connection, admin)

    asyncio.run(both())


def test_list_is_read_again_when_it_is_old() -> None:
    async def test(connection: UserConnection, admin: Admin) -> None:
        first = connection.visible
        admin.names = ["a", "b"]
        await connection.refresh(FRESH_SECONDS - 1)
        assert connection.visible is first
        await asyncio.gather(*(connection.refresh(FRESH_SECONDS) for _ in range(5)))
        assert connection.visible.topics == connection.visible.groups == {"a", "b"}
        assert admin.calls == 2
        same = connection.visible
        await connection.refresh(FRESH_SECONDS * 2)
        assert (admin.calls, connection.visible is same) == (3, True)

    run(test)


@pytest.mark.parametrize(
    "error", [SaslAuthenticationFailed("no"), ClusterAuthorizationFailed("no")]
)
def test_what_may_no_longer_be_listed_is_hidden_at_once(error: KafkaError) -> None:
    async def test(connection: UserConnection, admin: Admin) -> None:
        admin.names = error
        await connection.refresh(FRESH_SECONDS)
        assert connection.visible == NOTHING

    run(test)


def test_cluster_that_is_away_is_asked_rarely_and_hides_everything_in_the_end() -> None:
    async def test(connection: UserConnection, admin: Admin) -> None:
        first = connection.visible
        admin.names = NetworkException("away")
        await connection.refresh(FRESH_SECONDS)
        await connection.refresh(FRESH_SECONDS + RETRY_SECONDS - 1)
        assert (connection.visible, admin.calls) == (first, 2)
        await connection.refresh(FRESH_SECONDS + RETRY_SECONDS)
        assert (connection.visible, admin.calls) == (first, 3)
        await connection.refresh(STALE_SECONDS)
        assert connection.visible == NOTHING
        admin.names = ["a"]
        await connection.refresh(STALE_SECONDS + RETRY_SECONDS)
        assert connection.visible == first

    run(test)
