"""Delays appends of large batches to compacted topics until every record was seen to have a key.

Small batches are checked at once.  A large one is walked in pieces (`record_jobs`), and meanwhile
later batches for the same partition wait behind it.  So batches keep their order, and the
sequence numbers of an idempotent producer stay in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from sharegroup.broker.record_jobs import RecordJobs
from sharegroup.errors import InvalidRecord, KafkaError, RequestTimedOut
from sharegroup.ids import TopicIdPartition
from sharegroup.wire.batches import BatchHeader, Writable
from sharegroup.wire.record_walk import (
    UNREADABLE,
    Walk,
    WalkStep,
    body_of,
    every_record_has_a_key,
    small_records,
)

T = TypeVar("T")

WAITING_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of batches that wait for their check, for all partitions; a single one may be larger."""


class KeyChecks:
    """The batches that wait for their check."""

    __slots__ = ("_jobs", "last", "waiting_bytes")

    def __init__(self, jobs: RecordJobs) -> None:
        self._jobs = jobs
        self.last: dict[TopicIdPartition, asyncio.Task[object]] = {}
        """The last waiting append of each partition."""
        self.waiting_bytes = 0

    def append_later(
        self,
        partition: TopicIdPartition,
        batch: Writable,
        header: BatchHeader,
        append: Callable[[], T],
    ) -> asyncio.Task[T | KafkaError]:
        """Call ``append`` when the batch is checked and earlier ones are appended or refused."""
        size = len(batch)
        if self.waiting_bytes and self.waiting_bytes + size > WAITING_BYTES_MAX:
            raise RequestTimedOut(
                f"batches of {self.waiting_bytes} bytes for compacted topics wait to be checked, "
                f"the limit is {WAITING_BYTES_MAX}; send this batch again later"
            )
        self.waiting_bytes += size
        work = self._append(batch, header, append, after=self.last.get(partition))
        task = asyncio.get_running_loop().create_task(work)
        self.last[partition] = task
        task.add_done_callback(lambda done: self._ended(partition, done, size))
        return task

    def _ended(self, partition: TopicIdPartition, task: asyncio.Task[object], size: int) -> None:
        self.waiting_bytes -= size
        if self.last.get(partition) is task:
            del self.last[partition]

    async def _append(
        self,
        batch: Writable,
        header: BatchHeader,
        append: Callable[[], T],
        *,
        after: asyncio.Task[object] | None,
    ) -> T | KafkaError:
        if after is not None:
            await asyncio.wait((after,))
        try:
            await self._jobs.complete(_check(batch, header, self._jobs.bytes_max))
            return append()
        except KafkaError as error:
            return error


def _check(batch: Writable, header: BatchHeader, bytes_max: int) -> Walk[None]:
    """Raise InvalidRecord unless every record of the batch has a key."""
    records = small_records(batch, header)
    if records is not None:
        have_keys = all(record.key is not None for record in records)
    else:
        yield WalkStep.BEGIN
        try:
            body = yield from body_of(batch, header, bytes_max=bytes_max)
            have_keys = yield from every_record_has_a_key(body, header)
        except UNREADABLE as error:
            raise InvalidRecord(f"the keys of a compacted topic cannot be read: {error}") from error
    if not have_keys:
        raise InvalidRecord("cleanup.policy=compact does not allow records without a key")
