"""The contract of a store: the same tests for memory, SQLite, PostgreSQL and Redis.

The servers have clocks of their own, so time passes here: leases of a tenth of a second, which are
awaited until they lapse.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from sharegroup.worker.stores.memory import MemoryStore
from sharegroup.worker.stores.sqlite import SqliteStore
from sharegroup.worker.stores.store import Confirmed, Held, Reserved, Store
from tests.support import postgres, redis_server

SHORT_SECONDS = 0.1
LONG_SECONDS = 60.0
WAIT_SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def postgres_place() -> Iterator[str]:
    with postgres.running() as place:
        yield place


@pytest.fixture(scope="module")
def redis_place() -> Iterator[str]:
    with redis_server.running() as place:
        yield place


Make = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes stores over the same names, as several processes have them."""
    match request.param:
        case "memory":
            shared = MemoryStore()
            return lambda: shared
        case "sqlite":
            return lambda: SqliteStore(tmp_path / "store.db")
        case "postgres":
            pytest.importorskip("psycopg")
            if (why := postgres.why_missing()) is not None:
                pytest.skip(why)
            from sharegroup.worker.stores.postgres import PostgresStore

            place, table = request.getfixturevalue("postgres_place"), f"t{tmp_path.name[-40:]}"
            table = "".join(sign if sign.isalnum() else "_" for sign in table.lower())
            return lambda: PostgresStore(place, table=table)
        case _:
            if (why := redis_server.why_missing()) is not None:
                pytest.skip(why)
            from sharegroup.worker.stores.redis import RedisStore

            url = request.getfixturevalue("redis_place")
            return lambda: RedisStore(url, prefix=f"{tmp_path.name}:")


@asynccontextmanager
async def opened(make: Make) -> AsyncIterator[Store]:
    store = make()
    try:
        yield store
    finally:
        await store.close()


def run(make: Make, test: Callable[[Store], Any]) -> None:
    async def inside() -> None:
        async with opened(make) as store:
            await test(store)

    asyncio.run(inside())


async def until_free(store: Store, name: str, token: str) -> None:
    """Reserve the name as soon as its lease has lapsed."""
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while await store.reserve(name, token, lease_seconds=LONG_SECONDS) != Reserved():
            await asyncio.sleep(0.01)


def test_a_reserved_name_is_held_for_others(make: Make) -> None:
    async def test(store: Store) -> None:
        assert await store.reserve("a", "one", lease_seconds=LONG_SECONDS) == Reserved()
        found = await store.reserve("a", "two", lease_seconds=LONG_SECONDS)
        assert isinstance(found, Held)
        assert 0 < found.seconds_left <= LONG_SECONDS
        assert await store.reserve("b", "two", lease_seconds=LONG_SECONDS) == Reserved()
        assert await store.get("a") is None

    run(make, test)


def test_a_token_extends_its_own_lease(make: Make) -> None:
    async def test(store: Store) -> None:
        await store.reserve("a", "one", lease_seconds=SHORT_SECONDS)
        assert await store.reserve("a", "one", lease_seconds=LONG_SECONDS) == Reserved()
        found = await store.reserve("a", "two", lease_seconds=LONG_SECONDS)
        assert isinstance(found, Held)
        assert found.seconds_left > SHORT_SECONDS

    run(make, test)


def test_a_confirmed_name_has_its_value_until_it_expires(make: Make) -> None:
    async def test(store: Store) -> None:
        await store.reserve("a", "one", lease_seconds=LONG_SECONDS)
        assert await store.confirm("a", "one", b"\0first", keep_seconds=LONG_SECONDS)
        assert await store.reserve("a", "two", lease_seconds=1) == Confirmed(b"\0first")
        assert await store.reserve("a", "one", lease_seconds=1) == Confirmed(b"\0first")
        assert await store.get("a") == b"\0first"
        await store.release("a", "one")
        assert await store.get("a") == b"\0first", "a confirmed name is not released"
        # The answer of the first call may have been lost.
        assert await store.confirm("a", "one", b"\0first", keep_seconds=SHORT_SECONDS)
        await until_free(store, "a", "two")

    run(make, test)


def test_a_lease_that_lapsed_is_free_and_its_confirmation_comes_too_late(make: Make) -> None:
    async def test(store: Store) -> None:
        await store.reserve("a", "one", lease_seconds=SHORT_SECONDS)
        await until_free(store, "a", "two")
        assert not await store.confirm("a", "one", b"late", keep_seconds=LONG_SECONDS)
        await store.release("a", "one")
        assert isinstance(await store.reserve("a", "three", lease_seconds=1), Held)
        assert await store.confirm("a", "two", b"", keep_seconds=LONG_SECONDS)
        assert await store.get("a") == b""

    run(make, test)


def test_a_name_that_nobody_took_meanwhile_is_confirmed_late(make: Make) -> None:
    async def test(store: Store) -> None:
        assert await store.confirm("a", "one", b"1", keep_seconds=LONG_SECONDS)
        assert await store.reserve("a", "two", lease_seconds=1) == Confirmed(b"1")

    run(make, test)


def test_a_released_name_is_free(make: Make) -> None:
    async def test(store: Store) -> None:
        await store.reserve("a", "one", lease_seconds=LONG_SECONDS)
        await store.release("a", "on")
        assert isinstance(await store.reserve("a", "two", lease_seconds=1), Held)
        await store.release("a", "one")
        assert await store.reserve("a", "two", lease_seconds=1) == Reserved()
        await store.release("never reserved", "two")

    run(make, test)


def test_a_put_value_replaces_the_earlier_one_and_expires(make: Make) -> None:
    async def test(store: Store) -> None:
        await store.put("a", b"1", keep_seconds=LONG_SECONDS)
        await store.put("a", bytes(range(256)), keep_seconds=LONG_SECONDS)
        assert await store.get("a") == bytes(range(256))
        await store.put("a", b"3", keep_seconds=SHORT_SECONDS)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            while await store.get("a") is not None:
                await asyncio.sleep(0.01)

    run(make, test)


def test_of_many_that_reserve_a_name_at_once_one_gets_it(make: Make) -> None:
    async def test(_: Store) -> None:
        stores = [make() for _ in range(4)]
        tokens = [f"token-{number}" for number in range(40)]
        found = await asyncio.gather(
            *(
                stores[number % 4].reserve("a", token, lease_seconds=LONG_SECONDS)
                for number, token in enumerate(tokens)
            )
        )
        assert found.count(Reserved()) == 1
        assert sum(isinstance(entry, Held) for entry in found) == 39
        for store in stores:
            await store.close()

    run(make, test)


def test_names_of_other_processes_are_seen_also_after_a_close(make: Make) -> None:
    async def test(store: Store) -> None:
        await store.put("ü '\";\n\x1b%s :x", b"1", keep_seconds=LONG_SECONDS)
        await store.close()
        async with opened(make) as other:
            assert await other.get("ü '\";\n\x1b%s :x") == b"1"
            assert await other.get("ü") is None
        assert await store.get("ü '\";\n\x1b%s :x") == b"1"

    run(make, test)


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "ü" * 1001])
def test_names_that_a_store_cannot_have_are_refused(make: Make, name: str) -> None:
    async def test(store: Store) -> None:
        for call in (
            store.reserve(name, "one", lease_seconds=1),
            store.confirm(name, "one", b"", keep_seconds=1),
            store.release(name, "one"),
            store.put(name, b"", keep_seconds=1),
            store.get(name),
        ):
            with pytest.raises(ValueError, match=r"bytes without NUL|surrogates"):
                await call

    run(make, test)


def test_values_above_the_limit_are_refused(make: Make) -> None:
    async def test(store: Store) -> None:
        await store.put("a", bytes(1024 * 1024), keep_seconds=LONG_SECONDS)
        with pytest.raises(ValueError, match="expected up to 1048576"):
            await store.put("a", bytes(1024 * 1024 + 1), keep_seconds=LONG_SECONDS)
        with pytest.raises(ValueError, match="expected up to 1048576"):
            await store.confirm("b", "one", bytes(1024 * 1024 + 1), keep_seconds=LONG_SECONDS)

    run(make, test)
