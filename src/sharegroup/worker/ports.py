"""Protocols through which the worker does I/O, so that tests can replace the implementations.

    RecordSource    the records of one topic for a share group, each under its acquisition lock
    Outbox          writes records to topics
    WorkerClock     tells the time and waits; `RealTimeClock` does so by the system's clocks

`transport.kafka` implements them with this project's client.  `transport.memory` implements them
for `App.test`, where time is virtual and there is no broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, TypedDict, Unpack

from sharegroup.dead_letters.story import PlacedRecord

Header = tuple[str, bytes | None]


class DeliveredRecord(PlacedRecord, Protocol):
    """One delivery of a record to this process; `sharegroup.client.Record` is one."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...
    @property
    def delivery_count(self) -> int:
        """The delivery count: deliveries of the record to the group, including this one."""

    @property
    def deadline(self) -> float:
        """The lock deadline, in seconds of `WorkerClock.now`; a renewal moves it."""

    @property
    def is_lost(self) -> bool:
        """Whether the lock is known to be lost, even if its deadline has not passed."""

    def accept(self) -> None: ...
    def release(self, *, delay: timedelta | None = None) -> None: ...
    def reject(self) -> None: ...
    def renew(self) -> None: ...


class RecordSource(Protocol):
    """The records of one topic for a share group, through a member of it."""

    @property
    def topic(self) -> str: ...

    @property
    def member_id(self) -> str: ...

    @property
    def lock_seconds(self) -> float | None:
        """The lock duration in seconds; None before the first record."""

    @property
    def is_joined(self) -> bool:
        """Whether this is a member of the group, as far as the coordinator answers."""

    @property
    def renews(self) -> bool:
        """Whether locks are renewed; False if the broker or the group's settings forbid it."""

    @property
    def look_seconds(self) -> float:
        """The time in which its first record arrives after the start, if there is one."""

    async def take(self, room: int, wait_seconds: float) -> Sequence[DeliveredRecord]:
        """Take up to ``room`` records, and wait for the first at most ``wait_seconds``.

        Offsets that cannot be read are returned alone, as one `UnreadableRange`.  Raises
        KafkaError if this member can never take records.  Transient errors are logged.
        """

    def quiet(self, *, delivered_below: int) -> Sequence[DeliveredRecord]:
        """Stop taking records and release those fetched ahead, so that other members get them.

        Only records with a delivery count below ``delivered_below`` are released.  The others are
        returned as taken, because a release costs them a delivery.

        Records already taken stay locked and are renewed.  A pending `take` returns.
        """

    async def fetches_ended(self, within_seconds: float) -> None:
        """Wait until no fetch is under way, at most this long; `quiet` returns its records then."""

    def resume(self) -> None:
        """Take records again."""

    def flush(self) -> None:
        """Send pending acknowledgements soon; does not wait for the response."""

    async def acknowledged(self, within_seconds: float) -> None:
        """Send pending acknowledgements, and wait for their responses at most this long."""

    async def close(self, within_seconds: float) -> int:
        """Send pending acknowledgements and release all other records; returns their number."""


class WrittenRecord(PlacedRecord, Protocol):
    """The topic, partition and offset of a written record."""


class SendOptions(TypedDict, total=False):
    """The parts of a record that a write may leave out."""

    key: bytes | None
    headers: Sequence[Header]
    partition: int | None
    timestamp_ms: int | None


class BufferedRecord(NamedTuple):
    """A record that is written later, in a transaction."""

    topic: str
    value: bytes | None
    options: SendOptions


class Outbox(Protocol):
    """Writes records to topics.

    Awaiting `send` returns where the record was written, once it is durable, or raises KafkaError.
    """

    def send(
        self, topic: str, value: bytes | None, **options: Unpack[SendOptions]
    ) -> Awaitable[WrittenRecord]: ...


class WorkerClock(Protocol):
    """The time of the worker, and the only way in which the worker waits for a time."""

    def now(self) -> float:
        """Seconds of a monotonic clock, as ``time.monotonic()``."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""

    async def sleep_until(self, when: float) -> None:
        """Wait until `now` has reached ``when``."""


class RealTimeClock:
    """The system's clocks; a `WorkerClock`."""

    now = staticmethod(time.monotonic)  # No Python call, because it runs twice for every record.

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
        return time.time_ns() // 1_000_000

    async def sleep_until(self, when: float) -> None:
        """Wait until `now` has reached ``when``."""
        await asyncio.sleep(when - time.monotonic())
