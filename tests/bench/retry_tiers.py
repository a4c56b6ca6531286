"""What waiting costs: ``python -m tests.bench.retry_tiers [--waiting N ...] [--due N] [--ways]``

Figures of a broker and a scheduler, or a worker, in processes of their own:

    memory       of the scheduler while so many records wait an hour; it should be the same
    moved        records by second when all of them have been due for a while
    takeover     how late records are when a member joins, leaves, and dies; a session lasts 2 s
                 here and 10 s in a worker, and the last figure with it
    ways         processor time of broker and worker for a record that fails once and runs again
                 after a second: held under its lock, through retry topics, released with a delay;
                 more than for a record that succeeds at once, in turn
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
import time
from pathlib import Path
from statistics import median

import uvloop

from sharegroup.client import AdminClient, NewTopic, Producer
from sharegroup.client.fetch.record_reading import partition_ranges
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.dead_letters.story import Attempt, RecordOrigin, Story
from sharegroup.dead_letters.story_headers import story_headers, story_of
from sharegroup.worker import App, Holding, Record, Release, Retry
from sharegroup.worker.lifecycle.program import collect_seldom
from tests.bench.client_process import Span, in_process
from tests.integration.worker.conftest import SETTINGS
from tests.integration.worker.dead import lying_in
from tests.integration.worker.scheduling import make_tiers, postponing, process, scheduling
from tests.support.processes import ServeProcess, pss_bytes

TIERS = (5.0, 3_600.0)
SETTLE_SECONDS = 8.0

WAYS = ("held", "tiers", "released")
FAILING = ((1, 10_000), (20, 50_000))
"""One of how many records fails, and how many there are."""
ROUNDS = 5
PARTITIONS = 4
LOCKS = "share.partition.max.record.locks"
ACKNOWLEDGED_SECONDS = 0.5
ATTEMPTS = tuple(
    Attempt(number, 1_700_000_000_000, "builtins.TimeoutError", "no answer in 3 s", "w-1-6f1c2f52")
    for number in range(1, 4)
)
VALUE = b'{"order":12345678,"customer":"c-1234","total":99.5,"country":"DE","text":"0123456789012"}'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--waiting", type=int, nargs="*", default=[10_000, 1_000_000])
    parser.add_argument("--due", type=int, default=200_000)
    parser.add_argument("--takeover", action="store_true")
    parser.add_argument("--ways", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sharegroup-retry-") as folder,
        ServeProcess(Path(folder) / "data", durability="os", settings=SETTINGS) as broker,
    ):
        for count in options.waiting:
            measure_memory(broker.bootstrap_servers, count)
        if options.due:
            asyncio.run(measure_moved(broker.bootstrap_servers, options.due))
        if options.takeover:
            measure_takeover(broker.bootstrap_servers)
        if options.ways:
            for every, count in FAILING:
                measure_ways(broker, every, count)


def measure_memory(bootstrap: str, count: int) -> None:
    group = f"waiting-{count}"
    asyncio.run(fill(bootstrap, group, "1h", count, due_in_ms=3_600_000))
    with process(bootstrap, group, TIERS) as scheduler:
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(scheduler.pid)
        time.sleep(SETTLE_SECONDS)
        share = (cpu_seconds(scheduler.pid) - before) / SETTLE_SECONDS
        memory = pss_bytes(scheduler.pid) / 2**20
        print(f"waiting {count:>9,}: {memory:.1f} MiB, {share:.1%} of a core")


async def measure_moved(bootstrap: str, count: int) -> None:
    group = "due"
    await fill(bootstrap, group, "5s", count, due_in_ms=-60_000)
    began = time.perf_counter()
    async with scheduling(bootstrap, group, TIERS):
        joined, cpu_before = time.perf_counter(), time.process_time()
        while await end_of(bootstrap, f"{group}.retry") < count:
            await asyncio.sleep(0.2)
    took, spent = time.perf_counter() - joined, time.process_time() - cpu_before
    print(
        f"moved {count:,}: {count / took:,.0f} records/s, "
        f"{spent / count * 1e6:.1f} us of CPU each; joined after {joined - began:.2f} s"
    )


def measure_takeover(bootstrap: str) -> None:
    for what in ("nothing happens", "a member joins", "a member leaves", "a member dies"):
        group = what.replace(" ", "-")
        late_ms = sorted(asyncio.run(taken_over(bootstrap, group, what)))
        middle, most = late_ms[len(late_ms) // 2], late_ms[-1]
        print(f"{what:16}: late by {middle} ms in the middle, {most} ms at most")


async def taken_over(bootstrap: str, group: str, what: str) -> list[int]:
    """How late each of a thousand records was, of which one is due every 20 ms."""
    delays = (0.2, 1.0, 3.0)
    await make_tiers(bootstrap, group, delays=delays)
    with process(bootstrap, group, delays):
        other = None if what == "a member joins" else process(bootstrap, group, delays)
        victim = other.__enter__() if other is not None else None
        if what == "nothing happens":
            await asyncio.sleep(1)
        async with postponing(bootstrap, group, delays) as postponer:
            now_ms = time.time_ns() // 1_000_000
            for number in range(1_000):
                key, due_ms = b"%d" % number, now_ms + 1_000 + number * 20
                await postponer.send_later("orders", b"%d" % number, key=key, due_ms=due_ms)
        await asyncio.sleep(3)
        if victim is None:
            other = process(bootstrap, group, delays)
            await asyncio.to_thread(other.__enter__)
        elif what != "nothing happens":
            os.kill(victim.pid, signal.SIGTERM if what == "a member leaves" else signal.SIGKILL)
        while len(records := await lying_in(bootstrap, f"{group}.retry")) < 1_000:
            await asyncio.sleep(0.5)
        assert other is not None
        other.__exit__(None, None, None)
    return [int(record.timestamp) - (story_of(record.headers).due_ms or 0) for record in records]


def measure_ways(broker: ServeProcess, every: int, count: int) -> None:
    """What one of so many records costs more because it fails once."""
    topic = f"one-in-{every}"
    asyncio.run(fill_topic(broker.bootstrap_servers, topic, count))
    more: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    for number in range(ROUNDS + 1):
        found = {}
        for way in (None, *WAYS) if number % 2 else (*reversed(WAYS), None):
            group = f"{topic}.{way}.{number}"
            found[way] = in_process(
                fail_once, bootstrap=broker.bootstrap_servers, broker_pid=broker.pid,
                topic=topic, group=group, way=way, every=every, count=count,
            )  # fmt: skip
        for way in WAYS if number else ():  # The first round warms the broker up.
            client, served = (
                (found[way][name] - found[None][name]) / (count // every) * 1e6
                for name in ("client_cpu_s", "broker_cpu_s")
            )
            more[way].append((client, served))
    for way, costs in more.items():
        client, served = (sorted(cost[side] for cost in costs) for side in (0, 1))
        both = sorted(map(sum, costs))
        print(
            f"one in {every} fails, {way:9}: {median(both):6.0f} us more for each that does "
            f"[{both[0]:.0f}, {both[-1]:.0f}]: worker {median(client):.0f}, "
            f"broker {median(served):.0f}"
        )


def fail_once(
    *, bootstrap: str, broker_pid: int, topic: str, group: str, way: str | None, every: int,
    count: int,
) -> dict[str, float]:  # fmt: skip
    """A worker that handles all records of a topic; runs in a process of its own."""

    async def run() -> dict[str, float]:
        collect_seldom()  # As `sharegroup worker` does.
        app = App("bench", bootstrap_servers=bootstrap)
        done, left, span = asyncio.Event(), count, None
        failed: set[tuple[int, int]] = set()

        async def handle(value: bytes, record: Record) -> None:
            nonlocal left, span
            span = span or Span(broker_pid)
            if way is not None and record.offset % every == 0:
                place = (record.partition, record.offset)
                if place not in failed:
                    failed.add(place)
                    raise Release if way == "released" else ConnectionError
            left -= 1
            if left == 0:
                done.set()

        app.share_group(
            group, topics=topic, concurrency=64, handler=handle,
            retry=Retry(initial_delay=1.0, jitter=0),
            holding=Holding(longest_seconds=5.0 if way == "held" else 0.0, records=count),
            group_configs={LOCKS: "10000", "sharegroup.redelivery.delay.ms": "1000"},
        )  # fmt: skip
        async with app:
            await done.wait()
            await asyncio.sleep(ACKNOWLEDGED_SECONDS)
            assert span is not None, "a handler has run"
            return span.end()

    return uvloop.run(run())


async def fill_topic(bootstrap: str, topic: str, count: int) -> None:
    """So many records in four partitions, in batches of 500."""
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(topic, PARTITIONS)])
    async with Producer(bootstrap_servers=bootstrap, linger_ms=50) as producer:
        for number in range(count):
            partition = number // 500 % PARTITIONS
            await producer.send(topic, VALUE, key=b"%d" % number, partition=partition)
        await producer.flush()


async def fill(bootstrap: str, group: str, tier: str, count: int, *, due_in_ms: int) -> None:
    """So many records in a tier, written now."""
    await make_tiers(bootstrap, group, delays=TIERS)
    now_ms = time.time_ns() // 1_000_000
    origin = RecordOrigin("orders", 3, 123_456, now_ms)
    story = Story(origin, len(ATTEMPTS), ATTEMPTS, now_ms + due_in_ms)
    headers = (
        ("trace", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        *story_headers(story, origin),
        ("__sharegroup.delay", b"3600000"),
        ("__sharegroup.written", b"%d" % now_ms),
    )
    async with Producer(bootstrap_servers=bootstrap, batch_bytes=512 * 1024) as producer:
        for number in range(count):
            await producer.send(f"{group}.retry.{tier}", VALUE, key=b"%d" % number, headers=headers)
        await producer.flush()


async def end_of(bootstrap: str, topic: str) -> int:
    """How many records were written to a topic."""
    cluster = Cluster(ClientConfig(bootstrap_servers=bootstrap))
    try:
        return sum(span.end - span.first for span in await partition_ranges(cluster, topic))
    finally:
        cluster.close()


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        user, system = stat.read().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    from tests.bench import retry_tiers as this  # Children find its functions under this name.

    this.main()
