"""Sends the records of a reader and counts their outcomes, for `sharegroup produce`.

Reading continues while earlier records are in flight. It ends early after an error that the
next record would also get, such as a missing topic or a broker that does not answer. An error
of one record alone (too large) is reported, and the other records are sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.cli.common.cluster_access import line_of
from sharegroup.cli.records.formats.reading import NewRecord
from sharegroup.client.produce.producer import Producer, SendFuture
from sharegroup.client.records import Header
from sharegroup.errors import InvalidRecord, InvalidTimestamp, KafkaError, MessageTooLarge

OUTSTANDING_MAX = 100_000
"""Maximum number of records without an outcome; at the limit, reading waits for the oldest."""

FAILURES_SHOWN_MAX = 10

ABOUT_ONE_RECORD = (MessageTooLarge, InvalidRecord, InvalidTimestamp)


class Defaults(NamedTuple):
    """Values for records of the input that have none; ``headers`` are added to each record.

    ``partition`` goes before that of a record. ``any_partition`` ignores a record's partition.
    """

    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    any_partition: bool = False


@dataclass(slots=True)
class Counts:
    """Counts of the records of one run, by outcome, and the bytes of their keys and values."""

    read: int = 0
    bytes: int = 0
    acknowledged: int = 0
    failed: int = 0
    unreadable: bool = False
    """Whether the input has a part that is not a record; the records before it were sent."""
    failures: list[str] = field(default_factory=list)
    """The messages of the first failures, at most `FAILURES_SHOWN_MAX`."""

    @property
    def complete(self) -> bool:
        """Whether all records of the input are acknowledged."""
        return self.acknowledged == self.read and not self.unreadable


class RecordSender:
    """Sends records to one topic and counts their outcomes."""

    __slots__ = ("_defaults", "_outstanding", "_producer", "_topic", "counts", "is_over")

    def __init__(self, producer: Producer, topic: str, defaults: Defaults) -> None:
        self._producer = producer
        self._topic = topic
        self._defaults = defaults
        self._outstanding: deque[tuple[int, SendFuture]] = deque()
        self.counts = Counts()
        self.is_over = False
        """Whether an error occurred that further records would also get, so sending ends."""

    async def send_all(self, records: AsyncIterator[Sequence[NewRecord]]) -> None:
        """Send all records, or those until an error that further records would also get."""
        async for chunk in records:
            for record in chunk:
                await self._send(record)
                if self.is_over:
                    return
            self.settle()

    @property
    def is_waiting(self) -> bool:
        """Whether a record is being sent that has no outcome yet."""
        return self.counts.read > self.counts.acknowledged + self.counts.failed

    async def finish(self) -> None:
        """Wait until every record has an outcome; if cancelled, the others fail at once."""
        try:
            await self._producer.flush()
        finally:
            await self._producer.close(timeout=0)
            self.settle()

    def settle(self) -> None:
        """Count the records that have an outcome by now, the oldest first."""
        # From the oldest on: the order of the input is the order of the messages.
        while self._outstanding and self._outstanding[0][1].done():
            number, future = self._outstanding.popleft()
            try:
                future.result()
            except KafkaError as error:
                self._failed(number, error)
            else:
                self.counts.acknowledged += 1

    async def _send(self, record: NewRecord) -> None:
        counts, defaults = self.counts, self._defaults
        counts.read += 1
        counts.bytes += len(record.key or b"") + len(record.value or b"")
        own = None if defaults.any_partition else record.partition
        try:
            future = await self._producer.send(
                self._topic,
                record.value,
                key=defaults.key if record.key is None else record.key,
                headers=(*record.headers, *defaults.headers),
                partition=own if defaults.partition is None else defaults.partition,
                timestamp_ms=record.timestamp_ms,
            )
        except KafkaError as error:
            self._failed(counts.read, error)
            return
        self._outstanding.append((counts.read, future))
        if len(self._outstanding) >= OUTSTANDING_MAX:
            await _outcome(self._outstanding[0][1])
            self.settle()

    def _failed(self, number: int, error: KafkaError) -> None:
        self.counts.failed += 1
        if len(self.counts.failures) < FAILURES_SHOWN_MAX:
            self.counts.failures.append(f"record {number}: {line_of(error)}")
        # Otherwise a million records would each wait for their timeout at a broker that is away.
        if not isinstance(error, ABOUT_ONE_RECORD):
            self.is_over = True


async def _outcome(future: SendFuture) -> None:
    """Wait until the record has an outcome, good or bad; `settle` counts it."""
    try:
        await future
    except KafkaError:
        return
