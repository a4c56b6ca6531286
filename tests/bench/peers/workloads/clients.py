"""P11: our own ShareConsumer beside confluent's, on the same broker and the same log.

On our broker and on Apache Kafka, for a client that is fast on one of them alone is no client for
Kafka.  All clients in each round, one after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from sharegroup.client import Record, ShareConsumer
from tests.bench.client_process import Span, in_process
from tests.bench.failure import BenchError
from tests.bench.peers.brokers import FSYNC, KAFKA, OS, Peer
from tests.bench.peers.lines import Against, Line, Measured, Scale, as_rate
from tests.bench.peers.workloads import share_consume
from tests.bench.peers.workloads.log import new_group
from tests.bench.peers.workloads.share_consume import IDLE_SECONDS_MAX, Coverage, main_log

THEIR_BATCHES = "confluent ShareConsumer in the same run, implicit batches"
THEIR_EACH = "confluent ShareConsumer in the same run, explicit acknowledge of each"


class Clients:
    """Records as objects, and as columns."""

    name = "P11"
    title = "our client beside confluent's"
    headline = False
    peers: tuple[str, ...] = (FSYNC, OS, KAFKA)
    warms_up: tuple[str, ...] = (KAFKA,)
    lines = (
        *(
            Line(
                what=f"our ShareConsumer, {what}, 100 B, batches of 500",
                unit="records/s",
                higher_is_better=True,
                against=tuple(
                    Against(ours=peer, rival=peer, reach=reach, line=rival)
                    for peer in (FSYNC, OS, KAFKA)
                ),
            )
            for what, reach, rival in (
                ("implicit batches", 0.5, THEIR_BATCHES),
                ("explicit accept of each", 0.5, THEIR_EACH),
                ("poll_arrow() and accept of its batch", 1.3, THEIR_BATCHES),
            )
        ),
        *(
            Line(what=what, unit="records/s", higher_is_better=True, against=())
            for what in (THEIR_BATCHES, THEIR_EACH)
        ),
    )

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return main_log(scale).on(peer)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured | None, ...]:
        log = main_log(scale)
        found = []
        for function in (batches, each, arrow, their_batches, their_each):
            with peer.awake() as broker:
                result = in_process(
                    function,
                    bootstrap=broker.bootstrap_servers,
                    broker_pid=broker.pid,
                    group=new_group(broker.bootstrap_servers),
                    topic=log.topic,
                    records=log.records,
                )
            found.append(as_rate(result, peer))
        return tuple(found)


def their_batches(**arguments: Any) -> dict[str, Any]:
    return share_consume.client(explicit=False, **arguments)


def their_each(**arguments: Any) -> dict[str, Any]:
    return share_consume.client(explicit=True, **arguments)


def batches(**arguments: Any) -> dict[str, Any]:
    return uvloop.run(consume("implicit", _take_batch, **arguments))


def each(**arguments: Any) -> dict[str, Any]:
    return uvloop.run(consume("explicit", _take_each, **arguments))


def arrow(**arguments: Any) -> dict[str, Any]:
    return uvloop.run(consume("explicit", _take_arrow, **arguments))


def handled(**arguments: Any) -> dict[str, Any]:
    """For P12: a call of a coroutine for each record, then its accept."""
    return uvloop.run(consume("explicit", _take_handled, **arguments))


Take = Callable[[ShareConsumer, Coverage], Awaitable[None]]


async def _take_batch(consumer: ShareConsumer, seen: Coverage) -> None:
    _see(seen, await consumer.poll(timeout=IDLE_SECONDS_MAX))


async def _take_each(consumer: ShareConsumer, seen: Coverage) -> None:
    records = await consumer.poll(timeout=IDLE_SECONDS_MAX)
    for record in records:
        record.accept()
    _see(seen, records)


async def _take_handled(consumer: ShareConsumer, seen: Coverage) -> None:
    records = await consumer.poll(timeout=IDLE_SECONDS_MAX)
    for record in records:
        await _handle(record)
        record.accept()
    _see(seen, records)


async def _handle(record: Record) -> None:
    """The application, which does nothing."""


async def _take_arrow(consumer: ShareConsumer, seen: Coverage) -> None:
    batch = await consumer.poll_arrow(timeout=IDLE_SECONDS_MAX)
    if batch is None:
        raise BenchError(f"no record in {IDLE_SECONDS_MAX} s after {seen.records}")
    offsets = batch.column("offset")
    seen.add_range(offsets[0].as_py(), offsets[-1].as_py(), batch.num_rows)
    consumer.accept(batch)


def _see(seen: Coverage, records: list[Record]) -> None:
    if not records:
        raise BenchError(f"no record in {IDLE_SECONDS_MAX} s after {seen.records}")
    seen.add_range(records[0].offset, records[-1].offset, len(records))


async def consume(
    mode: Any,
    take: Take,
    *,
    bootstrap: str,
    broker_pid: int,
    group: str,
    topic: str,
    records: int,
) -> dict[str, Any]:
    """In the client's process: take every record once, from the second batch on by the clock."""
    seen = Coverage(records)
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
