"""Writes records to the retry topics; the caller accepts the original once the copy is durable."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace

from sharegroup.dead_letters.story import RecordOrigin, Story, origin_of
from sharegroup.dead_letters.story_headers import NOWHERE, own_headers, story_headers
from sharegroup.worker.decisions.tiers import TIERS, Tiers
from sharegroup.worker.ports import DeliveredRecord, Header, Outbox, WorkerClock, WrittenRecord
from sharegroup.worker.retrying.waiting import Moment, first_topic, first_write


class Postponer:
    """Writes records of one group to its retry topics; awaiting a result may raise KafkaError."""

    __slots__ = ("_clock", "_group", "_outbox", "_tiers")

    def __init__(
        self, outbox: Outbox, clock: WorkerClock, group: str, tiers: Tiers = TIERS
    ) -> None:
        self._outbox = outbox
        self._clock = clock
        self._group = group
        self._tiers = tiers

    def postpone(
        self, delivery: DeliveredRecord, story: Story, decided: Moment, *, shrunk: bool = False
    ) -> Awaitable[WrittenRecord]:
        """Write a record that any worker of the group runs again at ``story.due_ms``.

        ``decided`` is when the due time was set.  If the wall clock has been set since then, while
        writes were blocked, the due time moves with it, so the delay stays the same.

        ``shrunk`` leaves out the history of attempts, for a record that was too large with it.
        The number of failures is kept.
        """
        if shrunk:
            story = replace(story, attempts=())
        story = self._due_by_the_clock_now(story, decided)
        origin = origin_of(delivery, story)
        own = own_headers(delivery.headers)
        return self._write(delivery.value, delivery.key, own, story, origin)

    def topic(self, story: Story, decided: Moment) -> str:
        """Return the topic that `postpone` would write to now."""
        due_ms = self._due_by_the_clock_now(story, decided).due_ms
        assert due_ms is not None, "a postponed record has a due time"
        return first_topic(
            due_ms=due_ms, now_ms=self._clock.wall_ms(), group=self._group, tiers=self._tiers
        )

    def send_later(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        due_ms: int,
    ) -> Awaitable[WrittenRecord]:
        """Write a record for this group alone, as if ``topic`` received it at ``due_ms``.

        The record is never written to that topic; its partition and offset there are -1.
        """
        # The time of the sending: a handler sees it as that of the record, not the due time.
        origin = RecordOrigin(topic, NOWHERE, NOWHERE, self._clock.wall_ms())
        return self._write(value, key, own_headers(headers), Story(origin, due_ms=due_ms), origin)

    def _due_by_the_clock_now(self, story: Story, decided: Moment) -> Story:
        stepped_ms = Moment.now(self._clock).stepped_ms(decided)
        if not stepped_ms or story.due_ms is None:
            return story
        return replace(story, due_ms=max(story.due_ms + stepped_ms, 0))

    def _write(
        self,
        value: bytes | None,
        key: bytes | None,
        own: Sequence[Header],
        story: Story,
        origin: RecordOrigin,
    ) -> Awaitable[WrittenRecord]:
        assert story.due_ms is not None, "a postponed record has a due time"
        write = first_write(
            (*own, *story_headers(story, origin)),
            due_ms=story.due_ms,
            now_ms=self._clock.wall_ms(),
            group=self._group,
            tiers=self._tiers,
        )
        return self._outbox.send(write.topic, value, key=key, headers=write.headers)
