"""Makes Arrow record batches from a fetch answer, for `Consumer.poll_arrow`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sharegroup.errors import MissingExtra
from sharegroup.installation import pip_install

try:
    import numpy as np
    import pyarrow as pa
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"{error}: poll_arrow needs numpy and pyarrow, {pip_install('arrow')}"
    ) from error

from sharegroup.client.fetch.aborted_transactions import AbortedTransaction, classified_batches
from sharegroup.client.records import TopicPartition
from sharegroup.errors import CorruptMessage
from sharegroup.wire.batches.batches import Buffer
from sharegroup.wire.batches.columns import OffsetRanges, RecordColumns, record_columns
from sharegroup.wire.batches.header_columns import HEADERS
from sharegroup.wire.batches.record_pieces import UnreadableRange

NO_TIMESTAMP = -1
SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS),
        pa.field("leader_epoch", pa.int32(), nullable=False),
    ]
)


def decode(
    where: TopicPartition,
    data: Buffer,
    aborted: Sequence[AbortedTransaction],
    first_offset: int,
    *,
    decompressed_bytes_max: int,
) -> Iterator[pa.RecordBatch | UnreadableRange]:
    """Yield the records from ``first_offset`` on, in order, and what cannot be read of them.

    Raises CorruptMessage if a batch's length is invalid.
    """
    ranges: list[tuple[int, int]] = []
    epochs: list[tuple[int, int]] = []
    bad_marker: UnreadableRange | None = None
    try:
        for _, header, is_delivered, error in classified_batches(data, aborted):
            first = max(header.base_offset, first_offset)
            if error is not None and header.end_offset > first:
                # Without its marker nobody knows which of the following records were aborted.
                bad_marker = UnreadableRange(header.base_offset, header.end_offset, error)
                break
            if not is_delivered or header.end_offset <= first:
                continue
            epochs.append((first, header.leader_epoch))
            if ranges and ranges[-1][1] == first:
                ranges[-1] = (ranges[-1][0], header.end_offset)
            else:
                ranges.append((first, header.end_offset))
        failures: list[UnreadableRange] = []
        groups = record_columns(
            data,
            OffsetRanges.of(ranges),
            headers=True,
            decompressed_bytes_max=decompressed_bytes_max,
            unreadable=lambda *failure: failures.append(UnreadableRange(*failure)),
        )
        for group in groups:
            yield from _after(first_offset, failures)
            failures.clear()
            yield _batch(where, group, epochs)
        yield from _after(first_offset, failures)
        if bad_marker is not None:
            yield bad_marker
    except CorruptMessage as error:
        topic, partition = where
        raise CorruptMessage(
            f"topic {topic!r} partition {partition} from offset {first_offset}: {error}"
        ) from error


def _after(offset: int, failures: Sequence[UnreadableRange]) -> Iterator[UnreadableRange]:
    return (failure for failure in failures if failure.end > offset)


def first_offset(batch: pa.RecordBatch | UnreadableRange) -> int:
    """Return the offset of the first record."""
    if isinstance(batch, UnreadableRange):
        return batch.first
    return int(batch.column("offset")[0].as_py())


def last_epoch(batch: pa.RecordBatch) -> int:
    """Return the leader epoch of the last record."""
    return int(batch.column("leader_epoch")[-1].as_py())


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the records of one or more batches as one batch."""
    if len(batches) == 1:
        return batches[0]
    return pa.concat_batches(batches)


def _batch(
    where: TopicPartition, group: RecordColumns, epochs: Sequence[tuple[int, int]]
) -> pa.RecordBatch:
    count = len(group.offsets)
    firsts = np.array([first for first, _ in epochs], dtype=np.int64)
    numbers = np.array([epoch for _, epoch in epochs], dtype=np.int32)
    absent = group.timestamps == NO_TIMESTAMP
    timestamps = pa.array(group.timestamps, mask=absent if absent.any() else None)
    columns = [
        pa.repeat(pa.scalar(where.topic), count),
        pa.array(np.full(count, where.partition, dtype=np.int32)),
        pa.array(group.offsets),
        timestamps.cast(SCHEMA.field("timestamp").type),
        group.keys,
        group.values,
        group.headers,
        pa.array(numbers[np.searchsorted(firsts, group.offsets, side="right") - 1]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
