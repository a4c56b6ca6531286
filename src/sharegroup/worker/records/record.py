"""The record that is passed to a handler as its second parameter.

Most handlers need only the payload, and return or raise.  A handler can also call `accept`,
`release`, `reject` or `pause`.  The decision is carried out when the handler returns.  It takes
precedence over the handler's result or exception.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

from sharegroup.dead_letters.story import Attempt, RecordOrigin, Story, origin_of
from sharegroup.dead_letters.story_headers import own_headers, redrive_headers
from sharegroup.durations import Duration
from sharegroup.schedules.schedule import RUN_HEADER, ScheduledRun, parsed_run
from sharegroup.worker.ports import (
    DeliveredRecord,
    Header,
    Outbox,
    WorkerClock,
    WrittenRecord,
)
from sharegroup.worker.records.outcomes import Reject, Release, RetryAfter

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
"""Names that other clients use, with their equivalents."""

LOOP: ContextVar[asyncio.AbstractEventLoop | None] = ContextVar("sharegroup_loop", default=None)
"""The event loop on which the record's lock is renewed, even if its handler runs in a thread.

None for the current thread.  Each handler slot sets it once."""

# The record that the current task or thread handles.  The slot that runs a handler sets them.  Log
# lines of all functions that the handler calls name the record (`telemetry.logs`).
CURRENT: ContextVar[Any] = ContextVar("sharegroup_record", default=None)
"""The `sharegroup.worker.Record` being handled; in a batch handler the first of the batch."""
CURRENT_SLOT: ContextVar[Any] = ContextVar("sharegroup_slot", default=None)
"""The `HandlerSlot` that runs the handler, whose time is limited; each slot's task sets it once."""
CURRENT_OUTBOX: ContextVar[Outbox | None] = ContextVar("sharegroup_outbox", default=None)
"""The outbox of senders in a handler; None for that of the application.  Set once by each slot."""


class WayOut(NamedTuple):
    """How senders write in a process of a handler, which has no producer (`process_sends`)."""

    outbox: Outbox
    clock: WorkerClock
    run: Callable[[Coroutine[Any, Any, WrittenRecord], float], WrittenRecord]
    """Runs a send for a caller that blocks, for at most so many seconds."""


WAY: ContextVar[WayOut | None] = ContextVar("sharegroup_way", default=None)
"""None in every other process."""
CURRENT_GROUP: ContextVar[str] = ContextVar("sharegroup_group", default="")
"""The group for which the record is handled; each handler slot sets it once."""

Decision = Reject | Release | RetryAfter | Literal["accept", "later"]
"""``later``: the handler has returned, and `Record.finish` is to come (``commit="manual"``)."""


class AlreadyDecided(RuntimeError):
    """A handler decided about a record that it had decided about before."""


class Record:
    """A record in a handler: its origin, attempts and lock deadline, and the decision about it.

    Topic, partition, offset and timestamp are those of the application's own record.  For a retry,
    the delivered record is in another topic (`delivery`).

    After `accept`, `release`, `reject` or `pause`, the result or exception of the handler does not
    matter.
    """

    __slots__ = ("_clock", "begun_ms", "decision", "delivery", "story")

    begun_ms: int
    """When this run began; only set for handlers whose results are kept."""

    def __init__(self, delivery: DeliveredRecord, story: Story, clock: WorkerClock) -> None:
        self.delivery = delivery
        """The delivery as the share group received it."""
        self.story = story
        self.decision: Decision | None = None
        """The decision that the handler made by a call; None if it made none."""
        self._clock = clock

    @property
    def origin(self) -> RecordOrigin:
        """Topic, partition, offset and timestamp of the application's own record."""
        return origin_of(self.delivery, self.story)

    @property
    def topic(self) -> str:
        """The topic of the application's own record."""
        return self.origin.topic

    @property
    def partition(self) -> int:
        """The partition of the application's own record; -1 if it was sent with a delay."""
        return self.origin.partition

    @property
    def offset(self) -> int:
        """The offset of the application's own record; -1 if it was sent with a delay."""
        return self.origin.offset

    @property
    def timestamp_ms(self) -> int:
        """The timestamp of the application's own record, in milliseconds since 1970."""
        return self.origin.timestamp_ms

    @property
    def key(self) -> bytes | None:
        """The key, as it was sent."""
        return self.delivery.key

    @property
    def value(self) -> bytes | None:
        """The value, as it was sent; the payload is decoded from it."""
        return self.delivery.value

    @property
    def headers(self) -> Sequence[Header]:
        """The application's headers, without those that the worker adds."""
        return own_headers(self.delivery.headers)

    @property
    def scheduled_run(self) -> ScheduledRun | None:
        """The run of a schedule that this record is; None if it is none.

        It is a claim: every producer of the topic can write such a header.
        """
        content = self.header(RUN_HEADER)
        return None if content is None else parsed_run(content.decode("utf-8", "replace"))

    def header(self, name: str) -> bytes | None:
        """The content of the last header of this name; None if it is missing or null."""
        contents = [content for title, content in self.headers if title == name]
        return contents[-1] if contents else None

    @property
    def delivery_attempt(self) -> int:
        """The delivery count, including this delivery; crashes and releases count."""
        return self.delivery.delivery_count

    @property
    def redelivered(self) -> bool:
        """Whether a handler may have seen the record before, in an earlier delivery or attempt."""
        return self.delivery.delivery_count > 1 or self.story.failures > 0

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1; deliveries without a run do not count."""
        return self.story.failures + 1

    @property
    def history(self) -> tuple[Attempt, ...]:
        """The latest failed attempts."""
        return self.story.attempts

    @property
    def id(self) -> str | None:
        """The id by which the record was known while it waited; None if it never did."""
        return self.story.id

    @property
    def redrives(self) -> int:
        """The number of times that the record was redriven from the dead letters."""
        return self.story.redrives

    @property
    def redrive_id(self) -> str | None:
        """The id that all copies of one redrive have; None if it was not redriven."""
        return self.story.redrive_id

    @property
    def redrive_headers(self) -> tuple[Header, ...]:
        """Headers for records made from this one, so that their redrives are counted from its."""
        return redrive_headers(self.story)

    @property
    def deadline(self) -> float:
        """The lock deadline, in seconds of ``time.monotonic()``; renewals move it."""
        return self.delivery.deadline

    @property
    def seconds_left(self) -> float:
        """Seconds until the lock deadline; negative after it."""
        return self.delivery.deadline - self._clock.now()

    def accept(self) -> None:
        """Accept the record, regardless of what the handler returns or raises afterwards."""
        self._decide("accept")

    def finish(self) -> bool:
        """Finish a record whose handler has returned, with ``commit="manual"``.

        Then its offset may be committed.  While the handler runs, it is the same as `accept`.
        Returns False if the partition was taken away, so that the next owner runs the record.
        """
        if self.decision != "later":
            self._decide("accept")
        else:
            self.decision = "accept"
            self._in_loop(self.delivery.accept)
        return not self.delivery.is_lost

    def release(self, *, delay: Duration | None = None) -> None:
        """Release the record to any member, as raising `Release` does."""
        self._decide(Release(delay=delay))

    def reject(self, reason: str = "") -> None:
        """Send the record to the dead letters, as raising `Reject` does."""
        self._decide(Reject(reason))

    def pause(self, delay: Duration, reason: str = "") -> None:
        """Retry the record after ``delay``, as raising `RetryAfter` does.

        Other records are not affected.
        """
        self._decide(RetryAfter(delay, reason))

    def renew(self) -> None:
        """Renew the acquisition lock now; the worker itself renews it up to ``max_handling``."""
        self._in_loop(self.delivery.renew)

    def _in_loop(self, function: Callable[[], None]) -> None:
        """Call a function in the worker's event loop, from whatever thread."""
        loop = LOOP.get()
        if loop is None or asyncio._get_running_loop() is loop:
            function()
        else:
            loop.call_soon_threadsafe(function)

    def _decide(self, decision: Decision) -> None:
        if self.decision is not None:
            raise AlreadyDecided(f"{self!r}: {decision!r} after {self.decision!r}")
        self.decision = decision

    if not TYPE_CHECKING:  # Type checkers would accept any name.

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
"""An alias of `Record`, the name that other frameworks use."""
