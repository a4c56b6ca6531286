"""The records of one partition in a fetch answer, decoded when the application takes them.

    bytes    | batch | control | batch | aborted | batch |
                 ^ taken up to here: `next_offset`

A batch is decoded when its first record is taken, so records that a seek or a rebalance drops are
never decoded; one that is large after decompression is decoded in pieces.  `take_columns` decodes
many batches at once, which is what makes columns fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from sharegroup.client.consume.consumer_record import BatchOrigin, ConsumerRecord
from sharegroup.client.fetch.aborted_transactions import AbortedTransaction, classified_batches
from sharegroup.client.fetch.record_content import LazyDeque, maker
from sharegroup.client.records import TopicPartition
from sharegroup.errors import UnreadableBatch
from sharegroup.wire.batches.batches import Buffer, batch_positions, parse_header, scan
from sharegroup.wire.batches.record_pieces import UnreadableRange, read_pieces

if TYPE_CHECKING:
    import pyarrow as pa


class FetchedRecords:
    """The records of one partition in a fetch answer, from the requested offset on."""

    __slots__ = (
        "_aborted", "_batches", "_columns", "_data", "_decoded", "_decompressed_bytes_max",
        "_end_of_batch", "_index", "_is_whole", "_pieces", "end_offset", "last_epoch",
        "next_epoch", "next_offset", "size", "where",
    )  # fmt: skip

    def __init__(
        self,
        where: TopicPartition,
        offset: int,
        data: Buffer,
        aborted: Sequence[AbortedTransaction] = (),
        *,
        decompressed_bytes_max: int,
    ) -> None:
        self.where = where
        self.next_offset = offset
        """The offset behind the records taken; the next record has this offset or a higher one."""
        self.next_epoch = -1
        """The leader epoch of the last batch of which a record was taken; -1 before that."""
        positions = batch_positions(data)
        last = parse_header(data, positions[-1]) if positions else None
        self.end_offset = offset if last is None else last.end_offset
        """The offset behind the last whole batch."""
        self.last_epoch = -1 if last is None else last.leader_epoch
        self.size = len(data)
        self._data = data
        self._aborted = aborted
        self._decompressed_bytes_max = decompressed_bytes_max
        self._batches = classified_batches(data, aborted)
        self._decoded: list[ConsumerRecord] = []
        self._index = 0
        self._end_of_batch = offset
        self._pieces: Iterator[list[ConsumerRecord] | UnreadableRange] = iter(())
        """What is left of the current batch."""
        self._is_whole = True
        """Whether the current batch is decoded in one piece."""
        self._columns: LazyDeque[pa.RecordBatch | UnreadableRange] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all records were taken."""
        return self.next_offset >= self.end_offset

    def take(self, limit: int) -> list[ConsumerRecord]:
        """Take up to ``limit`` records of one batch; an empty list means that none are left.

        Raises UnreadableBatch for offsets that cannot be read; `next_offset` is the first of them.
        """
        # Columns that were decoded before would give the records taken here again.
        self._columns = None
        if self._index >= len(self._decoded) and not self._decode_next():
            return []
        begin, end = self._index, self._index + limit
        records = self._decoded[begin:end]
        self._index = end
        if end >= len(self._decoded):
            self._decoded, self._index = [], 0
            # A whole batch may end behind its last record, which compaction has removed; what
            # follows in a streamed batch is not known yet.
            self.next_offset = self._end_of_batch if self._is_whole else records[-1].offset + 1
        else:
            self.next_offset = self._decoded[end].offset
        return records

    def back_to(self, record: ConsumerRecord) -> None:
        """Give back the records of the last `take`, from this record on."""
        self.next_offset = record.offset
        self._restart()

    def take_columns(self, limit: int) -> pa.RecordBatch | None:
        """Take up to ``limit`` records as columns; None means that none are left.

        Raises UnreadableBatch as `take` does.
        """
        # Imported here because it needs pyarrow, an optional dependency.
        from sharegroup.client.consume import consumed_columns

        if self._columns is None:
            columns = consumed_columns.decode(
                self.where,
                self._data,
                self._aborted,
                self.next_offset,
                decompressed_bytes_max=self._decompressed_bytes_max,
            )
            self._restart()
            self._columns = LazyDeque(columns)
        if not self._columns:
            self.next_offset, self.next_epoch = self.end_offset, self.last_epoch
            return None
        batch = self._columns.popleft()
        if isinstance(batch, UnreadableRange):
            self.next_offset = max(self.next_offset, batch.first)
            self._columns = None
            raise self._failure(batch)
        if batch.num_rows > limit:
            self._columns.appendleft(batch.slice(limit))
            batch = batch.slice(0, limit)
        if self._columns:
            self.next_offset = consumed_columns.first_offset(self._columns[0])
        else:
            self.next_offset = self.end_offset
        self.next_epoch = consumed_columns.last_epoch(batch)
        return batch

    def _restart(self) -> None:
        """Let `take` begin anew at `next_offset`."""
        self._batches = classified_batches(self._data, self._aborted)
        self._decoded, self._index, self._end_of_batch = [], 0, self.next_offset
        self._pieces = iter(())

    def _decode_next(self) -> bool:
        """Decode the next piece of a batch with records; return False at the end."""
        while True:
            for piece in self._pieces:
                if isinstance(piece, UnreadableRange):
                    if piece.end <= self.next_offset:
                        continue
                    self.next_offset = max(self.next_offset, piece.first)
                    # The next `take` meets the same offsets again, until the application seeks
                    # behind them.
                    self._restart()
                    raise self._failure(piece)
                if piece and piece[0].offset < self.next_offset:
                    piece = [record for record in piece if record.offset >= self.next_offset]
                if piece:
                    self._decoded, self._index = piece, 0
                    return True
            if not self._begin_batch():
                self.next_offset = max(self.next_offset, self.end_offset)
                return False

    def _begin_batch(self) -> bool:
        """Go on to the next batch that has records to deliver; return False at the end."""
        self.next_offset = max(self.next_offset, self._end_of_batch)
        for position, header, is_delivered, marker_error in self._batches:
            if header.end_offset <= self.next_offset:
                continue
            if marker_error is not None:
                unreadable = UnreadableRange(header.base_offset, header.end_offset, marker_error)
                self._pieces = iter((unreadable,))
                return True
            self.next_epoch = header.leader_epoch
            if is_delivered:
                self._end_of_batch = header.end_offset
                origin = BatchOrigin(self.where, header.leader_epoch, header.has_log_append_time)
                pieces = read_pieces(
                    self._data,
                    position,
                    header,
                    maker(ConsumerRecord, origin),
                    decompressed_bytes_max=self._decompressed_bytes_max,
                    check_crc=True,
                )
                self._is_whole = isinstance(pieces, tuple)
                self._pieces = iter(pieces)
                return True
            self.next_offset = header.end_offset
        return False

    def _failure(self, unreadable: UnreadableRange) -> UnreadableBatch:
        position, header = next(
            (position, header)
            for position, header in scan(self._data)
            if header.base_offset <= unreadable.first < header.end_offset
        )
        return UnreadableBatch(
            unreadable.error,
            topic=self.where.topic,
            partition=self.where.partition,
            first=max(self.next_offset, unreadable.first),
            end=unreadable.end,
            batch=bytes(self._data[position : position + header.size]),
            action=f"seek to {unreadable.end} to go on behind them",
        )
