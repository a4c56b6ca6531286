"""What the worker framework costs: ``python -m tests.bench.worker [--records N] [LINE...]``.

Each line is measured in a process of its own, beside what it is compared with, on one broker
(`sharegroup serve`, fsync) and in turn:

    nothing     an async handler that does nothing, accept of each, 100 B; the bare client beside
    waits       handlers that wait 10 ms, 500 at a time; the bare event loop beside
    consumed    a consumer group: a handler that does nothing, without order and by key
    keys        a consumer group: 1,000 keys, handlers that wait 5 ms, 64 at a time
    held        10,000 records that wait for a short retry; the same process without them beside
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvloop

from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    NewTopic,
    Producer,
    ResourceType,
    ShareConsumer,
)
from tests.bench.client_process import in_process
from tests.support.processes import ServeProcess

RECORDS = 300_000
ROUNDS = 3
VALUE = b"x" * 100
TOPIC = "work"
PARTITIONS = 4
WARM_RECORDS = 20_000

WAIT_SECONDS = 0.01
AT_A_TIME = 500
KEYS = 1_000
KEYED_SECONDS = 0.005
KEYED_AT_A_TIME = 64

HELD = 10_000
HELD_PARTITIONS = 16


class Span:
    """Wall and CPU time from the moment when enough is warm."""

    def __init__(self) -> None:
        self._began = time.perf_counter()
        self._cpu = time.process_time()

    def end(self, records: int) -> dict[str, float]:
        """Per second, and microseconds of CPU for each."""
        seconds = time.perf_counter() - self._began
        cpu = time.process_time() - self._cpu
        return {"per_second": records / seconds, "cpu_us": cpu / records * 1e6}


# Each of these runs in a process of its own.


def bare_client(*, bootstrap: str, group: str, records: int) -> dict[str, float]:
    async def run() -> dict[str, float]:
        seen = 0
        span: Span | None = None
        async with ShareConsumer(
            TOPIC,
            bootstrap_servers=bootstrap,
            group_id=group,
            share_acknowledgement_mode="explicit",
        ) as consumer:
            while seen < records:
                for record in await consumer.poll(10):
                    record.accept()
                    seen += 1
                if span is None and seen >= WARM_RECORDS:
                    span, warm = Span(), seen
            await consumer.commit()
            assert span is not None, "more records are measured than warm it up"
            return span.end(seen - warm)

    return uvloop.run(run())


def worker(*, bootstrap: str, group: str, records: int, wait: bool) -> dict[str, float]:
    # Imported here: `tests.bench.paired` measures commits from before there were workers, too.
    from sharegroup.worker import App
    from sharegroup.worker.lifecycle.program import collect_seldom

    async def run() -> dict[str, float]:
        collect_seldom()  # As `sharegroup worker` does.
        app = App("bench", bootstrap_servers=bootstrap)
        seen, span, warm, done = 0, None, 0, asyncio.Event()

        async def handle(value: bytes) -> None:
            nonlocal seen, span, warm
            if wait:
                await asyncio.sleep(WAIT_SECONDS)
            seen += 1
            if span is None and seen >= WARM_RECORDS:
                span, warm = Span(), seen
            if seen >= records:
                done.set()

        concurrency = AT_A_TIME if wait else 64
        app.share_group(group, topics=TOPIC, concurrency=concurrency, handler=handle)
        async with app:
            await done.wait()
            assert span is not None, "more records are measured than warm it up"
            return span.end(seen - warm)

    return uvloop.run(run())


def consumer_group(
    *, bootstrap: str, group: str, records: int, order_by: str | None, wait_seconds: float
) -> dict[str, float]:
    from sharegroup.worker import App
    from sharegroup.worker.lifecycle.program import collect_seldom

    async def run() -> dict[str, float]:
        collect_seldom()  # As `sharegroup worker` does.
        app = App("bench", bootstrap_servers=bootstrap)
        seen, span, warm, done = 0, None, 0, asyncio.Event()

        async def handle(value: bytes) -> None:
            nonlocal seen, span, warm
            if wait_seconds:
                await asyncio.sleep(wait_seconds)
            seen += 1
            if span is None and seen >= WARM_RECORDS:
                span, warm = Span(), seen
            if seen >= records:
                done.set()

        app.consumer_group(
            group,
            topics=TOPIC,
            concurrency=KEYED_AT_A_TIME,
            order_by="key" if order_by else None,
            handler=handle,
        )
        async with app:
            await done.wait()
            assert span is not None, "more records are measured than warm it up"
            return span.end(seen - warm)

    return uvloop.run(run())


def bare_loop(
    *, records: int, wait_seconds: float = WAIT_SECONDS, at_a_time: int = AT_A_TIME
) -> dict[str, float]:
    """What the event loop does with the same waits and nothing else."""

    async def run() -> dict[str, float]:
        left = records

        async def lane() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await asyncio.sleep(wait_seconds)

        span = Span()
        await asyncio.gather(*(lane() for _ in range(at_a_time)))
        return span.end(records)

    return uvloop.run(run())


def held(*, bootstrap: str, group: str, records: int) -> dict[str, float]:
    """Memory with so many records held, above that with the same records handled."""
    from sharegroup.worker import App, Holding, Retry

    async def run() -> dict[str, float]:
        app = App("bench", bootstrap_servers=bootstrap)
        app.share_group(
            group,
            topics="held",
            handler=fail,
            concurrency=64,
            retry=Retry(max_attempts=3, initial_delay="60s", max_delay="60s"),
            holding=Holding(longest_seconds=120.0, records=records),
        )
        async with app:
            assert app.worker is not None
            before = 0.0
            while (state := app.worker.state.groups[0]).held < records:
                if not state.held:
                    gc.collect()
                    before = resident_mib()
                await asyncio.sleep(0.02)
            gc.collect()
            return {"more_mib": resident_mib() - before, "held": float(state.held)}

    return uvloop.run(run())


async def fail(value: bytes) -> None:
    raise TimeoutError("not now")


def resident_mib() -> float:
    """Of this process, now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


# The parent.


class Lines:
    """The measurements, each against one broker."""

    def __init__(self, bootstrap: str, records: int, rounds: int) -> None:
        self._bootstrap = bootstrap
        self._records = records
        self._rounds = rounds
        self._groups = 0

    def nothing(self) -> None:
        bare = [self._measure(bare_client) for _ in range(self._rounds)]
        ours = [self._measure(worker, wait=False) for _ in range(self._rounds)]
        more = _median(ours, "cpu_us") - _median(bare, "cpu_us")
        _say("bare client, accept of each, 100 B", bare)
        _say("async handler that does nothing (>= 60,000/s)", ours)
        sys.stdout.write(f"  over the bare client (<= 8 us): {more:.1f} us of CPU a record\n")

    def waits(self) -> None:
        bare = [in_process(bare_loop, records=self._records) for _ in range(self._rounds)]
        ours = [self._measure(worker, wait=True) for _ in range(self._rounds)]
        share = _median(ours, "per_second") / _median(bare, "per_second")
        _say(f"bare loop, {AT_A_TIME} waits of 10 ms at a time", bare)
        _say(f"handlers that wait 10 ms, {AT_A_TIME} at a time", ours)
        sys.stdout.write(f"  of the bare loop (>= 0.7): {share:.2f}\n")

    def consumed(self) -> None:
        for order_by in (None, "key"):
            ours = [
                self._measure(consumer_group, order_by=order_by, wait_seconds=0.0)
                for _ in range(self._rounds)
            ]
            _say(f"consumer group, nothing, order_by={order_by!r} (>= 100,000/s)", ours)

    def keys(self) -> None:
        waits = {"wait_seconds": KEYED_SECONDS, "at_a_time": KEYED_AT_A_TIME}
        bare = [in_process(bare_loop, records=self._records, **waits) for _ in range(self._rounds)]
        ours = [
            self._measure(consumer_group, order_by="key", wait_seconds=KEYED_SECONDS)
            for _ in range(self._rounds)
        ]
        share = _median(ours, "per_second") / _median(bare, "per_second")
        _say(f"bare loop, {KEYED_AT_A_TIME} waits of 5 ms at a time", bare)
        _say(f"consumer group, {KEYS:,} keys, handlers that wait 5 ms", ours)
        sys.stdout.write(f"  of the bare loop (>= 0.95): {share:.2f}\n")

    def held(self) -> None:
        some = [
            in_process(held, bootstrap=self._bootstrap, group=self._group(), records=HELD)
            for _ in range(self._rounds)
        ]
        more = _median(some, "more_mib")
        sys.stdout.write(f"{HELD:,} records held (<= 100 MiB more): {more:.1f} MiB\n")

    def _measure(self, function: Callable[..., dict[str, Any]], **more: Any) -> dict[str, Any]:
        return in_process(
            function,
            bootstrap=self._bootstrap,
            group=self._group(),
            records=self._records,
            **more,
        )

    def _group(self) -> str:
        self._groups += 1
        return f"bench-{self._groups}"


def _say(what: str, some: list[dict[str, Any]]) -> None:
    per_second, cpu_us = _median(some, "per_second"), _median(some, "cpu_us")
    sys.stdout.write(f"{what}: {per_second:,.0f}/s, {cpu_us:.1f} us of CPU each\n")


def _median(some: list[dict[str, Any]], name: str) -> float:
    return statistics.median(run_[name] for run_ in some)


async def _fill(bootstrap: str, records: int) -> None:
    async with AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS), NewTopic("held", HELD_PARTITIONS)])
        await admin.incremental_alter_configs(
            {
                ConfigResource(ResourceType.GROUP, f"bench-{n}"): [
                    AlterConfig("share.auto.offset.reset", "earliest")
                ]
                for n in range(1, 40)
            }
        )
    async with Producer(bootstrap_servers=bootstrap) as producer:
        for topic, count in ((TOPIC, records), ("held", HELD)):
            for number in range(count):
                key = b"%d" % (number % KEYS)
                if producer.send_now(topic, VALUE, key=key) is None:
                    await producer.send(topic, VALUE, key=key)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.worker")
    parser.add_argument("--records", type=int, default=RECORDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("lines", nargs="*", default=["nothing", "waits", "held"])
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="sharegroup-bench-") as folder,
        ServeProcess(Path(folder) / "data") as broker,
    ):
        uvloop.run(_fill(broker.bootstrap_servers, given.records))
        lines = Lines(broker.bootstrap_servers, given.records, given.rounds)
        for name in given.lines:
            getattr(lines, name)()


if __name__ == "__main__":
    from tests.bench import worker as this  # Children find its functions under this name.

    this.main()
