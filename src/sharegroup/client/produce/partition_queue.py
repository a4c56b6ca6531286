"""A producer's batches of one partition, in order, with the sequence numbers of idempotence.

    append --> open batch --> waiting --take--> under way --acked--> done
                                 ^                  |
                                 '----- retry ------'

An idempotent producer numbers the records of each partition (KIP-98).  A broker accepts a batch
only if its sequence is the next one, and recognises duplicates of the last five batches.  So a
batch keeps its sequence through retries and reconnects, and five batches under way stay in order:
when one fails, those after it fail too (their sequences are too high).  All return to the front
of the queue in order, and no other batch is sent before them.

A batch may stay unanswered while later ones are acknowledged: its request hangs at a leader that
was replaced, and the new leader has a copy of the batch.  When it is sent again, it may be older
than the last five batches, and is refused as out of order although it is written.  The producer
knows better: a broker accepts no batch without its predecessors, so an acknowledgement covers all
lower sequences.  There is one exception: a broker that does not know the producer accepts any
first sequence.  So only one batch is under way until the first of an identity is acknowledged.

Sequences restart at 0 under a higher producer epoch when the oldest outstanding batch is refused
as out of order and no later one was acknowledged.  That proves that neither this batch nor a
later one was written, so no record is written twice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sharegroup.client.records import Header, TopicPartition
from sharegroup.errors import KafkaError

RECORD_OVERHEAD_BYTES = 21
"""Maximum size in bytes of an encoded record without its key, value and headers."""

SEQUENCE_MAX = 2**31 - 1
EPOCH_MAX = 2**15 - 1

RawRecord = tuple[bytes | None, bytes | None, int, Sequence[Header]]
"""A record to send: key, value, timestamp in milliseconds, headers."""


class Identity(NamedTuple):
    """The producer id and epoch of a batch; both are -1 if the producer is not idempotent."""

    producer_id: int
    epoch: int


ANONYMOUS = Identity(-1, -1)
NO_SEQUENCE = -1


class Written(NamedTuple):
    """The base offset and append time of a written batch; -1 means unknown."""

    base_offset: int
    log_append_ms: int


class Batch:
    """Records that are sent together and share one outcome."""

    __slots__ = (
        "bytes", "created_at", "done", "encoded", "error", "has_contents", "identity", "queue",
        "record_errors", "records", "sent", "sequence",
    )  # fmt: skip

    def __init__(
        self,
        queue: PartitionQueue,
        done: asyncio.Future[Written],
        now: float,
        *,
        has_contents: bool = False,
    ) -> None:
        self.queue = queue
        self.done = done
        self.created_at = now
        self.records: list[Any] = []
        """All of them are `RawRecord`, or with ``has_contents`` `record_contents.EncodedRecord`."""
        self.has_contents = has_contents
        self.bytes = 0
        self.identity = ANONYMOUS
        self.sequence = NO_SEQUENCE
        self.encoded: bytearray | None = None
        self.sent = False
        """Whether the batch was ever sent; without an answer it may have been written."""
        self.error: KafkaError | None = None
        """The error of the last attempt; None before the first failure."""
        self.record_errors: Mapping[int, KafkaError] = {}
        """The errors of the records for which the batch was refused, by their position."""

    @property
    def where(self) -> TopicPartition:
        """The topic partition of its records."""
        return self.queue.where


class PartitionQueue:
    """The batches of one partition: open, waiting and under way.

    It does no I/O and has no clock; the caller decides when to send and what failed.
    """

    __slots__ = (
        "_acknowledged",
        "_batch_bytes",
        "_idempotent",
        "_identity",
        "_next",
        "_recovering",
        "_refused",
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
        """The earliest time of the next attempt; the sender moves it after failures."""
        self.exhausted_id: int | None = None
        """The producer id whose epochs this partition has used up, or None."""
        self._batch_bytes = batch_bytes
        self._under_way_max = under_way_max
        self._idempotent = idempotent
        self._identity: Identity | None = None
        self._next = 0
        self._acknowledged = NO_SEQUENCE
        """The highest sequence of an acknowledged batch under `_identity`."""
        self._recovering = False
        self._restart = False
        self._refused = NO_SEQUENCE
        """The sequence of the batch that will never be written; -1: none."""

    @property
    def identity(self) -> Identity | None:
        """The identity of the next new batch; None until `identify` sets one."""
        return self._identity if self._idempotent else ANONYMOUS

    def identify(self, identity: Identity) -> None:
        """Set a new identity; sequences start at 0."""
        self._identity = identity
        self._begin_numbers()

    def open_batch(self, size: int, has_contents: bool = False) -> Batch | None:
        """Return the open batch if a record of this size and kind fits into it, or None."""
        if not self.waiting:
            return None
        last = self.waiting[-1]
        # A batch that was sent may be written as it is, so nothing may be added to it.
        fits = not last.sent and last.sequence == NO_SEQUENCE and last.has_contents is has_contents
        return last if fits and last.bytes + size <= self._batch_bytes else None

    def is_ready(self, *, now: float, linger_seconds: float) -> bool:
        """Whether a batch should be sent now."""
        if not self.waiting or self._recovering or now < self.not_before:
            return False
        # It has to wait for the restart, which gives it another number.
        if self._restart and not self._keeps_number(self.waiting[0]):
            return False
        # A broker that does not know the producer takes any first sequence, so a second batch that
        # is under way with the first could be written alone.
        first_of_identity = self._idempotent and self._acknowledged == NO_SEQUENCE
        if len(self.under_way) >= (1 if first_of_identity else self._under_way_max):
            return False
        first = self.waiting[0]
        return (
            len(self.waiting) > 1
            or first.sent
            or first.bytes >= self._batch_bytes
            or now >= first.created_at + linger_seconds
        )

    def take(self) -> Batch:
        """Take the next batch, with its sequence; it is under way from now on."""
        assert self.waiting
        assert not self._recovering, "what is under way has to come back first"
        assert self.identity is not None, "an idempotent producer needs its id before it sends"
        batch = self.waiting.popleft()
        if self._idempotent and batch.sequence == NO_SEQUENCE:
            batch.identity = self.identity
            batch.sequence = self._next
            # The header contains the identity and the sequence.
            batch.encoded = None
            self._next = _after(self._next, len(batch.records))
        batch.sent = True
        self.under_way.append(batch)
        return batch

    def acknowledge(self, batch: Batch) -> None:
        """Note that the batch is written, and so are all batches with a lower sequence."""
        if batch.identity == self._identity and (
            self._acknowledged == NO_SEQUENCE or _is_lower(self._acknowledged, batch.sequence)
        ):
            self._acknowledged = batch.sequence
        self.finish(batch)

    def is_written(self, batch: Batch) -> bool:
        """Whether a batch with a higher sequence was acknowledged, so this one is written too."""
        return (
            batch.identity == self._identity
            and NO_SEQUENCE not in (batch.sequence, self._acknowledged)
            and _is_lower(batch.sequence, self._acknowledged)
        )

    def finish(self, batch: Batch) -> None:
        """Remove a batch that is written or given up."""
        self.under_way.remove(batch)
        self._recover()

    def retry(self, batch: Batch) -> None:
        """Put a batch that failed back to the front, before batches with a higher sequence."""
        self.under_way.remove(batch)
        self._recovering = True
        index = 0
        # Batches under way fail in any order; the queue has to be in the order of their sequences
        # again, because a broker accepts no batch before its predecessor.
        while index < len(self.waiting) and _is_before(self.waiting[index], batch):
            index += 1
        self.waiting.insert(index, batch)
        self._recover()

    def is_oldest(self, batch: Batch) -> bool:
        """Whether no batch with a lower sequence is outstanding."""
        outstanding_batches = (*self.waiting, *self.under_way)
        return not any(
            outstanding is not batch and _is_before(outstanding, batch)
            for outstanding in outstanding_batches
        )

    def restart_numbers(self, refused: Batch | None = None) -> None:
        """Restart the sequences at 0 in a new epoch, as soon as no batch is under way.

        ``refused`` is a batch that will never be written.  Batches with a lower sequence may be
        written already; they keep their sequence and finish before the restart.
        """
        self._restart = True
        if refused is None:
            self._refused = NO_SEQUENCE
        elif self._refused == NO_SEQUENCE or _is_lower(refused.sequence, self._refused):
            self._refused = refused.sequence
        self._recover()

    def expire(self, *, before: float) -> list[Batch]:
        """Remove and return the waiting batches that were created before this time."""
        expired = []
        # Not those under way: they may still be answered, and come back here if not.
        while self.waiting and self.waiting[0].created_at < before:
            expired.append(self.waiting.popleft())
        if expired:
            self._recover()
        return expired

    def _keeps_number(self, batch: Batch) -> bool:
        """Whether the batch keeps its sequence, so that sequences restart only after it."""
        return NO_SEQUENCE not in (batch.sequence, self._refused) and _is_lower(
            batch.sequence, self._refused
        )

    def _recover(self) -> None:
        if self.under_way:
            self._recovering = self._recovering or self._restart
            return
        self._recovering = False
        if self._restart and not (self.waiting and self._keeps_number(self.waiting[0])):
            self._restart, self._refused = False, NO_SEQUENCE
            # They were proved to be unwritten, so `take` may number them anew.
            for batch in self.waiting:
                batch.sequence = NO_SEQUENCE
            if self._identity is not None:
                producer_id, epoch = self._identity
                if epoch < EPOCH_MAX:
                    self._identity = Identity(producer_id, epoch + 1)
                else:
                    # Epochs have 16 bits; the sender asks for another producer id.
                    self._identity, self.exhausted_id = None, producer_id
            self._begin_numbers()

    def _begin_numbers(self) -> None:
        self._next, self._acknowledged = 0, NO_SEQUENCE


def _after(sequence: int, count: int) -> int:
    """Return the sequence ``count`` records later; 0 follows the largest."""
    return (sequence + count) % (SEQUENCE_MAX + 1)


def _is_before(batch: Batch, other: Batch) -> bool:
    """Whether ``batch`` has a lower sequence than ``other``; batches without one come last."""
    if batch.sequence == NO_SEQUENCE or other.sequence == NO_SEQUENCE:
        # Without idempotence; batches that were sent return in the order in which they were made.
        return batch.sent and batch.created_at <= other.created_at
    return _is_lower(batch.sequence, other.sequence)


def _is_lower(sequence: int, other: int) -> bool:
    """Whether a sequence is lower; they wrap around, so their distance is compared."""
    distance = (other - sequence) % (SEQUENCE_MAX + 1)
    return 0 < distance <= SEQUENCE_MAX // 2
