"""P1, P2, P3: confluent's ShareConsumer reads a whole partition through a new share group.

The clock starts with the first batch that arrives, whose records don't count: joining a new
group takes Kafka five seconds by design and has a workload of its own.  It ends when the broker
has confirmed the acknowledgement of the last record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import Message

from tests.bench.client_process import Span, in_process
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FLUSHED, FSYNC, KAFKA, OS, Peer
from tests.bench.peers.lines import Line, Measured, Scale, as_rate, with_kafka
from tests.bench.peers.workloads.log import Log, new_group
from tests.support.confluent_calls import share_consumer

IDLE_SECONDS_MAX = 30.0


def main_log(scale: Scale) -> Log:
    """The log that most consumption workloads read."""
    return Log(
        topic="equal-batches",
        records=scale.records,
        record_bytes=scale.record_bytes,
        batch_records=scale.batch_records,
    )


class Implicit:
    """P1: a poll accepts what the poll before it returned; batches of three sizes."""

    name = "P1"
    title = "share consume, implicit, 100 B"
    headline = True
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA, FLUSHED)
    warms_up: tuple[str, ...] = (KAFKA, FLUSHED)
    lines = tuple(
        Line(
            what=f"confluent ShareConsumer, implicit, 100 B, batches of {size:,}, 1 partition",
            unit="records/s",
            higher_is_better=True,
            against=with_kafka(*reach, flushes=True),
        )
        for size, reach in ((500, (1.5, 1.9)), (100, (None, None)), (5_000, (None, None)))
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return "; ".join(log.on(peer) for log in self._logs(scale))

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        return tuple(consume(peer, log, explicit=False) for log in self._logs(scale))

    def _logs(self, scale: Scale) -> tuple[Log, ...]:
        fewer = scale.records // 4
        return (
            main_log(scale),
            Log(topic="small-batches", records=fewer, batch_records=100),
            Log(topic="large-batches", records=fewer, batch_records=5_000),
        )


class Explicit:
    """P2: the application acknowledges each record."""

    name = "P2"
    title = "share consume, explicit, 100 B"
    headline = True
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = (KAFKA,)
    lines = (
        Line(
            what="confluent ShareConsumer, explicit acknowledge of each, 100 B, batches of 500",
            unit="records/s",
            higher_is_better=True,
            against=with_kafka(1.3, 1.6),
        ),
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return main_log(scale).on(peer)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        return (consume(peer, main_log(scale), explicit=True),)


class LargeRecords:
    """P3: P1 with records of 1 KiB."""

    name = "P3"
    title = "share consume, implicit, 1 KiB"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = (KAFKA,)
    lines = (
        Line(
            what="confluent ShareConsumer, implicit, 1 KiB, batches of 500, 1 partition",
            unit="records/s",
            higher_is_better=True,
            against=with_kafka(1.5, 1.8),
        ),
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return self._log(scale).on(peer)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        return (consume(peer, self._log(scale), explicit=False),)

    def _log(self, scale: Scale) -> Log:
        return Log(topic="large-records", records=scale.records // 4, record_bytes=1_024)


def consume(peer: Peer, log: Log, *, explicit: bool) -> Measured:
    """Every record of the log once, in a client process of its own."""
    with peer.awake() as broker:
        result = in_process(
            client,
            bootstrap=broker.bootstrap_servers,
            broker_pid=broker.pid,
            group=new_group(broker.bootstrap_servers),
            topic=log.topic,
            records=log.records,
            explicit=explicit,
        )
    return as_rate(result, peer)


def client(
    *,
    bootstrap: str,
    broker_pid: int,
    group: str,
    topic: str,
    records: int,
    explicit: bool,
    **settings: object,
) -> dict[str, Any]:
    """In the client's process: take every record once; ``settings`` are confluent's, with ``_``."""
    seen = Coverage(records)
    with share_consumer(bootstrap, group, topic, explicit=explicit, **settings) as consumer:
        batch = _next(consumer.poll, seen)
        span = Span(broker_pid)
        first = seen.records
        while True:
            if explicit:
                for message in batch:
                    consumer.acknowledge(message)
            if seen.complete:
                break
            batch = _next(consumer.poll, seen)
        errors = [error for error in consumer.commit_sync(IDLE_SECONDS_MAX).values() if error]
        result = span.end()
    if errors:
        raise BenchError(f"the last commit failed: {errors}")
    return {"counted": records - first, **result}


def _next(poll: Any, seen: Coverage) -> Sequence[Message]:
    limit = time.monotonic() + IDLE_SECONDS_MAX
    while not (batch := poll(1.0)):
        if time.monotonic() > limit:
            raise BenchError(f"no record in {IDLE_SECONDS_MAX} s after {seen.records}")
    seen.add(batch)
    return batch


class Coverage:
    """Which offsets arrived: each of the first ``expected`` must, in order and once."""

    def __init__(self, expected: int) -> None:
        self.records = 0
        self._expected = expected

    @property
    def complete(self) -> bool:
        return self.records == self._expected

    def add(self, batch: Sequence[Message]) -> None:
        """Only the ends are looked at: looking costs the client time that is measured."""
        first, last = batch[0], batch[-1]
        if first.error() or last.error():
            raise BenchError(f"an error came instead of a record: {first.error() or last.error()}")
        self.add_range(first.offset(), last.offset(), len(batch))

    def add_range(self, first: int, last: int, count: int) -> None:
        """As many records, of which the first and the last have these offsets."""
        if first != self.records or last != self.records + count - 1:
            raise BenchError(
                f"expected {count} records from offset {self.records}, got {first} to {last}"
            )
        self.records += count
