"""What a producer has for one partition: batches in order, numbered so that none is doubled.

    append --> open batch --> waiting --take--> under way --acked--> done
                                 ^                  |
                                 '----- retry ------'

An idempotent producer numbers the records of each partition (KIP-98): a broker takes a batch
only if its first number is the next one, and recognises the last five batches when they come
again.  So a batch keeps its number through retries and reconnects, and order holds with five
batches under way: when one fails, those behind it fail too (their numbers are too high), all
come back to the front of the queue in order, and nothing else is sent before.

Numbers start again, under a higher producer epoch, when the broker proves that it does not
have what the producer counted on: the oldest batch outstanding is refused as out of order.
That batch can't have been written, and nothing behind it either, so no record is doubled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from sharegroup.client.records import Header, TopicPartition
from sharegroup.errors import KafkaError

RECORD_OVERHEAD_BYTES = 21
"""The most that a record costs beside key, value and headers."""

SEQUENCE_MAX = 2**31 - 1
EPOCH_MAX = 2**15 - 1

RawRecord = tuple[bytes | None, bytes | None, int, Sequence[Header]]
"""Key, value, timestamp in milliseconds, headers."""


class Identity(NamedTuple):
    """Who a batch is from: producer id and epoch; -1 and -1 when it is not idempotent."""

    producer_id: int
    epoch: int


ANONYMOUS = Identity(-1, -1)
NO_SEQUENCE = -1


class Written(NamedTuple):
    """Where a batch was written; -1 is unknown."""

    base_offset: int
    log_append_ms: int


class Batch:
    """Records that are sent together and share one outcome."""

    __slots__ = (
        "bytes", "created_at", "done", "encoded", "error", "identity", "queue", "records", "sent",
        "sequence",
    )  # fmt: skip

    def __init__(self, queue: PartitionQueue, done: asyncio.Future[Written], now: float) -> None:
        self.queue = queue
        self.done = done
        self.created_at = now
        self.records: list[RawRecord] = []
        self.bytes = 0
        self.identity = ANONYMOUS
        self.sequence = NO_SEQUENCE
        self.encoded: bytearray | None = None
        self.sent = False
        """Whether it ever left: then nobody knows without an answer whether it arrived."""
        self.error: KafkaError | None = None
        """Why the last attempt failed."""

    @property
    def where(self) -> TopicPartition:
        """Where its records go."""
        return self.queue.where


class PartitionQueue:
    """See the module's text.  Plain code: who calls decides when, and what failed."""

    __slots__ = (
        "_batch_bytes",
        "_idempotent",
        "_identity",
        "_next",
        "_recovering",
        "_restart",
        "_under_way_max",
        "exhausted_id",
        "not_before",
        "under_way",
        "waiting",
        "where",
    )  # fmt: skip

    def __init__(
        self, where: TopicPartition, *, batch_bytes: int, under_way_max: int, idempotent: bool
    ) -> None:
        self.where = where
        self.waiting: deque[Batch] = deque()
        self.under_way: list[Batch] = []
        self.not_before = 0.0
        """No attempt before this moment; moved on by whoever counts the failures."""
        self.exhausted_id: int | None = None
        """The producer id that has no epoch left for this partition, if there is one."""
        self._batch_bytes = batch_bytes
        self._under_way_max = under_way_max
        self._idempotent = idempotent
        self._identity: Identity | None = None
        self._next = 0
        self._recovering = False
        self._restart = False

    @property
    def identity(self) -> Identity | None:
        """The identity of the next new batch; None while there is none to be had."""
        return self._identity if self._idempotent else ANONYMOUS

    def identify(self, identity: Identity) -> None:
        """Number the batches from 0 under a new identity."""
        self._identity = identity
        self._next = 0

    def open_batch(self, size: int) -> Batch | None:
        """The batch that a record of this size still fits into."""
        if not self.waiting:
            return None
        last = self.waiting[-1]
        fits = not last.sent and last.sequence == NO_SEQUENCE
        return last if fits and last.bytes + size <= self._batch_bytes else None

    def is_ready(self, *, now: float, linger_seconds: float) -> bool:
        """Whether a batch should leave now."""
        if not self.waiting or self._recovering or now < self.not_before:
            return False
        if len(self.under_way) >= self._under_way_max:
            return False
        first = self.waiting[0]
        return (
            len(self.waiting) > 1
            or first.sent
            or first.bytes >= self._batch_bytes
            or now >= first.created_at + linger_seconds
        )

    def take(self) -> Batch:
        """The next batch, numbered, from now on under way."""
        assert self.waiting
        assert not self._recovering, "what is under way has to come back first"
        assert self.identity is not None, "an idempotent producer needs its id before it sends"
        batch = self.waiting.popleft()
        if self._idempotent and batch.sequence == NO_SEQUENCE:
            batch.identity = self.identity
            batch.sequence = self._next
            batch.encoded = None
            self._next = _after(self._next, len(batch.records))
        batch.sent = True
        self.under_way.append(batch)
        return batch

    def finish(self, batch: Batch) -> None:
        """It is written, or given up: either way it does not come back."""
        self.under_way.remove(batch)
        self._recover()

    def retry(self, batch: Batch) -> None:
        """It failed and may succeed later: to the front, before what has a higher number."""
        self.under_way.remove(batch)
        self._recovering = True
        index = 0
        while index < len(self.waiting) and _is_before(self.waiting[index], batch):
            index += 1
        self.waiting.insert(index, batch)
        self._recover()

    def is_oldest(self, batch: Batch) -> bool:
        """Whether no batch with a lower number is outstanding."""
        others = (*self.waiting, *self.under_way)
        return not any(one is not batch and _is_before(one, batch) for one in others)

    def restart_numbers(self) -> None:
        """The broker's count and ours differ for good: begin at 0, in a new epoch, as soon as
        nothing is under way."""
        self._restart = True
        self._recover()

    def expire(self, *, before: float) -> list[Batch]:
        """Take out the waiting batches created before this moment."""
        expired = []
        while self.waiting and self.waiting[0].created_at < before:
            expired.append(self.waiting.popleft())
        return expired

    def _recover(self) -> None:
        if self.under_way:
            self._recovering = self._recovering or self._restart
            return
        self._recovering = False
        if self._restart:
            self._restart = False
            for batch in self.waiting:
                batch.sequence = NO_SEQUENCE
            if self._identity is not None:
                producer_id, epoch = self._identity
                if epoch < EPOCH_MAX:
                    self._identity = Identity(producer_id, epoch + 1)
                else:
                    self._identity, self.exhausted_id = None, producer_id
            self._next = 0


def _after(sequence: int, count: int) -> int:
    """The number ``count`` records later; after the largest comes 0."""
    return (sequence + count) % (SEQUENCE_MAX + 1)


def _is_before(one: Batch, other: Batch) -> bool:
    """Whether ``one`` was numbered before ``other``; batches without a number come last.

    Numbers wrap around, so they are compared by their distance.
    """
    if one.sequence == NO_SEQUENCE or other.sequence == NO_SEQUENCE:
        return one.sent and one.created_at <= other.created_at
    distance = (other.sequence - one.sequence) % (SEQUENCE_MAX + 1)
    return 0 < distance <= SEQUENCE_MAX // 2
