"""The retry topics that a route needs, and the writes to them.

The caller of a write accepts the original record once the copy is durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from sharegroup.dead_letters.story import RecordOrigin, Story, identified, origin_of
from sharegroup.dead_letters.story_headers import NOWHERE, own_headers, story_headers
from sharegroup.dead_letters.topics import own_topic
from sharegroup.waiting.retry_topics import control_topic, due_topic
from sharegroup.worker.decisions.tiers import TIERS, Tiers
from sharegroup.worker.declarations.route import Route
from sharegroup.worker.declarations.topics import NOT_DECLARED, Replication, TopicDeclaration
from sharegroup.worker.ports import DeliveredRecord, Header, Outbox, WorkerClock, WrittenRecord
from sharegroup.worker.retrying.waiting import Moment, first_topic, first_write

PARTITIONS = 2
"""The number of partitions of each topic, and so of processes that can move its records.

Each partition costs memory, because its owner keeps some of its records there.
"""
RECORD_BYTES_MAX = 16 * 1024 * 1024
"""The maximum record size of a retry topic.

It is large, because a record is larger here than in its origin topic: its story is added.
"""

CONTROL_SEGMENT_BYTES = 16 * 1024 * 1024
"""Small, because the segment that is written is not compacted, and each worker reads the topic."""

_HOUR_MS = 60 * 60 * 1000
_DAY_MS = 24 * _HOUR_MS
_OUTAGE_MS = 14 * _DAY_MS
"""Time for which retries are kept if no worker runs; after that they are lost."""


def retry_topics(route: Route) -> list[TopicDeclaration]:
    """Return the group's own topic, where redriven records go too, and the tiers if it retries."""
    waits = {own_topic(route.group): 0}
    replication = NOT_DECLARED
    if route.retry is not None:
        waits[due_topic(route.group)] = 0
        tiers = Tiers.of(route.retry_tiers).tiers
        waits |= {tier.topic(route.group): tier.delay_ms for tier in tiers}
        replication = Replication(route.retry.replication_factor, route.retry.min_insync_replicas)
    topics = [
        TopicDeclaration(name, PARTITIONS, _configs(wait_ms), replication)
        for name, wait_ms in waits.items()
    ]
    if route.steering and route.retry is not None:
        control = _control_configs(max(waits.values()))
        topics.append(TopicDeclaration(control_topic(route.group), 1, control, replication))
    return topics


def _configs(wait_ms: int) -> Mapping[str, str]:
    return MappingProxyType(
        {
            "cleanup.policy": "delete",
            "max.message.bytes": str(RECORD_BYTES_MAX),
            # The broker's time.  With the timestamp of the application's record, retention would
            # delete an old record before it is due.
            "message.timestamp.type": "LogAppendTime",
            "retention.bytes": "-1",
            "retention.ms": str(wait_ms + _OUTAGE_MS),
        }
    )


def _control_configs(wait_ms: int) -> Mapping[str, str]:
    """The settings of the control topic; a mark outlives the record that it is about."""
    return MappingProxyType(
        {
            "cleanup.policy": "compact,delete",
            "retention.ms": str(wait_ms + 2 * _OUTAGE_MS),
            # The program that gave a command reads the answer before it is compacted.
            "min.compaction.lag.ms": str(_HOUR_MS),
            "min.cleanable.dirty.ratio": "0.1",
            "segment.bytes": str(CONTROL_SEGMENT_BYTES),
        }
    )


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

    def through(self, outbox: Outbox) -> Postponer:
        """Return the same with another outbox."""
        return Postponer(outbox, self._clock, self._group, self._tiers)

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
        story = identified(Story(origin, due_ms=due_ms))
        return self._write(value, key, own_headers(headers), story, origin)

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
