"""The application under trial: a consumer group in order by key that keeps a journal."""

from __future__ import annotations

import asyncio
import os
import random
import time

from sharegroup.worker import App, Event, Record, Retry
from tests.faults.consumer_chaos.journal import OUTPUTS, PARTITIONS, TOPIC, Kind, line

HANDLING_SECONDS_MAX = 0.01
FAILING = 0.02
"""The part of runs that fail, and are tried again in their place."""

IS_EXACT = os.environ.get("EXACTLY_ONCE") == "1"

app = App("consumer-chaos", grace="2s")
app.topic(TOPIC, partitions=PARTITIONS)
app.topic(OUTPUTS, partitions=PARTITIONS)
_journal = os.open(
    f"{os.environ['JOURNAL']}/{os.getpid()}.journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND
)


def write(kind: Kind, partition: int, key: str = "", number: int = -1) -> None:
    os.write(_journal, line(kind, time.monotonic_ns(), partition, key, number))


def note(kind: Kind, event: Event) -> None:
    for partition in event.details["partitions"]:
        if event.topic == TOPIC:
            write(kind, partition)


app.on("partitions.assigned")(lambda event: note(Kind.ASSIGNED, event))
app.on("partitions.revoked")(lambda event: note(Kind.GONE, event))
app.on("partitions.lost")(lambda event: note(Kind.GONE, event))


@app.share_group("chaos-sink", topics=OUTPUTS)
async def sink(line: str) -> None:
    """Only its sender is used: the trial runs the other group alone."""


@app.consumer_group(
    "chaos",
    topics=TOPIC,
    order_by="key",
    concurrency=32,
    exactly_once=IS_EXACT,
    retry=Retry(max_attempts=20, initial_delay="20ms", max_delay="100ms"),
)
async def handle(number: int, record: Record) -> None:
    key = (record.key or b"").decode()
    write(Kind.BEGUN, record.partition, key, number)
    await asyncio.sleep(random.random() * HANDLING_SECONDS_MAX)
    if IS_EXACT:
        await sink.send(f"{key} {number}", key=key)
    if random.random() < FAILING:
        write(Kind.FAILED, record.partition, key, number)
        raise TimeoutError
    write(Kind.FINISHED, record.partition, key, number)
