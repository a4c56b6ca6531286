"""For how long the broker's own work holds the event loop: `python -m tests.bench.job_turns [JOB]`.

A broker in this process has a topic of `PARTITIONS` partitions, each with records of an idempotent
producer, and a share group with a state in each.  Then every job that runs beside the requests is
done once.  A line has the longest turn of the event loop while the job runs (in milliseconds of
processor time without garbage collections, as in `tests.bench.loop_holds`), and the whole time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Awaitable, Callable

from sharegroup.broker import app
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.cleaning import Cleaning
from sharegroup.broker.configuration.config import Config
from sharegroup.broker.configuration.server_config import FETCH_BYTES_MAX
from sharegroup.core.delivery.delivery import Delta
from sharegroup.ids import GroupId, SharePartitionKey, TopicName
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.bench.loop_holds import Turns

PARTITIONS = 19_800
LARGE_BATCH_BYTES = 1_000_000
LARGE_BATCHES = 8
WIDE = TopicName("wide")
LARGE = TopicName("large")
HOUR_MS = 3_600_000

Job = Callable[[], Awaitable[object]]


class Scene:
    """A broker with many logs, and its jobs by name."""

    def __init__(self, running: app.Running, turns: Turns, wanted: str | None) -> None:
        self.running = running
        self.parts = running.parts
        self.directory = running.directory
        self.turns = turns
        self.wanted = wanted
        self.cleaning = Cleaning(self.parts.config, self.parts.clock, self.parts.topics)

    async def fill(self, records: int = 1) -> None:
        """Append to each partition; every batch is of a producer of its own."""
        now_ms = self.parts.clock.wall_ms()
        topic = self.parts.topics.catalog.topic(WIDE)
        ticket = None
        for partition in range(topic.partition_count):
            batch = encode_batch(
                [SimpleRecord(b"k", b"value", now_ms - 1)] * records,
                producer_id=partition,
                producer_epoch=0,
                base_sequence=0,
            )
            log = self.parts.topics.log_of(topic, partition)
            if log.high_watermark:
                log.producers.expire(now_ms * 2)
            ticket = log.append(batch, now_ms=now_ms)
            if partition % 500 == 499:
                await ticket
        if ticket is not None:
            await ticket

    async def measure(self, name: str, job: Job) -> None:
        """Print a line."""
        if self.wanted is not None and self.wanted not in name:
            return
        gc.collect()
        gc.freeze()  # As `sharegroup serve` does after its start.
        began = time.perf_counter()
        await self.turns.of(job())
        seconds = time.perf_counter() - began
        longest = self.turns.longest * 1000
        print(f"{name:50}{longest:11.1f} ms{seconds * 1000:9.0f} ms", flush=True)

    async def all(self) -> None:
        topics = self.parts.topics
        await topics.create(
            WIDE,
            partitions=PARTITIONS,
            settings={"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "0"},
        )
        topic = topics.catalog.topic(WIDE)
        await self.fill()
        await self.measure("checkpoint, all logs", self.directory.checkpoint)
        await self.measure("checkpoint, no log", self.directory.checkpoint)
        await self.measure("cleaning, nothing to do", self.cleaning.compact)
        await self.measure("retention, nothing to do", self.cleaning.retain)
        await self.measure("directory watch", self._watched)
        await self.measure("journal rewritten", topics._rewrite_journal)
        await self.measure("producer expiry, none expired", lambda: self._expired(0))
        await self.measure("producers, room for one more", self._room)
        await self._share_states(topic)
        pruning = self.parts.state_pruning
        await self.measure("state pruning, snapshots of cold", pruning.snapshot_cold)
        await self.measure("state pruning", pruning.prune)
        await self.measure("state pruning, nothing to do", pruning.prune)
        await self.measure("producer expiry, all expired", lambda: self._expired(HOUR_MS))
        await self.fill()
        for log in topics.opened(topic):
            log.roll()
        await self.measure("checkpoint, all logs again", self.directory.checkpoint)
        await topics.alter(
            lambda: {
                "event": "topic_settings",
                "name": WIDE,
                "settings": {"cleanup.policy": "delete", "retention.ms": "1"},
            }
        )
        await self.measure("retention, all records", self.cleaning.retain)
        await self._large()
        await self.measure("deletion of a topic", lambda: self._deleted(topic))

    async def _watched(self) -> None:
        await self.directory._parts.syncer.in_thread(self.directory._watch.check)

    async def _expired(self, ahead_ms: int) -> None:
        since = self.parts.clock.wall_ms() - (0 if ahead_ms else HOUR_MS) + ahead_ms
        await self.parts.slices.finish(self.parts.topics.expire_producers(since))

    async def _room(self) -> None:
        room = self.directory.producer_room
        room.limit_to(room.count - 1)
        log = next(self.parts.topics.opened(self.parts.topics.catalog.topic(WIDE)))
        room.update(log.producers, 0)
        await asyncio.sleep(0.2)

    async def _share_states(self, topic: Topic) -> None:
        coordinator = self.parts.share_coordinator
        keys = [
            SharePartitionKey(GroupId("g"), topic.topic_id, partition)
            for partition in range(topic.partition_count)
        ]
        for first in range(0, len(keys), 500):
            starts = dict.fromkeys(keys[first : first + 500], 0)
            for ticket in coordinator.initialize_all(starts, state_epoch=0):
                if ticket is not None:
                    await ticket
        ticket = None
        for write in range(1, 40):
            for key in keys[::4]:
                ticket = coordinator.write(
                    key, 0, Delta(start_offset=write, delivery_complete_count=0, batches=())
                )
            assert ticket is not None
            await ticket

    async def _large(self) -> None:
        topics = self.parts.topics
        await topics.create(LARGE, partitions=1, settings={})
        log = topics.log_of(topics.catalog.topic(LARGE), 0)
        value = bytes(LARGE_BATCH_BYTES)
        now_ms = self.parts.clock.wall_ms()
        for _ in range(LARGE_BATCHES):
            await log.append(encode_batch([SimpleRecord(None, value, now_ms)]), now_ms=now_ms)

        async def read() -> None:
            log.read(0, bytes_max=FETCH_BYTES_MAX)

        await self.measure("one fetch's read, 1 MB batches", read)

    async def _deleted(self, topic: Topic) -> None:
        await self.parts.topics.delete(topic)
        async with asyncio.timeout(120):
            while self.parts.topics.catalog.deleted_topics:
                await asyncio.sleep(0.01)


async def measure(wanted: str | None, durability: str) -> None:
    turns = Turns(asyncio.get_running_loop())
    with tempfile.TemporaryDirectory() as folder:
        values = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": folder,
            "sharegroup.durability": durability,
        }
        running = await app.start(Config.parse(values))
        running.background.cancel()  # The jobs run below, one at a time.
        try:
            print(f"{'job':50}{'longest turn':>14}{'in all':>12}")
            await Scene(running, turns, wanted).all()
        finally:
            await running.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", nargs="?", help="only jobs with this in their name")
    parser.add_argument("--durability", default="fsync", choices=("fsync", "os"))
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.job, arguments.durability))


if __name__ == "__main__":
    main()
