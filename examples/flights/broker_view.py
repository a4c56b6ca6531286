"""The admin requests of the demo, and its reading of the dead letters."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

from examples.flights.accounts import Where
from examples.flights.names import (
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
from examples.flights.waiting import Stalled
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
    """Prepares and inspects the topics and groups of the demo with one admin client."""

    def __init__(self, admin: AdminClient, bootstrap_servers: str) -> None:
        self._admin = admin
        self._bootstrap = bootstrap_servers
        self._letters: dict[int, tuple[str, Where, str]] = {}
        """By the offset of a dead letter: its group, its original record and its reason."""

    async def prepare(self) -> None:
        """Create the topics and configure the groups AUDIT and PIPELINE before they exist.

        The workers configure their own group, as an application does for its routes.
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
        """Return the number of flights in each partition."""
        return await self._end_offsets(FLIGHTS, FLIGHTS_PARTITIONS)

    async def lag(self, group: str) -> dict[int, int | None]:
        """Return the number of flights that a group has not finished, by partition.

        None means unknown.
        """
        partitions = [TopicPartition(FLIGHTS, partition) for partition in range(FLIGHTS_PARTITIONS)]
        results = (await self._admin.list_share_group_offsets({group: partitions}))[group]
        if isinstance(results, KafkaError):
            raise results
        _raise_first(results)
        return {
            topic_partition.partition: result.lag
            for topic_partition, result in results.items()
            if isinstance(result, SharePartitionOffset)
        }

    async def dead_letters(self) -> Mapping[str, Mapping[Where, str]]:
        """Return the original records of the dead letters, with the reasons, by their group.

        They are read through the share group AUDIT, which continues after its last read record.
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
            await consumer.commit()
        origins: defaultdict[str, dict[Where, str]] = defaultdict(dict)
        for group, origin, reason in self._letters.values():
            origins[group][origin] = reason
        return origins

    async def _end_offsets(self, topic: str, partitions: int) -> dict[int, int]:
        topic_partitions = [TopicPartition(topic, partition) for partition in range(partitions)]
        listed = await self._admin.list_offsets(dict.fromkeys(topic_partitions, OffsetSpec.LATEST))
        _raise_first(listed)
        return {
            topic_partition.partition: result.offset
            for topic_partition, result in listed.items()
            if isinstance(result, ListedOffset)
        }


def _origin(record: Record) -> tuple[str, Where, str]:
    """Return the group of a dead letter, its flight and its reason ("" if a query wrote it)."""
    headers = dict(record.headers)
    values = [headers.get(name) for name in (ORIGIN_GROUP, ORIGIN_PARTITION, ORIGIN_OFFSET)]
    group, partition, offset = (value.decode() for value in values if value is not None)
    reason = headers.get(REASON) or b""
    return group, (int(partition), int(offset)), reason.decode()


def _raise_first(results: object) -> None:
    """Raise the first error among the values of ``results``."""
    assert isinstance(results, dict)
    for result in results.values():
        if isinstance(result, KafkaError):
            raise result
