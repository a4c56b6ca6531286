"""The inbox: fetched records that are not handed out yet, in the order of their arrival.

They are kept as the bytes of log batches until a poll asks for records or for columns.  Records
whose lock ends while they wait are dropped, because other members may have them by then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sharegroup.client.fetch.record_content import LazyDeque
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.decoded_records import DecodedRecords, decode_records
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.record import DeserializationError, Record, UnreadableDelivery
from sharegroup.client.share.session.acknowledgements import UNSTARTED
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.batches import UNREADABLE

if TYPE_CHECKING:
    from sharegroup.client.share.consumer.record_batches import Piece


class Parcel:
    """The records that one fetch brought of one partition, with their locks."""

    __slots__ = ("decoded", "held", "locks", "pieces", "records")

    def __init__(
        self, held: HeldRecords, records: bytes | memoryview, locks: Sequence[AcquisitionLock]
    ) -> None:
        self.held = held
        self.records = records
        self.locks = locks
        self.decoded: LazyDeque[DecodedRecords] | None = None
        """The remaining records; None until a poll asks for records."""
        self.pieces: LazyDeque[Piece | DecodedRecords] | None = None
        """The remaining records as columns; None until a poll asks for columns."""

    @property
    def waiting(self) -> int:
        """The number of offsets that are not handed out."""
        return sum(lock.waiting for lock in self.locks)

    @property
    def waiting_bytes(self) -> float:
        """The size on the wire, on average, of the records that are not handed out."""
        return sum(lock.waiting * lock.record_bytes for lock in self.locks)

    def as_records(self, config: ShareConsumerConfig) -> LazyDeque[DecodedRecords]:
        """Return the remaining records, which are decoded as they are used."""
        if self.decoded is None:
            if self.pieces is None:
                self.decoded = LazyDeque(
                    decode_records(self.held, self.records, self.locks, config)
                )
            else:
                self.decoded = LazyDeque(self._to_records(self.pieces.drain()))
                self.pieces = None
        return self.decoded

    def as_columns(self, config: ShareConsumerConfig) -> LazyDeque[Piece | DecodedRecords]:
        """Return the remaining records as columns, with the failures between them."""
        # Imported here because it needs pyarrow, an optional dependency.
        from sharegroup.client.share.consumer import record_batches

        if self.pieces is None and self.decoded is None:
            # Decoded record by record, readable batches are handed out, and large ones in pieces.
            with suppress(*UNREADABLE):
                self.pieces = LazyDeque(
                    list(record_batches.decode(self.held, self.records, self.locks, config))
                )
        if self.pieces is None:
            decoded = self.as_records(config)
            self.pieces, self.decoded = LazyDeque(self._from_records(decoded)), None
        return self.pieces

    def _from_records(self, decoded: LazyDeque[DecodedRecords]) -> Iterator[Piece | DecodedRecords]:
        # Imported here because it needs pyarrow, an optional dependency.
        from sharegroup.client.share.consumer import record_batches

        for lock, records, failure in decoded.drain():
            if records:
                yield record_batches.from_records(self.held, lock, records)
            if failure is not None:
                yield DecodedRecords(lock, (), failure)

    def _to_records(self, pieces: Iterable[Piece | DecodedRecords]) -> Iterator[DecodedRecords]:
        # Imported here because it needs pyarrow, an optional dependency.
        from sharegroup.client.share.consumer import record_batches

        for piece in pieces:
            if isinstance(piece, DecodedRecords):
                yield piece
            else:
                for lock, records in record_batches.to_records(piece):
                    yield DecodedRecords(lock, records, None)

    def is_alive(self, now: float) -> bool:
        """Whether at least one of its locks has not ended."""
        return any(now < lock.deadline for lock in self.locks)

    def release_waiting(self, *, delivered_below: int) -> None:
        """Release waiting records whose delivery count is lower than ``delivered_below``."""
        assert self.pieces is None, "only records are given back, not columns"
        kept_locks = []
        for lock in self.locks:
            if lock.delivery_count >= delivered_below:
                kept_locks.append(lock)
                continue
            for first, end in lock.waiting_ranges():
                self.held.settle_unseen(lock, first, end, UNSTARTED)
            lock.waiting_from = lock.end
        self.locks = kept_locks
        if self.decoded is not None:
            remaining = self.decoded.drain()
            self.decoded = LazyDeque(records for records in remaining if records.lock in kept_locks)

    def discard(self) -> None:
        """Drop the remaining records, so that they are never handed out."""
        for lock in self.locks:
            lock.waiting_from = lock.end


class Inbox:
    """Queue of fetched records that are not handed out yet."""

    __slots__ = ("_config", "_parcels", "unreadable_count")

    def __init__(self, config: ShareConsumerConfig) -> None:
        self._config = config
        self._parcels: deque[Parcel] = deque()
        self.unreadable_count = 0
        """The number of ranges that were reported as unreadable."""

    def __len__(self) -> int:
        """The number of parcels that wait."""
        return len(self._parcels)

    def __iter__(self) -> Iterator[Parcel]:
        return iter(self._parcels)

    @property
    def waiting(self) -> int:
        """The number of offsets that wait."""
        return sum(parcel.waiting for parcel in self._parcels)

    @property
    def waiting_bytes(self) -> float:
        """The size on the wire, on average, of the records that wait."""
        return sum(parcel.waiting_bytes for parcel in self._parcels)

    @property
    def next_record_bytes(self) -> float:
        """The average size of a record of the next lock; 0 if no record waits."""
        return self._parcels[0].locks[0].record_bytes if self._parcels else 0.0

    def add(self, parcels: Iterable[Parcel]) -> None:
        """Queue parcels; the caller has checked that their locks are held."""
        self._parcels.extend(parcels)

    def drop(self, lost: Iterable[HeldRecords]) -> int:
        """Drop the parcels of these tables; return the number of their offsets."""
        tables = set(map(id, lost))
        dropped_parcels = [parcel for parcel in self._parcels if id(parcel.held) in tables]
        dropped = sum(parcel.waiting for parcel in dropped_parcels)
        for parcel in dropped_parcels:
            # Otherwise its offsets without a record, and those of ended locks, would count as
            # waiting.
            parcel.discard()
        self._parcels = deque(parcel for parcel in self._parcels if id(parcel.held) not in tables)
        return dropped

    def release_waiting(self, *, delivered_below: int) -> None:
        """Release records whose delivery count is lower than ``delivered_below``; keep others."""
        for parcel in self._parcels:
            parcel.release_waiting(delivered_below=delivered_below)
        self._parcels = deque(
            queued_parcel for queued_parcel in self._parcels if queued_parcel.locks
        )

    def take(self, count: int, *, now: float) -> list[Record]:
        """Hand out up to ``count`` records, or raise the failure at the head of the queue.

        Records whose lock has ended are left out, because another member may have them by now.
        """
        taken: list[Record] = []
        while self._parcels and len(taken) < count:
            parcel = self._parcels[0]
            # A parcel of which all locks have ended is not decoded: nothing of it may be handed
            # out.
            decoded = parcel.as_records(self._config) if parcel.is_alive(now) else None
            if decoded:
                _hand_out(parcel.held, decoded, taken, count, now)
            if not decoded:
                parcel.discard()
                self._parcels.popleft()
            elif taken:
                break  # More records than requested are left, or a failure follows these.
            else:
                raise self._counted(_failure(parcel.held, decoded.popleft()))
        return taken

    def take_columns(self, count: int, *, now: float) -> list[Piece]:
        """Take up to ``count`` records as columns of one partition each.

        The caller still has to hand them out (`HeldRecords.hand_out_columns`).
        """
        taken: list[Piece] = []
        while self._parcels and count > 0:
            parcel = self._parcels[0]
            # Not `any`, as in `take`: columns are handed out in whole pieces, over several locks.
            alive = all(now < lock.deadline for lock in parcel.locks)
            pieces = parcel.as_columns(self._config) if alive else None
            while pieces and count > 0:
                head = pieces.popleft()
                if isinstance(head, DecodedRecords):
                    # The records before a failure are returned first; the next poll raises it.
                    if not taken:
                        raise self._counted(_failure(parcel.held, head))
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

    def _counted(self, failure: Exception) -> Exception:
        self.unreadable_count += isinstance(failure, UnreadableDelivery)
        return failure


def _hand_out(
    held: HeldRecords,
    decoded: LazyDeque[DecodedRecords],
    taken: list[Record],
    count: int,
    now: float,
) -> None:
    """Move records to ``taken``, up to ``count`` in all, until a failure is at the head."""
    while decoded and len(taken) < count:
        head = decoded[0]
        lock = head.lock
        if now >= lock.deadline:
            decoded.popleft()
            lock.waiting_from = lock.end
            continue
        if not head.records:
            return  # A failure is at the head.
        part = head.records[: count - len(taken)]
        rest = head.records[len(part) :]
        if rest or head.failure is not None:
            decoded[0] = head._replace(records=rest)
        else:
            decoded.popleft()
        held.hand_out(lock, [record.offset for record in part])
        lock.waiting_from = part[-1].offset + 1
        taken += part


def _failure(held: HeldRecords, head: DecodedRecords) -> Exception:
    failure, lock = head.failure, head.lock
    assert failure is not None
    if isinstance(failure, DeserializationError):
        # The record counts as handed out.  It is released unless the application chooses
        # another type.
        offset = failure.record.offset
        held.hand_out(lock, [offset])
        held.choose(offset, AcknowledgeType.RELEASE)
        lock.waiting_from = offset + 1
    elif isinstance(failure, UnreadableDelivery):
        held.report(lock, failure.first, failure.end)
    return failure
