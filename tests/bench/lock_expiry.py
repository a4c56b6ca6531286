"""How late locks end, in real time, with 100,000 of them outstanding.

    python -m tests.bench.lock_expiry [--locks N] [--partitions N] [--lock-ms N]

A broker in this process; two members take records one at a time in turn, so that every lock is a
run of its own.  Then a third takes whatever comes back, every millisecond, and notes how long
after its lock's end.  Printed are milliseconds: the earliest (never below 0), the median, the
99th percentile, the latest, and the longest time for which the event loop was not free.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.core.delivery.delivery import AcquireRequest
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicName
from sharegroup.protocol_enums import AcquireMode
from sharegroup.testing import broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch

GROUP, TOPIC = GroupId("g"), TopicName("locks")
ANSWER_BYTES_MAX = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--locks", type=int, default=100_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--lock-ms", type=int, default=10_000)
    options = parser.parse_args()
    asyncio.run(measure(options.locks, options.partitions, options.lock_ms))


async def measure(locks: int, partitions: int, lock_ms: int) -> None:
    settings = {
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(lock_ms),
        "group.share.partition.max.record.locks": "1000000",
        "sharegroup.share.partition.runs.max": "1000000",
    }
    async with broker(settings) as running:
        parts = running.running.parts
        await parts.topics.create(TOPIC, partitions=partitions, settings={})
        for number in range(partitions):
            topic, log = parts.topics.named(TOPIC, number)
            batch = encode_batch([SimpleRecord(None, b"", 1)] * 500)
            for _ in range(locks // partitions // 500):
                await log.append(bytearray(batch), now_ms=1)
            key = SharePartitionKey(GROUP, topic.topic_id, number)
            ticket = parts.share_coordinator.initialize(key, state_epoch=1, start_offset=0)
            assert ticket is not None
            await ticket
            parts.share_partitions.get(key)
        began = time.monotonic()
        take_all(parts.share_partitions, locks)
        print(f"{locks} locks taken in {time.monotonic() - began:.1f} s")
        ends = ends_of(parts.share_partitions)
        late, busy = await take_back(parts.share_partitions, ends)
        cuts = statistics.quantiles(late, n=100)
        print(
            f"late by: earliest {min(late)}, p50 {cuts[49]:.0f}, p99 {cuts[98]:.0f}, "
            f"latest {max(late)} ms; event loop busy for at most {busy * 1000:.0f} ms"
        )


def take_all(share_partitions: SharePartitions, locks: int) -> None:
    """Lock everything, a record at a time."""
    members = MemberId("a"), MemberId("b")
    wanted = AcquireRequest(1, 1, AcquireMode.RECORD_LIMIT)
    every = list(share_partitions)
    for number in range(locks // len(every)):
        for live in every:
            member = members[number % 2]
            fetched = share_partitions.fetch(live, member, wanted, bytes_max=ANSWER_BYTES_MAX)
            assert fetched is not None


def ends_of(share_partitions: SharePartitions) -> dict[tuple[int, int], int]:
    """When each lock ends, by partition and offset."""
    return {
        (live.key.partition, offset): value.lock_deadline_ms
        for live in share_partitions
        for first, end, value in live.state.runs()
        for offset in range(first, end)
    }


async def take_back(
    share_partitions: SharePartitions, ends: dict[tuple[int, int], int]
) -> tuple[list[int], float]:
    """Take every record again as soon as it is there: how late each was; the longest pause."""
    late: list[int] = []
    busy = 0.0
    wanted = AcquireRequest(10_000, 10_000)
    member = MemberId("c")
    while len(late) < len(ends):
        began = time.monotonic()
        await asyncio.sleep(0.001)
        busy = max(busy, time.monotonic() - began - 0.001)
        for live in share_partitions:
            fetched = share_partitions.fetch(live, member, wanted, bytes_max=ANSWER_BYTES_MAX)
            now_ms = time.monotonic_ns() // 1_000_000
            for first, end, _ in () if fetched is None else fetched.acquired:
                late += [now_ms - ends[live.key.partition, n] for n in range(first, end)]
    return late, busy


if __name__ == "__main__":
    main()
