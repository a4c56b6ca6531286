"""What the worker needs of the world, so that a test can give it another one.

    Source     the records of one share group, each under its lock
    Outbox     writes records to topics
    Clock      what time it is, and waiting

`transport.kafka` has the real ones, over this project's client; `transport.memory` those of
`App.test`, where time moves by hand and there is no broker.  Everything between is the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

Header = tuple[str, bytes | None]


class Delivery(Protocol):
    """One delivery of a record to this process; `sharegroup.client.Record` is one."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Sequence[Header]: ...
    @property
    def delivery_count(self) -> int:
        """How often the group was given it, this time included."""

    @property
    def deadline(self) -> float:
        """When its lock ends, in the seconds of `Clock.now`; a renewal moves it."""

    @property
    def is_lost(self) -> bool:
        """Whether its lock is known to be gone, whatever the deadline says."""

    def accept(self) -> None: ...
    def release(self) -> None: ...
    def reject(self) -> None: ...
    def renew(self) -> None: ...


class Source(Protocol):
    """The records of one topic for a share group, through a member of it."""

    @property
    def topic(self) -> str: ...

    @property
    def member_id(self) -> str: ...

    @property
    def lock_seconds(self) -> float | None:
        """How long a lock lives; None before the first record."""

    @property
    def is_joined(self) -> bool:
        """Whether the group's coordinator knows this member."""

    @property
    def renews(self) -> bool:
        """Whether locks are renewed; off when the broker or the group's settings forbid it."""

    async def take(self, room: int, wait_seconds: float) -> Sequence[Delivery]:
        """Up to ``room`` records as soon as there are some; none after ``wait_seconds``.

        Raises KafkaError when this member can never take any; what passes is only logged.
        """

    def quiet(self, *, delivered_below: int) -> None:
        """Take nothing more, so that others get it: what was fetched ahead goes back.

        But for what was delivered more often than that, which leaving gives back for free.

        What was handed out stays locked and is renewed; a `take` that waits returns.
        """

    def resume(self) -> None:
        """Take records again."""

    def flush(self) -> None:
        """Let what was settled leave soon, without waiting for an answer."""

    async def close(self, within_seconds: float) -> int:
        """Send what is settled and give back the rest; how many went back."""


class Written(Protocol):
    """Where a record was written."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...


class Outbox(Protocol):
    """Writes records.  Awaiting `send` gives where it lies, durable, or raises KafkaError."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> Awaitable[Written]: ...


class Clock(Protocol):
    """Time; everything in the worker that waits, waits here."""

    def now(self) -> float:
        """Seconds that only grow, as ``time.monotonic()``."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""

    async def sleep_until(self, when: float) -> None:
        """Return when `now` has reached ``when``."""
