"""The application: handlers that fail, hang and crash as the record's number says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import NoReturn

from sharegroup.worker import App, DeadLetter, Event, Record, Reject, Retry
from sharegroup.worker.parts import ShareGroupLimits
from tests.faults.worker_chaos.journal import ALONE, Journal, feel_the_loop, feel_the_pulse
from tests.faults.worker_chaos.names import APP
from tests.faults.worker_chaos.records import (
    ATTEMPTS,
    CRUNCH,
    DEAD,
    GROUP,
    HANDLING_SECONDS_MAX,
    JOBS,
    Kind,
    Sent,
)

BOOTSTRAP, JOURNALS, ANNOUNCES = "CHAOS_BOOTSTRAP", "CHAOS_JOURNALS", "CHAOS_ANNOUNCES"
ALONE_FROM = ShareGroupLimits(deliveries=10).alone_from
"""The worker asks for ten deliveries."""
TIERS = ("1s", "3s")
"""Shorter than in production, so that a retry of some seconds walks over several."""
TOLD = (
    "record.postponed", "record.dead_lettered", "record.released", "record.timed_out",
    "record.lock_lost", "record.due", "record.put_aside",
)  # fmt: skip
RETRY = Retry(
    max_attempts=ATTEMPTS,
    initial_delay="300ms",
    multiplier=5,
    max_delay="8s",
    dont_retry_on=(ValueError,),
)
DEAD_LETTER = DeadLetter(DEAD)

journal = Journal(Path(os.environ.get(JOURNALS, ".")))
app = App(
    APP,
    bootstrap_servers=os.environ.get(BOOTSTRAP, "127.0.0.1:9092"),
    grace="5s",
    announce=os.environ.get(ANNOUNCES) == "1",
)


@dataclass
class Work:
    """What is sent."""

    number: int
    kind: Kind


@app.share_group(
    GROUP,
    topics=JOBS,
    concurrency=32,
    retry=RETRY,
    dead_letter=DEAD_LETTER,
    max_handling=HANDLING_SECONDS_MAX,
    retry_tiers=TIERS,
)
async def job(work: Work, record: Record) -> None:
    """On the event loop."""
    with journaled(work, record):
        match work.kind:
            case Kind.SLOW:
                await asyncio.sleep(0.01 + work.number % 10 / 100)
            case Kind.FLAKY if record.attempt <= Sent(work.number, work.kind).failures:
                raise ConnectionError(f"attempt {record.attempt}")
            case Kind.HANGING if record.attempt == 1:
                await asyncio.Event().wait()
            case Kind.STUBBORN:
                raise TimeoutError(f"attempt {record.attempt}")
            case Kind.FATAL:
                raise ValueError(f"number {work.number}")
            case Kind.REFUSED:
                raise Reject(f"number {work.number}")
            case Kind.EXITING:
                crash()


@app.share_group(
    GROUP,
    topics=CRUNCH,
    processes=1,
    retry=RETRY,
    dead_letter=DEAD_LETTER,
    retry_tiers=TIERS,
)
def crunch(work: Work, record: Record) -> None:
    """In a process of its own."""
    with journaled(work, record):
        if work.kind is Kind.CRASHING:
            crash()


_tasks: set[asyncio.Future[None]] = set()


@app.on_startup
def begin() -> None:
    feel_the_pulse(journal)
    _tasks.add(asyncio.ensure_future(feel_the_loop(journal)))


@contextmanager
def journaled(work: Work, record: Record) -> Iterator[None]:
    """Write down that the handler begins, and how it ends."""
    about = facts(record)
    if record.story.suspicions or record.delivery_attempt >= ALONE_FROM:
        worker = parent_process()
        pid = None if worker is None else worker.pid
        journal.write(ALONE, work.number, of_pid=pid, **about)
    journal.write("begin", work.number, **about)
    try:
        yield
    except BaseException as error:
        journal.write("raise", work.number, error=type(error).__name__, **about)
        raise
    journal.write("return", work.number, **about)


def facts(record: Record) -> dict[str, object]:
    delivery, history = record.delivery, record.history
    return {
        "attempt": record.attempt,
        "delivery_count": record.delivery_attempt,
        "place": (delivery.topic, delivery.partition, delivery.offset),
        "due_ms": record.story.due_ms,
        "failed_ms": history[-1].at_ms if history else None,
    }


def crash() -> NoReturn:
    """No exception, no cleaning up: as a fault in an extension module."""
    os._exit(66)


def write_down(event: Event) -> None:
    """What the worker says about a record, beside what its handler did."""
    if event.group not in ("", GROUP):
        return
    record = event.record
    number = int(record.key) if record is not None else -1
    place = (event.topic, event.partition, event.offset)
    error = "" if event.error is None else type(event.error).__name__
    journal.write(event.name, number, attempt=event.attempt, place=place, error=error)


for _name in TOLD:
    app.on(_name, write_down)
