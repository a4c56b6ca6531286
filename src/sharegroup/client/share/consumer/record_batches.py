"""Makes Arrow record batches from fetched records, for `ShareConsumer.poll_arrow`.

    parcels --decode all records of a parcel at once--> pieces --cut, join--> one RecordBatch
                                                          '--> HeldColumns, in their tables

A piece holds remaining records of a parcel as columns, with the lock of each record.  A parcel
with a corrupt batch, or one that `poll` has started, is decoded to single records first.  That is
slower, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install

try:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"{error}: poll_arrow needs numpy and pyarrow, {pip_install('arrow')}"
    ) from error

from sharegroup.client.records import IllegalStateError
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.decoded_records import settle_missing
from sharegroup.client.share.consumer.held_columns import HeldColumns
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.record import Record
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.batches import scan
from sharegroup.wire.batches.columns import OffsetRanges, RecordColumns, record_columns
from sharegroup.wire.batches.header_columns import HEADERS, header_lists, headers_of

SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("delivery_count", pa.int32(), nullable=False),
    ]
)
NO_TIMESTAMP = -1


class Piece(NamedTuple):
    """Records of one partition as columns, with their locks in ascending order."""

    held: HeldRecords
    locks: Sequence[AcquisitionLock]
    ends: Sequence[int]
    """For each lock, the index after its last record."""
    offsets: npt.NDArray[np.int64]
    batch: pa.RecordBatch

    def cut(self, count: int) -> tuple[Piece, Piece | None]:
        """Split off the first ``count`` records; return them and the rest, or None."""
        if count >= len(self.offsets):
            return self, None
        head = Piece(
            self.held, self.locks, [min(end, count) for end in self.ends],
            self.offsets[:count], self.batch.slice(0, count),
        )  # fmt: skip
        rest = Piece(
            self.held, self.locks, [max(end - count, 0) for end in self.ends],
            self.offsets[count:], self.batch.slice(count),
        )  # fmt: skip
        return head, rest

    def hand_out(self) -> HeldColumns:
        """Hand out the records to the application, and return them as held columns."""
        counts = [
            (lock, end - first)
            # Not strict: there is one more beginning than there are ends.
            for lock, first, end in zip(self.locks, (0, *self.ends), self.ends, strict=False)
            if end > first
        ]
        for lock, _ in counts:
            last_offset = self.offsets[np.searchsorted(self.offsets, lock.end) - 1]
            lock.waiting_from = max(lock.waiting_from, int(last_offset) + 1)
        columns = HeldColumns(self.offsets, counts)
        self.held.hand_out_columns(columns)
        return columns


def decode(
    held: HeldRecords,
    records: bytes | memoryview,
    locks: Sequence[AcquisitionLock],
    config: ShareConsumerConfig,
) -> Iterator[Piece]:
    """Yield all records under these locks as pieces, and settle gaps.

    Raises CorruptMessage before anything is settled or yielded, also for a batch that has to be
    read in pieces.
    """
    ranges = OffsetRanges.of([(lock.first, lock.end) for lock in locks])
    groups = list(
        record_columns(
            records,
            ranges,
            headers=True,
            decompressed_bytes_max=config.decompressed_bytes_max,
            in_pieces=False,
        )
    )
    group_offsets = [group.offsets for group in groups]
    offsets = np.concatenate(group_offsets) if group_offsets else np.empty(0, dtype=np.int64)
    bounds = np.searchsorted(offsets, np.stack(ranges))
    for lock, low, high in zip(locks, *bounds.tolist(), strict=True):
        if high - low != lock.end - lock.first:
            batches_end = max((header.end_offset for _, header in scan(records)), default=-1)
            settle_missing(held, lock, offsets[low:high].tolist(), batches_end)
    for group in groups:
        yield _piece(held, group, locks)


def _piece(held: HeldRecords, group: RecordColumns, locks: Sequence[AcquisitionLock]) -> Piece:
    count = len(group.offsets)
    counts = np.array([lock.delivery_count for lock in locks], dtype=np.int32)
    ends = np.searchsorted(group.range_index, np.arange(len(locks)), side="right")
    absent = group.timestamps == NO_TIMESTAMP
    timestamps = pa.array(group.timestamps, mask=absent if absent.any() else None)
    columns = [
        *_where(held, count),
        pa.array(group.offsets),
        timestamps.cast(SCHEMA.field("timestamp").type),
        group.keys,
        group.values,
        group.headers,
        pa.array(counts[group.range_index]),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return Piece(held, locks, ends.tolist(), group.offsets, batch)


def from_records(held: HeldRecords, lock: AcquisitionLock, records: Sequence[Record]) -> Piece:
    """Make a piece from single records, all under one lock."""
    offsets = np.array([record.offset for record in records], dtype=np.int64)
    timestamps = [
        None if record.timestamp_ms == NO_TIMESTAMP else record.timestamp_ms for record in records
    ]
    columns = [
        *_where(held, len(records)),
        pa.array(offsets),
        pa.array(timestamps, type=SCHEMA.field("timestamp").type),
        pa.array([record.key for record in records], type=pa.binary()),
        pa.array([record.value for record in records], type=pa.binary()),
        header_lists(record.headers for record in records),
        pa.array(np.full(len(records), lock.delivery_count, dtype=np.int32)),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return Piece(held, (lock,), (len(records),), offsets, batch)


def to_records(piece: Piece) -> Iterator[tuple[AcquisitionLock, list[Record]]]:
    """Yield the records of a piece as single records, by lock."""
    times = piece.batch.column("timestamp").cast(pa.int64()).fill_null(NO_TIMESTAMP).to_pylist()
    keys, values, headers = (
        piece.batch.column(name).to_pylist() for name in ("key", "value", "headers")
    )
    offsets = piece.offsets.tolist()
    first = 0
    for lock, end in zip(piece.locks, piece.ends, strict=True):
        if end > first:
            yield lock, [
                Record(
                    lock, offsets[row], times[row], keys[row], values[row],
                    headers_of(headers[row]),
                )
                for row in range(first, end)
            ]  # fmt: skip
        first = max(first, end)


def joined(pieces: Sequence[Piece]) -> pa.RecordBatch:
    """Join pieces to one batch; a single piece is not copied."""
    if len(pieces) == 1:
        return pieces[0].batch
    columns = [
        pa.concat_arrays([piece.batch.column(index) for piece in pieces])
        for index in range(len(SCHEMA))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class HandedOut(NamedTuple):
    """A batch that was handed out to the application, with the tables that hold its records."""

    batch: pa.RecordBatch
    columns: Sequence[tuple[HeldRecords, HeldColumns]]

    @property
    def is_open(self) -> bool:
        """Whether a record of the batch is not settled."""
        return any(columns.open for _, columns in self.columns)

    def takes(self, ack_type: int) -> bool:
        """Whether this type is possible for the batch as a whole, without a look at each record.

        A renewal is of locks, so it is possible as long as a record is open.
        """
        if ack_type == AcknowledgeType.RENEW:
            return self.is_open
        return not any(columns.has_sent() for _, columns in self.columns)


def handed_out(pieces: Sequence[Piece]) -> HandedOut:
    """Hand out these pieces as one batch."""
    return HandedOut(joined(pieces), [(piece.held, piece.hand_out()) for piece in pieces])


def settle(
    batch: pa.RecordBatch | pa.Table,
    ack_type: int,
    tables: Sequence[HeldRecords],
    open_batches: Sequence[HandedOut],
) -> None:
    """Set, or change, the type of all records of a batch, or of a part of one; or of none.

    Raises IllegalStateError if the acknowledgement of one of them was sent.
    """
    for handed_out_batch in open_batches:
        # Whole: there is nothing to look up.
        if handed_out_batch.batch is batch and handed_out_batch.takes(ack_type):
            for held, columns in handed_out_batch.columns:
                held.settle_columns(columns, ack_type)
            return
    parts: list[tuple[HeldRecords, HeldColumns, npt.NDArray[np.int64]]] = []
    for topic, partition, offsets in by_partition(batch):
        for held in tables:
            if held.topic_partition == (topic, partition):
                holders = list(held.columns_with(offsets))
                parts += [(held, columns, held_offsets) for columns, held_offsets in holders]
                for _, held_offsets in holders:
                    offsets = np.setdiff1d(offsets, held_offsets, assume_unique=True)
        if len(offsets):
            raise IllegalStateError(
                f"topic {topic!r} partition {partition} offset {offsets[0]} is not held: its "
                "acknowledgement was sent already, or it was never delivered as a column"
            )
    for held, columns, held_offsets in parts:
        held.settle_columns(columns, ack_type, held_offsets)


def by_partition(
    batch: pa.RecordBatch | pa.Table,
) -> Iterator[tuple[str, int, npt.NDArray[np.int64]]]:
    """Yield topic, partition and ascending offsets of the records in a batch or a part of it."""
    missing = [name for name in ("topic", "partition", "offset") if name not in batch.schema.names]
    if missing:
        raise ValueError(f"a batch to settle needs topic, partition and offset, not only "
                         f"{batch.schema.names}")  # fmt: skip
    topics = batch.column("topic").to_numpy(zero_copy_only=False)
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    remaining = np.ones(len(offsets), dtype=bool)
    while remaining.any():
        first_row = int(np.argmax(remaining))
        of_partition = (
            remaining & (partitions == partitions[first_row]) & (topics == topics[first_row])
        )
        remaining &= ~of_partition
        yield (
            str(topics[first_row]),
            int(partitions[first_row]),
            # The application may have sorted or joined the batch.
            np.unique(offsets[of_partition]).astype(np.int64),
        )


def _where(held: HeldRecords, count: int) -> tuple[pa.Array, pa.Array]:
    partition = np.full(count, held.partition, dtype=np.int32)
    return pa.repeat(pa.scalar(held.topic), count), pa.array(partition)
