"""What clients saw while a broker was killed again and again, and whether it may be so.

Everybody writes down what happened to them, in one list; `problems` reads it at the end beside
the log and the lag.  It knows nothing of brokers, so that a falsified history can be given to
it as well: a checker that finds nothing must be shown to be able to find something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

DELIVERIES_MAX = 5


class Produced(NamedTuple):
    """The producer was told that its record is in the log."""

    value: bytes
    partition: int
    offset: int


class Delivered(NamedTuple):
    """A member was given a record.

    ``is_fresh``: it was asked for and came in the same life of the broker, without a client
    library that may have kept it since an earlier one.
    """

    member: str
    partition: int
    offset: int
    value: bytes
    delivery_count: int
    is_fresh: bool


class Sent(NamedTuple):
    """A member accepted or rejected a record, and does not know yet what became of that."""

    member: str
    partition: int
    offset: int


class Settled(NamedTuple):
    """A member was told that its accept or reject is durable."""

    member: str
    partition: int
    offset: int


Event = Produced | Delivered | Sent | Settled


def problems(
    history: Sequence[Event], logs: Mapping[int, Sequence[bytes]], lag: int
) -> Iterator[str]:
    """One line for each thing that must not be; ``logs`` are all values by partition."""
    yield from _produced(history, logs)
    yield from _delivered(history, logs)
    yield from _unsettled(history, logs)
    if lag:
        yield f"the group lags by {lag}"


def _produced(history: Sequence[Event], logs: Mapping[int, Sequence[bytes]]) -> Iterator[str]:
    for value, count in Counter(value for log in logs.values() for value in log).items():
        if count > 1:
            yield f"{value!r} is {count} times in the log"
    for event in history:
        if isinstance(event, Produced):
            log = logs[event.partition]
            if not event.offset < len(log) or log[event.offset] != event.value:
                yield f"{event} is lost"


def _delivered(history: Sequence[Event], logs: Mapping[int, Sequence[bytes]]) -> Iterator[str]:
    settled: dict[tuple[int, int], Settled] = {}
    for event in history:
        match event:
            case Delivered(_, partition, offset, value):
                if logs[partition][offset] != value:
                    yield f"{event} has another value than the log"
                if not 1 <= event.delivery_count <= DELIVERIES_MAX:
                    yield f"{event} has an impossible delivery count"
                if event.is_fresh and (partition, offset) in settled:
                    yield f"{event} came after {settled[partition, offset]}"
            case Settled(_, partition, offset):
                if (partition, offset) in settled:
                    yield f"{event} came after {settled[partition, offset]}"
                settled[partition, offset] = event


def _unsettled(history: Sequence[Event], logs: Mapping[int, Sequence[bytes]]) -> Iterator[str]:
    over = {(event.partition, event.offset) for event in history if isinstance(event, Sent)}
    over |= {
        (event.partition, event.offset)
        for event in history
        if isinstance(event, Delivered) and event.delivery_count == DELIVERIES_MAX
    }
    for partition, log in logs.items():
        for offset in range(len(log)):
            if (partition, offset) not in over:
                yield f"partition {partition} offset {offset} was neither settled nor given up"
