"""Our own ShareConsumer beside confluent's: the same broker, the same log, in the same run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

from sharegroup.client import Record, ShareConsumer
from tests.bench.client_process import Span, in_process
from tests.bench.lines import BenchError, Line, Measured, Scale
from tests.bench.peers import Peer
from tests.bench.workloads import share_consume
from tests.bench.workloads.share_consume import (
    IDLE_SECONDS_MAX,
    TOPIC,
    Coverage,
    as_rate,
    new_group,
)

THEIR_BATCHES = "confluent ShareConsumer in the same run, implicit batches"
THEIR_EACH = "confluent ShareConsumer in the same run, explicit acknowledge of each"


class OurConsumer:
    """All clients in each round, one after the other."""

    name = "our-consumer"
    warms_up = False
    lines = (
        *(
            Line(
                what=f"our ShareConsumer, {what}, 100 B, 500 records a batch",
                unit="records/s",
                higher_is_better=True,
                reach_fsync=reach,
                reach_os=reach,
                rival=rival,
            )
            for what, reach, rival in (
                ("implicit batches", 0.4, THEIR_BATCHES),
                ("explicit accept of each", 0.4, THEIR_EACH),
                ("poll_arrow() and accept of its batch", 1.0, THEIR_BATCHES),
            )
        ),
        *(
            Line(what=what, unit="records/s", higher_is_better=True, reach_fsync=0, reach_os=0)
            for what in (THEIR_BATCHES, THEIR_EACH)
        ),
    )

    def applies_to(self, peer: Peer) -> bool:
        return peer.ours

    def prepare(self, peer: Peer, scale: Scale) -> str:
        return share_consume.prepare_log(peer, scale)

    def measure(self, peer: Peer, scale: Scale) -> tuple[Measured, ...]:
        measured = []
        for function in (batches, each, arrow, their_batches, their_each):
            with peer.awake() as broker:
                result = in_process(
                    function,
                    bootstrap=broker.bootstrap,
                    broker_pid=broker.pid,
                    group=new_group(broker.bootstrap),
                    records=scale.records,
                )
            measured.append(as_rate(result, peer))
        return tuple(measured)


def their_batches(**arguments: Any) -> dict[str, Any]:
    return share_consume.client(explicit=False, **arguments)


def their_each(**arguments: Any) -> dict[str, Any]:
    return share_consume.client(explicit=True, **arguments)


def batches(**arguments: Any) -> dict[str, Any]:
    return uvloop.run(_consume("implicit", _take_batch, **arguments))


def each(**arguments: Any) -> dict[str, Any]:
    return uvloop.run(_consume("explicit", _take_each, **arguments))


def arrow(**arguments: Any) -> dict[str, Any]:
    return uvloop.run(_consume("explicit", _take_arrow, **arguments))


Take = Callable[[ShareConsumer, Coverage], Awaitable[None]]


async def _take_batch(consumer: ShareConsumer, seen: Coverage) -> None:
    _see(seen, await consumer.poll(timeout=IDLE_SECONDS_MAX))


async def _take_each(consumer: ShareConsumer, seen: Coverage) -> None:
    records = await consumer.poll(timeout=IDLE_SECONDS_MAX)
    for record in records:
        record.accept()
    _see(seen, records)


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


async def _consume(
    mode: Any, take: Take, *, bootstrap: str, broker_pid: int, group: str, records: int
) -> dict[str, Any]:
    seen = Coverage(records)
    async with ShareConsumer(
        TOPIC, bootstrap_servers=bootstrap, group_id=group, share_acknowledgement_mode=mode
    ) as consumer:
        await take(consumer, seen)
        span, first = Span(broker_pid), seen.records
        while not seen.complete:
            await take(consumer, seen)
        await consumer.commit()
        result = span.end()
    return {"counted": records - first, **result}
