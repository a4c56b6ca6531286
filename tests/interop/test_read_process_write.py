"""Read, process, write with our Consumer and Producer: each input counts once, over a kill.

Two workers of one group copy the records of a topic to another in transactions, with the offsets.
The broker is killed in the middle, and every worker fails before each third commit.  It then begins
again at the committed offsets, with a new consumer and a new producer, as a program would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from sharegroup.client import (
    AdminClient,
    Consumer,
    IllegalStateError,
    NewTopic,
    Producer,
    TopicPartition,
    records_by_partition,
)
from sharegroup.errors import KafkaError
from tests.support.chosen_broker import LONG_WITH_A_JVM, RunningBroker, chosen, running

PARTITIONS = 4
INPUTS = 400
WORKERS = 2
LIMIT_SECONDS = 200
FAILING = 3
"""The number of a worker's transaction that fails before its commit."""


class PlannedError(Exception):
    """The error of a worker, before it commits."""


@pytest.fixture
def broker_to_kill(tmp_path: Path) -> Iterator[RunningBroker]:
    with running(chosen(), tmp_path) as broker:
        yield broker


async def copy(consumer: Consumer, producer: Producer, copied: asyncio.Event) -> None:
    """Copy records in two transactions, and fail in the third."""
    number = 0
    while True:
        records = await consumer.poll(timeout=1)
        if not records:
            continue
        async with producer.transaction() as transaction:
            for record in records:
                await producer.send("output", record.value)
            offsets = {
                where: partition[-1].offset + 1
                for where, partition in records_by_partition(records).items()
            }
            await transaction.send_offsets(offsets, consumer.group_metadata())
            number += 1
            if number == FAILING:
                raise PlannedError
        copied.set()


async def work(number: int, options: Mapping[str, Any], copied: asyncio.Event) -> None:
    """Copy until this task is cancelled; after an error begin again at the committed offsets."""
    servers: Any = {"bootstrap_servers": options["bootstrap_servers"]}
    while True:
        async with (
            Consumer(
                "input",
                group_id="copiers",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                max_poll_records=25,
                **options,
            ) as consumer,
            Producer(transactional_id=f"copier-{number}", **servers) as producer,
        ):
            try:
                await copy(consumer, producer, copied)
            except (KafkaError, IllegalStateError, PlannedError):
                continue


async def committed_outputs(bootstrap: str) -> list[int]:
    """Return the committed output so far, sorted."""
    async with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        partitions = [TopicPartition("output", number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        consumer.seek_to_beginning(*partitions)
        values: list[int] = []
        while records := await consumer.poll(timeout=1):
            values += [int(record.value) for record in records]
        return sorted(values)


async def furnish(bootstrap: str) -> None:
    """Make the topics and write the inputs."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(name, PARTITIONS) for name in ("input", "output")])
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(INPUTS):
            await producer.send("input", b"%d" % number, partition=number % PARTITIONS)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=LONG_WITH_A_JVM)])
def test_each_input_is_in_the_committed_output_once(
    broker_to_kill: RunningBroker, protocol: str
) -> None:
    bootstrap = broker_to_kill.bootstrap_servers
    options = {"bootstrap_servers": bootstrap, "group_protocol": protocol}

    async def run() -> None:
        await furnish(bootstrap)
        copied = asyncio.Event()
        async with asyncio.timeout(LIMIT_SECONDS):
            workers = [
                asyncio.create_task(work(number, options, copied)) for number in range(WORKERS)
            ]
            await copied.wait()
            await asyncio.to_thread(broker_to_kill.kill)
            await asyncio.to_thread(broker_to_kill.start)
            while len(await committed_outputs(bootstrap)) < INPUTS:
                await asyncio.sleep(0.2)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        assert await committed_outputs(bootstrap) == [*range(INPUTS)]

    asyncio.run(run())
