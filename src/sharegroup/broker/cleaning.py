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

from sharegroup.broker.catalog import Topic
from sharegroup.broker.clock import Clock, sleep_ms
from sharegroup.broker.live_config import LiveConfig
from sharegroup.broker.topics import Topics
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicPartition

log = logging.getLogger(__name__)

SLICE_LOGS = 100
"""So many logs are looked at before requests have their turn again."""


class Cleaning:
    """See the module's text."""

    __slots__ = ("_clock", "_config", "_topics")

    def __init__(self, config: LiveConfig, clock: Clock, topics: Topics) -> None:
        self._config = config
        self._clock = clock
        self._topics = topics

    async def run(self) -> None:
        """Clean until cancelled."""
        while True:
            await sleep_ms(self._clock, self._config.log.retention_check_ms)
            await self.retain()

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
