"""Orders records by key in this process: records with the same key run one after the other.

    dispatched:   a1  b1  a2  a3  c1
    may run:      a1  b1  c1            a2 and a3 wait until a1 is settled, then a2 goes first

Waiting records of a key are kept in offset order.  So a record that is delivered again, after its
lock ended, runs before records that were written after it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from typing import Any

from sharegroup.worker.running.taken_record import OrderByFailure, TakenRecord


class KeyOrder:
    """The keys that have a ready or running record, and the records that wait behind it."""

    __slots__ = ("_queues", "waiting")

    def __init__(self) -> None:
        self._queues: dict[Any, list[TakenRecord]] = {}
        """For each key, the record that may run, followed by the records that wait for it."""
        self.waiting = 0

    def admit(self, record: TakenRecord) -> bool:
        """Add a record.  True if it may run now; otherwise it waits behind its key."""
        if record.key is None:
            return True
        queue = self._queues.get(record.key)
        if queue is None:
            self._queues[record.key] = [record]
            return True
        # From 1, because the first record may be in its handler, so none can go before it.
        insort(queue, record, lo=1, key=_position)
        self.waiting += 1
        return False

    def done(self, record: TakenRecord) -> TakenRecord | None:
        """Remove a settled or lost record; returns the record that may run now instead."""
        if record.key is None:
            return None
        queue = self._queues[record.key]
        if queue[0] is not record:
            queue.remove(record)  # It was waiting: the first record of the key still runs.
            self.waiting -= 1
            return None
        del queue[0]
        if not queue:
            del self._queues[record.key]
            return None
        self.waiting -= 1
        return queue[0]

    def take(self, alone_from: int, *, alone: bool) -> list[TakenRecord]:
        """Remove waiting records that must run alone, or the others, and clear their keys."""
        taken = [waiting for waiting in self if waiting.runs_alone(alone_from) is alone]
        for queue in self._queues.values():
            queue[1:] = [
                waiting for waiting in queue[1:] if waiting.runs_alone(alone_from) is not alone
            ]
        for waiting in taken:
            # `done` must not look for a record that is in no queue any more.
            waiting.key = None
        self.waiting -= len(taken)
        return taken

    def __iter__(self) -> Iterator[TakenRecord]:
        """The waiting records."""
        return (waiting for queue in self._queues.values() for waiting in queue[1:])


def _position(record: TakenRecord) -> tuple[str, int, int]:
    delivery = record.delivery
    return delivery.topic, delivery.partition, delivery.offset


def find_key(record: TakenRecord) -> None:
    """Set the ordering key of a record; decodes its payload if ``order_by`` is a function.

    If this fails, the record gets an `OrderByFailure` as its payload and fails when its handler
    would run.  Raising here would disturb other records.
    """
    route = record.route
    order_by = route.order_by
    if not callable(order_by):
        record.key = record.delivery.key
        return
    try:
        record.payload = route.codec.decode(record.delivery.value)
        key = order_by(record.payload)
        hash(key)
    except KeyboardInterrupt:
        raise
    # A CancelledError, too, is the function's own, because nothing waits here.  It would end the
    # task that takes records, and a task group takes that for a cancellation and says nothing.
    except BaseException as error:  # noqa: BLE001  The application's function may raise anything.
        record.payload = OrderByFailure(error)
    else:
        record.key = key
