"""How much waits: asked of the cluster now and then, while somebody serves metrics.

    lag       of each share group and topic, as the group's coordinator reckons it
    in tiers  records of the retry topics that the scheduler has not committed yet

What can't be found out is absent: unknown is not zero.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from sharegroup.client.admin import AdminClient
from sharegroup.client.admin_types import (
    CommittedOffset,
    ListedOffset,
    OffsetSpec,
    SharePartitionOffset,
)
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError
from sharegroup.worker.declared.names import is_tier_topic, scheduler_group
from sharegroup.worker.ports import Clock

log = logging.getLogger(__name__)

EVERY_SECONDS = 15.0


class Waiting:
    """What was last heard of the queues of some share groups."""

    __slots__ = ("_admin", "_clock", "_groups", "in_tiers", "lag")

    def __init__(self, admin: AdminClient, clock: Clock, groups: Iterable[str]) -> None:
        self._admin = admin
        self._clock = clock
        self._groups = tuple(groups)
        self.lag: Mapping[tuple[str, str], int] = {}
        """Records not settled, by group and topic."""
        self.in_tiers: Mapping[str, int] = {}
        """Retries that wait, by group."""

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        while True:
            await self.ask()
            await self._clock.sleep_until(self._clock.now() + EVERY_SECONDS)

    async def ask(self) -> None:
        """Ask once; what can't be asked is unknown from now on."""
        try:
            self.lag = await self._ask_lag()
            self.in_tiers = await self._ask_tiers()
        except KafkaError as error:
            log.debug("event=lag_unknown error=%r", error)
            self.lag, self.in_tiers = {}, {}

    async def _ask_lag(self) -> Mapping[tuple[str, str], int]:
        answers = await self._admin.list_share_group_offsets(dict.fromkeys(self._groups))
        lag: dict[tuple[str, str], int] = {}
        unknown = set()
        for group, partitions in answers.items():
            if isinstance(partitions, KafkaError):
                continue
            for where, one in partitions.items():
                if isinstance(one, SharePartitionOffset) and one.lag is not None:
                    lag[group, where.topic] = lag.get((group, where.topic), 0) + one.lag
                else:
                    unknown.add((group, where.topic))
        return {key: count for key, count in lag.items() if key not in unknown}

    async def _ask_tiers(self) -> Mapping[str, int]:
        names = await self._admin.list_topics()
        waiting = {}
        for group in self._groups:
            tiers = [name for name in names if is_tier_topic(group, name)]
            if tiers:
                waiting[group] = await self._in_tiers(group, tiers)
        return {group: count for group, count in waiting.items() if count is not None}

    async def _in_tiers(self, group: str, topics: list[str]) -> int | None:
        described = await self._admin.describe_topics(topics)
        where = [
            TopicPartition(name, one.partition)
            for name, topic in described.items()
            if not isinstance(topic, KafkaError)
            for one in topic.partitions
        ]
        first = await self._admin.list_offsets(dict.fromkeys(where, OffsetSpec.EARLIEST))
        end = await self._admin.list_offsets(dict.fromkeys(where, OffsetSpec.LATEST))
        scheduler = scheduler_group(group)
        answers = await self._admin.list_consumer_group_offsets({scheduler: where})
        committed = answers[scheduler]
        if isinstance(committed, KafkaError):
            committed = {}  # Nobody scheduled anything yet.
        count = 0
        for one in where:
            begins, ends, done = first[one], end[one], committed.get(one)
            if not isinstance(begins, ListedOffset) or not isinstance(ends, ListedOffset):
                return None
            offset = done.offset if isinstance(done, CommittedOffset) else None
            count += max(0, ends.offset - max(begins.offset, offset or 0))
        return count
