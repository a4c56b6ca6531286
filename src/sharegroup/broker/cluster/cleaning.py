"""Retention and compaction: background tasks that keep logs from growing without limit.

The setting ``cleanup.policy`` of a topic determines what happens to its old records:

- ``delete``: whole segments are deleted by age or size (`storage.log.retention`).
- ``compact``: only the newest record of each key is kept (`storage.log.compaction`).
- A topic may also have both policies, or neither.

Settings are read in every run, so a change takes effect in the next run.  Retention checks all
logs, in slices between requests.  The new start offset of a log is durable before any of its files
is deleted.  Compaction processes one log at a time in the storage thread, beginning with the log
that has the highest ratio of new records.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeAlias

from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import CompactionSettings, LogSettings, Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.ids import TopicIdPartition
from sharegroup.storage.log.partition_log import PartitionLog

if TYPE_CHECKING:
    # Imported at first use, to keep the start of a broker short.
    from sharegroup.storage.log.compaction import Compactable, Compacted, CompactionLimits

log = logging.getLogger(__name__)

SLICE_LOGS = 100
"""Logs that are checked before requests get their turn."""

MOVED_LOGS_MAX = 500
"""Logs whose start offsets are saved together, because each write saves those of all logs."""


Dirty: TypeAlias = "tuple[Topic, PartitionLog, Compactable, CompactionLimits]"
"""A log that needs compaction, its compactable segments and the limits of the pass."""


class Cleaning:
    """Runs retention and compaction for all topics."""

    __slots__ = ("_clock", "_config", "_damaged", "_topics")

    def __init__(self, config: LiveConfig, clock: Clock, topics: Topics) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._damaged: set[TopicIdPartition] = set()
        """Logs that compaction could not read; it skips them until the next start of the broker."""

    async def run(self) -> None:
        """Run retention and compaction until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._retain_for_ever())
            if self._config.log.cleaner:
                tasks.create_task(self._compact_for_ever())

    async def _retain_for_ever(self) -> None:
        while True:
            await sleep_ms(self._clock, self._config.log.retention_check_ms)
            await self.retain()

    async def _compact_for_ever(self) -> None:
        while True:
            await sleep_ms(self._clock, self._config.log.cleaner_backoff_ms)
            await self.compact()

    async def retain(self) -> None:
        """Delete once, from all logs, the segments that exceed the limits of retention."""
        looked_at, moved = 0, {}
        for topic in self._topics.catalog.topics():
            retention = self._topics.settings(topic).retention
            if retention.ms is None and retention.bytes is None:
                continue
            for log_ in self._topics.opened(topic):
                start = log_.retained_from(retention, now_ms=self._clock.wall_ms())
                if start > log_.start_offset:
                    moved[log_.key] = start
                    _report(topic, log_.key, log_.start_offset, start)
                looked_at += 1
                if looked_at % SLICE_LOGS == 0:
                    await asyncio.sleep(0)
                if len(moved) >= MOVED_LOGS_MAX:
                    await self._move(moved)
                    moved = {}
        await self._move(moved)

    async def compact(self) -> None:
        """Compact once every log that needs it, beginning with the highest dirty ratio."""
        await self._checkpoint()
        # For this run only: a disk may have recovered until the next one.
        failed: set[TopicIdPartition] = set()
        # Looked for anew each time: a pass takes long, and other logs grow meanwhile.
        while (dirtiest := await self._dirtiest(failed)) is not None:
            topic, log_, compactable, limits = dirtiest
            try:
                compacted = await self._topics.compact(log_, compactable, limits)
            except CorruptMessage as error:
                self._damaged.add(log_.key)
                _report_failure(topic, log_.key, error)
            except KafkaError as error:
                failed.add(log_.key)
                _report_failure(topic, log_.key, error)
            except Exception:
                # A fault of this program that one log brings to light must not end the compaction
                # of all others.
                self._damaged.add(log_.key)
                log.exception(
                    "event=compaction_failed topic=%s partition=%d action='report this error; the "
                    "log is not compacted until the broker starts again'",
                    topic.name,
                    log_.key.partition,
                )
            else:
                _report_pass(topic, log_.key, compacted)

    async def _checkpoint(self) -> None:
        """Take a checkpoint of the logs that need compaction but for their recovery points.

        Checkpoints of all logs come every 30 seconds, which a small segment must not wait for.
        """
        looked_at, due, now_ms = 0, [], self._clock.wall_ms()
        for topic in self._topics.catalog.topics():
            compaction = self._topics.settings(topic).compaction
            if compaction is None:
                continue
            for log_ in self._topics.opened(topic):
                looked_at += 1
                if looked_at % SLICE_LOGS == 0:
                    await asyncio.sleep(0)
                if log_.awaits_checkpoint and log_.key not in self._damaged:
                    compactable = log_.compactable(
                        now_ms=now_ms, lag_ms=compaction.lag_ms_min, after_checkpoint=True
                    )
                    if _dirty_ratio(compactable, compaction, now_ms):
                        due.append(log_)
        if due:
            await self._topics.checkpoint(due)

    async def _dirtiest(self, failed: set[TopicIdPartition]) -> Dirty | None:
        """Return the log with the highest dirty ratio, or None if no log needs compaction."""
        looked_at, max_ratio, dirtiest = 0, 0.0, None
        now_ms = self._clock.wall_ms()
        for topic in self._topics.catalog.topics():
            settings = self._topics.settings(topic)
            if settings.compaction is None:
                continue
            for log_ in self._topics.opened(topic):
                looked_at += 1
                if looked_at % SLICE_LOGS == 0:
                    await asyncio.sleep(0)
                if log_.key in failed or log_.key in self._damaged:
                    continue
                compactable = log_.compactable(now_ms=now_ms, lag_ms=settings.compaction.lag_ms_min)
                ratio = _dirty_ratio(compactable, settings.compaction, now_ms)
                if ratio > max_ratio:
                    max_ratio, dirtiest = ratio, (topic, log_, compactable, self._limits(settings))
        return dirtiest

    def _limits(self, settings: LogSettings) -> CompactionLimits:
        assert settings.compaction is not None
        # Imported at first use, like the next.
        from sharegroup.storage.log.compaction import CompactionLimits

        return CompactionLimits(
            memory_bytes=self._config.log.cleaner_dedupe_bytes,
            delete_retention_ms=settings.compaction.delete_retention_ms,
            segment_bytes=settings.segments.bytes,
        )

    async def _move(self, starts: dict[TopicIdPartition, int]) -> None:
        if not starts:
            return
        try:
            await self._topics.delete_before(starts)
        except KafkaError as error:
            # The old records stay, and the next run finds them again.
            log.warning("event=retention_failed logs=%d error=%r", len(starts), str(error))


def _report(topic: Topic, key: TopicIdPartition, before: int, start: int) -> None:
    log.info(
        "event=retention topic=%s partition=%d start_offset=%d was=%d",
        topic.name,
        key.partition,
        start,
        before,
    )


def _dirty_ratio(compactable: Compactable, settings: CompactionSettings, now_ms: int) -> float:
    """Return the ratio of new bytes in a log, or 0 if the log needs no compaction."""
    # Imported at first use, because only old logs are compacted.
    from sharegroup.storage.log.compaction import dirty_bytes

    dirty, total = dirty_bytes(compactable)
    if not dirty:
        return 0.0
    first = next(
        segment for segment in compactable.segments if segment.end_offset > compactable.cleaned_to
    )
    is_overdue = now_ms - first.first_timestamp > settings.lag_ms_max
    return dirty / total if is_overdue or dirty / total > settings.dirty_ratio_min else 0.0


def _report_pass(topic: Topic, key: TopicIdPartition, done: Compacted) -> None:
    log.info(
        "event=compaction topic=%s partition=%d cleaned_to=%d bytes_before=%d bytes_after=%d",
        topic.name,
        key.partition,
        done.cleaned_to,
        done.bytes_before,
        done.bytes_after,
    )


def _report_failure(topic: Topic, key: TopicIdPartition, error: KafkaError) -> None:
    log.warning(
        "event=compaction_failed topic=%s partition=%d error=%r",
        topic.name,
        key.partition,
        str(error),
    )
