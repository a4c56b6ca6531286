"""The producers of one partition: the batches that each has written, and their open transactions.

A producer numbers its records per partition. Every batch has the producer's id, its epoch and the
sequence of its first record. The last five batches of each producer are remembered. So a batch that
is sent again because its response was lost is recognised, and answered with the offset that it got
the first time. Five are enough, because a producer has at most five requests under way.

    expected: last sequence + 1, from 2**31 - 1 on to 0
    equal to one of the last five batches: a duplicate
    anything else: out of order

A transaction of a producer begins with its first transactional batch and ends with a marker, commit
or abort. Until then it is not decided whether its records are valid, so consumers that read
committed records only read up to the first of them:

    offset     10   11   12   13   14   15   16
    producer   A    B    A    -    B!   A    -       B! ends the transaction of B
               ^ first unstable offset: A's transaction is open

A marker that is not durable yet has not ended anything: after a crash it may be missing.

Entries are immutable, and changes that are not durable can be undone. When the disk fails, the log
is truncated to its durable part, and the state of producers is reset to that end.

`storage.recovery.producer_snapshot` stores this state beside the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from sharegroup.core.log.producer_room import ProducerRoom
from sharegroup.errors import (
    InvalidProducerEpoch,
    InvalidTransactionState,
    OutOfOrderSequenceNumber,
    TransactionCoordinatorFenced,
)

NO_PRODUCER_ID = -1
# Kafka's number: max.in.flight.requests.per.connection of an idempotent producer is at most 5.
BATCHES_REMEMBERED = 5
SEQUENCE_COUNT = 2**31
"""The number of sequences: they go from 0 to this, excluded, and begin again at 0."""

NO_SEQUENCE = -1
"""The sequence of batches that a coordinator writes for a producer: they are in no order."""

NO_COORDINATOR_EPOCH = -1
EPOCH_LAST = 2**15 - 1
STRICT_MARKERS = 2
"""The transaction version from which on a marker has a higher epoch than its batches (KIP-890)."""


class ProducedBatch(NamedTuple):
    """A batch in the log: its first sequence and its offset range."""

    base_sequence: int
    base_offset: int
    end_offset: int

    @property
    def offset_count(self) -> int:
        """The number of offsets of the batch."""
        return self.end_offset - self.base_offset

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences continue with 0 after 2**31 - 1."""
        return (self.base_sequence + self.offset_count - 1) % SEQUENCE_COUNT


class ProducerEntry(NamedTuple):
    """One producer: its epoch and its last batches, oldest first.

    ``batches`` is empty if only a marker of this epoch is known.
    """

    epoch: int
    batches: tuple[ProducedBatch, ...]
    used_ms: int
    coordinator_epoch: int = NO_COORDINATOR_EPOCH
    """The epoch of the transaction coordinator that wrote the last marker."""
    transaction_start: int | None = None
    """First offset of the open transaction; None if there is none."""


class ProducerStates:
    """The producers of one partition: their last batches and their open transactions."""

    __slots__ = ("_ended", "_entries", "_open", "_room", "_undo", "changed")

    def __init__(self, room: ProducerRoom | None = None) -> None:
        self.changed = False
        """Whether something has changed since the last call of `durable`."""
        self._entries: dict[int, ProducerEntry] = {}
        """The producers by id; the one that was silent for longest comes first."""
        self._room = ProducerRoom() if room is None else room
        """The limit; while a log is recovered it has its own, later that of all logs."""
        self._undo: deque[tuple[int, int, ProducerEntry | None]] = deque()
        self._open: dict[int, int] = {}
        """First offsets of the open transactions, by producer id."""
        self._ended: deque[tuple[int, int]] = deque()
        """Transactions whose marker is not durable: offset after the marker, and first offset."""
        self._room.join(self)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def silent_count(self) -> int:
        """The number of producers without an open transaction, which may be forgotten."""
        return len(self._entries) - len(self._open)

    def move_to(self, room: ProducerRoom) -> None:
        """Count these producers together with those of other partitions."""
        self._room.leave(self)
        self._room = room
        room.join(self)

    def leave_room(self) -> None:
        """Stop counting these producers, because the partition is deleted."""
        self.move_to(ProducerRoom())

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Iterate over producer ids and entries; the longest silent producer comes first."""
        yield from self._entries.items()

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction without a durable end; None if there is none."""
        if not self._open and not self._ended:
            return None
        return min(chain(self._open.values(), (first for _, first in self._ended)))

    @property
    def first_open_offset(self) -> int | None:
        """First offset of the oldest open transaction, where markers need not be durable."""
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
        """Return the batch that this one repeats, None if it is the next one; otherwise raise."""
        entry = self._entries.get(producer_id)
        if entry is None:
            # Forgotten or new: nothing to compare with, so any sequence is valid (as in Kafka).
            return None
        if epoch < entry.epoch:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {entry.epoch} here, the batch has {epoch}"
            )
        if epoch > entry.epoch and entry.transaction_start is not None:
            raise InvalidTransactionState(
                f"producer {producer_id} has a transaction of epoch {entry.epoch} open since "
                f"offset {entry.transaction_start}; a batch of epoch {epoch} would be part of it"
            )
        if base_sequence == NO_SEQUENCE:
            pass
        elif epoch > entry.epoch:
            if base_sequence != 0:
                raise OutOfOrderSequenceNumber(
                    f"producer {producer_id}: epoch {epoch} is new (known: {entry.epoch}) and "
                    f"must begin with sequence 0, the batch has {base_sequence}"
                )
        else:
            for batch in entry.batches:
                # Both, as in Kafka: a batch with the same first sequence and another length is not
                # the one that was written, so its records would be lost.
                if batch.base_sequence == base_sequence and batch.offset_count == count:
                    return batch
            # Without a batch only a marker of this epoch is known, and the sequences begin at 0.
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
                f"{entry.transaction_start}; the batch is not part of it"
            )
        return None

    def knows(self, producer_id: int) -> bool:
        """Return whether the partition has state of this producer."""
        return producer_id in self._entries

    def has_open(self, producer_id: int) -> bool:
        """Return whether the producer has an open transaction in this partition."""
        return producer_id in self._open

    def open_transactions(self) -> Iterator[tuple[int, ProducerEntry]]:
        """Iterate over the producers with an open transaction."""
        for producer_id in self._open:
            yield producer_id, self._entries[producer_id]

    def check_marker(
        self, producer_id: int, *, epoch: int, coordinator_epoch: int, version: int = 0
    ) -> None:
        """Raise if this marker may not end the producer's transaction.

        ``version`` is the transaction version.  From `STRICT_MARKERS` on the epoch of the marker
        is higher than that of the transaction's batches, so a late marker ends no later
        transaction.  A marker that was written before may be repeated.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        is_late = epoch < entry.epoch
        if version >= STRICT_MARKERS and epoch == entry.epoch:
            # Without an open transaction it is a repetition (KAFKA-19999). Above the last epoch
            # there is no other, and Kafka accepts such a marker, too (ProducerAppendInfo.java).
            is_late = entry.transaction_start is not None and epoch != EPOCH_LAST
        if is_late:
            raise InvalidProducerEpoch(
                f"producer {producer_id} has epoch {entry.epoch} here, the marker has {epoch}"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFenced(
                f"producer {producer_id}: the last marker had coordinator epoch "
                f"{entry.coordinator_epoch}, this marker has {coordinator_epoch}"
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
        """Note that ``batch``, which `check` accepted, was appended to the log."""
        before = self._entries.get(producer_id)
        # With a new epoch the sequences begin at 0 again, so batches of the last one are no
        # duplicates.
        earlier = before.batches if before is not None and before.epoch == epoch else ()
        start = None if before is None else before.transaction_start
        if start is None and is_transactional:
            start = batch.base_offset
        if batch.base_sequence != NO_SEQUENCE:
            earlier = (*earlier, batch)[-BATCHES_REMEMBERED:]
        entry = ProducerEntry(
            epoch,
            earlier,
            now_ms,
            NO_COORDINATOR_EPOCH if before is None else before.coordinator_epoch,
            start,
        )
        # Until the batch is durable a failed sync may cut it off the log.
        self._undo.append((batch.end_offset, producer_id, before))
        self._put(producer_id, entry)
        self.changed = True

    def end_transaction(
        self, producer_id: int, *, epoch: int, coordinator_epoch: int, offset: int, now_ms: int
    ) -> int | None:
        """Note a marker at ``offset``; return the first offset of its transaction, None if none."""
        before = self._entries.get(producer_id)
        # A marker with a new epoch (KIP-890) ends the sequences of the old one: the next
        # transaction begins with 0.
        batches = before.batches if before is not None and before.epoch == epoch else ()
        start = None if before is None else before.transaction_start
        self._undo.append((offset + 1, producer_id, before))
        if start is not None:
            self._ended.append((offset + 1, start))
        self._put(producer_id, ProducerEntry(epoch, batches, now_ms, coordinator_epoch))
        self.changed = True
        return start

    def settle(self, durable_end: int) -> None:
        """Drop the undo information of changes before ``durable_end``, which are durable."""
        undo, ended = self._undo, self._ended
        while undo and undo[0][0] <= durable_end:
            undo.popleft()
        while ended and ended[0][0] <= durable_end:
            ended.popleft()

    def undo_from(self, durable_end: int) -> None:
        """Undo the changes at or after ``durable_end``, where the log is truncated."""
        undo = self._undo
        # The newest first: of several changes of a producer, the value before the first one stays.
        while undo and undo[-1][0] > durable_end:
            _, producer_id, before = undo.pop()
            self._put(producer_id, before)
        while self._ended and self._ended[-1][0] > durable_end:
            self._ended.pop()

    def _put(self, producer_id: int, entry: ProducerEntry | None) -> None:
        count_before, open_before = len(self._entries), len(self._open)
        self._entries.pop(producer_id, None)  # The producer used last comes last.
        if entry is not None:
            self._entries[producer_id] = entry
        if entry is None or entry.transaction_start is None:
            self._open.pop(producer_id, None)
        else:
            self._open[producer_id] = entry.transaction_start
        added_count = len(self._entries) - count_before
        if added_count or len(self._open) != open_before:
            self._room.update(self, added_count)

    def expire(self, unused_since_ms: int) -> int:
        """Forget producers that were last used before that time; return how many.

        A producer with an open transaction stays, because its marker is still to be written.
        """
        expired = [
            producer_id
            for producer_id, entry in self._entries.items()
            if entry.used_ms < unused_since_ms and entry.transaction_start is None
        ]
        self._room.update(self, -self._forget(expired))
        return len(expired)

    def forget_oldest(self, count: int) -> int:
        """Forget up to ``count`` producers that were silent for longest; return how many.

        The caller updates the room's count. A producer with an open transaction stays.
        """
        silent = (id_ for id_, entry in self._entries.items() if entry.transaction_start is None)
        return self._forget(list(islice(silent, count)))

    def _forget(self, producer_ids: list[int]) -> int:
        for producer_id in producer_ids:
            del self._entries[producer_id]
            self.changed = True
        return len(producer_ids)

    def durable(self, durable_end: int) -> dict[int, ProducerEntry]:
        """Return the producers as of ``durable_end``, without changes that may be undone."""
        self.changed = False
        entries = dict(self._entries)
        for end_offset, producer_id, before in reversed(self._undo):
            if end_offset <= durable_end:
                break
            # The snapshot lacks a change that is not durable yet; the next one must have it.
            self.changed = True
            if before is None:
                entries.pop(producer_id, None)
            else:
                entries[producer_id] = before
        return entries

    @classmethod
    def restored(
        cls, entries: Mapping[int, ProducerEntry], room: ProducerRoom | None = None
    ) -> ProducerStates:
        """Return the state that `durable` returned as ``entries``."""
        states = cls(room)
        for producer_id, entry in entries.items():
            states._put(producer_id, entry)
        return states
