"""confluent's ShareConsumer reads a whole partition through a new share group.

The clock starts with the first batch that arrives, whose records don't count: joining a new
group takes Kafka five seconds by design and has a line of its own.  It ends when the broker
has confirmed the acknowledgement of the last record.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import count
from typing import Any

from confluent_kafka import Message

from tests.bench.client_process import Span, in_process
from tests.bench.equal_batches import describe_log, fill
from tests.bench.lines import BenchError, Line, Measured, Scale
from tests.bench.peers import Peer
from tests.confluent_calls import set_group, share_consumer

TOPIC = "equal-batches"
IDLE_SECONDS_MAX = 30.0
_groups = count(1)
_filled: set[str] = set()


class ShareConsume:
    """One of the two modes of acknowledgement."""

    warms_up = True

    def __init__(self, *, explicit: bool) -> None:
        mode = "explicit acknowledge of each" if explicit else "implicit"
        self.name = "explicit" if explicit else "implicit"
        self._explicit = explicit
        self.lines = (
            Line(
                what=f"confluent ShareConsumer, {mode}, 100 B, 500 records a batch, 1 partition",
                unit="records/s",
                higher_is_better=True,
                reach_fsync=1.2 if explicit else 1.3,
                reach_os=1.4 if explicit else 1.6,
            ),
        )

    def applies_to(self, peer: Peer) -> bool:
        return True

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return prepare_log(peer, scale)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        with peer.awake() as broker:
            group = new_group(broker.bootstrap)
            result = in_process(
                client,
                bootstrap=broker.bootstrap,
                broker_pid=broker.pid,
                group=group,
                records=scale.records,
                explicit=self._explicit,
            )
        return (as_rate(result, peer),)


def prepare_log(peer: Peer, scale: Scale) -> str:
    """The log that all consumption workloads read; written once per peer."""
    if peer.name not in _filled:
        with peer.awake() as broker:
            fill(
                broker.bootstrap,
                TOPIC,
                records=scale.records,
                record_bytes=scale.record_bytes,
                batch_records=scale.batch_records,
            )
        _filled.add(peer.name)
    return f"log of {peer.name}: {describe_log(peer.data)}"


def new_group(bootstrap: str) -> str:
    """A share group that nobody used, beginning at the first record."""
    group = f"bench-{next(_groups)}"
    set_group(bootstrap, group, auto_offset_reset="earliest")
    return group


def as_rate(result: dict[str, Any], peer: Peer) -> Measured:
    """A client's result as records per second."""
    return Measured(
        value=result["counted"] / result["seconds"],
        broker_cpu_s=result["broker_cpu_s"],
        client_cpu_s=result["client_cpu_s"],
        syncs=peer.syncs(),
    )


def client(
    *, bootstrap: str, broker_pid: int, group: str, records: int, explicit: bool
) -> dict[str, Any]:
    """In the client's process: take every record once."""
    seen = Coverage(records)
    with share_consumer(bootstrap, group, TOPIC, explicit=explicit) as consumer:
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
