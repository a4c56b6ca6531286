"""What runs beside the requests to keep logs from growing for ever: retention and compaction.

Every topic says by ``cleanup.policy`` what happens to its old records:

- ``delete``: whole segments go when they are too old or too many (`storage.retention`);
- ``compact``: of records with the same key the newest stays (`storage.compaction`);
- both, or neither.

Settings are asked for anew each time, so a changed one holds from the next look on.  Retention
looks at every log, a slice of them between two requests; a log's new start is durable before
any of its files goes.  Compaction takes one log after the other, in the storage thread, the
one with the most to gain first.
"""

from __future__ import annotations

import asyncio
import logging

from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.broker.cluster.catalog import Topic
from sharegroup.broker.cluster.topics import CompactionSettings, LogSettings, Topics
from sharegroup.broker.configuration.live_config import LiveConfig
from sharegroup.errors import CorruptMessage, KafkaError
from sharegroup.ids import TopicPartition
from sharegroup.storage.compaction import Compactable, Compacted, CompactionLimits, dirty_bytes
from sharegroup.storage.partition_log import PartitionLog

log = logging.getLogger(__name__)

SLICE_LOGS = 100
"""So many logs are looked at before requests have their turn again."""


Dirty = tuple[Topic, PartitionLog, Compactable, CompactionLimits]
"""A log that is worth a pass of compaction, and how it is done."""


class Cleaning:
    """See the module's text."""

    __slots__ = ("_clock", "_config", "_damaged", "_topics")

    def __init__(self, config: LiveConfig, clock: Clock, topics: Topics) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics
        self._damaged: set[TopicPartition] = set()
        """Logs that compaction could not read; they are left alone until the next start."""

    async def run(self) -> None:
        """Clean until cancelled."""
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
        """Let go, once, of what no log need keep by now."""
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
                    await self._move(moved)
                    moved = {}
        await self._move(moved)

    async def compact(self) -> None:
        """Compact, once, every log that is worth it, the dirtiest first."""
        failed: set[TopicPartition] = set()
        while (dirtiest := await self._dirtiest(failed)) is not None:
            topic, log_, found, limits = dirtiest
            try:
                done = await self._topics.compact(log_, found, limits)
            except CorruptMessage as error:
                self._damaged.add(log_.key)
                _report_failure(topic, log_.key, error)
            except KafkaError as error:
                failed.add(log_.key)
                _report_failure(topic, log_.key, error)
            else:
                _report_pass(topic, log_.key, done)

    async def _dirtiest(self, failed: set[TopicPartition]) -> Dirty | None:
        """The log with the largest share of new records, of those where they are enough."""
        looked_at, most, dirtiest = 0, 0.0, None
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
                found = log_.compactable(now_ms=now_ms, lag_ms=settings.compaction.lag_ms_min)
                ratio = _dirty_ratio(found, settings.compaction, now_ms)
                if ratio > most:
                    most, dirtiest = ratio, (topic, log_, found, self._limits(settings))
        return dirtiest

    def _limits(self, settings: LogSettings) -> CompactionLimits:
        assert settings.compaction is not None
        return CompactionLimits(
            memory_bytes=self._config.log.cleaner_dedupe_bytes,
            delete_retention_ms=settings.compaction.delete_retention_ms,
            segment_bytes=settings.segments.bytes,
        )

    async def _move(self, starts: dict[TopicPartition, int]) -> None:
        await asyncio.sleep(0)
        if not starts:
            return
        try:
            await self._topics.delete_before(starts)
        except KafkaError as error:
            # Nothing is lost by keeping it: the next look finds it again.
            log.warning("event=retention_failed logs=%d error=%r", len(starts), str(error))


def _report(topic: Topic, key: TopicPartition, before: int, start: int) -> None:
    log.info(
        "event=retention topic=%s partition=%d start_offset=%d was=%d",
        topic.name,
        key.partition,
        start,
        before,
    )


def _dirty_ratio(found: Compactable, settings: CompactionSettings, now_ms: int) -> float:
    """How much of a log is new, 0 where that is too little to be worth a pass."""
    dirty, total = dirty_bytes(found)
    if not dirty:
        return 0.0
    first = next(segment for segment in found.segments if segment.end_offset > found.cleaned_to)
    is_overdue = now_ms - first.first_timestamp > settings.lag_ms_max
    return dirty / total if is_overdue or dirty / total > settings.dirty_ratio_min else 0.0


def _report_pass(topic: Topic, key: TopicPartition, done: Compacted) -> None:
    log.info(
        "event=compaction topic=%s partition=%d cleaned_to=%d bytes_before=%d bytes_after=%d",
        topic.name,
        key.partition,
        done.cleaned_to,
        done.bytes_before,
        done.bytes_after,
    )


def _report_failure(topic: Topic, key: TopicPartition, error: KafkaError) -> None:
    log.warning(
        "event=compaction_failed topic=%s partition=%d error=%r",
        topic.name,
        key.partition,
        str(error),
    )
