"""The workers: an application with one handler, which takes flights and keeps a ledger.

    python -m sharegroup.cli.flights.dispatch BOOTSTRAP LEDGER

    has a departure time   done
    has none               tried again a little later, each time later than the last; given up
                           after the fifth, and then with the dead letters
    unreadable             with the dead letters at once, byte for byte

All of that is said in `application`; retries, dead letters, locks, and the clean stop on SIGTERM
are the worker's.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sharegroup.cli.flights.ledger import Begun, Ended, LedgerWriter
from sharegroup.cli.flights.names import (
    ATTEMPTS,
    BATCH_RECORDS,
    DEAD,
    DISPATCH,
    FLIGHTS,
)
from sharegroup.worker import App, Batching, DeadLetter, Event, Record, Retry

WORK_SECONDS = 0.005
"""What a batch costs beside the reading of it: a database, a service, whatever a real worker
waits for.  It is then that `kill -9` hits one with records in its hands."""
BATCH_SECONDS = 0.005


class NotDeparted(Exception):
    """The flight has no departure time."""


@dataclass
class Flight:
    """What a worker wants to know of a flight."""

    carrier: str
    flight: int
    dep_time: int | None


def application(bootstrap: str, ledger: LedgerWriter) -> App:
    """One worker."""
    app = App(DISPATCH, bootstrap=bootstrap)
    batches = count(1)

    @app.share_group(
        DISPATCH,
        topics=FLIGHTS,
        batch=Batching(size=BATCH_RECORDS, wait_seconds=BATCH_SECONDS),
        concurrency=2,
        retry=Retry(attempts=ATTEMPTS, first="100ms", factor=2, on=(NotDeparted,)),
        dead_letter=DeadLetter(DEAD),
    )
    async def dispatch(flights: list[Flight], records: list[Record]) -> list[NotDeparted | None]:
        batch = next(batches)
        ledger.begun(batch, [_begun(record) for record in records])
        await asyncio.sleep(WORK_SECONDS)
        ends = [None if one.dep_time is not None else NotDeparted() for one in flights]
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
    """Where the flight lies: elsewhere than the delivery, if it was written to a retry topic."""
    if event.record is None:  # No handler was called for it, so it was not tried before.
        return event.partition, event.offset
    return event.record.partition, event.record.offset


if __name__ == "__main__":
    # Cancelled flights by the thousand are no news here: the ledger has them.
    logging.basicConfig(level=logging.ERROR)
    _bootstrap, _path = sys.argv[1:]
    sys.exit(application(_bootstrap, LedgerWriter(Path(_path))).run())
