"""What ``sharegroup.assignment=wide`` brings: ``python -m tests.bench.assignment [--runs N]``.

Eight of Kafka's share consumers read eight partitions and take 5 ms for each record. The records
are spread evenly, or by keys of which few are frequent (Zipf), as Kafka's partitioner does. The
time is that of the handlers alone: from the first that begins to the last that ends.

Then up to 1,000 members join a group with each assignment, learn the last one, and the setting
changes: the processor time of the broker, its longest turn, and the bytes that it writes to
``__consumer_offsets``. At last one record after the other arrives for members that wait.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from itertools import count
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import ResourceType

from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS
from sharegroup.client import AdminClient, ShareGroupDescription
from tests.bench.failure import BenchError
from tests.bench.loop_holds import Turns
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import alter_group, produce as write_records, request
from tests.support.confluent_calls import create_topic, set_config, set_group
from tests.support.java_shell import QUICK
from tests.support.kafka_peer import java, kafka_libs
from tests.support.processes import ServeProcess

CONSUMERS = PARTITIONS = 8
HANDLER_MS = 5
RECORDS = 8_000
KEYS = 1_000
ZIPF_EXPONENT = 1.1
JOIN_SECONDS_MAX = 60.0
HANDLE_SECONDS_MAX = 120.0
HEARTBEAT_SECONDS = 1.0
MEMBERS = 1_000
SHAPES = ((1_000, 8), (1_000, 100), (200, 1_000))
"""Members and partitions."""

WAKES = 20
"""Records that arrive one after the other while members wait."""

OTHER = {"simple": "wide", "wide": "simple"}
SETTINGS = {"group.share.min.heartbeat.interval.ms": "1000"}
SOURCE = Path(__file__).with_name("SlowConsumers.java")
_numbers = count(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    measure_throughput(options.runs)
    for members, partitions in SHAPES:
        for assignment in ("simple", "wide"):
            asyncio.run(measure_joins(assignment, members, partitions))
    for waiting in (WAKES, MEMBERS):
        asyncio.run(measure_wakes(waiting))


def measure_throughput(runs: int) -> None:
    seconds: dict[tuple[str, str], list[float]] = {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-wide-") as folder,
        ServeProcess(Path(folder) / "data", durability="os", settings=SETTINGS) as broker,
    ):
        for _ in range(runs):
            for load in ("even", "zipf"):
                for assignment in ("simple", "wide"):
                    found, counts = handled(broker.bootstrap_servers, load, assignment)
                    seconds.setdefault((load, assignment), []).append(found)
                    print(f"{load} {assignment}: {found:.2f} s, records {sorted(counts)}")
    even = statistics.median(seconds["even", "simple"])
    for (load, assignment), times in seconds.items():
        median = statistics.median(times)
        print(
            f"{load} load, {assignment}: {RECORDS / median:.0f} records/s, "
            f"{even / median:.2f} of even load with simple"
        )


def handled(bootstrap: str, load: str, assignment: str) -> tuple[float, list[int]]:
    """Return the seconds for all records, and the number of records of each consumer."""
    topic, group = f"wide-{next(_numbers)}", f"wide-{next(_numbers)}"
    create_topic(bootstrap, topic, partitions=PARTITIONS)
    set_group(bootstrap, group, auto_offset_reset="earliest", heartbeat_interval_ms="1000")
    set_config(bootstrap, ResourceType.GROUP, group, {"sharegroup.assignment": assignment})
    arguments = [bootstrap, group, topic, *map(str, (CONSUMERS, RECORDS, HANDLER_MS))]
    command = [str(java()), *QUICK, "-cp", f"{kafka_libs()}/*", str(SOURCE), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as consumers:
        try:
            wait_for_members(bootstrap, group)
            print(load, "records of the partitions:", produce(bootstrap, topic, load))
            printed, _ = consumers.communicate(timeout=HANDLE_SECONDS_MAX)
        finally:
            consumers.kill()
    nanoseconds, *counts = map(int, printed.split())
    if sum(counts) < RECORDS:
        raise BenchError(f"{sum(counts)} of {RECORDS} records were handled")
    return nanoseconds / 1e9, counts


def wait_for_members(bootstrap: str, group: str) -> None:
    """Wait until every consumer has joined and was told its last assignment."""

    async def joined() -> None:
        client = AdminClient(bootstrap_servers=bootstrap)
        async with asyncio.timeout(JOIN_SECONDS_MAX), client:
            member_count = 0
            while member_count < CONSUMERS:
                await asyncio.sleep(0.2)
                described = (await client.describe_share_groups([group]))[group]
                if isinstance(described, ShareGroupDescription):
                    member_count = len(described.members)
            await asyncio.sleep(3 * HEARTBEAT_SECONDS)

    asyncio.run(joined())


def produce(bootstrap: str, topic: str, load: str) -> list[int]:
    """Return the number of records of each partition."""
    chance = random.Random(1)
    weights = [1 / (rank + 1) ** ZIPF_EXPONENT for rank in range(KEYS)]
    keys = chance.choices(range(KEYS), weights, k=RECORDS)
    producer = Producer(
        {"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "log_level": 2}
    )
    partitions: Counter[int] = Counter()
    for number, key in enumerate(keys):
        where = {} if load == "zipf" else {"partition": number % PARTITIONS}
        producer.produce(
            topic,
            value=b"x" * 100,
            key=b"%d" % key,
            on_delivery=lambda _, message: partitions.update([message.partition()]),
            **where,
        )
        producer.poll(0)
    if producer.flush(30):
        raise BenchError("not all records are confirmed")
    return [partitions[number] for number in range(PARTITIONS)]


async def measure_joins(assignment: str, member_count: int, partition_count: int) -> None:
    """Print what the heartbeats cost with which members join, learn and leave."""
    with tempfile.TemporaryDirectory(prefix="bench-wide-") as folder:
        settings = {"group_share_max_size": str(MEMBERS)}
        broker = await Broker.start(None, folder, **settings)
        turns = Turns(asyncio.get_running_loop())
        await broker.create_topic("orders", partition_count)
        await alter_group(broker, "sharegroup.assignment", assignment)
        members = [
            ShareMember(
                "g", f"member-{number}", "orders", partition_count, connection_id=number + 1
            )
            for number in range(member_count)
        ]
        cost = Cost(broker, turns)
        print(f"{assignment}, {member_count} members, {partition_count} partitions")
        for member in members:
            await cost.of(member.heartbeat(broker))
        cost.show("join")
        for member in members:
            await cost.of(member.heartbeat(broker))
        cost.show("heartbeat with the last assignment")
        for member in members:
            await cost.of(member.heartbeat(broker))
        cost.show("heartbeat without news")
        await alter_group(broker, "sharegroup.assignment", OTHER[assignment])
        broker.clock.advance(1.0)  # The assignment interval.
        await cost.of(members[0].heartbeat(broker))
        cost.show(f"heartbeat after the change to {OTHER[assignment]}")
        await broker.stop()


async def measure_wakes(waiting_count: int) -> None:
    """Print what a record costs for which so many members of one partition wait."""
    with tempfile.TemporaryDirectory(prefix="bench-wide-") as folder:
        settings = {"group_share_max_size": str(MEMBERS)}
        broker = await Broker.start(None, folder, **settings)
        turns = Turns(asyncio.get_running_loop())
        await broker.create_topic("orders", 1)
        await write_records(broker)  # The first one takes longer.
        waiting = []
        for number in range(1, waiting_count + 1):
            member = ShareMember("g", f"member-{number}", "orders", 1, connection_id=number)
            await member.heartbeat(broker)
            await member.heartbeat(broker)
            await member.fetch(broker, records_max=1)
            fetch = request(member, max_records=1, batch_size=1)
            waiting.append(asyncio.create_task(broker.ask(fetch, number)))
            await asyncio.sleep(0)
        cost = Cost(broker, turns)
        print(f"{waiting_count} members wait for records of one partition")
        for number in range(WAKES):
            await cost.of(write_records(broker))
            while sum(task.done() for task in waiting) <= number:
                await asyncio.sleep(0)
        cost.show("record")
        broker.clock.advance(60)
        await asyncio.gather(*waiting)
        await broker.stop()


class Cost:
    """Processor time, longest turns and bytes in ``__consumer_offsets`` of some requests."""

    def __init__(self, broker: Broker, turns: Turns) -> None:
        self.broker, self.turns = broker, turns
        self.seconds: list[float] = []
        self.longest: list[float] = []
        self.bytes = self._bytes()

    async def of(self, work: Awaitable[object]) -> None:
        began = time.process_time()
        await self.turns.of(work)
        self.seconds.append(time.process_time() - began)
        self.longest.append(self.turns.longest)

    def show(self, what: str) -> None:
        size = self._bytes()
        print(
            f"  {what}: median {1e3 * statistics.median(self.seconds):.1f} ms, in all "
            f"{sum(self.seconds):.1f} s; longest turn {1e3 * max(self.longest):.1f} ms; "
            f"{(size - self.bytes) / len(self.seconds):.0f} bytes written each"
        )
        self.seconds, self.longest, self.bytes = [], [], size

    def _bytes(self) -> int:
        topics = self.broker.running.parts.topics
        topic = topics.catalog.find(CONSUMER_OFFSETS)
        if topic is None:
            return 0
        logs = [topics.opened_log(topic, number) for number in range(topic.partition_count)]
        return sum(log.size for log in logs if log)


if __name__ == "__main__":
    main()
