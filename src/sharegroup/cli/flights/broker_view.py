"""What the demo asks the broker and tells it, as any client would."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

from sharegroup.cli.flights.accounts import Where
from sharegroup.cli.flights.names import (
    AUDIT,
    DEAD,
    DELIVERY_LIMIT,
    FLIGHTS,
    FLIGHTS_PARTITIONS,
    ORIGIN_GROUP,
    ORIGIN_OFFSET,
    ORIGIN_PARTITION,
    PIPELINE,
    PIPELINE_LOCKS,
    REASON,
)
from sharegroup.cli.flights.waiting import Stalled
from sharegroup.client import (
    AdminClient,
    AlterConfig,
    ConfigResource,
    ListedOffset,
    NewTopic,
    OffsetSpec,
    Record,
    ResourceType,
    ShareConsumer,
    SharePartitionOffset,
    TopicPartition,
)
from sharegroup.errors import KafkaError

AUDIT_SECONDS_MAX = 30.0


class BrokerView:
    """The topics and groups of the demo, seen through one admin client."""

    def __init__(self, admin: AdminClient, bootstrap: str) -> None:
        self._admin = admin
        self._bootstrap = bootstrap
        self._letters: dict[int, tuple[str, Where, str]] = {}
        """What was read of the dead letters, by their offset."""

    async def prepare(self) -> None:
        """Make the topics, and say how the groups shall work before they exist.

        The workers' group is theirs: an application sees to what its routes need.
        """
        topics = [NewTopic(FLIGHTS, FLIGHTS_PARTITIONS), NewTopic(DEAD, 1)]
        _raise_first(await self._admin.create_topics(topics))
        shared = [
            AlterConfig("share.auto.offset.reset", "earliest"),
            AlterConfig("share.delivery.count.limit", str(DELIVERY_LIMIT)),
        ]
        locks = AlterConfig("share.partition.max.record.locks", str(PIPELINE_LOCKS))
        configs = {AUDIT: shared, PIPELINE: [*shared, locks]}
        changes = {
            ConfigResource(ResourceType.GROUP, name): changed for name, changed in configs.items()
        }
        _raise_first(await self._admin.incremental_alter_configs(changes))

    async def flights_end_offsets(self) -> dict[int, int]:
        """How many flights are in each partition."""
        return await self._end_offsets(FLIGHTS, FLIGHTS_PARTITIONS)

    async def lag(self, group: str) -> dict[int, int | None]:
        """How many flights a group has not finished, by partition; None is unknown."""
        where = [TopicPartition(FLIGHTS, partition) for partition in range(FLIGHTS_PARTITIONS)]
        stands = (await self._admin.list_share_group_offsets({group: where}))[group]
        if isinstance(stands, KafkaError):
            raise stands
        _raise_first(stands)
        return {
            one.partition: found.lag
            for one, found in stands.items()
            if isinstance(found, SharePartitionOffset)
        }

    async def dead_letters(self) -> Mapping[str, Mapping[Where, str]]:
        """By the group that wrote them: where the dead letters came from, and their reason.

        They are read through a share group of their own, which goes on where it ended before.
        """
        (end,) = (await self._end_offsets(DEAD, 1)).values()
        deadline = time.monotonic() + AUDIT_SECONDS_MAX
        async with ShareConsumer(
            DEAD, bootstrap_servers=self._bootstrap, group_id=AUDIT
        ) as consumer:
            while len(self._letters) < end:
                for record in await consumer.poll(timeout=1.0):
                    self._letters[record.offset] = _origin(record)
                if time.monotonic() > deadline:
                    raise Stalled(
                        f"group {AUDIT!r} was given {len(self._letters)} of the {end} records of "
                        f"topic {DEAD!r} in {AUDIT_SECONDS_MAX} s"
                    )
        origins: defaultdict[str, dict[Where, str]] = defaultdict(dict)
        for group, where, reason in self._letters.values():
            origins[group][where] = reason
        return origins

    async def _end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        where = [TopicPartition(topic, partition) for partition in range(partitions)]
        listed = await self._admin.list_offsets(dict.fromkeys(where, OffsetSpec.LATEST))
        _raise_first(listed)
        return {
            one.partition: found.offset
            for one, found in listed.items()
            if isinstance(found, ListedOffset)
        }


def _origin(record: Record) -> tuple[str, Where, str]:
    """Which group buried which flight, and for what reason; a query gives none."""
    headers = dict(record.headers)
    found = [headers.get(name) for name in (ORIGIN_GROUP, ORIGIN_PARTITION, ORIGIN_OFFSET)]
    group, partition, offset = (one.decode() for one in found if one is not None)
    reason = headers.get(REASON) or b""
    return group, (int(partition), int(offset)), reason.decode()


def _raise_first(results: object) -> None:
    """Raise the first error among results by item."""
    assert isinstance(results, dict)
    for result in results.values():
        if isinstance(result, KafkaError):
            raise result
