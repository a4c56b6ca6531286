"""Prepares batches of producers whose records have to be read before they are appended.

A topic may need that for four reasons: records of a compacted topic must have keys, a topic with a
``compression.type`` stores its batches with another codec, and it may limit the age and the size of
a record.  A batch that is refused for its records is read, too, to name them.  Small batches that
need not be compressed are read at once.  Others are walked in pieces (`record_jobs`), and meanwhile
later batches for the same partition wait behind them.  So batches keep their order, and the
sequence numbers of an idempotent producer stay in order.

The bytes that wait are limited, for all users and, as a part of that, for one (`shared_totals`).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple, TypeVar

from sharegroup.broker.load.record_jobs import RecordJobs
from sharegroup.core.security.principal import Principal
from sharegroup.core.shared_totals import PERCENT_KEY, part_left
from sharegroup.errors import InvalidRecord, InvalidTimestamp, KafkaError, RequestTimedOut
from sharegroup.ids import TopicIdPartition
from sharegroup.wire.batches.batches import NO_TIMESTAMP, UNREADABLE, BatchHeader, Buffer, Writable
from sharegroup.wire.batches.compression import NONE
from sharegroup.wire.batches.recompression import TargetCompression, check_sizes, recompressed
from sharegroup.wire.batches.record_walk import (
    SMALL_BYTES,
    Walk,
    WalkStep,
    body_of,
    every_record_has_a_key,
    finish,
    records_out_of_time,
    records_without_key,
    small_records,
)
from sharegroup.wire.batches.records import DecodedRecord

# The errors of single records, for which a batch is refused as a whole (KIP-467).


class RecordError(NamedTuple):
    """A record by its position in the batch, counted from 0, and what is wrong with it."""

    position: int
    text: str


class RecordsWithoutKey(InvalidRecord):
    """Records of a batch have no key, but the topic is compacted."""

    def __init__(self, records: tuple[RecordError, ...]) -> None:
        super().__init__(
            "cleanup.policy=compact does not allow records without a key: found "
            f"{len(records)} of them, the first at position {records[0].position} of the batch"
        )
        self.records = records


class RecordsOutOfTime(InvalidTimestamp):
    """Timestamps of records are too far from the broker's time."""

    def __init__(self, text: str, records: tuple[RecordError, ...]) -> None:
        super().__init__(text)
        self.records = records


def errors_of_records(error: BaseException) -> tuple[RecordError, ...]:
    """Return the records that an error names; none for other errors."""
    return error.records if isinstance(error, RecordsWithoutKey | RecordsOutOfTime) else ()


T = TypeVar("T")

WAITING_BYTES_MAX = 8 * 1024 * 1024
"""Bytes of batches that wait for their preparation, of all partitions; one may be larger."""


class Preparation(NamedTuple):
    """What a batch needs before it is appended; nothing, unless a field says so."""

    keys: bool = False
    """Whether every record must have a key."""
    target: TargetCompression | None = None
    """The codec in which the batch is stored; None keeps the batch as it is."""
    record_bytes_max: int | None = None
    """The largest record that is allowed; None is any size."""
    times: tuple[int, int] | None = None
    """The first and the last timestamp that a record may have; None is any time."""

    @property
    def reads_all(self) -> bool:
        """Whether small batches have to be walked, too."""
        return self.target is not None or self.record_bytes_max is not None


NOTHING = Preparation()


class ProducedBatches:
    """The batches that wait for their preparation."""

    __slots__ = (
        "_bytes_of_users", "_jobs", "_user_percent", "last", "user_refused_count", "waiting_bytes",
    )  # fmt: skip

    def __init__(self, jobs: RecordJobs, user_percent: int) -> None:
        self._jobs = jobs
        self._user_percent = user_percent
        self._bytes_of_users: Counter[Principal] = Counter()
        """The waiting bytes of each user who may have only a part."""
        self.last: dict[TopicIdPartition, asyncio.Task[object]] = {}
        """The last waiting append of each partition."""
        self.waiting_bytes = 0
        self.user_refused_count = 0
        """How often a batch was refused because its user had too many waiting."""

    def prepare(
        self,
        partition: TopicIdPartition,
        batch: Writable,
        header: BatchHeader,
        needs: Preparation,
        append: Callable[[Writable], T],
        *,
        user: Principal | None,
    ) -> asyncio.Task[T | KafkaError] | None:
        """Return None if the batch can be appended as it is, or a task that appends it later.

        ``user`` is its sender, if that one may hold only a part of the waiting bytes.  Raises
        KafkaError if the batch is refused.
        """
        if partition not in self.last:
            if needs is NOTHING:
                return None
            if not needs.reads_all and _is_checked(batch, header, needs):
                return None
        return self._append_later(partition, batch, header, needs, append, user)

    def _append_later(
        self,
        partition: TopicIdPartition,
        batch: Writable,
        header: BatchHeader,
        needs: Preparation,
        append: Callable[[Writable], T],
        user: Principal | None,
    ) -> asyncio.Task[T | KafkaError]:
        """Call ``append`` when the batch is ready and earlier ones are appended or refused."""
        size = len(batch)
        self._check_room(user, size)
        self.waiting_bytes += size
        if user is not None:
            self._bytes_of_users[user] += size
        work = self._append(batch, header, needs, append, user, after=self.last.get(partition))
        task = asyncio.get_running_loop().create_task(work)
        self.last[partition] = task
        task.add_done_callback(lambda done: self._ended(partition, done, user, size))
        return task

    def _check_room(self, user: Principal | None, size: int) -> None:
        """Raise RequestTimedOut if a batch must not wait; the first one of a user may."""
        # REQUEST_TIMED_OUT, because producers send such a batch again.  The first batch always
        # fits, however large it is.
        if self.waiting_bytes and self.waiting_bytes + size > WAITING_BYTES_MAX:
            raise RequestTimedOut(
                f"batches of {self.waiting_bytes} bytes wait to be checked or compressed, the "
                f"limit is {WAITING_BYTES_MAX}; send this batch again later"
            )
        held = 0 if user is None else self._bytes_of_users[user]
        room = part_left(held=held, limit=WAITING_BYTES_MAX, percent=self._user_percent)
        if held and size > room:
            self.user_refused_count += 1
            raise RequestTimedOut(
                f"{user}: batches of {held} bytes wait to be checked or compressed, and one user "
                f"may have {held + room} ({PERCENT_KEY}={self._user_percent} of "
                f"{WAITING_BYTES_MAX}); send this batch again later"
            )

    def _ended(
        self,
        partition: TopicIdPartition,
        task: asyncio.Task[object],
        user: Principal | None,
        size: int,
    ) -> None:
        self.waiting_bytes -= size
        if user is not None:
            self._bytes_of_users[user] -= size
            if not self._bytes_of_users[user]:
                del self._bytes_of_users[user]
        # A later batch of the partition may wait behind this one by now.
        if self.last.get(partition) is task:
            del self.last[partition]

    async def _append(
        self,
        batch: Writable,
        header: BatchHeader,
        needs: Preparation,
        append: Callable[[Writable], T],
        user: Principal | None,
        *,
        after: asyncio.Task[object] | None,
    ) -> T | KafkaError:
        if after is not None:
            # Only its end counts: its error is that of another request.
            await asyncio.wait((after,))
        try:
            walk = _prepared(batch, header, needs, self._jobs.bytes_max)
            return append(await self._jobs.complete(walk, user))
        except KafkaError as error:
            return error


def _is_checked(batch: Writable, header: BatchHeader, needs: Preparation) -> bool:
    """Check a small batch at once; return False for a large or unreadable one.

    Raises KafkaError if it is refused.
    """
    records = small_records(batch, header)
    if records is None:
        return False
    if _are_accepted(records, header, needs):
        return True
    try:
        # Read a second time to name the refused records (KIP-467); batches that are accepted pay
        # nothing.
        body = finish(body_of(batch, header, bytes_max=SMALL_BYTES))
        finish(_checked(body, header, needs))
    except UNREADABLE as error:
        raise _unreadable(error) from error
    return True


def _are_accepted(
    records: Iterable[DecodedRecord], header: BatchHeader, needs: Preparation
) -> bool:
    if needs.keys and any(record.key is None for record in records):
        return False
    if needs.times is None:
        return True
    earliest, latest = needs.times
    return has_valid_times(header, earliest, latest) and all(
        record.timestamp is None or earliest <= record.timestamp <= latest for record in records
    )


def _prepared(
    batch: Writable, header: BatchHeader, needs: Preparation, bytes_max: int
) -> Walk[Writable]:
    """Return the batch as it is to be appended; raise KafkaError if it is refused."""
    if needs is NOTHING or (not needs.reads_all and _is_checked(batch, header, needs)):
        return batch
    # The turn ends with the walk (`RecordJobs`).
    yield WalkStep.BEGIN
    try:
        body = yield from body_of(batch, header, bytes_max=bytes_max)
        yield from _checked(body, header, needs)
    except UNREADABLE as error:
        raise _unreadable(error) from error
    if needs.target is None:
        return batch
    packed = yield partial(recompressed, header, body, needs.target)
    assert isinstance(packed, bytearray), "the work of a step was not done"
    return packed


def _unreadable(error: Exception) -> InvalidRecord:
    return InvalidRecord(f"the records cannot be read: {error}")


def _checked(body: Buffer, header: BatchHeader, needs: Preparation) -> Walk[None]:
    """Raise KafkaError for records that the topic refuses."""
    if needs.times is not None:
        yield from _check_times(body, header, *needs.times)
    if needs.keys and not (yield from every_record_has_a_key(body, header)):
        indexes = yield from records_without_key(body, header)
        text = "the topic is compacted (cleanup.policy), but the record has no key"
        raise RecordsWithoutKey(tuple(RecordError(index, text) for index in indexes))
    if needs.reads_all:
        limit = len(body) if needs.record_bytes_max is None else needs.record_bytes_max
        yield from check_sizes(body, header, record_bytes_max=limit)


def _check_times(body: Buffer, header: BatchHeader, earliest: int, latest: int) -> Walk[None]:
    records = yield from records_out_of_time(body, header, earliest=earliest, latest=latest)
    # The header may claim other times than its records have; either is a reason to refuse.
    if records or not has_valid_times(header, earliest, latest):
        raise RecordsOutOfTime(
            f"timestamps of {len(records)} records must lie within {earliest} and {latest} "
            f"(message.timestamp.before.max.ms and .after.max.ms); the batch has "
            f"{header.first_timestamp} (first) and {header.max_timestamp} (largest)",
            tuple(
                RecordError(index, f"timestamp {timestamp} is not within {earliest} and {latest}")
                for index, timestamp in records
            ),
        )


def has_valid_times(header: BatchHeader, earliest: int, latest: int) -> bool:
    """Return whether the first and the largest timestamp are valid, which the header has."""
    first, largest = header.first_timestamp, header.max_timestamp
    is_early = first < earliest and first != NO_TIMESTAMP
    return not (largest > latest or first > latest or is_early)


def needed(
    header: BatchHeader,
    *,
    keys: bool,
    target: TargetCompression | None,
    record_bytes_max: int | None,
    times: tuple[int, int] | None,
) -> Preparation:
    """Return what the batch needs in its topic; the same object if it needs nothing."""
    if target is not None and target.codec == header.codec:
        target = None  # As in Kafka: a batch with the right codec is kept, at any level.
    if header.codec == NONE and target is None:
        record_bytes_max = None  # As in Kafka, the limit is for records that are decompressed.
    if not keys and target is None and record_bytes_max is None and times is None:
        return NOTHING
    return Preparation(keys, target, record_bytes_max, times)
