"""What a partition knows of its producers: which batches it already has, what is undecided.

A producer numbers its records per partition; every batch carries the producer's id, its epoch
and the number of its first record.  The last five batches of each producer are remembered, so
a batch that is sent again (its answer was lost) is recognised and answered with the offset it
got the first time.  Five, because a producer has at most five requests under way.

    expected: last sequence + 1, from 2**31 - 1 on to 0
    seen before, among the last five: a duplicate
    anything else: out of order

A transaction of a producer begins with its first transactional batch and ends with a marker,
commit or abort.  Until then nobody knows whether its records count, so whoever reads committed
records only reads no further than the first of them:

    offset     10   11   12   13   14   15   16
    producer   A    B    A    -    B!   A    -       B! ends the transaction of B
               ^ first unstable offset: A's transaction is open

A marker that is not durable yet has not ended anything: after a crash it may be gone.

Entries are immutable, and changes that are not yet durable can be undone: when the disk fails,
the log is cut back to what is durable, and what is known of producers with it.

What is kept of it beside the log is `storage.producer_snapshot`'s.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from sharegroup.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)

NO_PRODUCER_ID = -1
BATCHES_REMEMBERED = 5
SEQUENCE_COUNT = 2**31
"""Sequences go from 0 to this, excluded, and begin again at 0."""

NO_COORDINATOR_EPOCH = -1


class ProducedBatch(NamedTuple):
    """A batch in the log as its producer numbered it."""

    base_sequence: int
    base_offset: int
    end_offset: int

    @property
    def offset_count(self) -> int:
        """How many offsets it takes."""
        return self.end_offset - self.base_offset

    @property
    def last_sequence(self) -> int:
        return (self.base_sequence + self.offset_count - 1) % SEQUENCE_COUNT


class ProducerEntry(NamedTuple):
    """One producer: its epoch and its last batches, oldest first.

    There are none where only a marker is known of this epoch.
    """

    epoch: int
    batches: tuple[ProducedBatch, ...]
    used_ms: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """Of the transaction coordinator that wrote the last marker."""
    transaction_start: int | None = None
    """First offset of the open transaction, None if there is none."""


class ProducerStates:
    """The producers of one partition; see the module's text."""

    __slots__ = ("_ended", "_entries", "_open", "_undo", "changed")

    def __init__(self) -> None:
        self.changed = False
        """Whether there is anything that `durable` did not tell the last time."""
        self._entries: dict[int, ProducerEntry] = {}
        self._undo: deque[tuple[int, int, ProducerEntry | None]] = deque()
        self._open: dict[int, int] = {}
        """First offsets of the open transactions, by producer."""
        self._ended: deque[tuple[int, int]] = deque()
        """Transactions whose marker is not durable: where it ends, and their first offset."""

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        yield from self._entries.items()

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest transaction that is not durably ended begins; None without any."""
        if not self._open and not self._ended:
            return None
        return min(chain(self._open.values(), (first for _, first in self._ended)))

    @property
    def first_open_offset(self) -> int | None:
        """The same, counting the markers that are not durable yet."""
        return min(self._open.values(), default=None)

    def check(
        self,
        producer_id: int,
        *,
        epoch: int,
        base_sequence: int,
        count: int,
        is_transactional: bool = False,
    ) -> ProducedBatch | None:
        """The batch that this one repeats, None if it is the next one, else an error."""
        entry = self._entries.get(producer_id)
        if entry is None:
            # Forgotten or new: nothing to compare with, so any sequence may come (as in Kafka).
            return None
        if epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {entry.epoch} here, the batch has {epoch}"
            )
        if epoch > entry.epoch:
            if base_sequence != 0:
                raise OutOfOrderSequenceNumber(
                    f"producer {producer_id}: epoch {epoch} is new (known: {entry.epoch}) and "
                    f"must begin with sequence 0, the batch has {base_sequence}"
                )
        else:
            for batch in entry.batches:
                if batch.base_sequence == base_sequence and batch.offset_count == count:
                    return batch
            last = entry.batches[-1].last_sequence if entry.batches else -1
            expected = (last + 1) % SEQUENCE_COUNT
            if base_sequence != expected:
                raise OutOfOrderSequenceNumber(
                    f"producer {producer_id} epoch {epoch}: expected sequence {expected}, "
                    f"the batch has {base_sequence}"
                )
        if entry.transaction_start is not None and not is_transactional:
            raise InvalidTransactionState(
                f"producer {producer_id} epoch {epoch} has a transaction open since offset "
                f"{entry.transaction_start}; the batch is of none"
            )
        return None

    def check_marker(self, producer_id: int, *, epoch: int, coordinator_epoch: int) -> None:
        """Raise what speaks against ending the producer's transaction with this marker."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {entry.epoch} here, the marker has {epoch}"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"producer {producer_id}: a coordinator of epoch {entry.coordinator_epoch} wrote "
                f"here, the marker has {coordinator_epoch}"
            )

    def append(
        self,
        producer_id: int,
        *,
        epoch: int,
        batch: ProducedBatch,
        now_ms: int,
        is_transactional: bool = False,
    ) -> None:
        """``batch``, which `check` let pass, is in the log."""
        before = self._entries.get(producer_id)
        earlier = before.batches if before is not None and before.epoch == epoch else ()
        start = None if before is None else before.transaction_start
        if start is None and is_transactional:
            start = batch.base_offset
        entry = ProducerEntry(
            epoch,
            (*earlier, batch)[-BATCHES_REMEMBERED:],
            now_ms,
            NO_COORDINATOR_EPOCH if before is None else before.coordinator_epoch,
            start,
        )
        self._undo.append((batch.end_offset, producer_id, before))
        self._put(producer_id, entry)
        self.changed = True

    def end_transaction(
        self, producer_id: int, *, epoch: int, coordinator_epoch: int, offset: int, now_ms: int
    ) -> int | None:
        """A marker is in the log at ``offset``; where what it ends began, None if nothing."""
        before = self._entries.get(producer_id)
        batches = before.batches if before is not None and before.epoch == epoch else ()
        start = None if before is None else before.transaction_start
        self._undo.append((offset + 1, producer_id, before))
        if start is not None:
            self._ended.append((offset + 1, start))
        self._put(producer_id, ProducerEntry(epoch, batches, now_ms, coordinator_epoch))
        self.changed = True
        return start

    def settle(self, durable_end: int) -> None:
        """What was appended before ``durable_end`` will never be undone."""
        undo, ended = self._undo, self._ended
        while undo and undo[0][0] <= durable_end:
            undo.popleft()
        while ended and ended[0][0] <= durable_end:
            ended.popleft()

    def undo_from(self, durable_end: int) -> None:
        """Forget what was appended at or after ``durable_end``."""
        undo = self._undo
        while undo and undo[-1][0] > durable_end:
            _, producer_id, before = undo.pop()
            self._put(producer_id, before)
        while self._ended and self._ended[-1][0] > durable_end:
            self._ended.pop()

    def _put(self, producer_id: int, entry: ProducerEntry | None) -> None:
        if entry is None:
            self._entries.pop(producer_id, None)
        else:
            self._entries[producer_id] = entry
        if entry is None or entry.transaction_start is None:
            self._open.pop(producer_id, None)
        else:
            self._open[producer_id] = entry.transaction_start

    def expire(self, unused_since_ms: int) -> int:
        """Forget producers that were last used before that time; how many.

        Who has a transaction open stays: its marker is still to come.
        """
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.used_ms < unused_since_ms and entry.transaction_start is None
        ]
        for producer_id in expired:
            del self._entries[producer_id]
            self.changed = True
        return len(expired)

    def durable(self, durable_end: int) -> dict[int, ProducerEntry]:
        """The producers as of ``durable_end``, without what may still be undone."""
        self.changed = False
        entries = dict(self._entries)
        for end_offset, producer_id, before in reversed(self._undo):
            if end_offset <= durable_end:
                break
            self.changed = True
            if before is None:
                entries.pop(producer_id, None)
            else:
                entries[producer_id] = before
        return entries

    @classmethod
    def restored(cls, entries: Mapping[int, ProducerEntry]) -> ProducerStates:
        """The state that `durable` told."""
        states = cls()
        for producer_id, entry in entries.items():
            states._put(producer_id, entry)
        return states
