"""P19: plain consumers in a consumer group, from the first record on: Java, confluent and ours.

All clients have their default settings, confluent's also a short ``fetch.queue.backoff.ms``: by
default it sleeps for a second whenever 100,000 records wait for the program.  Each reads a log of
one partition from its beginning, in a group of its own; the time to join does not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import uvloop
from confluent_kafka import Consumer as ConfluentConsumer

from tests.bench.client_process import Span, in_process
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Peer
from tests.bench.peers.lines import Line, Measured, Scale, as_rate, with_kafka
from tests.bench.peers.workloads import java_tools
from tests.bench.peers.workloads.log import Log
from tests.bench.peers.workloads.share_consume import main_log
from tests.support.confluent_calls import dotted

POLL_RECORDS = 500
IDLE_SECONDS_MAX = 30.0
BACKOFF_MS = 10
JAVA, CONFLUENT, OWN = "ConsumerPerformance", "confluent Consumer", "our Consumer"
TUNED = f"{CONFLUENT} with fetch.queue.backoff.ms={BACKOFF_MS}"
REACH = {
    JAVA: with_kafka(1.0, 1.0),
    CONFLUENT: with_kafka(0.7, 0.7),
    TUNED: with_kafka(),
    OWN: with_kafka(),
}
SIZES = ((100, "100 B"), (1_024, "1 KiB"))
_groups = count(1)


class PlainConsume:
    """Classic groups, client defaults, records of 100 bytes and of 1 KiB."""

    name = "P19"
    title = "plain consume in a consumer group"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = (KAFKA,)
    lines = tuple(
        Line(
            what=f"{client}, consumer group, {size}",
            unit="records/s",
            higher_is_better=True,
            against=against,
        )
        for _, size in SIZES
        for client, against in REACH.items()
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return "; ".join(_log(scale, size).on(peer) for size, _ in SIZES)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        found = []
        for size, _ in SIZES:
            log = _log(scale, size)
            for client in REACH:
                with peer.awake() as broker:
                    group = f"plain-{next(_groups)}"
                    if client == JAVA:
                        result = java_tools.consume(broker, group, log.topic, log.records)
                    else:
                        result = in_process(
                            CONSUME[client],
                            bootstrap=broker.bootstrap_servers,
                            broker_pid=broker.pid,
                            group=group,
                            topic=log.topic,
                            records=log.records,
                        )
                found.append(as_rate(result, peer))
        return tuple(found)


def _log(scale: Scale, record_bytes: int) -> Log:
    if record_bytes == scale.record_bytes:
        return main_log(scale)
    return Log(
        topic=f"plain-{record_bytes}",
        records=scale.records // 4,
        record_bytes=record_bytes,
        batch_records=scale.batch_records // 5,
    )


def confluent(
    *, bootstrap: str, broker_pid: int, group: str, topic: str, records: int, **settings: Any
) -> dict[str, Any]:
    """In the client's process: consume everything, 500 records at a time."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **dotted(settings),
        }
    )
    consumer.subscribe([topic])
    first = len(consumer.consume(1, IDLE_SECONDS_MAX))
    taken, span = first, Span(broker_pid)
    while taken < records:
        messages = consumer.consume(min(POLL_RECORDS, records - taken), IDLE_SECONDS_MAX)
        if not messages:
            raise BenchError(f"{taken} of {records} records of {topic} came")
        taken += len(messages)
    result = span.end()
    consumer.close()
    return {"counted": taken - first, **result}


def tuned(**arguments: Any) -> dict[str, Any]:
    """The same with a short sleep when the queue is full."""
    return confluent(**arguments, fetch_queue_backoff_ms=BACKOFF_MS)


def own(**arguments: Any) -> dict[str, Any]:
    """The same with our consumer."""
    return uvloop.run(_own(**arguments))


CONSUME: Mapping[str, Callable[..., dict[str, Any]]] = {
    CONFLUENT: confluent,
    TUNED: tuned,
    OWN: own,
}


async def _own(
    *, bootstrap: str, broker_pid: int, group: str, topic: str, records: int
) -> dict[str, Any]:
    # Imported here, because `paired` loads this module with source trees that are older than it.
    from sharegroup.client import Consumer

    async with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
    ) as consumer:
        first = len(await consumer.poll(IDLE_SECONDS_MAX))
        taken, span = first, Span(broker_pid)
        while taken < records:
            async with asyncio.timeout(IDLE_SECONDS_MAX):
                taken += len(await consumer.poll(IDLE_SECONDS_MAX))
        return {"counted": taken - first, **span.end()}
