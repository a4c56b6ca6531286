"""``once_by``: the mark and what the handler writes are committed together, or neither is.

The same handlers run with SQLite and a real PostgreSQL, in virtual time.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import (
    App,
    MemoryStore,
    PostgresStore,
    Record,
    RedisStore,
    Retry,
    SqliteStore,
    StoreUnavailable,
)
from sharegroup.worker.stores.sql_marks import SWEEP_EVERY, TABLE
from tests.support import postgres

INSERT = "INSERT INTO billed VALUES (7)"
WAIT_SECONDS_MAX = 20.0


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    with postgres.running() as place:
        yield place


@dataclass
class Scene:
    """A store with a table for what a handler writes."""

    store: Any
    place: str

    async def write(self) -> None:
        done = self.store.connection().execute(INSERT)
        if not isinstance(done, sqlite3.Cursor):
            await done

    def billed(self) -> int:
        return self.count("billed")

    def count(self, table: str) -> int:
        query = f"SELECT count(*) FROM {table}"
        if isinstance(self.store, SqliteStore):
            with closing(sqlite3.connect(self.place)) as database:
                return int(database.execute(query).fetchone()[0])
        import psycopg

        with psycopg.connect(self.place) as connection:
            return int(connection.execute(query).fetchone()[0])


@pytest.fixture(params=["sqlite", "postgres"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Scene:
    if request.param == "sqlite":
        path = str(tmp_path / "store.db")
        with closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE billed (id bigint)")
        return Scene(SqliteStore(path), path)
    psycopg = pytest.importorskip("psycopg")
    if (why := postgres.why_missing()) is not None:
        pytest.skip(why)
    place = request.getfixturevalue("place")
    with psycopg.connect(place, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        connection.execute("CREATE TABLE billed (id bigint)")
    return Scene(PostgresStore(place), place)


def app_of(store: Any, handler: Any, **options: Any) -> tuple[App, Any]:
    app = App("orders-service", store=store)
    retry = Retry(max_attempts=4, initial_delay="1s", jitter=0)
    routed = app.share_group(
        "billing",
        topics="orders",
        handler=handler,
        retry=retry,
        **{"once_by": lambda order: order["id"], "once_for": "7d", **options},
    )
    return app, routed


def test_the_handler_writes_once_for_an_identity(scene: Scene) -> None:
    async def bill(order: dict) -> None:
        await scene.write()

    async def inside() -> None:
        app, routed = app_of(scene.store, bill)
        async with app.test(store=scene.store) as t:
            sent = [await t.send(routed, {"id": number}) for number in (7, 7, 8, 7)]
            await t.settle()
            assert [record.outcome for record in sent] == ["accepted"] * 4

    asyncio.run(inside())
    assert scene.billed() == 2


def test_a_failure_keeps_neither_the_mark_nor_what_was_written(scene: Scene) -> None:
    runs = []

    async def bill(order: dict, record: Record) -> None:
        runs.append(record.attempt)
        await scene.write()
        if record.attempt == 1:
            raise ConnectionError("the bank hung up")
        if record.attempt == 2:
            record.pause("1s")  # Returns, and is retried all the same.

    async def inside() -> None:
        app, routed = app_of(scene.store, bill)
        async with app.test(store=scene.store) as t:
            sent = await t.send(routed, {"id": 7})
            await t.settle()
            assert scene.billed() == 0
            await t.advance("1m")
            assert sent.outcome == "accepted"

    asyncio.run(inside())
    assert runs == [1, 2, 3], "no run was passed over for a mark that was rolled back"
    assert scene.billed() == 1


def test_a_run_that_is_cut_off_before_its_commit_leaves_nothing(scene: Scene) -> None:
    hangs = True

    async def bill(order: dict) -> None:
        await scene.write()
        if hangs:
            await asyncio.Event().wait()

    async def inside() -> None:
        nonlocal hangs
        app, routed = app_of(scene.store, bill, max_handling="2s")
        async with app.test(store=scene.store, patience_seconds=0.3) as t:
            sent = await t.send(routed, {"id": 7})
            await t.settle()
            hangs = False
            await t.advance("1m")
            assert sent.outcome == "accepted"

    asyncio.run(inside())
    assert scene.billed() == 1


def test_runs_at_the_same_time_write_once(scene: Scene) -> None:
    async def inside() -> None:
        entered = asyncio.Event()

        async def run(*, is_first: bool) -> bool:
            async with scene.store.once("once/a", keep_seconds=60) as is_new:
                if is_first:
                    entered.set()
                    await asyncio.sleep(0.2)
                if is_new:
                    await scene.write()
                return bool(is_new)

        first = asyncio.ensure_future(run(is_first=True))
        await entered.wait()
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            assert await run(is_first=False) is False
        assert await first is True
        await scene.store.close()

    asyncio.run(inside())
    assert scene.billed() == 1


@pytest.mark.slow
def test_marks_that_have_expired_are_swept(scene: Scene) -> None:
    async def inside() -> None:
        for number in range(SWEEP_EVERY - 1):
            async with scene.store.once(f"once/{number}", keep_seconds=0.001):
                pass
        await asyncio.sleep(0.01)  # The server's clock has passed the last one.
        async with scene.store.once("once/last", keep_seconds=60):
            pass
        await scene.store.close()

    asyncio.run(inside())
    assert scene.count(TABLE) == 1


def test_a_plain_function_uses_the_connection_of_sqlite_in_its_thread(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE billed (id bigint)")
    scene = Scene(SqliteStore(path), path)

    def bill(order: dict) -> None:
        scene.store.connection().execute(INSERT)

    async def inside() -> None:
        app, routed = app_of(scene.store, bill)
        async with app.test(store=scene.store) as t:
            sent = [await t.send(routed, {"id": number}) for number in (7, 7, 8)]
            await t.settle()
            assert [record.outcome for record in sent] == ["accepted"] * 3

    asyncio.run(inside())
    assert scene.billed() == 2


def test_other_calls_of_a_store_in_a_handler_with_once_by(scene: Scene) -> None:
    """PostgreSQL has other connections for them; a file of SQLite has one writer: refused."""

    async def inside() -> None:
        async with scene.store.once("once/a", keep_seconds=60):
            if isinstance(scene.store, SqliteStore):
                with pytest.raises(StoreUnavailable, match="expected another store"):
                    await scene.store.put("a", b"1", keep_seconds=60)
            else:
                await scene.store.put("a", b"1", keep_seconds=60)
        await scene.store.put("b", b"1", keep_seconds=60)
        await scene.store.close()

    asyncio.run(inside())


def test_a_connection_outside_of_a_handler_says_what_is_expected(scene: Scene) -> None:
    with pytest.raises(RuntimeError, match=r"expected a handler with once_by=.*app\.test\(store="):
        scene.store.connection()


def test_an_error_of_postgres_that_a_handler_swallows_is_one_of_its_record(scene: Scene) -> None:
    """The server rolls back at the commit then, and says so only in passing."""
    if isinstance(scene.store, SqliteStore):
        pytest.skip("a failed statement of SQLite leaves the transaction as it was")

    async def go_on() -> None:
        await scene.write()
        with suppress(Exception):
            await scene.store.connection().execute("INSERT INTO missing VALUES (7)")

    async def inside() -> None:
        with pytest.raises(StoreUnavailable, match="rolled back"):
            async with scene.store.once("once/a", keep_seconds=60):
                await go_on()
        await scene.store.close()

    asyncio.run(inside())
    assert scene.billed() == 0


def test_a_task_of_a_handler_has_no_connection_when_the_handler_has_returned(scene: Scene) -> None:
    """Its connection is that of another handler by then."""

    async def inside() -> None:
        ended = asyncio.Event()

        async def late() -> None:
            await ended.wait()
            scene.store.connection()

        async with scene.store.once("once/a", keep_seconds=60):
            task = asyncio.ensure_future(late())
        async with scene.store.once("once/b", keep_seconds=60):
            ended.set()
            with pytest.raises(RuntimeError, match="no transaction of it runs here"):
                await task
        await scene.store.close()

    asyncio.run(inside())


def test_a_store_has_no_connection_in_a_transaction_of_another(scene: Scene) -> None:
    other = type(scene.store)(scene.place)

    async def inside() -> None:
        async with scene.store.once("once/a", keep_seconds=60):
            with pytest.raises(RuntimeError, match="no transaction of it runs here"):
                other.connection()
        await scene.store.close()

    asyncio.run(inside())


def test_in_memory_marks_are_those_of_virtual_time() -> None:
    runs = []

    async def bill(order: dict) -> None:
        runs.append(order["id"])

    async def inside() -> None:
        app, routed = app_of(MemoryStore(), bill)
        async with app.test() as t:
            await t.send(routed, {"id": 7})
            await t.send(routed, {"id": 7})
            await t.advance("6d")
            await t.send(routed, {"id": 7})
            await t.advance("2d")
            await t.send(routed, {"id": 7})
            await t.settle()

    asyncio.run(inside())
    assert runs == [7, 7]


@pytest.mark.parametrize("identity", ["", None, True, 1.5, b"7", ["a"], "\ud800"])
def test_other_identities_are_failures_of_their_record(identity: Any) -> None:
    async def bill(order: dict) -> None:
        raise AssertionError("it does not run")

    async def inside() -> None:
        app, routed = app_of(MemoryStore(), bill, once_by=lambda order: identity)
        async with app.test() as t:
            sent = await t.send(routed, {"id": 7})
            await t.advance("1h")
            assert sent.outcome == "dead_lettered"

    asyncio.run(inside())


async def one(order: dict) -> None: ...


async def many(orders: list[dict]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "options", "error"),
    [
        (one, {"once_for": 0}, "expected once_for='7d'"),
        (one, {"once_by": None}, "expected once_by=..., a function"),
        (one, {"once_by": "id"}, "once_by='id'; expected a function"),
        (one, {"once_for": "soon"}, "once_for: a duration"),
        (one, {"processes": 2}, "has no connection of the store"),
        (many, {}, "a batch handler has no transaction"),
    ],
)
def test_contradictions_are_refused(handler: Any, options: dict[str, Any], error: str) -> None:
    with pytest.raises(InvalidConfig, match=error):
        app_of(MemoryStore(), handler, **options)


def test_once_by_needs_a_store_with_transactions() -> None:
    with pytest.raises(InvalidConfig, match=r"once_by requires a store with transactions.*None"):
        app_of(None, one)
    pytest.importorskip("redis")
    with pytest.raises(InvalidConfig, match=r"once_by requires a store with transactions.*Redis"):
        app_of(RedisStore("redis://127.0.0.1:1/0"), one)
