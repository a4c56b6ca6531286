"""The topics of this broker: changes to them, and the log behind each partition.

Changes are made one at a time: check, write the event to the journal, wait until it is
durable, let it have happened.  A partition's log is made when it is first touched, so a topic
of a thousand partitions, or an internal topic of which one partition is used, costs nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar
from uuid import UUID, uuid4

from sharegroup.broker.cluster.catalog import Catalog, Event, Topic, decode_event, encode_event
from sharegroup.broker.cluster.features import FIRST_LEVELS
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.configuration.log_config import LogConfig, TopicConfig
from sharegroup.errors import (
    InvalidPartitions,
    PolicyViolation,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId, TopicName, TopicPartition, topic_id_text
from sharegroup.storage.compaction import Compactable, Compacted, CompactionLimits
from sharegroup.storage.journal import Journal
from sharegroup.storage.log_directory import LogDirectory
from sharegroup.storage.partition_log import PartitionLog
from sharegroup.storage.read_ahead import ReadAhead
from sharegroup.storage.retention import Retention
from sharegroup.storage.segment import SegmentLimits

log = logging.getLogger(__name__)

T = TypeVar("T")

JOURNAL_EVENTS_SPARE = 1_000
"""The journal is written anew at start when it holds this many events more than needed."""


class CompactionSettings(NamedTuple):
    """When a compacted topic's logs are compacted, and what of them stays."""

    dirty_ratio_min: float
    lag_ms_min: int
    lag_ms_max: int
    delete_retention_ms: int


class LogSettings(NamedTuple):
    """What holds for a topic: its own settings, or else the broker's."""

    segments: SegmentLimits
    message_bytes_max: int
    append_time: bool
    retention: Retention
    """How much is kept; nothing of it applies to a topic that is only compacted."""
    compaction: CompactionSettings | None
    """None for a topic that is not compacted."""
    is_compacted_only: bool
    """Nothing is deleted but what a newer record of the same key replaces."""


class Topics:
    """See the module's text."""

    __slots__ = (
        "_changing",
        "_config",
        "_deleted",
        "_directory",
        "_journal",
        "_settings",
        "_visible",
        "catalog",
    )

    def __init__(self, config: LiveConfig, directory: LogDirectory, journal: Journal) -> None:
        self.catalog = Catalog()
        self._config = config
        self._directory = directory
        self._journal = journal
        self._changing = asyncio.Lock()
        self._visible: Callable[[TopicPartition], None] = lambda _: None
        self._deleted: list[Callable[[Topic], None]] = []
        self._settings: dict[TopicName, tuple[TopicConfig, LogConfig, LogSettings]] = {}
        for payload in journal.payloads():
            self.catalog.replay(decode_event(payload))

    @property
    def read_ahead(self) -> ReadAhead:
        """What is read from the logs as soon as there is time."""
        return self._directory.read_ahead

    def on_visible(self, callback: Callable[[TopicPartition], None]) -> None:
        """Call ``callback`` whenever a partition has new records that may be read."""
        self._visible = callback

    def on_deleted(self, callback: Callable[[Topic], None]) -> None:
        """Call ``callback`` when a topic is gone."""
        self._deleted.append(callback)

    async def start(self) -> None:
        """Give the cluster an id, drop the folders of topics that are gone, tidy the journal."""
        if not self.catalog.cluster_id:
            await self._happen({"event": "features", "levels": dict(FIRST_LEVELS), "epoch": 1})
            await self._happen({"event": "cluster", "id": topic_id_text(TopicId(uuid4()))})
        for partition in self._directory.partitions():
            topic = self.catalog.by_id(partition.topic_id)
            if topic is not None:
                self.log_of(topic, partition.partition)
            elif self._journal.was_cut:
                # Perhaps the topic is not gone, only the last word about it.
                log.warning(
                    "event=orphan_kept topic_id=%s action='remove its folders once nobody misses "
                    "the topic'",
                    topic_id_text(partition.topic_id),
                )
            else:
                log.info("event=orphan_removed topic_id=%s", topic_id_text(partition.topic_id))
                self._directory.delete(partition.topic_id)
        events = [encode_event(event) for event in self.catalog.events()]
        if self._journal.payload_count > len(events) + JOURNAL_EVENTS_SPARE:
            await self._journal.rewrite(events)

    def settings(self, topic: Topic) -> LogSettings:
        """What holds for a topic now; worked out anew when its settings or the broker's change."""
        known = self._settings.get(topic.name)
        if known is not None and known[0] is topic.config and known[1] is self._config.log:
            return known[2]
        settings = self._worked_out(topic)
        self._settings[topic.name] = topic.config, self._config.log, settings
        return settings

    def _worked_out(self, topic: Topic) -> LogSettings:
        own, broker = topic.config, self._config.log
        policy = _own_or(own.cleanup_policy, broker.cleanup_policy)
        compaction = _compaction(own, broker) if "compact" in policy else None
        segment_ms = _own_or(own.segment_ms, broker.effective_segment_ms)
        if compaction is not None:
            segment_ms = min(segment_ms, compaction.lag_ms_max)  # The active one has to wait.
        return LogSettings(
            segments=SegmentLimits(
                bytes=_own_or(own.segment_bytes, broker.segment_bytes), ms=segment_ms
            ),
            message_bytes_max=_own_or(own.message_bytes_max, broker.message_bytes_max),
            append_time=_own_or(own.timestamp_type, broker.timestamp_type) == "LogAppendTime",
            retention=_retention(own, broker) if "delete" in policy else Retention(),
            compaction=compaction,
            is_compacted_only=compaction is not None and "delete" not in policy,
        )

    def named(self, name: TopicName, partition: int) -> tuple[Topic, PartitionLog]:
        """The topic and the log of one of its partitions, or UnknownTopicOrPartition."""
        topic = self.catalog.topic(name)
        return topic, self.log_of(topic, partition)

    def identified(self, topic_id: TopicId, partition: int) -> tuple[Topic, PartitionLog]:
        """The same by topic id, or UnknownTopicId."""
        topic = self.catalog.by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}; it may have been deleted")
        return topic, self.log_of(topic, partition)

    def log_of(self, topic: Topic, partition: int) -> PartitionLog:
        """The log of a partition; made now if nobody touched it before."""
        if not 0 <= partition < topic.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, "
                f"not {partition}"
            )
        found = self._directory.get(topic.topic_id, partition)
        if found is not None:
            return found
        made = self._directory.create(
            topic.topic_id, partition, limits=self.settings(topic).segments
        )
        key = TopicPartition(topic.topic_id, partition)
        made.subscribe(lambda: self._visible(key))
        return made

    def expire_producers(self, unused_since_ms: int) -> None:
        """Forget idempotent producers that were last heard of before that wall-clock time."""
        for topic in self.catalog.topics():
            for log_ in self.opened(topic):
                log_.producers.expire(unused_since_ms)

    def opened(self, topic: Topic) -> Iterator[PartitionLog]:
        """The logs of the topic's partitions that somebody touched."""
        for partition in range(topic.partition_count):
            found = self._directory.get(topic.topic_id, partition)
            if found is not None:
                yield found

    async def delete_before(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Move the starts of logs up, durably, internal topics' too; closed segments go.

        `PartitionLog.roll` closes the active segment, so that it can go the next time.
        """
        await self._directory.delete_before(offsets)

    async def compact(
        self, of: PartitionLog, found: Compactable, limits: CompactionLimits
    ) -> Compacted:
        """One pass of compaction over what `PartitionLog.compactable` found."""
        return await self._directory.compact(of, found, limits)

    def is_touched(self, topic: Topic, partition: int) -> bool:
        """Whether the partition's log was ever made."""
        return self._directory.get(topic.topic_id, partition) is not None

    async def create(
        self, name: TopicName, *, partitions: int, settings: Mapping[str, str]
    ) -> Topic:
        """Make a topic; it exists when this returns."""
        async with self._changing:
            self.check_new(name, partitions=partitions, settings=settings)
            await self._happen(
                self.catalog.create_topic(
                    name, TopicId(uuid4()), partitions=partitions, settings=settings
                )
            )
        log.info("event=topic_created topic=%s partitions=%d", name, partitions)
        return self.catalog.topic(name)

    async def keep_internal(
        self, name: TopicName, *, partitions: int, settings: Mapping[str, str]
    ) -> None:
        """Make an internal topic, or let one that an older broker made have these settings."""
        found = self.catalog.find(name)
        if found is None:
            await self.create(name, partitions=partitions, settings=settings)
        elif dict(found.settings) != dict(settings):
            await self.alter(
                lambda: {"event": "topic_settings", "name": name, "settings": dict(settings)}
            )
            self.apply_settings(self.catalog.topic(name))

    def check_new(self, name: TopicName, *, partitions: int, settings: Mapping[str, str]) -> None:
        """Raise what would keep `create` from making this topic."""
        if partitions < 1:
            raise InvalidPartitions(f"topic {name!r}: partitions must be 1 or more")
        self._check_room(name, partitions)
        self.catalog.create_topic(
            name, TopicId(UUID(int=0)), partitions=partitions, settings=settings
        )

    async def grow(self, name: TopicName, partitions: int) -> None:
        """Give a topic more partitions."""
        async with self._changing:
            self.check_growth(name, partitions)
            await self._happen(
                {"event": "partitions_added", "name": name, "partitions": partitions}
            )
        log.info("event=partitions_added topic=%s partitions=%d", name, partitions)

    def check_growth(self, name: TopicName, partitions: int) -> None:
        """Raise what would keep `grow` from doing it."""
        topic = self.catalog.topic(name)
        if partitions <= topic.partition_count:
            raise InvalidPartitions(
                f"topic {name!r} has {topic.partition_count} partitions; the new number must be "
                f"larger, not {partitions}"
            )
        self._check_room(name, partitions - topic.partition_count)

    async def delete(self, topic: Topic) -> None:
        """Remove a topic and its records; its id is never used again."""
        async with self._changing:
            if self.catalog.by_id(topic.topic_id) is None:
                raise UnknownTopicOrPartition(f"topic {topic.name!r} is gone already")
            await self._happen({"event": "topic_deleted", "id": topic.topic_id.hex})
        log.info("event=topic_deleted topic=%s", topic.name)
        self._settings.pop(topic.name, None)
        for tell in self._deleted:
            tell(topic)
        self._directory.delete(topic.topic_id)

    async def alter(self, event: Callable[[], Event]) -> None:
        """Let settings or producer ids become others.

        ``event`` is asked for when it is its turn: two changes of one thing at the same time must
        not both begin from what was before.
        """
        async with self._changing:
            await self._happen(event())

    def apply_settings(self, topic: Topic) -> None:
        """Let the topic's open logs have the settings that hold now."""
        limits = self.settings(topic).segments
        for log_ in self.opened(topic):
            log_.segment_limits = limits

    def _check_room(self, name: TopicName, partitions: int) -> None:
        most = self._config.server.partitions_max
        have = self.catalog.partition_count
        if have + partitions > most:
            raise PolicyViolation(
                f"topic {name!r}: {partitions} partitions more than the {have} of all topics "
                f"would pass sharegroup.partitions.max={most}"
            )

    async def _happen(self, event: Event) -> None:
        await self._journal.append(encode_event(event))
        self.catalog.replay(event)


def _retention(own: TopicConfig, broker: LogConfig) -> Retention:
    """-1 is how the configuration says that there is no limit."""
    ms = _own_or(own.retention_ms, broker.effective_retention_ms)
    size = _own_or(own.retention_bytes, broker.retention_bytes)
    return Retention(None if ms < 0 else ms, None if size < 0 else size)


def _compaction(own: TopicConfig, broker: LogConfig) -> CompactionSettings:
    return CompactionSettings(
        dirty_ratio_min=_own_or(own.dirty_ratio_min, broker.dirty_ratio_min),
        lag_ms_min=_own_or(own.compaction_lag_ms_min, broker.compaction_lag_ms_min),
        lag_ms_max=_own_or(own.compaction_lag_ms_max, broker.compaction_lag_ms_max),
        delete_retention_ms=_own_or(own.delete_retention_ms, broker.delete_retention_ms),
    )


def _own_or(own: T | None, broker: T) -> T:
    """What a topic sets for itself, or else what the broker has."""
    return broker if own is None else own
