"""From a reader's records to acknowledgements: what `sharegroup produce` does with its input.

Reading goes on while earlier records are under way, and it ends early when something fails
that the next record would meet as well: a topic that is not there, a broker that does not
answer.  What is wrong with one record alone (too large) is reported, and the rest is sent.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sharegroup.cli.asking import line_of
from sharegroup.cli.formats.reading import Header, NewRecord
from sharegroup.client.producer import Delivery, Producer
from sharegroup.errors import InvalidRecord, KafkaError, MessageTooLarge

OUTSTANDING_MAX = 100_000
"""Records without an outcome; beyond that reading waits for the oldest."""

FAILURES_SHOWN_MAX = 10

ABOUT_ONE_RECORD = (MessageTooLarge, InvalidRecord)


class Defaults(NamedTuple):
    """What a record gets that has none of its own; ``any_partition`` takes its own away."""

    key: bytes | None = None
    headers: tuple[Header, ...] = ()
    partition: int | None = None
    any_partition: bool = False


@dataclass(slots=True)
class Counts:
    """How far it has come."""

    read: int = 0
    bytes: int = 0
    acknowledged: int = 0
    failed: int = 0
    unreadable: bool = False
    """The input has something in it that is no record; what came before was sent."""
    failures: list[str] = field(default_factory=list)
    """The first few, for people."""

    @property
    def complete(self) -> bool:
        """Whether all of the input is acknowledged."""
        return self.acknowledged == self.read and not self.unreadable


class Sending:
    """Sends records to one topic and counts what becomes of them."""

    __slots__ = ("_defaults", "_outstanding", "_producer", "_topic", "counts", "is_over")

    def __init__(self, producer: Producer, topic: str, defaults: Defaults) -> None:
        self._producer = producer
        self._topic = topic
        self._defaults = defaults
        self._outstanding: deque[tuple[int, Delivery]] = deque()
        self.counts = Counts()
        self.is_over = False
        """Something failed that would fail again: send no more."""

    async def send_all(self, records: AsyncIterator[Sequence[NewRecord]]) -> None:
        """Send what comes until it ends, or until there is no point in going on."""
        async for some in records:
            for record in some:
                await self._send(record)
                if self.is_over:
                    return
            self.settle()

    async def finish(self) -> None:
        """Wait until every record has an outcome; cut short, the rest fails at once."""
        try:
            await self._producer.flush()
        finally:
            await self._producer.close(timeout=0)
            self.settle()

    def settle(self) -> None:
        """Count what has an outcome by now, the oldest first."""
        while self._outstanding and self._outstanding[0][1].done():
            number, delivery = self._outstanding.popleft()
            try:
                delivery.result()
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
            delivery = await self._producer.send(
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
        self._outstanding.append((counts.read, delivery))
        if len(self._outstanding) >= OUTSTANDING_MAX:
            await _outcome(self._outstanding[0][1])
            self.settle()

    def _failed(self, number: int, error: KafkaError) -> None:
        self.counts.failed += 1
        if len(self.counts.failures) < FAILURES_SHOWN_MAX:
            self.counts.failures.append(f"record {number}: {line_of(error)}")
        if not isinstance(error, ABOUT_ONE_RECORD):
            self.is_over = True


async def _outcome(delivery: Delivery) -> None:
    """Return when the outcome is known, whatever it is; `settle` counts it."""
    try:
        await delivery
    except KafkaError:
        return
