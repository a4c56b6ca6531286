"""The topics of this broker: changes to them, and the log of each partition.

Changes are made one at a time: check, write the event to the journal, wait until it is durable,
apply it to the catalog.  The log of a partition is created at its first use (ADR 0007).  So unused
partitions of a topic cost nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from uuid import UUID, uuid4

from sharegroup.broker.cluster.catalog import Catalog, Topic, encode_event
from sharegroup.broker.cluster.catalog_part import Event
from sharegroup.broker.cluster.data_directory import (
    check_folders,
    check_identity,
    check_internal_folders,
    check_journal,
    keep_meta_properties,
    remove_deleted,
)
from sharegroup.broker.cluster.features import FIRST_LEVELS
from sharegroup.broker.configuration.config_values import LONG_MAX
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.broker.configuration.log_config import RECORD_BYTES_MAX, LogConfig
from sharegroup.broker.configuration.topic_config import TopicConfig
from sharegroup.core.security.principal import Principal
from sharegroup.errors import (
    FencedLeaderEpoch,
    InvalidPartitions,
    KafkaStorageError,
    PolicyViolation,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import LEADER_EPOCH, TopicId, TopicIdPartition, TopicName, topic_id_text
from sharegroup.steps import Steps, paced
from sharegroup.storage.directory.journal import Journal
from sharegroup.storage.directory.log_directory import LogDirectory
from sharegroup.storage.disk.files import DiskSpace
from sharegroup.storage.log.partition_log import PartitionLog
from sharegroup.storage.log.retention import Retention
from sharegroup.storage.segment.read_ahead import ReadAhead
from sharegroup.storage.segment.segment import SegmentLimits

if TYPE_CHECKING:
    # The start of a broker does without them.
    from sharegroup.storage.log.compaction import Compactable, Compacted, CompactionLimits
    from sharegroup.wire.batches.recompression import TargetCompression

log = logging.getLogger(__name__)

T = TypeVar("T")

JOURNAL_EVENTS_SPARE = 1_000
"""The journal is rewritten when it has more superfluous events than this and than needed ones."""


NEW_TOPIC = TopicId(UUID(int=0))
"""Stands for the id of a topic that is checked before it is created."""


AUTO_CREATE_PART = 2
"""Topics are created automatically until half of `sharegroup.partitions.max` is used."""


class CompactionSettings(NamedTuple):
    """The conditions for compacting a topic's logs, and the lifetime of its tombstones."""

    dirty_ratio_min: float
    lag_ms_min: int
    lag_ms_max: int
    delete_retention_ms: int


class LogSettings(NamedTuple):
    """The effective settings of a topic: its own, and the broker's where it has none."""

    segments: SegmentLimits
    message_bytes_max: int
    append_time: bool
    timestamp_before_ms_max: int
    timestamp_after_ms_max: int
    limits_age: bool
    """Whether ``message.timestamp.before.max.ms`` is set, so that every record is checked."""
    target: TargetCompression | None
    """The codec in which batches are stored; None is that of their producers."""
    record_bytes_max: int | None
    """Maximum size of a record after decompression; None is any size."""
    retention: Retention
    """The limits of retention; there are none unless ``cleanup.policy`` contains ``delete``."""
    compaction: CompactionSettings | None
    """None for a topic that is not compacted."""
    is_compacted_only: bool
    """Whether compaction is the only reason to remove records."""
    reads_records: bool
    """Whether the records of a produced batch may have to be read before it is appended."""


class Topics:
    """Creates, changes and deletes topics, and opens the logs of their partitions."""

    __slots__ = (
        "_changing",
        "_config",
        "_deleted",
        "_directory",
        "_journal",
        "_journal_due",
        "_journal_events_spare",
        "_leader_epochs",
        "_settings",
        "_visible",
        "catalog",
    )

    def __init__(
        self,
        config: LiveConfig,
        directory: LogDirectory,
        journal: Journal,
        *,
        journal_events_spare: int = JOURNAL_EVENTS_SPARE,
    ) -> None:
        self.catalog = Catalog(user_percent=config.server.user_limits_percent)
        self._config = config
        self._directory = directory
        self._journal = journal
        self._journal_due = asyncio.Event()
        self._journal_events_spare = journal_events_spare
        self._changing = asyncio.Lock()
        self._visible: Callable[[TopicIdPartition], None] = lambda _: None
        self._deleted: list[Callable[[Topic], Steps[None]]] = []
        self._leader_epochs: dict[TopicIdPartition, int] = {}
        """The leader epochs that are not `LEADER_EPOCH`."""
        self._settings: dict[TopicName, tuple[TopicConfig, LogConfig, LogSettings]] = {}
        self.catalog.load(journal.payloads())

    @property
    def read_ahead(self) -> ReadAhead:
        """The records that are read from the logs in advance."""
        return self._directory.read_ahead

    def disk_space(self) -> DiskSpace | None:
        """Return the space of the data directory's volume, or None if it is unknown."""
        return self._directory.space()

    @property
    def event_count(self) -> int:
        """The number of events in the catalog's journal."""
        return self._journal.payload_count

    def on_visible(self, callback: Callable[[TopicIdPartition], None]) -> None:
        """Call ``callback`` whenever a partition has new visible records."""
        self._visible = callback

    def on_deleted(self, callback: Callable[[Topic], Steps[None]]) -> None:
        """Call ``callback`` after a topic is deleted, and run the steps that it returns."""
        self._deleted.append(callback)

    async def start(self) -> None:
        """Check that catalog and folders belong together, and open the logs that have a folder.

        Raises KafkaStorageError if the broker must not start with this data directory.
        """
        if check_identity(self.catalog, self._directory):
            self._directory.begin()
            # The cluster id comes last: after a crash before it the directory counts as new, and
            # does not get the levels of a catalog without features (`LEVELS_BEFORE`).
            first: list[Event] = [
                {"event": "features", "levels": dict(FIRST_LEVELS), "epoch": 1},
                {"event": "cluster", "id": topic_id_text(TopicId(uuid4()))},
            ]
            for ticket in [self._journal.append(encode_event(event)) for event in first]:
                await ticket
            for event in first:
                self.catalog.replay(event)
        # All checks come before the first change: a broker that refuses to start has changed
        # nothing (ADR 0019).
        check_folders(self.catalog, self._directory)
        check_journal(self._directory, self._journal)
        check_internal_folders(self.catalog, self._directory)
        self._directory.begin()
        keep_meta_properties(self.catalog, self._directory, node_id=self._config.server.node_id)
        self._journal.cut_tail()
        remove_deleted(self.catalog, self._directory)
        for partition in self._directory.partitions():
            topic = self.catalog.by_id(partition.topic_id)
            if topic is not None:
                self.log_of(topic, partition.partition)
        if self._has_long_journal:
            await self._rewrite_journal()

    def settings(self, topic: Topic) -> LogSettings:
        """Return the effective settings of a topic; they are cached until a setting changes."""
        cached = self._settings.get(topic.name)
        # By identity: each change of a topic or of the broker's configuration makes a new object.
        if cached is not None and cached[0] is topic.config and cached[1] is self._config.log:
            return cached[2]
        settings = self._worked_out(topic)
        self._settings[topic.name] = topic.config, self._config.log, settings
        return settings

    def _worked_out(self, topic: Topic) -> LogSettings:
        own, broker = topic.config, self._config.log
        policy = _own_or(own.cleanup_policy, broker.cleanup_policy)
        compaction = _compaction(own, broker) if "compact" in policy else None
        segment_ms = _own_or(own.segment_ms, broker.effective_segment_ms)
        if compaction is not None:
            # Only closed segments are compacted, so the active one has to close in time.
            segment_ms = min(segment_ms, compaction.lag_ms_max)
        target = _target(own, broker)
        record_bytes_max: int | None = _own_or(own.record_bytes_max, broker.record_bytes_max)
        # No record can be larger than the default, so records need not be read because of it.
        if record_bytes_max == RECORD_BYTES_MAX:
            record_bytes_max = None
        return LogSettings(
            segments=SegmentLimits(
                bytes=own.internal_segment_bytes
                or _own_or(own.segment_bytes, broker.segment_bytes),
                ms=segment_ms,
            ),
            message_bytes_max=_own_or(own.message_bytes_max, broker.message_bytes_max),
            append_time=_own_or(own.timestamp_type, broker.timestamp_type) == "LogAppendTime",
            timestamp_before_ms_max=_own_or(
                own.timestamp_before_ms_max, broker.timestamp_before_ms_max
            ),
            timestamp_after_ms_max=_own_or(
                own.timestamp_after_ms_max, broker.timestamp_after_ms_max
            ),
            limits_age=_own_or(own.timestamp_before_ms_max, broker.timestamp_before_ms_max)
            < LONG_MAX,
            target=target,
            record_bytes_max=record_bytes_max,
            retention=_retention(own, broker) if "delete" in policy else Retention(),
            compaction=compaction,
            is_compacted_only=compaction is not None and "delete" not in policy,
            reads_records=bool(compaction or target or record_bytes_max),
        )

    def named(self, name: TopicName, partition: int) -> tuple[Topic, PartitionLog]:
        """Return a topic and the log of a partition by name; raise UnknownTopicOrPartition."""
        topic = self.catalog.topic(name)
        return topic, self.log_of(topic, partition)

    def identified(self, topic_id: TopicId, partition: int) -> tuple[Topic, PartitionLog]:
        """Return a topic and the log of a partition by id; raise UnknownTopicId."""
        topic = self.catalog.by_id(topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}; it may have been deleted")
        return topic, self.log_of(topic, partition)

    def log_of(self, topic: Topic, partition: int) -> PartitionLog:
        """Return the log of a partition, and create it at its first use."""
        if not 0 <= partition < topic.partition_count:
            raise UnknownTopicOrPartition(
                f"topic {topic.name!r} has partitions 0 to {topic.partition_count - 1}, "
                f"not {partition}"
            )
        existing = self._directory.get(topic.topic_id, partition)
        if existing is not None:
            return existing
        created = self._directory.create(
            topic.topic_id,
            partition,
            limits=self.settings(topic).segments,
            topic_name=topic.name,
            partition_count=topic.partition_count,
        )
        key = TopicIdPartition(topic.topic_id, partition)
        # A lambda: logs exist before `on_visible` sets the callback.
        created.subscribe(lambda: self._visible(key))
        return created

    def leader_epoch(self, partition: TopicIdPartition) -> int:
        """Return the leader epoch of a partition, which only `raise_leader_epoch` changes."""
        if not self._leader_epochs:  # As in every broker that is not under test.
            return LEADER_EPOCH
        return self._leader_epochs.get(partition, LEADER_EPOCH)

    def check_leader_epoch(self, partition: TopicIdPartition, epoch: int) -> None:
        """Raise an error if a request names another leader epoch (KIP-320); -1 names none."""
        current = self.leader_epoch(partition)
        if epoch in (-1, current):
            return
        error = FencedLeaderEpoch if epoch < current else UnknownLeaderEpoch
        topic = self.catalog.by_id(partition.topic_id)
        name = partition.topic_id if topic is None else repr(topic.name)
        raise error(
            f"topic {name} partition {partition.partition}: the leader epoch is {current}, "
            f"not {epoch}"
        )

    def raise_leader_epoch(self, partition: TopicIdPartition) -> int:
        """Raise a leader epoch until the broker stops, as if the leader had changed; return it.

        Only tests do it (`sharegroup.faults`).  Fetches that wait are woken and see it.
        """
        epoch = self._leader_epochs[partition] = self.leader_epoch(partition) + 1
        self._visible(partition)
        return epoch

    def expire_producers(self, unused_since_ms: int) -> Steps[None]:
        """Forget, in steps, idempotent producers that were last active before a wall-clock time."""
        for topic in self.catalog.topics():
            for log_, pause in paced(self.opened(topic)):
                log_.producers.expire(unused_since_ms)
                if pause:
                    yield
            yield

    @property
    def producer_ids_seen(self) -> int:
        """The largest producer id in the logs plus one; 0 if the logs have none.

        A catalog that was restored from an older copy may not have it.
        """
        logs = (log_ for topic in self.catalog.topics() for log_ in self.opened(topic))
        ids = (producer_id for log_ in logs for producer_id, _ in log_.producers.items())
        return max(ids, default=-1) + 1

    def opened(self, topic: Topic) -> Iterator[PartitionLog]:
        """Yield the existing logs of a topic, without creating others."""
        for partition in range(topic.partition_count):
            log_ = self._directory.get(topic.topic_id, partition)
            if log_ is not None:
                yield log_

    def opened_log(self, topic: Topic, partition: int) -> PartitionLog | None:
        """Return the log of a partition, or None if it does not exist yet."""
        return self._directory.get(topic.topic_id, partition)

    async def delete_before(self, offsets: Mapping[TopicIdPartition, int]) -> None:
        """Advance the start offsets of logs durably and delete closed segments below them.

        Internal topics are allowed.  `PartitionLog.roll` closes the active segment, so that it can
        be deleted the next time.
        """
        await self._directory.delete_before(offsets)

    async def checkpoint(self, logs: Iterable[PartitionLog]) -> None:
        """Move the recovery points of these logs, so that their closed segments are compactable."""
        await self._directory.checkpoint_of(logs)

    async def compact(
        self, log_: PartitionLog, found: Compactable, limits: CompactionLimits
    ) -> Compacted:
        """Compact once the segments that `PartitionLog.compactable` found."""
        return await self._directory.compact(log_, found, limits)

    def is_touched(self, topic: Topic, partition: int) -> bool:
        """Whether the log of the partition exists."""
        return self._directory.get(topic.topic_id, partition) is not None

    async def create(
        self,
        name: TopicName,
        *,
        partitions: int,
        settings: Mapping[str, str],
        user: Principal | None = None,
    ) -> Topic:
        """Create a topic and return it when its creation is durable.

        ``user`` is the one whose part of all partitions limits it, if any.
        """
        async with self._changing:
            self.check_new(name, partitions=partitions, settings=settings, user=user)
            # A new id each time: groups and share states of a deleted topic of this name do not
            # apply to it.
            topic_id = TopicId(uuid4())
            await self._happen(
                self.catalog.create_topic(name, topic_id, partitions=partitions, settings=settings)
            )
            self.catalog.partitions.claim(topic_id, user, partitions)
        log.info("event=topic_created topic=%s partitions=%d", name, partitions)
        return self.catalog.topic(name)

    async def keep_internal(
        self, name: TopicName, *, partitions: int, settings: Mapping[str, str]
    ) -> None:
        """Create an internal topic, or apply these settings to the existing one.

        An older version of the broker may have created it with other settings.
        """
        topic = self.catalog.find(name)
        if topic is None:
            await self.create(name, partitions=partitions, settings=settings)
        elif dict(topic.settings) != dict(settings):
            try:
                await self.alter(
                    lambda: {"event": "topic_settings", "name": name, "settings": dict(settings)}
                )
            except KafkaStorageError as error:
                # A broker starts on a full disk (ADR 0019), and the next start tries again.
                log.warning("event=settings_not_written topic=%s error=%r", name, str(error))
            else:
                self.apply_settings(self.catalog.topic(name))

    def check_new(
        self,
        name: TopicName,
        *,
        partitions: int,
        settings: Mapping[str, str],
        user: Principal | None = None,
    ) -> None:
        """Raise the error that `create` would raise for this topic."""
        if partitions < 1:
            raise InvalidPartitions(f"topic {name!r}: partitions must be 1 or more")
        self._check_room(name, NEW_TOPIC, partitions, user)
        self.catalog.create_topic(name, NEW_TOPIC, partitions=partitions, settings=settings)

    async def grow(
        self, name: TopicName, partitions: int, *, user: Principal | None = None
    ) -> None:
        """Increase the number of partitions of a topic."""
        async with self._changing:
            self.check_growth(name, partitions, user=user)
            await self._happen(
                {"event": "partitions_added", "name": name, "partitions": partitions}
            )
            self.catalog.partitions.claim(self.catalog.topic(name).topic_id, user, partitions)
        log.info("event=partitions_added topic=%s partitions=%d", name, partitions)

    def check_growth(
        self, name: TopicName, partitions: int, *, user: Principal | None = None
    ) -> None:
        """Raise the error that `grow` would raise."""
        topic = self.catalog.topic(name)
        if partitions <= topic.partition_count:
            raise InvalidPartitions(
                f"topic {name!r} has {topic.partition_count} partitions; the new number must be "
                f"larger, not {partitions}"
            )
        self._check_room(name, topic.topic_id, partitions - topic.partition_count, user)

    async def delete(self, topic: Topic) -> None:
        """Delete a topic and its records; its id is never used again."""
        async with self._changing:
            # Another request may have deleted it while this one waited for the lock.
            if self.catalog.by_id(topic.topic_id) is None:
                raise UnknownTopicOrPartition(f"topic {topic.name!r} does not exist any more")
            await self._happen({"event": "topic_deleted", "id": topic.topic_id.hex})
        log.info("event=topic_deleted topic=%s", topic.name)
        self._settings.pop(topic.name, None)
        # Without the lock: the deletion is durable, so other changes need not wait for files and
        # callbacks.
        self._directory.delete(
            topic.topic_id,
            partition_count=topic.partition_count,
            removed=lambda: self.catalog.forget_deleted(topic.topic_id),
        )
        for callback in self._deleted:
            for _ in callback(topic):
                await asyncio.sleep(0)

    async def alter(self, event: Callable[[], Event]) -> None:
        """Write an event that changes settings, features or producer ids, and apply it.

        ``event`` is called only after earlier changes are applied.  Otherwise two concurrent
        changes would start from the same state, and one of them would be lost.
        """
        async with self._changing:
            await self._happen(event())

    async def alter_acls(self, decide: Callable[[], Awaitable[Iterable[Event]]]) -> None:
        """Write the events that ``decide`` returns, and apply each of them when it is durable.

        ``decide`` is called after earlier changes are applied, and nothing changes while it waits.
        After a failed write, the events before it stay applied.
        """
        async with self._changing:
            for event in await decide():
                await self._happen(event)

    def apply_settings(self, topic: Topic) -> None:
        """Apply the current segment limits of a topic to its open logs."""
        limits = self.settings(topic).segments
        for log_ in self.opened(topic):
            log_.segment_limits = limits

    def _check_room(
        self, name: TopicName, topic_id: TopicId, partitions: int, user: Principal | None
    ) -> None:
        limit = self._config.server.partitions_max
        existing = self.catalog.partition_count
        if existing + partitions > limit:
            raise PolicyViolation(
                f"topic {name!r}: {partitions} new partitions and the {existing} existing ones of "
                f"all topics would exceed sharegroup.partitions.max={limit}"
            )
        self.check_part(name, topic_id, partitions, user, limit=limit)

    def check_part(
        self,
        name: TopicName,
        topic_id: TopicId,
        partitions: int,
        user: Principal | None,
        *,
        limit: int,
    ) -> None:
        """Raise PolicyViolation if new partitions exceed the user's part of a limit."""
        self.catalog.partitions.check(topic_id, user, partitions, limit=limit, named=repr(name))

    def check_automatic(self, name: TopicName, partitions: int, user: Principal | None) -> None:
        """Raise PolicyViolation if a topic may not be created that nobody asked for.

        Such topics use only a part of the allowed partitions, so CreateTopics always has room.
        """
        existing = self.catalog.partition_count
        room = self._config.server.partitions_max // AUTO_CREATE_PART
        if existing + partitions > room:
            raise PolicyViolation(
                f"topic {name!r}: topics are created automatically only up to {room} partitions of "
                f"all topics, there are {existing}; use CreateTopics, or raise "
                "sharegroup.partitions.max"
            )
        self.check_part(name, NEW_TOPIC, partitions, user, limit=room)

    async def _happen(self, event: Event) -> None:
        """Write an event to the journal and apply it to the catalog when it is durable."""
        await self._journal.append(encode_event(event))
        self.catalog.replay(event)
        if self._has_long_journal:
            self._journal_due.set()

    async def keep_journal_short(self) -> None:
        """Rewrite the journal whenever it has too many superfluous events, until cancelled."""
        while True:
            await self._journal_due.wait()
            async with self._changing:
                self._journal_due.clear()
                if self._has_long_journal:
                    await self._rewrite_journal()

    @property
    def _has_long_journal(self) -> bool:
        needed = self.catalog.events_needed
        return self._journal.payload_count > needed + max(needed, self._journal_events_spare)

    async def _rewrite_journal(self) -> None:
        """Replace the journal by the shortest one that leads to the same catalog.

        The caller must prevent changes meanwhile.  If no new file can be written, the journal
        stays as it is, and the next change tries again.
        """
        previous_count = self._journal.payload_count
        try:
            await self._journal.rewrite(map(encode_event, self.catalog.events()))
        except KafkaStorageError as error:
            log.warning("event=journal_rewrite_failed error=%r", str(error))
        else:
            log.info(
                "event=journal_rewritten events=%d was=%d",
                self._journal.payload_count,
                previous_count,
            )


def _retention(own: TopicConfig, broker: LogConfig) -> Retention:
    """Return the limits of retention; -1 in the configuration means no limit."""
    ms = _own_or(own.retention_ms, broker.effective_retention_ms)
    size = _own_or(own.retention_bytes, broker.retention_bytes)
    ahead_ms_max = _own_or(own.timestamp_after_ms_max, broker.timestamp_after_ms_max)
    return Retention(None if ms < 0 else ms, None if size < 0 else size, ahead_ms_max)


def _target(own: TopicConfig, broker: LogConfig) -> TargetCompression | None:
    """Return the codec and the level of ``compression.type``; None for ``producer``."""
    name = _own_or(own.compression_type, broker.compression_type)
    if name == "producer":
        return None
    # Imported here, because most topics keep the codec of their producers.
    from sharegroup.wire.batches.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
    from sharegroup.wire.batches.recompression import TargetCompression

    match name:
        case "gzip":
            level = _own_or(own.gzip_level, broker.gzip_level)
            return TargetCompression(GZIP, None if level < 0 else level)
        case "lz4":
            return TargetCompression(LZ4, _own_or(own.lz4_level, broker.lz4_level))
        case "zstd":
            return TargetCompression(ZSTD, _own_or(own.zstd_level, broker.zstd_level))
        case "snappy":
            return TargetCompression(SNAPPY, None)
    assert name == "uncompressed", "checked when it was set"
    return TargetCompression(NONE, None)


def _compaction(own: TopicConfig, broker: LogConfig) -> CompactionSettings:
    return CompactionSettings(
        dirty_ratio_min=_own_or(own.dirty_ratio_min, broker.dirty_ratio_min),
        lag_ms_min=_own_or(own.compaction_lag_ms_min, broker.compaction_lag_ms_min),
        lag_ms_max=_own_or(own.compaction_lag_ms_max, broker.compaction_lag_ms_max),
        delete_retention_ms=_own_or(own.delete_retention_ms, broker.delete_retention_ms),
    )


def _own_or(own: T | None, broker: T) -> T:
    """Return the topic's own value, or the broker's if the topic has none."""
    return broker if own is None else own
