"""The process that produces the flights, at a steady rate.

    python -m sharegroup.cli.flights.produce BOOTSTRAP ROWS RECORDS-PER-SECOND LEDGER

Its ledger has a line whenever it is asked to wait, ``{"produced": n}`` with the records that
the broker confirmed, and in the end one with what it produced by kind, counted from the data
itself: what the workers decide later is compared with that.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter, deque
from pathlib import Path

import uvloop

from sharegroup.cli.flights.departures import Kind, departures
from sharegroup.cli.flights.ledger import LineWriter
from sharegroup.cli.flights.names import FLIGHTS
from sharegroup.client import Delivery, Producer

SLICE_RECORDS = 64
"""How many records go out between two looks at the clock."""


async def produce(bootstrap: str, rows: int, rate: float, ledger: LineWriter) -> None:
    """Produce ``rows`` flights; an error of any record ends it."""
    kinds: Counter[Kind] = Counter()
    under_way: deque[Delivery] = deque()
    confirmed = 0
    begin = time.monotonic()
    async with Producer(bootstrap_servers=bootstrap, client_id="departures") as producer:
        for number, departure in enumerate(departures(rows)):
            if number % SLICE_RECORDS == 0:
                await asyncio.sleep(max(0.0, begin + number / rate - time.monotonic()))
                confirmed += _confirmed(under_way)
                ledger.append({"produced": confirmed})
            kinds[departure.kind] += 1
            delivery = await producer.send(FLIGHTS, departure.value, key=departure.key)
            under_way.append(delivery)
        await producer.flush()
        confirmed += _confirmed(under_way)
    assert not under_way, "flush leaves nothing under way"
    ledger.append({"produced": confirmed, "kinds": kinds})


def _confirmed(under_way: deque[Delivery]) -> int:
    """Take the records that were confirmed; raises what the broker said of any other."""
    count = 0
    while under_way and under_way[0].done():
        under_way.popleft().result()
        count += 1
    return count


if __name__ == "__main__":
    _bootstrap, _rows, _rate, _path = sys.argv[1:]
    uvloop.run(produce(_bootstrap, int(_rows), float(_rate), LineWriter(Path(_path))))
