"""Handlers of consumer groups on a broker: order, rebalances, restarts, and both protocols.

Each test has its applications in this process, on either broker (`conftest`).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Literal

import pytest

from sharegroup.client import AdminClient, Consumer, Producer
from sharegroup.worker import App, Record, Retry
from sharegroup.worker.events import Event
from tests.integration.worker.test_running import named, run, until
from tests.support.limits import HANGING_SECONDS

KEYS = 10
QUICK = Retry(max_attempts=3, initial_delay="50ms", jitter=0)


def app_of(bootstrap: str) -> tuple[App, list[Event]]:
    app = App("consuming", bootstrap_servers=bootstrap, grace="5s")
    events: list[Event] = []
    app.on("*", events.append)
    return app, events


async def send_keyed(bootstrap: str, topic: str, count: int) -> None:
    async with Producer(bootstrap_servers=bootstrap, linger_ms=20) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, key=b"k%d" % (number % KEYS))


async def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        answers = await admin.list_consumer_group_offsets({group: None})
    offsets = answers[group]
    assert not isinstance(offsets, Exception)
    return {
        where.partition: entry.offset
        for where, entry in offsets.items()
        if where.topic == topic and entry.offset is not None
    }


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_records_of_keys_run_in_order_and_are_committed(
    bootstrap: str, group: str, topic: str, protocol: Literal["consumer", "classic"]
) -> None:
    @run
    async def test(bootstrap: str, group: str, topic: str) -> None:
        app, events = app_of(bootstrap)
        app.topic(topic, partitions=3)
        order: dict[bytes | None, list[int]] = defaultdict(list)

        @app.consumer_group(group, topics=topic, order_by="key", group_protocol=protocol)
        async def audit(value: int, record: Record) -> None:
            order[record.key].append(value)

        async with app:
            await send_keyed(bootstrap, topic, 500)
            await until(lambda: sum(map(len, order.values())) == 500)
        assert order == {b"k%d" % key: list(range(key, 500, KEYS)) for key in range(KEYS)}
        assert sum((await committed(bootstrap, group, topic)).values()) == 500
        assert named(events, "partitions.assigned")
        assert named(events, "partitions.revoked")

    test(bootstrap, group, topic)


@run
async def test_a_rebalance_loses_no_record_and_no_key_is_overtaken(
    bootstrap: str, group: str, topic: str
) -> None:
    order: dict[bytes | None, list[int]] = defaultdict(list)

    def member(name: str) -> App:
        app, _ = app_of(bootstrap)
        app.topic(topic, partitions=4)

        @app.consumer_group(group, topics=topic, order_by="key", concurrency=8)
        async def audit(value: int, record: Record) -> None:
            await asyncio.sleep(0.002)
            order[record.key].append(value)

        return app

    first, second = member("first"), member("second")
    async with first:
        sending = asyncio.create_task(send_keyed(bootstrap, topic, 2_000))
        await until(lambda: sum(map(len, order.values())) > 200)
        async with second:
            await until(lambda: sum(map(len, order.values())) > 1_000)
        await sending
        await until(lambda: {len(set(values)) for values in order.values()} == {200})
    for key, values in order.items():
        # Each revocation waits for handlers and commits what they finished: nothing runs twice.
        assert values == sorted(set(values)), key


@run
async def test_a_failing_record_is_retried_in_place_and_becomes_a_letter(
    bootstrap: str, group: str, topic: str
) -> None:
    app, events = app_of(bootstrap)
    seen: list[int] = []

    @app.consumer_group(group, topics=topic, order_by="key", retry=QUICK)
    async def audit(value: int) -> None:
        seen.append(value)
        if value == 0:
            raise ValueError

    async with app:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(3):
                await producer.send(topic, b"%d" % number, key=b"same")
        await until(lambda: 2 in seen)
        await until(lambda: named(events, "record.dead_lettered"))
    assert seen == [0, 0, 0, 1, 2]


@run
async def test_retries_go_through_the_retry_topics(bootstrap: str, group: str, topic: str) -> None:
    app, events = app_of(bootstrap)
    seen: list[int] = []

    @app.consumer_group(
        group, topics=topic, retry=Retry(max_attempts=2, initial_delay="6s", jitter=0)
    )
    async def audit(value: int) -> None:
        seen.append(value)
        if seen.count(0) == 1 and value == 0:
            raise ValueError

    async with app:
        async with Producer(bootstrap_servers=bootstrap) as producer:
            for number in range(3):
                await producer.send(topic, b"%d" % number)
        await until(lambda: seen.count(0) == 2)
    assert named(events, "record.postponed")
    assert sorted(seen) == [0, 0, 1, 2]


@run
async def test_outputs_of_a_group_with_transactions_come_once(
    bootstrap: str, group: str, topic: str
) -> None:
    """Runs fail after they have sent, one ends as a letter, and the worker stops in between."""
    outputs = f"{topic}.out"
    events: list[Event] = []
    failed: set[int] = set()

    def member() -> App:
        app, _ = app_of(bootstrap)
        app.on("record.dead_lettered", events.append)
        app.topic(outputs, partitions=1)

        @app.share_group(f"{group}.sink", topics=outputs)
        async def sink(value: int) -> None: ...

        @app.consumer_group(
            group, topics=topic, order_by="key", exactly_once=True,
            retry=Retry(max_attempts=2, initial_delay="20ms", jitter=0),
        )  # fmt: skip
        async def copy(value: int) -> None:
            await sink.send(value)
            if value == 13 or (value % 7 == 0 and value not in failed):
                failed.add(value)
                raise ValueError(value)

        return app

    async def read() -> list[int]:
        found: list[int] = []
        async with Consumer(
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.assign([(outputs, 0)])
            while records := await consumer.poll(2.0, 10_000):
                found += [int(record.value or b"") for record in records]
        return found

    async with member():
        await send_keyed(bootstrap, topic, 200)
        await until(lambda: len(failed) > 5)
    async with member():
        async with asyncio.timeout(HANGING_SECONDS):
            while sum((await committed(bootstrap, group, topic)).values()) < 200:
                await asyncio.sleep(0.05)
    assert len(events) == 1
    found = await read()
    assert sorted(found) == [value for value in range(200) if value != 13]
    for key in range(KEYS):
        in_order = [value for value in found if value % KEYS == key]
        assert in_order == sorted(in_order)


@run
async def test_one_topic_feeds_groups_of_both_kinds(bootstrap: str, group: str, topic: str) -> None:
    app, _ = app_of(bootstrap)
    seen: list[str] = []

    @app.consumer_group(f"{group}.ordered", topics=topic, order_by="key")
    async def ordered(value: int) -> None:
        seen.append("ordered")

    @app.share_group(f"{group}.queue", topics=topic)
    async def queued(value: int) -> None:
        seen.append("queued")

    async with app:
        await send_keyed(bootstrap, topic, 20)
        await until(lambda: len(seen) == 40)
    assert seen.count("queued") == 20


@run
async def test_start_from_latest_passes_over_no_record_while_no_member_reads(
    bootstrap: str, group: str, topic: str
) -> None:
    await send_keyed(bootstrap, topic, 5)
    seen: list[int] = []

    def member() -> tuple[App, list[Event]]:
        app, events = app_of(bootstrap)

        @app.consumer_group(group, topics=topic, start_from="latest")
        async def audit(value: int) -> None:
            seen.append(value)

        return app, events

    app, events = member()
    async with app:
        await until(lambda: len(named(events, "partitions.assigned")) == 2)
    assert sum((await committed(bootstrap, group, topic)).values()) == 5
    await send_keyed(bootstrap, topic, 3)
    app, _ = member()
    async with app:
        await until(lambda: len(seen) == 3)
    assert sorted(seen) == [0, 1, 2]
