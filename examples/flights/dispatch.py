"""The workers: an application with one handler, which takes flights and keeps a ledger.

    python -m examples.flights.dispatch BOOTSTRAP LEDGER

    with a departure time      done
    without a departure time   retried with growing delays; a dead letter after the fifth attempt
    unreadable                 a dead letter at once, byte for byte

`application` declares all of that. The worker implements retries, dead letters, locks, and the
clean stop on SIGTERM.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from examples.flights.ledger import Begun, Ended, LedgerWriter
from examples.flights.names import (
    ATTEMPTS,
    BATCH_RECORDS,
    DEAD,
    DISPATCH,
    FLIGHTS,
)
from sharegroup.worker import App, Batching, DeadLetter, Event, Record, Retry

WORK_SECONDS = 0.005
"""The time to process a batch, in place of a database or service that a real worker waits for.

During this time the worker holds records, so that ``kill -9`` can interrupt a batch.
"""
BATCH_SECONDS = 0.005


class NotDeparted(Exception):
    """The flight has no departure time."""


@dataclass
class Flight:
    """The fields of a flight that a worker uses."""

    carrier: str
    flight: int
    dep_time: int | None


def application(bootstrap_servers: str, ledger: LedgerWriter) -> App:
    """Return the application of one worker."""
    app = App(DISPATCH, bootstrap_servers=bootstrap_servers)
    batches = count(1)

    @app.share_group(
        DISPATCH,
        topics=FLIGHTS,
        batch=Batching(size=BATCH_RECORDS, wait_seconds=BATCH_SECONDS),
        concurrency=2,
        retry=Retry(
            max_attempts=ATTEMPTS, initial_delay="100ms", multiplier=2, retry_on=(NotDeparted,)
        ),
        dead_letter=DeadLetter(DEAD),
    )
    async def dispatch(flights: list[Flight], records: list[Record]) -> list[NotDeparted | None]:
        batch = next(batches)
        ledger.begun(batch, [_begun(record) for record in records])
        await asyncio.sleep(WORK_SECONDS)
        ends = [None if flight.dep_time is not None else NotDeparted() for flight in flights]
        ledger.ended(
            batch,
            [
                Ended(record.partition, record.offset, end is None)
                for record, end in zip(records, ends, strict=True)
            ],
            wall_ms=time.time_ns() // 1_000_000,
        )
        return ends

    @app.on("record.dead_lettered")
    def buried(event: Event) -> None:
        ledger.buried(*_origin(event), event.details["reason"])

    @app.on("worker.started")
    def started(_event: Event) -> None:
        ledger.started()

    return app


def _begun(record: Record) -> Begun:
    _, partition, offset, produced_ms = record.origin
    return Begun(partition, offset, record.attempt, record.delivery_attempt, produced_ms)


def _origin(event: Event) -> tuple[int, int]:
    """Return partition and offset of the flight, also if it was delivered from a retry topic."""
    if event.record is None:  # No handler was called, so this is not a retry.
        return event.partition, event.offset
    return event.record.partition, event.record.offset


if __name__ == "__main__":
    # Thousands of cancelled flights would fill the log, and the ledger has them already.
    logging.basicConfig(level=logging.ERROR)
    _bootstrap, _path = sys.argv[1:]
    sys.exit(application(_bootstrap, LedgerWriter(Path(_path))).run())
