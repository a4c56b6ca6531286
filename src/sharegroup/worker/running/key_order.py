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

from sharegroup.worker.running.taken_record import NOT_DECODED, OrderByFailure, TakenRecord


class KeyQueue:
    """The records of one key: the one that may run, followed by those that wait for it."""

    __slots__ = ("key", "key_hash", "records")

    def __init__(self, key: Any, key_hash: int, first: TakenRecord) -> None:
        self.key = key
        self.key_hash = key_hash
        self.records = [first]


class KeyOrder:
    """The keys that have a ready or running record, and the records that wait behind it."""

    __slots__ = ("_queues", "waiting")

    def __init__(self) -> None:
        # By the hash at the admission and not by the key: a handler may change a key that is a part
        # of its payload.  So the application's code is called by `admit` only, and may raise there.
        self._queues: dict[int, list[KeyQueue]] = {}
        self.waiting = 0

    def admit(self, record: TakenRecord) -> bool:
        """Add a record.  True if it may run now; otherwise it waits behind its key."""
        if record.key is None:
            return True
        key, key_hash = record.key, hash(record.key)
        queues = self._queues.get(key_hash, ())
        queue = next((queue for queue in queues if queue.key is key or queue.key == key), None)
        if queue is None:
            queue = record.key_queue = KeyQueue(key, key_hash, record)
            self._queues.setdefault(key_hash, []).append(queue)
            return True
        # From 1, because the first record may be in its handler, so none can go before it.
        insort(queue.records, record, lo=1, key=_position)
        record.key_queue = queue
        self.waiting += 1
        return False

    def done(self, record: TakenRecord) -> TakenRecord | None:
        """Remove a settled or lost record; returns the record that may run now instead."""
        queue, record.key_queue = record.key_queue, None
        if queue is None:
            return None
        records = queue.records
        if records[0] is not record:
            records.remove(record)  # It was waiting: the first record of the key still runs.
            self.waiting -= 1
            return None
        del records[0]
        if not records:
            same_hash = self._queues[queue.key_hash]
            same_hash.remove(queue)
            if not same_hash:
                del self._queues[queue.key_hash]
            return None
        self.waiting -= 1
        first: TakenRecord = records[0]
        return first

    def take(self, alone_from: int, *, alone: bool) -> list[TakenRecord]:
        """Remove waiting records that must run alone, or the others, from their keys."""
        taken = [waiting for waiting in self if waiting.runs_alone(alone_from) is alone]
        for queue in self._all():
            queue.records[1:] = [
                waiting
                for waiting in queue.records[1:]
                if waiting.runs_alone(alone_from) is not alone
            ]
        for waiting in taken:
            # `done` must not look for a record that is in no queue any more.
            waiting.key_queue = None
        self.waiting -= len(taken)
        return taken

    def __iter__(self) -> Iterator[TakenRecord]:
        """The waiting records."""
        return (waiting for queue in self._all() for waiting in queue.records[1:])

    def _all(self) -> Iterator[KeyQueue]:
        return (queue for queues in self._queues.values() for queue in queues)


def _position(record: TakenRecord) -> tuple[str, int, int]:
    delivery = record.delivery
    return delivery.topic, delivery.partition, delivery.offset


def find_key(record: TakenRecord) -> None:
    """Set the ordering key of a record; decodes its payload if ``order_by`` is a function.

    If this fails, the record gets an `OrderByFailure` as its payload and fails when its handler
    would run.  Raising here would disturb other records.
    """
    if type(record.payload) is OrderByFailure:
        return  # The filter of its route has failed: it fails, and has no place in an order.
    route = record.route
    order_by = route.order_by
    if not callable(order_by):
        record.key = record.delivery.key if order_by == "key" else record.topic_partition
        return
    try:
        if record.payload is NOT_DECODED:  # A filter may have decoded it.
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
