"""Queries the number of waiting records from the cluster regularly, for metrics.

    lag       of each group and topic: of a share group as its coordinator computes it, of a
              consumer group the offsets behind the committed one
    in tiers  records of the retry topics that the scheduler has not committed yet

A value that cannot be determined is absent, because unknown is not zero.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from sharegroup.client.admin.admin_client import AdminClient
from sharegroup.client.admin.types import SharePartitionOffset
from sharegroup.client.fetch.offsets import ListedOffset, OffsetSpec
from sharegroup.client.records import TopicPartition
from sharegroup.errors import GroupIdNotFound, KafkaError, UnknownTopicOrPartition
from sharegroup.waiting.retry_topics import is_tier_topic, scheduler_group
from sharegroup.worker.ports import WorkerClock

log = logging.getLogger(__name__)

EVERY_SECONDS = 15.0


class GroupBacklog:
    """The lag and the waiting retries of some share groups, as of the last query."""

    __slots__ = ("_admin", "_clock", "_consumed", "_share_groups", "in_tiers", "lag")

    def __init__(
        self,
        admin: AdminClient,
        clock: WorkerClock,
        share_groups: Iterable[str],
        consumed: Mapping[str, Collection[str]] = MappingProxyType({}),
    ) -> None:
        """``consumed`` has the topics of each consumer group."""
        self._admin = admin
        self._clock = clock
        self._share_groups = tuple(share_groups)
        self._consumed = consumed
        self.lag: Mapping[tuple[str, str], int] = {}
        """The number of unsettled records by group and topic."""
        self.in_tiers: Mapping[str, int] = {}
        """The number of waiting retries by group."""

    async def run(self) -> None:
        """Query every `EVERY_SECONDS` until cancelled."""
        while True:
            await self.ask()
            await self._clock.sleep_until(self._clock.now() + EVERY_SECONDS)

    async def ask(self) -> None:
        """Query once; after a failure all values are absent."""
        try:
            self.lag = await self._ask_lag()
            self.in_tiers = await self._ask_tiers()
        except KafkaError as error:
            log.debug("event=lag_unknown error=%r", error)
            self.lag, self.in_tiers = {}, {}

    async def _ask_lag(self) -> Mapping[tuple[str, str], int]:
        answers = await self._admin.list_share_group_offsets(dict.fromkeys(self._share_groups))
        lag: dict[tuple[str, str], int] = {}
        unknown = set()
        for group, partitions in answers.items():
            if isinstance(partitions, KafkaError):
                continue
            for topic_partition, share_offset in partitions.items():
                if isinstance(share_offset, SharePartitionOffset) and share_offset.lag is not None:
                    lag[group, topic_partition.topic] = (
                        lag.get((group, topic_partition.topic), 0) + share_offset.lag
                    )
                else:
                    unknown.add((group, topic_partition.topic))
        for group, topics in self._consumed.items():
            behind = await self._behind(group, sorted(topics))
            lag |= {(group, topic): count for topic, count in (behind or {}).items()}
        return {key: count for key, count in lag.items() if key not in unknown}

    async def _ask_tiers(self) -> Mapping[str, int]:
        names = await self._admin.list_topics()
        waiting = {}
        for group in (*self._share_groups, *self._consumed):
            tiers = [name for name in names if is_tier_topic(group, name)]
            behind = await self._behind(scheduler_group(group), tiers) if tiers else None
            if behind is not None:
                waiting[group] = sum(behind.values())
        return waiting

    async def _behind(self, group: str, topics: list[str]) -> Mapping[str, int] | None:
        """Return the records behind a consumer group's offsets by topic; None if unknown."""
        topic_partitions = []
        for name, topic in (await self._admin.describe_topics(topics)).items():
            if isinstance(topic, UnknownTopicOrPartition):
                continue  # It was deleted since it was listed.
            if isinstance(topic, KafkaError):
                return None
            topic_partitions += [
                TopicPartition(name, partition.partition) for partition in topic.partitions
            ]
        first = await self._admin.list_offsets(dict.fromkeys(topic_partitions, OffsetSpec.EARLIEST))
        end = await self._admin.list_offsets(dict.fromkeys(topic_partitions, OffsetSpec.LATEST))
        answers = await self._admin.list_consumer_group_offsets({group: topic_partitions})
        committed = answers[group]
        if isinstance(committed, GroupIdNotFound):
            committed = {}  # No member has committed an offset yet.
        if isinstance(committed, KafkaError):
            return None
        counts: dict[str, int] = {}
        for partition in topic_partitions:
            earliest, latest = first[partition], end[partition]
            committed_offset = committed.get(partition)
            if (
                not isinstance(earliest, ListedOffset)
                or not isinstance(latest, ListedOffset)
                or isinstance(committed_offset, KafkaError)
            ):
                return None
            # Without a commit all records of the topic wait, from its first one on.
            offset = 0 if committed_offset is None else committed_offset.offset or 0
            count = max(0, latest.offset - max(earliest.offset, offset))
            counts[partition.topic] = counts.get(partition.topic, 0) + count
        return counts
