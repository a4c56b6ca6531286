"""What fetches brought and nobody was handed yet, in the order in which it came.

It is kept as it came, as the bytes of log batches, until somebody asks for it as records or
as columns.  What waits longer than its lock lasts is dropped: others may have it by now.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.deliveries import Delivery, read_deliveries
from sharegroup.client.held_records import HeldRecords
from sharegroup.client.locks import AcquisitionLock
from sharegroup.client.records import AcknowledgeType, DeserializationError, Record
from sharegroup.errors import CorruptMessage

if TYPE_CHECKING:
    from sharegroup.client.record_batches import Piece


class Parcel:
    """What one fetch brought of one partition."""

    __slots__ = ("deliveries", "held", "locks", "pieces", "records")

    def __init__(
        self, held: HeldRecords, records: bytes | memoryview, locks: Sequence[AcquisitionLock]
    ) -> None:
        self.held = held
        self.records = records
        self.locks = locks
        self.deliveries: deque[Delivery] | None = None
        """What is left of it as records; None: nobody asked for records yet."""
        self.pieces: deque[Piece | Exception] | None = None
        """What is left of it as columns; None: nobody asked for columns yet."""

    @property
    def waiting(self) -> int:
        """How many offsets are not handed out."""
        return sum(lock.waiting for lock in self.locks)

    @property
    def waiting_bytes(self) -> float:
        """What these weigh, on average."""
        return sum(lock.waiting * lock.record_bytes for lock in self.locks)

    def as_records(self, config: ShareConsumerConfig) -> deque[Delivery]:
        """What is left of it as records."""
        if self.deliveries is None:
            if self.pieces is None:
                self.deliveries = deque(
                    read_deliveries(self.held, self.records, self.locks, config)
                )
            else:
                self.deliveries = deque(self._to_records(self.pieces))
                self.pieces = None
        return self.deliveries

    def as_columns(self, config: ShareConsumerConfig) -> deque[Piece | Exception]:
        """What is left of it as columns, with errors in between where `take` raises them."""
        from sharegroup.client import record_batches  # It needs pyarrow; nobody else does.

        if self.pieces is None:
            if self.deliveries is None:
                try:
                    self.pieces = deque(record_batches.decode(self.records, self.locks, config))
                except CorruptMessage:
                    # One by one: what of it can be read is handed out.
                    return self._from_records(config)
            else:
                return self._from_records(config)
        return self.pieces

    def _from_records(self, config: ShareConsumerConfig) -> deque[Piece | Exception]:
        from sharegroup.client import record_batches

        pieces: deque[Piece | Exception] = deque()
        for lock, records, failure in self.as_records(config):
            if records:
                pieces.append(record_batches.from_records(lock, records))
            if failure is not None:
                pieces.append(failure)
        self.pieces, self.deliveries = pieces, None
        return pieces

    def _to_records(self, pieces: Iterable[Piece | Exception]) -> Iterator[Delivery]:
        from sharegroup.client import record_batches

        for one in pieces:
            if isinstance(one, Exception):
                yield Delivery(self.locks[-1], (), one)
            else:
                for lock, records in record_batches.to_records(one):
                    yield Delivery(lock, records, None)

    def is_alive(self, now: float) -> bool:
        """Whether one of its locks has not ended."""
        return any(now < lock.deadline for lock in self.locks)

    def give_back(self, *, delivered_below: int) -> None:
        """Release what is under locks of fewer deliveries; nobody will be handed that."""
        assert self.pieces is None, "only records are given back, not columns"
        kept = []
        for lock in self.locks:
            if lock.delivery_count >= delivered_below:
                kept.append(lock)
                continue
            for first, end in lock.waiting_ranges():
                lock.held.settle_unseen(lock, first, end, AcknowledgeType.RELEASE)
            lock.waiting_from = lock.end
        self.locks = kept
        if self.deliveries is not None:
            self.deliveries = deque(one for one in self.deliveries if one.lock in kept)

    def discard(self) -> None:
        """Nobody will be handed what is left."""
        for lock in self.locks:
            lock.waiting_from = lock.end


class Inbox:
    """See the module's text."""

    __slots__ = ("_config", "_parcels")

    def __init__(self, config: ShareConsumerConfig) -> None:
        self._config = config
        self._parcels: deque[Parcel] = deque()

    def __len__(self) -> int:
        """How many parcels wait."""
        return len(self._parcels)

    def __iter__(self) -> Iterator[Parcel]:
        return iter(self._parcels)

    @property
    def waiting(self) -> int:
        """How many offsets wait."""
        return sum(parcel.waiting for parcel in self._parcels)

    @property
    def waiting_bytes(self) -> float:
        """What they weigh."""
        return sum(parcel.waiting_bytes for parcel in self._parcels)

    @property
    def next_record_bytes(self) -> float:
        """What the next record weighs, on average; 0 when none waits."""
        return self._parcels[0].locks[0].record_bytes if self._parcels else 0.0

    def add(self, parcels: Iterable[Parcel]) -> None:
        """Queue these; the caller has already checked that their locks are held."""
        self._parcels.extend(parcels)

    def drop(self, lost: Iterable[HeldRecords]) -> int:
        """Forget what belongs to these tables; how many offsets that was."""
        tables = set(map(id, lost))
        gone = [one for one in self._parcels if id(one.held) in tables]
        dropped = sum(one.waiting for one in gone)
        for one in gone:
            one.discard()
        self._parcels = deque(one for one in self._parcels if id(one.held) not in tables)
        return dropped

    def give_back(self, *, delivered_below: int) -> None:
        """Release what was delivered less often than that; the rest stays."""
        for parcel in self._parcels:
            parcel.give_back(delivered_below=delivered_below)
        self._parcels = deque(one for one in self._parcels if one.locks)

    def take(self, count: int, *, now: float) -> list[Record]:
        """Up to ``count`` records, handed out; raises the failure that stands at the head.

        Records whose lock has ended are left out: somebody else may have them by now.
        """
        taken: list[Record] = []
        while self._parcels and len(taken) < count:
            parcel = self._parcels[0]
            deliveries = parcel.as_records(self._config) if parcel.is_alive(now) else None
            if deliveries:
                _hand_out(deliveries, taken, count, now)
            if not deliveries:
                parcel.discard()
                self._parcels.popleft()
            elif taken:
                break  # There is more than asked for, or a failure that comes after these.
            else:
                raise _failure(deliveries.popleft())
        return taken

    def take_columns(self, count: int, *, now: float) -> list[Piece]:
        """`take`, as columns of one partition each; they have yet to be `held`."""
        taken: list[Piece] = []
        while self._parcels and count > 0:
            parcel = self._parcels[0]
            alive = all(now < lock.deadline for lock in parcel.locks)
            pieces = parcel.as_columns(self._config) if alive else None
            while pieces and count > 0:
                head = pieces.popleft()
                if isinstance(head, Exception):
                    if not taken:
                        raise head
                    pieces.appendleft(head)
                    return taken
                piece, rest = head.cut(count)
                if rest is not None:
                    pieces.appendleft(rest)
                taken.append(piece)
                count -= len(piece.offsets)
            if not pieces:
                parcel.discard()
                self._parcels.popleft()
        return taken


def _hand_out(deliveries: deque[Delivery], taken: list[Record], count: int, now: float) -> None:
    """Move records to ``taken``, up to ``count`` in all, until there is a failure."""
    while deliveries and len(taken) < count:
        one = deliveries[0]
        lock = one.lock
        if now >= lock.deadline:
            deliveries.popleft()
            lock.waiting_from = lock.end
            continue
        if not one.records:
            return  # A failure is at the head.
        part = one.records[: count - len(taken)]
        rest = one.records[len(part) :]
        if rest or one.failure is not None:
            deliveries[0] = one._replace(records=rest)
        else:
            deliveries.popleft()
        lock.held.hand_out(lock, [record.offset for record in part])
        lock.waiting_from = part[-1].offset + 1
        taken += part


def _failure(one: Delivery) -> Exception:
    assert one.failure is not None
    if isinstance(one.failure, DeserializationError):
        # It counts as handed out, and goes back unless somebody decides otherwise.
        offset = one.failure.record.offset
        one.lock.held.hand_out(one.lock, [offset])
        one.lock.held.choose(offset, AcknowledgeType.RELEASE)
        one.lock.waiting_from = offset + 1
    return one.failure
