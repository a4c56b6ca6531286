"""How large ``__share_group_state`` is after a prune, and how long a start reads it.

    python -m tests.bench.share_state [--acknowledgements N] [--directory DIR]

Share partitions of ten groups settle records one by one, in random order within what is in
flight, and every change is written as the broker writes it.  Then the topic is pruned.  Another
broker starts on a copy from before that, as after ``kill -9``, and reads everything.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sharegroup.broker import app
from sharegroup.broker.cluster.catalog import SHARE_GROUP_STATE, Topic
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.share.share_coordinator import ShareCoordinator
from sharegroup.core.delivery.delivery import (
    AckBatch,
    AcquireRequest,
    LogBatches,
    SharePartitionLimits,
)
from sharegroup.core.delivery.share_partition import SharePartition
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicIdPartition, TopicName
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.storage.disk.folders import folder_name
from sharegroup.wire.batches.records import encode_batch

GROUPS = 10
IN_FLIGHT = 500
MEMBER = MemberId("member")
WRITES_AT_ONCE = 200
"""Acknowledgements that wait for one sync; a busy broker has so many."""

UPDATE_BYTES = 170
"""An update of one batch in the log, in a record batch of its own."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--acknowledgements", type=int, default=1_000_000)
    parser.add_argument("--share-partitions", type=int, default=100)
    parser.add_argument("--directory", default=None, help="where to write; a temporary folder")
    options = parser.parse_args()
    root = tempfile.mkdtemp(prefix="share-state-", dir=options.directory)
    try:
        asyncio.run(measure(root, options.acknowledgements, options.share_partitions))
    finally:
        shutil.rmtree(root)


@dataclass(frozen=True, slots=True)
class StateTopic:
    """What was found."""

    load_seconds: float
    pruned_mebibytes: float
    allowed_mebibytes: float


async def measure(root: str, acknowledgements: int, share_partitions: int) -> StateTopic:
    running = await start(f"{root}/data")
    topic = await running.parts.topics.create(
        TopicName("orders"), partitions=share_partitions // GROUPS, settings={}
    )
    fill(running, topic, acknowledgements // share_partitions + IN_FLIGHT)
    coordinator = running.parts.share_coordinator
    keys = list(share_partition_keys(topic, share_partitions))
    begun = time.perf_counter()
    await settle(coordinator, keys, acknowledgements)
    print(f"{acknowledgements:,} acknowledgements on {len(keys)} share partitions, fsync")
    print(f"  written in                 {time.perf_counter() - begun:8.2f} s")
    await running.directory.drain()
    shutil.copytree(f"{root}/data", f"{root}/killed")
    print(f"  state topic                {mebibytes(running):8.2f} MiB")
    live = sum(map(coordinator.snapshot_bytes, keys))
    print(f"  live snapshots             {live / 2**20:8.2f} MiB")
    begun = time.perf_counter()
    await running.parts.state_pruning.prune()
    print(f"  pruned in                  {time.perf_counter() - begun:8.2f} s")
    await running.directory.drain()
    pruned = mebibytes(running)
    print(f"  state topic                {pruned:8.2f} MiB")
    allowed = (2 * live + 500 * UPDATE_BYTES * len(keys)) / 2**20
    print(f"  allowed                    {allowed:8.2f} MiB: snapshots twice, 500 updates each")
    await running.stop()
    begun = time.process_time()
    killed = await start(f"{root}/killed")
    used = time.process_time() - begun
    load_s = killed.parts.share_coordinator.load_ms / 1000
    print(f"  before the prune, read in  {load_s:8.2f} s, the whole start took {used:.2f} s of CPU")
    await killed.stop()
    return StateTopic(load_s, pruned, allowed)


async def start(data: str) -> app.Running:
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": data}
    return await app.start(Config.parse(settings))


def share_partition_keys(topic: Topic, count: int) -> Iterator[SharePartitionKey]:
    for number in range(count):
        group_id = GroupId(f"group-{number % GROUPS}")
        yield SharePartitionKey(group_id, topic.topic_id, number // GROUPS)


async def settle(
    coordinator: ShareCoordinator, keys: list[SharePartitionKey], acknowledgements: int
) -> None:
    """Each acknowledgement settles one record, and is written by itself."""
    chance = random.Random(1)
    for key in keys:
        coordinator.initialize(key, state_epoch=1, start_offset=0)
    states = {key: SharePartition(0) for key in keys}
    held: dict[SharePartitionKey, list[int]] = {key: [] for key in keys}
    for number in range(acknowledgements):
        key = keys[number % len(keys)]
        offsets = held[key] or taken(states[key], chance)
        held[key] = offsets
        offset = offsets.pop()
        ack = AckBatch(offset, offset + 1, (AcknowledgeType.ACCEPT,))
        delta = states[key].acknowledge(MEMBER, [ack], limits=SharePartitionLimits(), now_ms=0)
        assert delta is not None
        ticket = coordinator.write(key, 1, delta)
        if number % WRITES_AT_ONCE == 0:
            await ticket


def taken(state: SharePartition, chance: random.Random) -> list[int]:
    """The offsets of what is locked next, in the order in which they will settle."""
    first = state.snapshot().end_offset
    batch = LogBatches(first, [first], [first + IN_FLIGHT])
    wanted = AcquireRequest(records_max=IN_FLIGHT, batch_records=IN_FLIGHT)
    acquired = state.acquire(MEMBER, batch, request=wanted, limits=SharePartitionLimits(), now_ms=0)
    offsets = [offset for range_ in acquired.ranges for offset in range(range_.first, range_.end)]
    chance.shuffle(offsets)
    return offsets


def fill(running: app.Running, topic: Topic, records: int) -> None:
    """Records to settle: state of offsets that a log does not reach is cut at the next start."""
    for partition in range(topic.partition_count):
        batch = encode_batch([(None, None, 1, ()) for _ in range(records)])
        running.parts.topics.log_of(topic, partition).append(batch, now_ms=1)


def mebibytes(running: app.Running) -> float:
    """Bytes of the state topic's records, as they are on disk."""
    topics = running.parts.topics
    root = running.parts.config.server.log_dirs
    topic = topics.catalog.topic(SHARE_GROUP_STATE)
    names = (
        folder_name(TopicIdPartition(topic.topic_id, partition))
        for partition in range(topic.partition_count)
    )
    files = (file for name in names for file in Path(root, name).glob("*.log"))
    return sum(os.stat(file).st_size for file in files) / 2**20


if __name__ == "__main__":
    main()
