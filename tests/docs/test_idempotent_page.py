"""docs/idempotent-handlers.md: its recipes hold what they promise, on a real PostgreSQL.

A run is repeated, overlaps with another one, and dies between its statements and its commit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client import Producer
from sharegroup.errors import KafkaError
from sharegroup.testing import run_broker
from sharegroup.testing.embedded import TestBroker
from sharegroup.worker import App
from tests.docs.snippets.page_blocks import blocks
from tests.support import postgres

psycopg = pytest.importorskip("psycopg")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "idempotent-handlers.md"
TABLES = [block.text for block in blocks(PAGE) if block.language == "sql"]
TRANSFERS, OUTBOX = (
    block.text for block in blocks(PAGE) if block.language == "python" and "psycopg" in block.text
)
needs_postgres = pytest.mark.skipif(
    postgres.why_missing() is not None, reason=postgres.why_missing() or ""
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres.running() as place:
        yield place


@pytest.fixture
def database(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database with the page's tables, empty but for an account; the examples read its place."""
    monkeypatch.setenv("DATABASE", server)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        for tables in TABLES:
            connection.execute(tables)
        connection.execute("INSERT INTO accounts VALUES ('ada', 0)")
    return server


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with run_broker() as running:
        yield running


def names_of(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": __name__}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def value(database: str, query: str) -> Any:
    with psycopg.connect(database) as connection:
        return connection.execute(query).fetchone()[0]


@needs_postgres
def test_a_repeated_run_books_once(database: str) -> None:
    names = names_of(TRANSFERS)
    app, book, transfer = names["app"], names["book"], names["Transfer"]

    async def twice(app: App) -> None:
        async with app.test() as test:
            first = await test.send(book, transfer("ada", 5))
            second = await test.send(book, transfer("ada", 5))
            await test.settle()
            assert (first.outcome, second.outcome) == ("accepted", "accepted")

    asyncio.run(twice(app))
    assert value(database, "SELECT cents FROM accounts") == 10, "two records are two transfers"

    class Again:
        """The first record once more, as after a crash before its acknowledgement."""

        topic, partition, offset = "transfers", 0, 0

    with psycopg.connect(database) as connection:
        places = connection.execute("SELECT topic, part, place FROM booked").fetchall()
    Again.topic, Again.partition, Again.offset = places[0]
    asyncio.run(book(transfer("ada", 5), Again()))
    assert value(database, "SELECT cents FROM accounts") == 10


@needs_postgres
def test_overlapping_runs_book_once_even_if_the_first_fails(database: str) -> None:
    names = names_of(TRANSFERS)
    book, transfer = names["book"], names["Transfer"]

    class Record:
        topic, partition, offset = "transfers", 0, 7

    async def overlap(*, commit: bool) -> None:
        async with await psycopg.AsyncConnection.connect(database) as first:
            await first.execute("INSERT INTO booked VALUES ('transfers', 0, 7)")
            await first.execute("UPDATE accounts SET cents = cents + 5")
            second = asyncio.create_task(book(transfer("ada", 5), Record()))
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while await asyncio.to_thread(value, database, waiting) == 0:
                assert not second.done(), "the second run did not wait for the first"
            await (first.commit() if commit else first.rollback())
            await second

    asyncio.run(overlap(commit=False))
    assert value(database, "SELECT cents FROM accounts") == 5, "the second run did the work"
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM booked")
    asyncio.run(overlap(commit=True))
    assert value(database, "SELECT cents FROM accounts") == 10, "the second run did nothing"


@needs_postgres
def test_outbox_sends_what_was_committed_and_nothing_else(
    database: str, broker: TestBroker
) -> None:
    names = names_of(OUTBOX)
    broker.create_topic("orders")

    async def work() -> list[int]:
        await names["place_order"]({"id": 1, "cents": 10})
        with pytest.raises(psycopg.errors.UniqueViolation):
            await names["place_order"]({"id": 1, "cents": 99})
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            first, second = await asyncio.gather(*(names["send_outbox"](producer) for _ in "ab"))
            return sorted([first, second, await names["send_outbox"](producer)])

    assert asyncio.run(work()) == [0, 0, 1]
    assert [record.value for record in broker.records("orders")] == [b'{"id": 1, "cents": 10}']


@needs_postgres
def test_outbox_keeps_what_the_broker_did_not_confirm(database: str, broker: TestBroker) -> None:
    names = names_of(OUTBOX)

    async def work() -> None:
        await names["place_order"]({"id": 2, "cents": 10})
        times = {"max_block_ms": 500, "request_timeout_ms": 400, "delivery_timeout_ms": 500}
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, **times)
        async with producer:
            broker.stop()
            with pytest.raises(KafkaError, match="orders"):
                await names["send_outbox"](producer)

    asyncio.run(work())
    assert value(database, "SELECT count(*) FROM outbox") == 1


def test_page_names_what_a_record_has() -> None:
    from sharegroup.worker import Record

    named = set(re.findall(r"record\.(\w+)", PAGE.read_text()))
    assert {"topic", "partition", "offset", "redrive_id", "redelivered"} <= named
    assert {name for name in named if not hasattr(Record, name)} == set()
