"""What is measured of the Python clients, each in a process of its own.

python -m tests.bench.cluster.consumers CLIENT BOOTSTRAP GROUP TOPIC FIRST UNCOUNTED COUNTED
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import uvloop
from confluent_kafka import Message

from sharegroup.client import ShareConsumer
from tests.bench.client_process import Span
from tests.bench.failure import BenchError
from tests.support.confluent_calls import share_consumer

IDLE_SECONDS_MAX = 60.0


class Seen:
    """How many records came.  Looking at each would cost the time that is measured."""

    def __init__(self, expected: int) -> None:
        self.records = 0
        self._expected = expected

    @property
    def complete(self) -> bool:
        """Whether all came; more than all is an error."""
        if self.records > self._expected:
            raise BenchError(f"{self._expected} records expected, {self.records} came")
        return self.records == self._expected

    def add(self, count: int) -> None:
        """What one poll returned."""
        if not count:
            raise BenchError(f"no record in {IDLE_SECONDS_MAX} s after {self.records}")
        self.records += count


def ours(
    *, bootstrap: str, broker_pid: int, group: str, topic: str, records: int, how: str
) -> dict[str, Any]:
    """Take all records with our ShareConsumer: ``implicit``, ``explicit`` or as ``columns``."""

    async def consume() -> dict[str, Any]:
        seen = Seen(records)
        mode: Any = "implicit" if how == "implicit" else "explicit"
        async with ShareConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, share_acknowledgement_mode=mode
        ) as consumer:
            await take(consumer, seen)
            span, first = Span(broker_pid), seen.records
            while not seen.complete:
                await take(consumer, seen)
            await consumer.commit()
            result = span.end()
        return {"counted": records - first, **result}

    async def take_records(consumer: ShareConsumer, seen: Seen) -> None:
        found = await consumer.poll(timeout=IDLE_SECONDS_MAX)
        if how == "explicit":
            for record in found:
                record.accept()
        seen.add(len(found))

    async def take_columns(consumer: ShareConsumer, seen: Seen) -> None:
        batch = await consumer.poll_arrow(timeout=IDLE_SECONDS_MAX)
        seen.add(0 if batch is None else batch.num_rows)
        consumer.accept(batch)

    take = take_columns if how == "columns" else take_records
    return uvloop.run(consume())


def confluents(
    *, bootstrap: str, broker_pid: int, group: str, topic: str, records: int, how: str
) -> dict[str, Any]:
    """Take all records with confluent's ShareConsumer: ``implicit`` or ``explicit``."""
    seen = Seen(records)
    with share_consumer(bootstrap, group, topic, explicit=how == "explicit") as consumer:

        def take() -> None:
            found = polled(consumer)
            if how == "explicit":
                for message in found:
                    consumer.acknowledge(message)
            seen.add(len(found))

        take()
        span, first = Span(broker_pid), seen.records
        while not seen.complete:
            take()
        errors = [error for error in consumer.commit_sync(IDLE_SECONDS_MAX).values() if error]
        result = span.end()
    if errors:
        raise BenchError(f"the last commit failed: {errors}")
    return {"counted": records - first, **result}


def polled(consumer: Any) -> list[Message]:
    """What confluent's client returns next; nothing when nothing comes in time."""
    limit = time.monotonic() + IDLE_SECONDS_MAX
    while not (found := consumer.poll(1.0)):
        if time.monotonic() > limit:
            return []
    if error := found[0].error() or found[-1].error():
        raise BenchError(f"an error came instead of a record: {error}")
    return list(found)


# Delays of records whose values are readings of the monotonic clock.


async def _our_delays(bootstrap: str, group: str, topic: str, delays: Delays) -> None:
    async with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        while not delays.complete:
            records = await consumer.poll(timeout=IDLE_SECONDS_MAX)
            delays.add([record.value for record in records])


def _their_delays(bootstrap: str, group: str, topic: str, delays: Delays) -> None:
    with share_consumer(bootstrap, group, topic) as consumer:
        while not delays.complete:
            delays.add([message.value() for message in polled(consumer)])


class Delays:
    """Says "ready" after the first records, passes over some, and counts the others."""

    def __init__(
        self,
        first: int,
        uncounted: int,
        counted: int,
        *,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._passed, self._first = 0, first
        self._before = first + uncounted
        self._counted = counted
        self._now_ns = now_ns
        self.nanoseconds: list[int] = []

    @property
    def complete(self) -> bool:
        return len(self.nanoseconds) >= self._counted

    def add(self, values: list[bytes | None]) -> None:
        """What one poll returned, just now."""
        now_ns = self._now_ns()
        if not values:
            raise BenchError(f"no record in {IDLE_SECONDS_MAX} s after {self._passed}")
        for value in values:
            self._passed += 1
            if self._passed == self._first:
                print("ready", flush=True)
            if self._passed > self._before and value is not None:
                self.nanoseconds.append(now_ns - int(value))


def main(client: str, bootstrap: str, group: str, topic: str, *counts: str) -> None:
    """In the consumer's process: its delays, one on a line."""
    delays = Delays(*map(int, counts))
    if client == "ours":
        uvloop.run(_our_delays(bootstrap, group, topic, delays))
    else:
        _their_delays(bootstrap, group, topic, delays)
    print("\n".join(map(str, delays.nanoseconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
