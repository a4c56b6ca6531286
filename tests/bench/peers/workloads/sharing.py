"""P15: consumers in one group on one partition, each of which waits 10 ms for each record.

That is what share groups are for: the work is slow, and more workers than partitions share it.
Each consumer is one of our clients with a connection of its own and handles a record at a time;
all live in one process, whose event loop has little else to do than to wait.  The log has batches
of ten, so that sixteen consumers stay below the default limit of locks.  A batch takes a consumer
a tenth of a second, so it is told to fetch the next one meanwhile, which by default only quicker
applications do.

A consumer alone is what the others are held against, and a few milliseconds decide: it is measured
before and after each number of consumers, and its figure is the mean.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from statistics import fmean
from typing import Any

import uvloop

from sharegroup.client import ShareConsumer
from tests.bench.client_process import Span, in_process
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, OS, Peer
from tests.bench.peers.lines import Against, Line, Measured, Scale, measured
from tests.bench.peers.workloads.log import Log, new_group

CONSUMERS = (1, 2, 4, 8, 16)
WAIT_SECONDS = 0.01
BATCH_RECORDS = 10
POLL_SECONDS = 1.0
FETCH_AHEAD_MS = 1_000
JOIN_SECONDS_MAX = 30.0
REACH = 0.9


def _what(consumers: int) -> str:
    return f"{consumers} on 1 partition, 10 ms of waiting per record: each one's share"


class Sharing:
    """A figure is of one consumer, so that n of them at full speed are a ratio of 1."""

    name = "P15"
    title = "sharing a partition"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS)
    warms_up: tuple[str, ...] = ()
    lines = tuple(
        Line(
            what=_what(consumers),
            unit="records/s",
            higher_is_better=True,
            against=tuple(
                Against(ours=peer, rival=peer, line=_what(1), reach=REACH) for peer in (FSYNC, OS)
            )
            if consumers > 1
            else (),
        )
        for consumers in CONSUMERS
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return self._log(scale).on(peer)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        alone, together = [self._share(peer, scale, 1)], []
        for consumers in CONSUMERS[1:]:
            together.append(self._share(peer, scale, consumers))
            alone.append(self._share(peer, scale, 1))
        return replace(alone[0], value=fmean(result.value for result in alone)), *together

    def _share(self, peer: Peer, scale: Scale, consumers: int) -> Measured:
        with peer.awake() as broker:
            result = in_process(
                client,
                bootstrap=broker.bootstrap_servers,
                broker_pid=broker.pid,
                group=new_group(broker.bootstrap_servers),
                topic=self._log(scale).topic,
                consumers=consumers,
                seconds=scale.waiting_seconds,
            )
        return measured(result["counted"] / result["seconds"] / consumers, result, peer)

    def _log(self, scale: Scale) -> Log:
        """More than any number of consumers handles, joining included."""
        most = int(CONSUMERS[-1] / WAIT_SECONDS * (scale.waiting_seconds + JOIN_SECONDS_MAX / 3))
        return Log(
            topic="slow-work",
            records=most // BATCH_RECORDS * BATCH_RECORDS,
            batch_records=BATCH_RECORDS,
        )


class Desk:
    """What the consumers have done together."""

    def __init__(self, consumers: int) -> None:
        self.working = 0
        self.all_at_work = asyncio.Event()
        self.ended = False
        self.seen: set[int] = set()
        self._consumers = consumers

    def begin(self) -> None:
        """A consumer has its first record."""
        self.working += 1
        if self.working == self._consumers:
            self.all_at_work.set()

    def take(self, offset: int) -> None:
        if offset in self.seen:
            raise BenchError(f"record {offset} came twice")
        self.seen.add(offset)


def client(**arguments: Any) -> dict[str, Any]:
    return uvloop.run(_client(**arguments))


async def _client(
    *, bootstrap: str, broker_pid: int, group: str, topic: str, consumers: int, seconds: int
) -> dict[str, Any]:
    """Count for so many seconds, from the moment when every consumer has records."""
    desk = Desk(consumers)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(consumers):
            tasks.create_task(_work(bootstrap, group, topic, desk))
        async with asyncio.timeout(JOIN_SECONDS_MAX):
            await desk.all_at_work.wait()
        span, before = Span(broker_pid), len(desk.seen)
        await asyncio.sleep(seconds)
        counted, result = len(desk.seen) - before, span.end()
        desk.ended = True
    return {"counted": counted, **result}


async def _work(bootstrap: str, group: str, topic: str, desk: Desk) -> None:
    """One consumer: a record at a time, until the desk closes."""
    idle_since: float | None = None
    async with ShareConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        share_acknowledgement_mode="explicit",
        max_poll_records=BATCH_RECORDS,
        fetch_ahead_ms=FETCH_AHEAD_MS,
    ) as consumer:
        at_work = False
        while not desk.ended:
            records = await consumer.poll(POLL_SECONDS)
            if records and not at_work:
                at_work = True
                desk.begin()
            now = time.monotonic()
            idle_since = None if records else idle_since or now
            if idle_since is not None and now - idle_since > JOIN_SECONDS_MAX:
                raise BenchError(f"no record of {topic} in {JOIN_SECONDS_MAX} s")
            for record in records:
                await asyncio.sleep(WAIT_SECONDS)
                record.accept()
                desk.take(record.offset)
        await consumer.commit()
