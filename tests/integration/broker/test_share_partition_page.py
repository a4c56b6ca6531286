"""The page ``/share-partitions`` of the metrics port: what it shows, and its limits."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from sharegroup.broker.metrics.share_partition_page import (
    PARTITIONS_MAX,
    RUNS_MAX,
    SharePartitionPage,
)
from sharegroup.client import (
    AcknowledgeType,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.testing import TestBroker, broker
from tests.support.limits import HANGING_SECONDS

GROUP, TOPIC = "billing", "orders"
MANY_RUNS = 20_000
ANSWER_CPU_SECONDS_MAX = 0.1
"""The processor time for an answer of the most runs, with that of its client in this process.

It is about 0.01 s; for all runs at once it would be beyond this limit.
"""


def run(scenario: Callable[[TestBroker], Awaitable[None]], settings: dict[str, str]) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(HANGING_SECONDS),
            broker({"sharegroup.metrics.port": "0"} | settings) as running,
        ):
            await scenario(running)

    asyncio.run(main())


async def ask(running: TestBroker, query: str) -> tuple[int, Any]:
    """The status and the JSON of an answer in HTTP/1.0, which has no chunks."""
    assert running.running.metrics is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", running.running.metrics.port)
    writer.write(f"GET /share-partitions{query} HTTP/1.0\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def prepare(running: TestBroker, *, partitions: int = 1) -> None:
    async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(TOPIC, partitions)])
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        group = ConfigResource(ResourceType.GROUP, GROUP)
        assert await admin.incremental_alter_configs({group: [earliest]}) == {group: None}
    async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send(TOPIC, b"x", partition=number % partitions)


def member(running: TestBroker, *, in_flight_max: int | None = None) -> ShareConsumer[bytes, bytes]:
    return ShareConsumer(
        TOPIC,
        bootstrap_servers=running.bootstrap_servers,
        group_id=GROUP,
        share_acknowledgement_mode="explicit",
        in_flight_max=in_flight_max,
    )


def test_runs_have_state_delivery_count_member_and_lock() -> None:
    async def scenario(running: TestBroker) -> None:
        await prepare(running)
        async with member(running) as consumer:
            records = []
            while len(records) < 10:
                records += await consumer.poll(timeout=5)
            consumer.acknowledge(records[0], AcknowledgeType.ACCEPT)
            consumer.acknowledge(records[2], AcknowledgeType.ACCEPT)
            consumer.acknowledge(records[3], AcknowledgeType.REJECT)
            records[9].release(delay=timedelta(hours=1))
            await consumer.commit()
            status, answer = await ask(running, f"?group={GROUP}")
        (entry,) = answer["share_partitions"]
        locks = [run.pop("lock_ms_left") for run in entry["runs"]]
        members = {run.pop("member_id") for run in entry["runs"]} - {None}
        assert status == 200
        assert (answer["group"], answer["left_out"]) == (GROUP, 0)
        assert {name: entry[name] for name in ("topic", "partition")} == {
            "topic": TOPIC,
            "partition": 0,
        }
        assert (entry["start_offset"], entry["end_offset"], entry["high_watermark"]) == (1, 10, 10)
        assert (entry["run_count"], entry["next_offset"]) == (5, None)
        assert entry["runs"] == [
            {"first_offset": 1, "last_offset": 1, "state": "acquired", "delivery_count": 1},
            {"first_offset": 2, "last_offset": 2, "state": "acknowledged", "delivery_count": 1},
            {"first_offset": 3, "last_offset": 3, "state": "archived", "delivery_count": 1},
            {"first_offset": 4, "last_offset": 8, "state": "acquired", "delivery_count": 1},
            {"first_offset": 9, "last_offset": 9, "state": "delayed", "delivery_count": 1},
        ]
        assert [0 < lock <= 30_000 if lock is not None else None for lock in locks] == [
            *(True, None, None, True, None),
        ]
        assert len(members) == 1

    run(scenario, {})


def test_topic_and_partition_select_share_partitions() -> None:
    async def scenario(running: TestBroker) -> None:
        await prepare(running, partitions=3)
        async with member(running) as consumer:
            count = 0
            while count < 10:
                count += len(await consumer.poll(timeout=5))
            _, everything = await ask(running, f"?group={GROUP}")
            _, chosen = await ask(running, f"?group={GROUP}&topic={TOPIC}&partition=1")
            _, nothing = await ask(running, f"?group={GROUP}&topic=other")
        assert [entry["partition"] for entry in everything["share_partitions"]] == [0, 1, 2]
        assert [entry["partition"] for entry in chosen["share_partitions"]] == [1]
        assert nothing["share_partitions"] == []

    run(scenario, {})


@pytest.mark.parametrize(
    ("query", "status", "error"),
    [
        ("", 400, "found no group"),
        ("?group=", 400, "found no group"),
        ("?group=billing&grp=1", 400, "found grp"),
        ("?group=billing&partition=1", 400, "partition needs topic"),
        ("?group=billing&first_offset=1", 400, "first_offset needs partition"),
        ("?group=billing&topic=orders&partition=-1", 400, "found '-1'"),
        ("?group=billing&topic=orders&partition=" + "9" * 40, 400, "expected a number"),
        ("?group=nobody", 404, "there is no share group 'nobody'"),
    ],
)
def test_other_queries_are_refused_with_a_reason(query: str, status: int, error: str) -> None:
    async def scenario(running: TestBroker) -> None:
        found, answer = await ask(running, query)
        assert (found, error in answer["error"]) == (status, True), answer

    run(scenario, {})


async def make_many_runs(running: TestBroker) -> None:
    """A share partition of 20,000 runs: every second record is accepted, the others are held."""
    settings = AlterConfig("share.partition.max.record.locks", str(4 * MANY_RUNS))
    group = ConfigResource(ResourceType.GROUP, GROUP)
    async with AdminClient(bootstrap_servers=running.bootstrap_servers) as admin:
        assert await admin.incremental_alter_configs({group: [settings]}) == {group: None}
    async with Producer(bootstrap_servers=running.bootstrap_servers) as producer:
        for _ in range(MANY_RUNS):
            await producer.send(TOPIC, b"x", partition=0)


def test_many_runs_come_in_bounded_answers_that_hold_nobody_up() -> None:
    async def scenario(running: TestBroker) -> None:
        await prepare(running)
        await make_many_runs(running)
        async with member(running, in_flight_max=2 * MANY_RUNS) as consumer:
            count = 0
            while count < MANY_RUNS:
                for record in await consumer.poll(timeout=5):
                    count += 1
                    if record.offset % 2:
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT)
            await consumer.commit()
            query = f"?group={GROUP}&topic={TOPIC}&partition=0"
            offsets, next_offset, longest = [], 0, 0.0
            while next_offset is not None:
                took = []
                for _ in range(3):  # Other threads of the process may work at the same time.
                    begun = time.process_time()
                    _, answer = await ask(running, f"{query}&first_offset={next_offset}")
                    took.append(time.process_time() - begun)
                longest = max(longest, min(took))
                (entry,) = answer["share_partitions"]
                assert len(entry["runs"]) <= RUNS_MAX
                offsets += [run["first_offset"] for run in entry["runs"]]
                next_offset = entry["next_offset"]
        assert len(offsets) == entry["run_count"] >= MANY_RUNS - 1
        assert offsets == sorted(set(offsets))
        assert longest < ANSWER_CPU_SECONDS_MAX

    run(scenario, {"group.share.max.partition.max.record.locks": str(4 * MANY_RUNS)})


def test_share_partitions_beyond_the_limit_are_counted() -> None:
    async def scenario(running: TestBroker) -> None:
        await prepare(running, partitions=5)
        async with member(running) as consumer:
            count = 0
            while count < 10:
                count += len(await consumer.poll(timeout=5))
            page = SharePartitionPage(running.running.parts, partitions_max=2, runs_max=1)
            response = await page.answer({"group": GROUP})
            assert not isinstance(response.body, bytes)
            body = b"".join([piece async for piece in response.body()])
        answer = json.loads(body)
        assert PARTITIONS_MAX == 200
        assert answer["left_out"] == 3
        # The one run of the answer is that of the first; the second says where to go on.
        assert [len(entry["runs"]) for entry in answer["share_partitions"]] == [1, 0]
        assert [entry["next_offset"] for entry in answer["share_partitions"]] == [None, 0]

    run(scenario, {})
