"""Writes delivered records to standard output and settles them, for `sharegroup consume`.

    poll --> write --> flushed --> accept (or release, or reject) --> with the next fetch

A record is settled only after the system has accepted all its bytes. If the reader has closed
the pipe, or the disk is full, the records that were not written go back to the group. While a
slow reader blocks the pipe, the acquisition locks are renewed (`ShareConsumer`, auto_renew).
Bytes in a pipe count as written, because a writer cannot see whether anyone reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sharegroup.cli.common.running import Stop
from sharegroup.cli.records.formats.template import RecordFormatError
from sharegroup.cli.records.formats.writing import Row, RowWriter
from sharegroup.cli.records.standard_streams import write_all
from sharegroup.client.records import AcknowledgementResult, TopicPartition
from sharegroup.client.share.consumer.flow_control import FlowControl
from sharegroup.client.share.consumer.record import Record, UnreadableDelivery
from sharegroup.client.share.consumer.share_consumer import ShareConsumer
from sharegroup.errors import InvalidRecordState, KafkaError, UnsupportedVersion
from sharegroup.protocol_enums import AcknowledgeType

POLL_SECONDS = 0.2
"""The length of one poll, and so the longest time until a signal is noticed."""


class RecordPrinter:
    """Writes the records of a consumer to a file descriptor, and settles them."""

    __slots__ = (
        "_acknowledge_type",
        "_complain",
        "_consumer",
        "_fd",
        "_reject_on_error",
        "_write",
        "count",
        "lost",
        "rejected",
        "unreadable",
    )

    def __init__(
        self,
        consumer: ShareConsumer,
        fd: int,
        *,
        write: RowWriter,
        acknowledge_type: AcknowledgeType,
        reject_on_error: bool,
        complain: Callable[[str], None],
    ) -> None:
        self._consumer = consumer
        self._fd = fd
        self._write = write
        self._acknowledge_type = acknowledge_type
        self._reject_on_error = reject_on_error
        self._complain = complain
        self.count = 0
        """The number of records that were delivered and settled."""
        self.rejected = 0
        """The number of records among them that the format could not write."""
        self.unreadable = 0
        """The number of ranges of offsets that cannot be read."""
        self.lost: dict[TopicPartition, tuple[int, KafkaError]] = {}
        """By partition, the number of records whose acknowledgement failed, and the last error.

        These records may be delivered again.
        """
        consumer.set_acknowledgement_commit_callback(self._acknowledged)

    async def run(self, stop: Stop, *, count_max: int | None, idle_ms: int | None) -> None:
        """Write and settle records until one of the limits is reached or ``stop`` is set.

        The limits are ``count_max`` settled records, and ``idle_ms`` without a record.
        """
        last_records_at = time.monotonic()
        while not stop.is_set() and (count_max is None or self.count < count_max):
            count_left = None if count_max is None else count_max - self.count
            records = await self._poll(count_left)
            if records:
                await self._print(records)
                last_records_at = time.monotonic()
            elif idle_ms is not None and time.monotonic() - last_records_at >= idle_ms / 1000:
                break
        # Its callback fills `lost`, on which the exit code depends.
        await self._consumer.commit()

    async def _poll(self, count_max: int | None) -> Sequence[Record]:
        try:
            return await self._consumer.poll(POLL_SECONDS, count_max)
        except UnreadableDelivery as error:
            self._say_unreadable(error)
            return ()
        except (InvalidRecordState, UnsupportedVersion) as error:
            # The consumer raises once if the broker cannot renew locks, and then runs without.
            if not error.ends_renewal:
                raise
            self._complain(str(error))
            return ()

    def _say_unreadable(self, error: UnreadableDelivery) -> None:
        """Report offsets that cannot be read; they are released at the end unless told otherwise.

        Released at once, they would be delivered here again until the delivery count limit.
        """
        self.unreadable += 1
        if self._reject_on_error:
            self._consumer.reject(error)
        else:
            FlowControl(self._consumer).keep(error)
        outcome = "rejected" if self._reject_on_error else "released at the end"
        self._complain(f"{outcome}: {error}")

    async def _print(self, records: Sequence[Record]) -> None:
        wall_ms, monotonic = time.time_ns() // 1_000_000, time.monotonic()
        content: list[bytes] = []
        written: list[Record] = []
        unwritable: list[Record] = []
        failure: RecordFormatError | None = None
        for number, record in enumerate(records, self.count + 1):
            left_ms = int((record.deadline - monotonic) * 1000)
            try:
                content.append(self._write(_row(record, wall_ms + left_ms, left_ms, number)))
            except RecordFormatError as error:
                text = f"topic {record.topic!r} partition {record.partition} "
                failure = RecordFormatError(f"{text}offset {record.offset}: {error}")
                if not self._reject_on_error:
                    # This record and those after it stay unsettled, so closing the consumer
                    # releases them.
                    break
                self._complain(f"rejected: {failure}")
                unwritable.append(record)
            else:
                written.append(record)
        # Before anything is settled: records whose output fails have to be delivered again.
        await write_all(self._fd, b"".join(content))
        for record in written:
            record.settle(self._acknowledge_type)
        for record in unwritable:
            record.reject()
        self.count += len(written) + len(unwritable)
        self.rejected += len(unwritable)
        if failure is not None and not self._reject_on_error:
            raise failure

    def _acknowledged(self, result: AcknowledgementResult) -> None:
        # A failed renewal needs no report: the acknowledgement after it fails as well.
        if result.error is not None and not result.is_renewal:
            count, _ = self.lost.get(result.topic_partition, (0, None))
            self.lost[result.topic_partition] = count + len(result.offsets), result.error


def _row(record: Record, deadline_ms: int, left_ms: int, number: int) -> Row:
    return Row(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        record.headers,
        record.delivery_count,
        deadline_ms,
        left_ms,
        number,
    )
