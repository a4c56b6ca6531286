"""From deliveries to standard output: what `sharegroup consume` does with a record.

    poll --> write --> flushed --> accept (or release, or reject) --> with the next fetch

A record is settled only after every byte of it has been given to the system: when the reader
at the other end of the pipe has gone, or the disk is full, what was not written goes back to
the group.  While the reader takes its time, the locks are renewed (`ShareConsumer`, auto_renew).
What lies in a pipe counts as written; whether anybody reads it nobody can know.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sharegroup.cli.formats.template import RecordFormatError
from sharegroup.cli.formats.writing import Row, RowWriter
from sharegroup.cli.pipes import write_all
from sharegroup.cli.running import Stop
from sharegroup.client.records import (
    AcknowledgementResult,
    AcknowledgeType,
    Record,
    TopicPartition,
)
from sharegroup.client.share_consumer import ShareConsumer
from sharegroup.errors import CorruptMessage, InvalidRecordState, KafkaError, UnsupportedVersion

POLL_SECONDS = 0.2
"""A signal is noticed after at most so long."""

NO_RENEWAL = "auto_renew is off"


class Printing:
    """Writes what a consumer is given to a descriptor, and settles it."""

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
        """Records that were delivered and settled."""
        self.rejected = 0
        """Those among them that could not be written as asked."""
        self.lost: dict[TopicPartition, tuple[int, KafkaError]] = {}
        """Records whose acknowledgement had no effect, so that they may come again, and why."""
        consumer.set_acknowledgement_commit_callback(self._acknowledged)

    async def run(self, stop: Stop, *, count_max: int | None, idle_ms: int | None) -> None:
        """Until ``count_max`` records are settled, none comes for ``idle_ms``, or ``stop``."""
        last = time.monotonic()
        while not stop.is_set() and (count_max is None or self.count < count_max):
            left = None if count_max is None else count_max - self.count
            records = await self._poll(left)
            if records:
                await self._print(records)
                last = time.monotonic()
            elif idle_ms is not None and time.monotonic() - last >= idle_ms / 1000:
                break
        await self._consumer.commit()

    async def _poll(self, count_max: int | None) -> Sequence[Record]:
        try:
            return await self._consumer.poll(POLL_SECONDS, count_max)
        except CorruptMessage as error:
            # The client has rejected the batch: nobody can read it.
            if not self._reject_on_error:
                raise
            self._complain(f"rejected: {error}")
            return ()
        except (InvalidRecordState, UnsupportedVersion) as error:
            # The consumer says once that locks can't be renewed here, and goes on without.
            if not str(error).startswith(NO_RENEWAL):
                raise
            self._complain(str(error))
            return ()

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
                    break
                self._complain(f"rejected: {failure}")
                unwritable.append(record)
            else:
                written.append(record)
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
        # A renewal that failed shows in the acknowledgement that comes too late then.
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
