"""Fetched records as Arrow record batches, for `ShareConsumer.poll_arrow`.

    parcels --decode all records of a parcel at once--> pieces --cut, join--> one RecordBatch
                                                          '--> HeldColumns, in their tables

A piece is what is left of a parcel: columns side by side, and the lock that each record is
under.  A parcel with a corrupt batch, or one that `poll` has begun, takes the way through
single records: slower, and the same in every other respect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

try:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"{error}: poll_arrow needs numpy and pyarrow, pip install 'sharegroup[arrow]'"
    ) from error

from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.deliveries import settle_missing
from sharegroup.client.held_columns import HeldColumns
from sharegroup.client.held_records import HeldRecords
from sharegroup.client.locks import AcquisitionLock
from sharegroup.client.records import IllegalStateError, Record
from sharegroup.wire.batches import scan
from sharegroup.wire.columns import Ranges, RecordColumns, record_columns
from sharegroup.wire.header_columns import HEADERS

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
    """Records of one partition side by side, under ascending locks."""

    locks: Sequence[AcquisitionLock]
    ends: Sequence[int]
    """Where the records of each lock end."""
    offsets: npt.NDArray[np.int64]
    batch: pa.RecordBatch

    def cut(self, count: int) -> tuple[Piece, Piece | None]:
        """The first ``count`` records, and the rest."""
        if count >= len(self.offsets):
            return self, None
        head = Piece(
            self.locks, [min(end, count) for end in self.ends],
            self.offsets[:count], self.batch.slice(0, count),
        )  # fmt: skip
        rest = Piece(
            self.locks, [max(end - count, 0) for end in self.ends],
            self.offsets[count:], self.batch.slice(count),
        )  # fmt: skip
        return head, rest

    def hand_out(self) -> HeldColumns:
        """Its records go to the application now."""
        counts = [
            (lock, end - first)
            for lock, first, end in zip(self.locks, (0, *self.ends), self.ends, strict=False)
            if end > first
        ]
        for lock, _ in counts:
            inside = self.offsets[np.searchsorted(self.offsets, lock.end) - 1]
            lock.waiting_from = max(lock.waiting_from, int(inside) + 1)
        columns = HeldColumns(self.offsets, counts)
        self.locks[0].held.hand_out_columns(columns)
        return columns


def decode(
    records: bytes | memoryview, locks: Sequence[AcquisitionLock], config: ShareConsumerConfig
) -> Iterator[Piece]:
    """All records under these locks; gaps are settled.  CorruptMessage before anything is."""
    ranges = Ranges.of([(lock.first, lock.end) for lock in locks])
    groups = list(
        record_columns(
            records, ranges, headers=True, decompressed_bytes_max=config.decompressed_bytes_max
        )
    )
    found = [group.offsets for group in groups]
    offsets = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    bounds = np.searchsorted(offsets, np.stack(ranges))
    for lock, low, high in zip(locks, *bounds.tolist(), strict=True):
        if high - low != lock.end - lock.first:
            batches_end = max((header.end_offset for _, header in scan(records)), default=-1)
            settle_missing(lock, offsets[low:high].tolist(), batches_end)
    for group in groups:
        yield _piece(group, locks)


def _piece(group: RecordColumns, locks: Sequence[AcquisitionLock]) -> Piece:
    count = len(group.offsets)
    counts = np.array([lock.delivery_count for lock in locks], dtype=np.int32)
    ends = np.searchsorted(group.range_index, np.arange(len(locks)), side="right")
    absent = group.timestamps == NO_TIMESTAMP
    timestamps = pa.array(group.timestamps, mask=absent if absent.any() else None)
    columns = [
        *_where(locks[0], count),
        pa.array(group.offsets),
        timestamps.cast(SCHEMA.field("timestamp").type),
        group.keys,
        group.values,
        group.headers,
        pa.array(counts[group.range_index]),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return Piece(locks, ends.tolist(), group.offsets, batch)


def from_records(lock: AcquisitionLock, records: Sequence[Record]) -> Piece:
    """The same from single records, all under one lock."""
    offsets = np.array([record.offset for record in records], dtype=np.int64)
    timestamps = [one.timestamp_ms if one.timestamp_ms >= 0 else None for one in records]
    columns = [
        *_where(lock, len(records)),
        pa.array(offsets),
        pa.array(timestamps, type=SCHEMA.field("timestamp").type),
        pa.array([record.key for record in records], type=pa.binary()),
        pa.array([record.value for record in records], type=pa.binary()),
        pa.array([_headers(record) for record in records], type=HEADERS),
        pa.array(np.full(len(records), lock.delivery_count, dtype=np.int32)),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
    return Piece((lock,), (len(records),), offsets, batch)


def to_records(piece: Piece) -> Iterator[tuple[AcquisitionLock, list[Record]]]:
    """Single records of a piece, by lock."""
    times = piece.batch.column("timestamp").cast(pa.int64()).to_pylist()
    keys, values, headers = (
        piece.batch.column(name).to_pylist() for name in ("key", "value", "headers")
    )
    offsets = piece.offsets.tolist()
    first = 0
    for lock, end in zip(piece.locks, piece.ends, strict=True):
        if end > first:
            yield lock, [
                Record(
                    lock, offsets[row], times[row] or 0, keys[row], values[row],
                    [(one["key"], one["value"]) for one in headers[row] or ()],
                )
                for row in range(first, end)
            ]  # fmt: skip
        first = max(first, end)


def joined(pieces: Sequence[Piece]) -> pa.RecordBatch:
    """One batch of several pieces; nothing is copied when there is one."""
    if len(pieces) == 1:
        return pieces[0].batch
    columns = [
        pa.concat_arrays([piece.batch.column(index) for piece in pieces])
        for index in range(len(SCHEMA))
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


class HandedOut(NamedTuple):
    """One batch that the application has, and where its records are held."""

    batch: pa.RecordBatch
    columns: Sequence[tuple[HeldRecords, HeldColumns]]

    @property
    def is_open(self) -> bool:
        """Whether something of it is not settled."""
        return any(columns.open for _, columns in self.columns)


def handed_out(pieces: Sequence[Piece]) -> HandedOut:
    """These pieces as one batch, held from now on."""
    return HandedOut(joined(pieces), [(piece.locks[0].held, piece.hand_out()) for piece in pieces])


def settle(
    batch: pa.RecordBatch | pa.Table,
    ack_type: int,
    tables: Sequence[HeldRecords],
    open_batches: Sequence[HandedOut],
) -> None:
    """Settle the records that a batch, or a part of one, names; all of them or none."""
    for handed in open_batches:
        if handed.batch is batch and handed.is_open:  # Whole: there is nothing to look up.
            for held, columns in handed.columns:
                held.settle_columns(columns, ack_type)
            return
    found: list[tuple[HeldRecords, HeldColumns, npt.NDArray[np.int64]]] = []
    for topic, partition, offsets in by_partition(batch):
        for held in tables:
            if held.topic_partition == (topic, partition):
                here = list(held.columns_with(offsets))
                found += [(held, columns, some) for columns, some in here]
                for _, some in here:
                    offsets = np.setdiff1d(offsets, some, assume_unique=True)
        if len(offsets):
            raise IllegalStateError(
                f"topic {topic!r} partition {partition} offset {offsets[0]} is not held: its "
                "acknowledgement was sent already, or it was never delivered as a column"
            )
    for held, columns, some in found:
        held.settle_columns(columns, ack_type, some)


def by_partition(
    batch: pa.RecordBatch | pa.Table,
) -> Iterator[tuple[str, int, npt.NDArray[np.int64]]]:
    """The offsets that a batch, or a part of one, names: topic, partition, ascending offsets."""
    missing = [name for name in ("topic", "partition", "offset") if name not in batch.schema.names]
    if missing:
        raise ValueError(f"a batch to settle needs topic, partition and offset, not only "
                         f"{batch.schema.names}")  # fmt: skip
    topics = batch.column("topic").to_numpy(zero_copy_only=False)
    partitions = batch.column("partition").to_numpy(zero_copy_only=False)
    offsets = batch.column("offset").to_numpy(zero_copy_only=False)
    left = np.ones(len(offsets), dtype=bool)
    while left.any():
        at = int(np.argmax(left))
        mine = left & (partitions == partitions[at]) & (topics == topics[at])
        left &= ~mine
        yield str(topics[at]), int(partitions[at]), np.unique(offsets[mine]).astype(np.int64)


def _where(lock: AcquisitionLock, count: int) -> tuple[pa.Array, pa.Array]:
    partition = np.full(count, lock.held.partition, dtype=np.int32)
    return pa.repeat(pa.scalar(lock.held.topic), count), pa.array(partition)


def _headers(record: Record) -> list[dict[str, object]] | None:
    return [{"key": key, "value": value} for key, value in record.headers] or None
