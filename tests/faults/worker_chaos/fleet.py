"""The application of `tests.faults.worker_chaos.app`, with everything that may run beside it.

    keyed    one topic, two consumer groups in order by key; one of them exactly once, to `outputs`
    outputs  a share group that reads what the transactions have committed
    ticks    a share group, and schedules of each second that send it their runs
    later    a share group whose records wait for an hour, unless a command runs or cancels them

Each group has a folder of journals of its own.  A process ends itself at the point of a transaction
that `CUT` names, as if the machine had chosen this moment.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

from sharegroup.client import Producer
from sharegroup.worker import DeadLetter, Event, Missed, Record, Retry
from sharegroup.worker.transport import offset_transactions
from tests.faults.worker_chaos.app import JOURNALS, app
from tests.faults.worker_chaos.journal import Journal
from tests.faults.worker_chaos.names import (
    CANCELLED,
    CUT,
    ENDING,
    EXACT,
    KEYED,
    LATER,
    OUTPUTS,
    PLAIN,
    SCHEDULES,
    SINK,
    TICKS,
    Point,
)

HANDLING_SECONDS = 0.01
FAILING = 0.02
"""The part of runs that fail, and are tried again in their place."""
CUT_AFTER_MAX = 12
"""A process ends itself in one of so many of its transactions."""
IN_FLIGHT_SECONDS = 0.008

folder = Path(os.environ.get(JOURNALS, "."))
plain, exact, sunk, ticked, later = (
    Journal(folder / group) for group in (PLAIN, EXACT, SINK, TICKS, LATER)
)
IN_PLACE = Retry(max_attempts=20, initial_delay="20ms", max_delay="100ms")
AN_HOUR = Retry(max_attempts=3, initial_delay="1h", multiplier=1, jitter=0)


@app.share_group(SINK, topics=OUTPUTS, concurrency=32)
async def sink(output: str, record: Record) -> None:
    sunk.write("return", int(output.partition(" ")[0]), error=output)


@app.consumer_group(PLAIN, topics=KEYED, order_by="key", concurrency=32, retry=IN_PLACE)
async def in_order(number: int, record: Record) -> None:
    await handle(number, record, plain)


@app.consumer_group(
    EXACT, topics=KEYED, order_by="key", concurrency=32, retry=IN_PLACE, exactly_once=True
)
async def once(number: int, record: Record) -> None:
    async def send() -> None:
        await sink.send(f"{number} {random.getrandbits(64):x}", key=record.key)

    await handle(number, record, exact, send)


async def handle(
    number: int,
    record: Record,
    journal: Journal,
    send: Callable[[], Awaitable[None]] | None = None,
) -> None:
    place = record.topic, record.partition, record.delivery.offset
    journal.write("begin", number, place=place, delivery_count=record.delivery_attempt)
    await asyncio.sleep(random.random() * 2 * HANDLING_SECONDS)
    if send is not None:
        await send()
    if random.random() < FAILING:
        journal.write("raise", number, place=place)
        raise TimeoutError
    journal.write("return", number, place=place)


@app.share_group(TICKS, topics=TICKS, retry=None, dead_letter=None, concurrency=8)
async def tick(text: str, record: Record) -> None:
    assert record.scheduled_run is not None
    ticked.write("return", -1, error=record.scheduled_run.id)


for _number in range(SCHEDULES):
    app.every("1s", to=tick, payload="due", name=f"s{_number}", missed=Missed.ALL)


@app.share_group(
    LATER,
    topics=LATER,
    retry=AN_HOUR,
    retry_tiers=("1s", "1h"),
    dead_letter=DeadLetter(CANCELLED),
    steering=True,
)
async def wait(number: int, record: Record) -> None:
    later.write("begin", number, attempt=record.attempt)
    if record.attempt == 1:
        raise ConnectionError("the bank hung up")
    later.write("return", number, attempt=record.attempt)


def moved(what: str) -> Callable[[Event], None]:
    journals = {PLAIN: plain, EXACT: exact}

    def note(event: Event) -> None:
        if event.group in journals and event.topic == KEYED:
            for partition in event.details["partitions"]:
                journals[event.group].write(what, -1, place=(KEYED, partition, -1))

    return note


for _name in ("assigned", "revoked", "lost"):
    app.on(f"partitions.{_name}")(moved(_name))


# The ends in the middle of a transaction.

cut = Point(os.environ[CUT]) if os.environ.get(CUT) else None
transactions_left = random.randrange(1, CUT_AFTER_MAX)


def end() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("it runs after SIGKILL")


def ends_at(point: Point) -> bool:
    return cut is point and transactions_left <= 0


write_all, commit = offset_transactions.write_all, offset_transactions._commit


async def write_and_end(producer: Producer, records: Any) -> Any:
    global transactions_left
    transactions_left -= 1
    written = await write_all(producer, records)
    if ends_at(Point.PRODUCED):
        end()
    return written


async def commit_and_end(producer: Producer) -> None:
    if ends_at(Point.OFFSETS):
        end()
    (folder / ENDING).touch()
    if ends_at(Point.ENDING):
        asyncio.get_running_loop().call_later(random.random() * IN_FLIGHT_SECONDS, end)
    await commit(producer)
    if ends_at(Point.COMMITTED):
        end()


offset_transactions.write_all = write_and_end
offset_transactions._commit = commit_and_end
