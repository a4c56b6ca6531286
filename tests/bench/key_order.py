"""What it costs to order the records of a share group by key (``sharegroup.order.by=key``).

    python -m tests.bench.key_order [--records N] [--members N] [--rounds N]

A broker and members with the client of this project, all in this process, and a topic of one
partition with batches of 500 records of 100 bytes.  Members accept what they get with their next
poll.  The cases differ in the number of keys, drawn uniformly; in «one hot» every second record has
the same key, and the others have 10,000.  Printed are, by case: CPU time of broker and members
for each record in us (the median of the rounds), the throughput compared with «not ordered» by it
and by the clock, bytes sent for each record, records of a fetch, and the largest number of runs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any, NamedTuple

from sharegroup.broker.cluster.catalog import group_settings_event
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.broker.share.share_reading import FetchedRecords
from sharegroup.client import ShareConsumer
from sharegroup.ids import GroupId, TopicName
from sharegroup.testing import AsyncTestBroker, broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch

BATCH_RECORDS = 500
HOT = -1
CASES = {
    "not ordered": 0,
    "100,000 keys": 100_000,
    "10,000 keys": 10_000,
    "1,000 keys": 1_000,
    "10 keys": 10,
    "one hot": HOT,
}


class Measured(NamedTuple):
    """One round of a case."""

    us: float
    seconds: float
    sent: float
    of_a_fetch: float
    runs: int


class Sent:
    """What the broker has sent."""

    bytes = 0
    fetches = 0
    runs = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(measure(parser.parse_args()))


async def measure(options: argparse.Namespace) -> None:
    found: dict[str, list[Measured]] = {name: [] for name in CASES}
    async with broker({"group.share.assignment.interval.ms": "0"}) as running:
        for number in range(options.rounds):
            for name, keys in CASES.items():
                topic = f"{number}-{name.replace(' ', '-').replace(',', '')}"
                await fill(running, topic, keys, options.records)
                with counted() as sent:
                    found[name].append(await consumed(running, topic, sent, options))
    base = [statistics.median(column) for column in zip(*found["not ordered"], strict=True)]
    print(f"{'':12} us/record  of CPU  of time  bytes/record  records/fetch  runs")
    for name, rounds in found.items():
        us, seconds, size, of_a_fetch, _ = (
            statistics.median(column) for column in zip(*rounds, strict=True)
        )
        print(
            f"{name:12} {us:9.1f} {base[0] / us:7.2f} {base[1] / seconds:8.2f} {size:13.0f} "
            f"{of_a_fetch:14.1f} {max(round_.runs for round_ in rounds):5}"
        )


async def fill(running: AsyncTestBroker, name: str, keys: int, count: int) -> None:
    """A new topic with records of so many keys, and a group of its name."""
    parts, chance = running.running.parts, random.Random(name)
    await parts.topics.create(TopicName(name), partitions=1, settings={})
    settings = {"share.auto.offset.reset": "earliest"}
    if keys:
        settings["sharegroup.order.by"] = "key"
    await parts.topics.alter(lambda: group_settings_event(GroupId(name), settings, None))
    _, log = parts.topics.named(TopicName(name), 0)
    for _ in range(count // BATCH_RECORDS):
        records = [SimpleRecord(key_of(keys, chance), bytes(100), 1) for _ in range(BATCH_RECORDS)]
        await log.append(encode_batch(records), now_ms=1)


def key_of(keys: int, chance: random.Random) -> bytes:
    if keys == HOT:
        return b"hot" if chance.random() < 0.5 else b"%d" % chance.randrange(10_000)
    return b"%d" % chance.randrange(keys or 10_000)


@contextmanager
def counted() -> Iterator[Sent]:
    """Count what share fetches send."""
    sent, original = Sent(), SharePartitions.fetch

    def fetch(self: SharePartitions, live: LiveSharePartition, *args: Any, **options: Any) -> Any:
        fetched: FetchedRecords | None = original(self, live, *args, **options)
        if fetched is not None:
            sent.bytes += len(fetched.records)
            sent.fetches += 1
            sent.runs = max(sent.runs, live.state.snapshot().run_count)
        return fetched

    SharePartitions.fetch = fetch  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        SharePartitions.fetch = original  # type: ignore[method-assign]


async def consumed(
    running: AsyncTestBroker, name: str, sent: Sent, options: argparse.Namespace
) -> Measured:
    """Let the members take all records."""
    left = options.records
    done = asyncio.Event()

    async def take(consumer: ShareConsumer) -> None:
        nonlocal left
        while not done.is_set():
            records = await consumer.poll(timeout=0.2)
            left -= len(records)
            if left <= 0:
                done.set()

    async with AsyncExitStack() as stack:
        members = [
            await stack.enter_async_context(
                ShareConsumer(name, bootstrap_servers=running.bootstrap_servers, group_id=name)
            )
            for _ in range(options.members)
        ]
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*map(take, members))
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    count = options.records
    return Measured(cpu * 1e6 / count, seconds, sent.bytes / count, count / sent.fetches, sent.runs)


if __name__ == "__main__":
    main()
