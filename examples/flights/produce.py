"""The process that produces the flights, at a steady rate.

    python -m examples.flights.produce BOOTSTRAP ROWS RECORDS-PER-SECOND LEDGER

Its ledger has lines ``{"produced": n}`` with the number of records that the broker has confirmed.
The last line also has the number of records by kind, counted from the data itself. The checks
compare it with the decisions of the workers.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, deque
from pathlib import Path

import uvloop

from examples.flights.departures import Kind, departures
from examples.flights.ledger import LineWriter
from examples.flights.names import FLIGHTS
from sharegroup.client import Producer, SendFuture

SLICE_RECORDS = 64
"""The number of records sent between two waits that keep the rate."""


async def produce(bootstrap_servers: str, rows: int, rate: float, ledger: LineWriter) -> None:
    """Produce ``rows`` flights; raise the error of the first record that failed."""
    kinds: Counter[Kind] = Counter()
    unconfirmed: deque[SendFuture] = deque()
    confirmed = 0
    begin = time.monotonic()
    async with Producer(bootstrap_servers=bootstrap_servers, client_id="departures") as producer:
        for number, departure in enumerate(departures(rows)):
            if number % SLICE_RECORDS == 0:
                await asyncio.sleep(max(0.0, begin + number / rate - time.monotonic()))
                confirmed += _confirmed(unconfirmed)
                ledger.append({"produced": confirmed})
            kinds[departure.kind] += 1
            future = await producer.send(FLIGHTS, departure.value, key=departure.key)
            unconfirmed.append(future)
        await producer.flush()
        confirmed += _confirmed(unconfirmed)
    assert not unconfirmed, "flush leaves nothing under way"
    ledger.append({"produced": confirmed, "kinds": kinds})


def _confirmed(under_way: deque[SendFuture]) -> int:
    """Remove the confirmed records from the front and return their number; raise on an error."""
    count = 0
    while under_way and under_way[0].done():
        under_way.popleft().result()
        count += 1
    return count


if __name__ == "__main__":
    _bootstrap, _rows, _rate, _path = sys.argv[1:]
    uvloop.run(produce(_bootstrap, int(_rows), float(_rate), LineWriter(Path(_path))))
