"""The record that a handler is called for, as its second parameter gets it.

Most handlers need only the payload, and return or raise.  Those who decide by hand call
`accept`, `release`, `reject` or `pause`; the decision is carried out when the handler returns,
and wins over whatever it returns or raises after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal, NoReturn

from sharegroup.worker.durations import Duration
from sharegroup.worker.ports import Clock, Delivery, Header
from sharegroup.worker.records.outcomes import Reject, Release, RetryAfter
from sharegroup.worker.records.story import Attempt, Origin, Story, origin_of
from sharegroup.worker.records.story_headers import own_headers

VERBS = {
    "ack": "accept()",
    "acknowledge": "accept()",
    "nack": "release(), or pause(delay)",
    "term": "reject(reason)",
    "retry": "pause(delay)",
    "in_progress": "renew()",
    "heartbeat": "renew()",
    "commit": "accept(): each record is settled by itself",
    "mark_as_consumed": "accept(): each record is settled by itself",
    "seek": "nothing: a share group has no position to move",
    "delivery_count": "delivery_attempt",
    "lock_deadline": "deadline",
    "payload": "the handler's first parameter, or value for the bytes",
}
"""What other clients call it, and what it is here."""

LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("sharegroup_loop", default=None)
"""Where the record's lock is kept, whatever thread its handler runs in; None: here.  Each lane
sets it once."""

Decision = Reject | Release | RetryAfter | Literal["accept"]


class AlreadyDecided(RuntimeError):
    """A second decision about one record."""


class Record:
    """Where it came from, what was tried before, how long its lock lives, and the verbs.

    Topic, partition, offset and timestamp are those of the application's own record, also when
    this delivery is a retry of it that lies elsewhere (`delivery`).
    """

    __slots__ = ("_clock", "decision", "delivery", "story")

    def __init__(self, delivery: Delivery, story: Story, clock: Clock) -> None:
        self.delivery = delivery
        """What the share group delivered."""
        self.story = story
        self.decision: Decision | None = None
        """What was decided by hand; None: nothing."""
        self._clock = clock

    @property
    def origin(self) -> Origin:
        """Where the application's own record lies."""
        return origin_of(self.delivery, self.story)

    @property
    def topic(self) -> str:
        """Of the application's own record."""
        return self.origin.topic

    @property
    def partition(self) -> int:
        """Of the application's own record; -1: it was sent with a delay, and never lay there."""
        return self.origin.partition

    @property
    def offset(self) -> int:
        """Of the application's own record; -1: it was sent with a delay, and never lay there."""
        return self.origin.offset

    @property
    def timestamp_ms(self) -> int:
        """Of the application's own record, in milliseconds since 1970."""
        return self.origin.timestamp_ms

    @property
    def key(self) -> bytes | None:
        """Its key, as it was sent."""
        return self.delivery.key

    @property
    def value(self) -> bytes | None:
        """Its value, as it was sent: what the payload was read from."""
        return self.delivery.value

    @property
    def headers(self) -> Sequence[Header]:
        """The application's headers: those of the retries are taken away."""
        return own_headers(self.delivery.headers)

    def header(self, name: str) -> bytes | None:
        """The last header of this name; None where there is none, or where it is null."""
        found = [content for title, content in self.headers if title == name]
        return found[-1] if found else None

    @property
    def delivery_attempt(self) -> int:
        """How often the group was given it, this time included; crashes and releases count."""
        return self.delivery.delivery_count

    @property
    def redelivered(self) -> bool:
        """Whether somebody may have seen it before: in an earlier delivery, or in a run."""
        return self.delivery.delivery_count > 1 or self.story.failures > 0

    @property
    def attempt(self) -> int:
        """The number of this run, from 1: failed runs count, and deliveries without a run don't."""
        return self.story.failures + 1

    @property
    def history(self) -> tuple[Attempt, ...]:
        """The last of the failed runs."""
        return self.story.attempts

    @property
    def redrives(self) -> int:
        """How often it was sent back from the dead letters."""
        return self.story.redrives

    @property
    def redrive_id(self) -> str | None:
        """The same for each copy of one redrive; None: it wasn't sent back."""
        return self.story.redrive_id

    @property
    def deadline(self) -> float:
        """When its lock ends, in the seconds of ``time.monotonic()``; renewals move it."""
        return self.delivery.deadline

    @property
    def seconds_left(self) -> float:
        """Until its lock ends; below 0 when it is lost."""
        return self.delivery.deadline - self._clock.now()

    def accept(self) -> None:
        """It is done, whatever happens in the rest of the handler."""
        self._decide("accept")

    def release(self) -> None:
        """Not here, not now: back to the queue, to anyone; as raising `Release`."""
        self._decide(Release())

    def reject(self, reason: str = "") -> None:
        """It can never be done: to the dead letters; as raising `Reject`."""
        self._decide(Reject(reason))

    def pause(self, delay: Duration, reason: str = "") -> None:
        """Again, and not before ``delay``; as raising `RetryAfter`.  Stops no other record."""
        self._decide(RetryAfter(delay, reason))

    def renew(self) -> None:
        """Let its lock begin anew, now; the worker does so by itself up to ``max_handling``."""
        loop = LOOP.get()
        if loop is None or asyncio._get_running_loop() is loop:
            self.delivery.renew()
        else:
            loop.call_soon_threadsafe(self.delivery.renew)

    def _decide(self, decision: Decision) -> None:
        if self.decision is not None:
            raise AlreadyDecided(f"{self!r}: {decision!r} after {self.decision!r}")
        self.decision = decision

    if not TYPE_CHECKING:  # Else every name would have a type.

        def __getattr__(self, name: str) -> NoReturn:
            hint = f"; use {VERBS[name]}" if name in VERBS else ""
            raise AttributeError(f"a record has no {name!r}{hint}")

    def __repr__(self) -> str:
        topic, partition, offset, _ = self.origin
        return (
            f"Record(topic={topic!r}, partition={partition}, offset={offset}, "
            f"attempt={self.attempt}, delivery_attempt={self.delivery_attempt}, key={self.key!r})"
        )


Context = Record
"""The same under the name that other frameworks have for it."""
