"""Stores whose server or file is away, comes back, or refuses this user."""

from __future__ import annotations

import asyncio
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from sharegroup.errors import InvalidConfig
from sharegroup.worker import (
    Held,
    PostgresStore,
    RedisStore,
    Reserved,
    SqliteStore,
    Store,
    StoreUnavailable,
)
from sharegroup.worker.stores.store import check_installed
from tests.support import postgres, redis_server


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_twice(store: Store) -> list[str]:
    async def texts() -> list[str]:
        found = []
        for _ in range(2):
            with pytest.raises(StoreUnavailable) as raised:
                await store.put("a", b"1", keep_seconds=9)
            found.append(str(raised.value))
        await store.close()
        return found

    return asyncio.run(texts())


def test_sqlite_file_in_a_missing_folder_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "names.db"
    for text in run_twice(SqliteStore(path)):
        assert text.startswith(f"SqliteStore {str(path)!r}, table sharegroup_store: unable to open")


def test_sqlite_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "names.db"
    path.write_bytes(b"not a database" * 100)
    for text in run_twice(SqliteStore(path)):
        assert "file is not a database" in text


def test_sqlite_file_that_is_deleted_or_replaced_while_it_is_open_is_opened_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "names.db"

    async def run() -> None:
        store, other = SqliteStore(path), SqliteStore(path)
        await store.put("a", b"1", keep_seconds=9)
        path.unlink()
        await store.put("b", b"2", keep_seconds=9)
        assert (await store.get("a"), await store.get("b")) == (None, b"2")
        path.unlink()
        await other.put("c", b"3", keep_seconds=9)
        assert await store.get("c") == b"3"
        await store.close()
        await other.close()

    asyncio.run(run())
    assert caplog.text.count("event=store.file_replaced") == 2


def test_sqlite_file_stays_open_when_the_program_changes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        store = SqliteStore("names.db")
        await store.put("a", b"1", keep_seconds=9)
        (tmp_path / "other").mkdir()
        monkeypatch.chdir(tmp_path / "other")
        assert await store.get("a") == b"1"
        await store.close()

    monkeypatch.chdir(tmp_path)
    asyncio.run(run())


def test_sqlite_sweeps_expired_names(tmp_path: Path) -> None:
    path = tmp_path / "names.db"
    now_ms = [1_000]
    store = SqliteStore(path, wall_ms=lambda: now_ms[0])

    async def fill() -> None:
        for number in range(499):
            await store.put(f"name-{number}", b"", keep_seconds=1)
        now_ms[0] += 2_000
        await store.put("new", b"", keep_seconds=1)
        await store.close()

    asyncio.run(fill())
    with sqlite3.connect(path) as database:
        names = database.execute("SELECT name FROM sharegroup_store").fetchall()
    database.close()
    assert names == [("new",)]


def test_sqlite_lease_lapses_at_its_millisecond_without_a_sweep(tmp_path: Path) -> None:
    now_ms = [1_000]
    store = SqliteStore(tmp_path / "names.db", wall_ms=lambda: now_ms[0])

    async def inside() -> None:
        await store.reserve("a", "one", lease_seconds=1)
        now_ms[0] = 1_999
        assert await store.reserve("a", "two", lease_seconds=1) == Held(0.001)
        now_ms[0] = 2_000
        assert await store.reserve("a", "two", lease_seconds=1) == Reserved()
        await store.close()

    asyncio.run(inside())


@pytest.mark.parametrize("table", ["", "a b", "a;b", 'a"', "a.b.c", "1a", "A", "a" * 52])
def test_table_names_that_need_quotes_are_refused(tmp_path: Path, table: str) -> None:
    for make in (
        lambda: SqliteStore(tmp_path / "a", table=table),
        lambda: PostgresStore("", table=table),
    ):
        with pytest.raises(InvalidConfig, match=r"expected a name, or schema\.name"):
            make()


def test_a_missing_client_is_named_with_its_extra() -> None:
    with pytest.raises(InvalidConfig, match=r"the package nothing is not installed.*\[redis\]"):
        check_installed("nothing", "redis", "RedisStore")


def test_postgres_that_is_away_is_an_error() -> None:
    pytest.importorskip("psycopg")
    for text in run_twice(PostgresStore(f"host=127.0.0.1 port={free_port()} user=nobody")):
        assert text.startswith("PostgresStore, table sharegroup_store: connection failed")


def test_a_transaction_of_postgres_that_is_away_or_silent_is_an_error() -> None:
    pytest.importorskip("psycopg")

    async def failed(port: int) -> str:
        store = PostgresStore(f"host=127.0.0.1 port={port} user=nobody", call_seconds=0.2)
        with pytest.raises(StoreUnavailable) as failure:
            async with store.once("a", keep_seconds=60):
                pytest.fail("it does not begin")
        return str(failure.value)

    assert "connection failed" in asyncio.run(failed(free_port()))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert "no answer within 0.2 s" in asyncio.run(failed(silent.getsockname()[1]))


def test_errors_of_the_mark_and_of_the_commit_of_sqlite_say_which_file(tmp_path: Path) -> None:
    def write_orphan(connection: sqlite3.Connection) -> None:
        connection.execute("COMMIT")  # The setting has no effect in a transaction.
        connection.execute("PRAGMA foreign_keys = on")
        connection.execute("BEGIN")
        connection.execute("INSERT INTO children VALUES (7)")

    async def inside() -> None:
        path = tmp_path / "store.db"
        store = SqliteStore(path)
        async with store.once("a", keep_seconds=60):
            # A constraint that is checked at the commit.
            store.connection().execute("CREATE TABLE parents (id integer PRIMARY KEY)")
            store.connection().execute(
                "CREATE TABLE children (id integer REFERENCES parents DEFERRABLE INITIALLY "
                "DEFERRED)"
            )
        with pytest.raises(StoreUnavailable, match=f"{path}.*FOREIGN KEY"):
            async with store.once("b", keep_seconds=60):
                write_orphan(store.connection())
        with closing(sqlite3.connect(path)) as other:
            other.execute(
                "CREATE TRIGGER refusing BEFORE INSERT ON sharegroup_store "
                "BEGIN SELECT RAISE(ABORT, 'no room'); END"
            )
        with pytest.raises(StoreUnavailable, match=f"{path}.*no room"):
            async with store.once("c", keep_seconds=60):
                pytest.fail("it does not begin")
        await store.close()

    asyncio.run(inside())


def test_postgres_connections_that_the_server_ended_are_replaced() -> None:
    psycopg = pytest.importorskip("psycopg")
    if (why := postgres.why_missing()) is not None:
        pytest.skip(why)

    def end_connections(place: str) -> None:
        with psycopg.connect(place, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
            )

    async def inside(place: str) -> None:
        store = PostgresStore(place)
        await asyncio.gather(
            *(store.put(f"a{number}", b"1", keep_seconds=60) for number in range(20))
        )
        end_connections(place)
        assert await store.get("a7") == b"1"
        end_connections(place)
        async with store.once("once/a", keep_seconds=60) as is_new:
            assert is_new
        with pytest.raises(StoreUnavailable, match=r"terminating connection|closed"):
            async with store.once("once/b", keep_seconds=60):
                end_connections(place)
        with pytest.raises(psycopg.errors.UndefinedTable):  # The handler's own.
            async with store.once("once/b", keep_seconds=60):
                await store.connection().execute("INSERT INTO missing VALUES (7)")
        with psycopg.connect(place, autocommit=True) as other:
            other.execute("CREATE ROLE reader LOGIN")
        refused = PostgresStore(place.replace("user=postgres", "user=reader"))
        with pytest.raises(StoreUnavailable, match=r"permission denied.*may write to the table"):
            await refused.put("a", b"1", keep_seconds=60)
        await refused.close()
        await store.close()

    with postgres.running() as place:
        asyncio.run(inside(place))


def test_redis_that_is_away_is_an_error_and_is_used_when_it_is_back() -> None:
    if (why := redis_server.why_missing()) is not None:
        pytest.skip(why)

    async def inside() -> None:
        with redis_server.running() as url:
            store = RedisStore(url)
            await store.put("a", b"1", keep_seconds=60)
        with pytest.raises(StoreUnavailable, match=r"RedisStore, keys sharegroup:\*: "):
            await store.get("a")
        with redis_server.running(port=int(url.rpartition(":")[2].partition("/")[0])):
            assert await store.get("a") is None
        await store.close()

    asyncio.run(inside())


def test_redis_that_never_answers_is_an_error() -> None:
    pytest.importorskip("redis")

    async def inside() -> None:
        async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        server = await asyncio.start_server(ignore, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        store = RedisStore(f"redis://127.0.0.1:{port}/0", call_seconds=0.2)
        with pytest.raises(StoreUnavailable, match=r"no answer within 0.2 s"):
            await store.get("a")
        await store.close()
        server.close()

    asyncio.run(inside())
