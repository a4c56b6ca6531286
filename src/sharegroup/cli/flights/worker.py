"""A worker: takes flights from the share group, decides about each, and keeps its ledger.

    python -m sharegroup.cli.flights.worker BOOTSTRAP LEDGER

    readable, has a departure time   accept
    readable, cancelled              release, each time; the delivery limit ends that
    unreadable                       copy to the dead letters with the reason, then reject

The copy comes first and is durable before the reject goes out: killed in between, the worker
leaves one copy too many, never one too few.

SIGTERM lets it finish its batch, give back what it holds and leave the group.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import uvloop

from sharegroup.cli.flights.ledger import Delivered, LedgerWriter, Sent
from sharegroup.cli.flights.names import (
    DEAD,
    DELIVERY_COUNT,
    DISPATCH,
    FLIGHTS,
    ORIGIN_GROUP,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    ORIGIN_TOPIC,
    POLL_RECORDS_MAX,
    WHY,
)
from sharegroup.client import AcknowledgeType, Producer, Record, ShareConsumer, TopicPartition

WORK_SECONDS = 0.005
"""What a batch costs beside the reading of it: a database, a service, whatever a real worker
waits for.  It is then that `kill -9` hits one with records in its hands."""
POLL_SECONDS = 0.5
"""How long a poll waits, and so how late a worker notices that it should stop."""


async def work(bootstrap: str, path: Path) -> None:
    """Work until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    ledger = LedgerWriter(path)
    async with (
        Producer(bootstrap_servers=bootstrap, client_id=path.stem, linger_ms=0) as dead_letters,
        ShareConsumer(
            FLIGHTS,
            bootstrap_servers=bootstrap,
            client_id=path.stem,
            group_id=DISPATCH,
            share_acknowledgement_mode="explicit",
            max_poll_records=POLL_RECORDS_MAX,
        ) as consumer,
    ):
        ledger.started()
        batch = 0
        while not stop.is_set():
            records = await consumer.poll(timeout=POLL_SECONDS)
            if records:
                batch += 1
                await _process(records, batch, consumer, dead_letters, ledger)
    ledger.close()


async def _process(
    records: Sequence[Record],
    batch: int,
    consumer: ShareConsumer,
    dead_letters: Producer,
    ledger: LedgerWriter,
) -> None:
    """One batch, from delivery to the broker's answer; see `ledger` for what is kept when."""
    ledger.delivered(
        batch,
        [
            Delivered(one.partition, one.offset, one.delivery_count, one.timestamp_ms)
            for one in records
        ],
    )
    outcomes, unreadable = [], []
    for record in records:
        outcome, why = decide(record.value)
        if why is not None:
            unreadable.append((record, why))
        record.settle(outcome)
        outcomes.append(Sent(record.partition, record.offset, int(outcome)))
    await asyncio.sleep(WORK_SECONDS)
    await _bury(unreadable, dead_letters)
    ledger.sent(batch, outcomes)
    results = await consumer.commit()
    errors: dict[int, str | None] = {}
    for partition in {record.partition for record in records}:
        error = results[TopicPartition(FLIGHTS, partition)]
        errors[partition] = None if error is None else f"{type(error).__name__}: {error}"
    ledger.answered(batch, errors, wall_ms=time.time_ns() // 1_000_000)


def decide(value: bytes) -> tuple[AcknowledgeType, str | None]:
    """What becomes of a flight, and why if it can't be read."""
    try:
        flight = json.loads(value)
    except ValueError as error:
        return AcknowledgeType.REJECT, str(error)
    if flight["dep_time"] is None:
        return AcknowledgeType.RELEASE, None
    return AcknowledgeType.ACCEPT, None


async def _bury(unreadable: Sequence[tuple[Record, str]], dead_letters: Producer) -> None:
    """Copy records to the dead letters; returns when all are durable."""
    copies = [
        await dead_letters.send(
            DEAD,
            record.value,
            key=record.key,
            headers=[
                (ORIGIN_TOPIC, record.topic.encode()),
                (ORIGIN_PARTITION, str(record.partition).encode()),
                (ORIGIN_OFFSET, str(record.offset).encode()),
                (ORIGIN_GROUP, DISPATCH.encode()),
                (DELIVERY_COUNT, str(record.delivery_count).encode()),
                (WHY, why.encode()),
            ],
        )
        for record, why in unreadable
    ]
    for copy in copies:
        await copy


if __name__ == "__main__":
    uvloop.run(work(sys.argv[1], Path(sys.argv[2])))
