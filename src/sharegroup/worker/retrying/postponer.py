"""Writes a record to where it waits; who holds the original accepts it when that is durable."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import replace

from sharegroup.worker.decisions.tiers import TIERS, Tiers
from sharegroup.worker.ports import Clock, Delivery, Header, Outbox, Written
from sharegroup.worker.records.story import Origin, Story, origin_of
from sharegroup.worker.records.story_headers import NOWHERE, own_headers, story_headers
from sharegroup.worker.retrying.waiting import first_step


class Postponer:
    """One group's way to its retry topics; awaiting its calls raises KafkaError."""

    __slots__ = ("_clock", "_group", "_outbox", "_tiers")

    def __init__(self, outbox: Outbox, clock: Clock, group: str, tiers: Tiers = TIERS) -> None:
        self._outbox = outbox
        self._clock = clock
        self._group = group
        self._tiers = tiers

    def postpone(
        self, delivery: Delivery, story: Story, *, shrunk: bool = False
    ) -> Awaitable[Written]:
        """Let this record run again at ``story.due_ms``, wherever there is a worker then.

        ``shrunk`` leaves out what was tried, for a record that was too large with it; how often
        is kept.
        """
        if shrunk:
            story = replace(story, attempts=())
        origin = origin_of(delivery, story)
        own = own_headers(delivery.headers)
        return self._write(delivery.value, delivery.key, own, story, origin)

    def send_later(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Sequence[Header] = (),
        due_ms: int,
    ) -> Awaitable[Written]:
        """A record for this group alone, as if ``topic`` had it from ``due_ms`` on.

        It never lies in that topic; its partition and offset there are -1.
        """
        origin = Origin(topic, NOWHERE, NOWHERE, self._clock.wall_ms())
        return self._write(value, key, own_headers(headers), Story(origin, due_ms=due_ms), origin)

    def _write(
        self,
        value: bytes | None,
        key: bytes | None,
        own: Sequence[Header],
        story: Story,
        origin: Origin,
    ) -> Awaitable[Written]:
        assert story.due_ms is not None, "a record that is postponed is due at some time"
        step = first_step(
            (*own, *story_headers(story, origin)),
            due_ms=story.due_ms,
            now_ms=self._clock.wall_ms(),
            group=self._group,
            tiers=self._tiers,
        )
        return self._outbox.send(step.topic, value, key=key, headers=step.headers)
