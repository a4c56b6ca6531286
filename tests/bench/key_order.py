"""What it costs to order the records of a share group by key (``sharegroup.order.by=key``).

    python -m tests.bench.key_order [--records N] [--members N] [--fetch N] [--rounds N]

A broker in this process and a topic of one partition, in batches of 500 records of 100 bytes.  The
members take turns: each accepts what it has and fetches more, so all of them but one hold records
at any time.  The cases differ in the number of keys, drawn uniformly; «one hot» has a key that
every second record has, and 10,000 others.  Printed are, by case: CPU time of the whole process
for each record in us (the median of the rounds), the part of the throughput of «not ordered»,
bytes sent for each record, records of a fetch, and the largest number of runs.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from typing import NamedTuple

from sharegroup.broker.cluster.catalog import group_settings_event
from sharegroup.broker.parts import Parts
from sharegroup.broker.share.live_share_partition import LiveSharePartition
from sharegroup.core.delivery.delivery import AckBatch, AcquireRequest
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.testing import broker
from sharegroup.wire.batches.records import SimpleRecord, encode_batch

PLAIN, ORDERED = GroupId("plain"), GroupId("ordered")
ANSWER_BYTES_MAX = 1 << 20
BATCH_RECORDS = 500
HOT = -1
CASES = {
    "not ordered": 0,
    "10,000 keys": 10_000,
    "1,000 keys": 1_000,
    "10 keys": 10,
    "one hot": HOT,
}


class Measured(NamedTuple):
    """One round of a case."""

    us: float
    sent: float
    of_a_fetch: float
    runs: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--fetch", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=3)
    asyncio.run(measure(parser.parse_args()))


async def measure(options: argparse.Namespace) -> None:
    found: dict[str, list[Measured]] = {name: [] for name in CASES}
    async with broker({}) as running:
        parts = running.running.parts
        settings = {"sharegroup.order.by": "key"}
        await parts.topics.alter(lambda: group_settings_event(ORDERED, settings, None))
        for number in range(options.rounds):
            for name, keys in CASES.items():
                live = await filled(parts, f"{number}-{abs(keys)}{keys == HOT}", keys, options)
                found[name].append(await drained(parts, live, options))
    base = statistics.median(round_.us for round_ in found["not ordered"])
    print(f"{'':12} us/record  throughput  bytes/record  records/fetch  runs")
    for name, rounds in found.items():
        us = statistics.median(round_.us for round_ in rounds)
        last = rounds[-1]
        print(
            f"{name:12} {us:9.1f} {base / us:11.2f} {last.sent:13.0f} {last.of_a_fetch:14.1f} "
            f"{max(round_.runs for round_ in rounds):5}"
        )


async def filled(
    parts: Parts, name: str, keys: int, options: argparse.Namespace
) -> LiveSharePartition:
    """A new topic with records of so many keys, and its share partition."""
    chance = random.Random(name)
    await parts.topics.create(TopicName(name), partitions=1, settings={})
    topic, log = parts.topics.named(TopicName(name), 0)
    for _ in range(options.records // BATCH_RECORDS):
        records = [SimpleRecord(key_of(keys, chance), bytes(100), 1) for _ in range(BATCH_RECORDS)]
        await log.append(encode_batch(records), now_ms=1)
    key = SharePartitionKey(ORDERED if keys else PLAIN, topic.topic_id, 0)
    ticket = parts.share_coordinator.initialize(key, state_epoch=1, start_offset=0)
    assert ticket is not None
    await ticket
    return parts.share_partitions.get(key)


def key_of(keys: int, chance: random.Random) -> bytes:
    if keys == HOT:
        return b"hot" if chance.random() < 0.5 else b"%d" % chance.randrange(10_000)
    return b"%d" % chance.randrange(keys or 10_000)


async def drained(parts: Parts, live: LiveSharePartition, options: argparse.Namespace) -> Measured:
    """Let the members take turns until all records are accepted."""
    share_partitions = parts.share_partitions
    wanted = AcquireRequest(options.fetch, options.fetch)
    members = [MemberId(f"member-{number}") for number in range(options.members)]
    held: dict[MemberId, list[AckBatch]] = {member: [] for member in members}
    sent = fetches = runs = 0
    began = time.process_time()
    while live.state.start_offset < options.records:
        for member in members:
            if held[member]:
                durable = share_partitions.acknowledge(live, member, held[member])
                if durable is not None:
                    await durable
                held[member] = []
            fetched = share_partitions.fetch(live, member, wanted, bytes_max=ANSWER_BYTES_MAX)
            if fetched is None:
                await asyncio.sleep(0)
                continue
            fetches += 1
            sent += len(fetched.records)
            runs = max(runs, live.state.snapshot().run_count)
            held[member] = [
                AckBatch(first, end, (AcknowledgeType.ACCEPT,))
                for first, end, _ in fetched.acquired
            ]
    seconds = time.process_time() - began
    count = options.records
    return Measured(seconds * 1e6 / count, sent / count, count / fetches, runs)


if __name__ == "__main__":
    main()
