"""The offsets that consumer groups have committed, by group, topic and partition.

Topics are known by name here, as most clients name them so; the id that was committed with an
offset tells whether the topic is still the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from sharegroup.core.consumer_group_records import (
    CommittedOffset,
    OffsetCommit,
    OffsetTombstone,
    Records,
)
from sharegroup.ids import GroupId, TopicName

OffsetsOfGroup = Mapping[TopicName, Mapping[int, CommittedOffset]]


class CommittedOffsets:
    """See the module's text."""

    __slots__ = ("_by_group", "_count")

    def __init__(self) -> None:
        self._by_group: dict[GroupId, dict[TopicName, dict[int, CommittedOffset]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[OffsetCommit]:
        """Everything, as the records that say so."""
        for group_id in self._by_group:
            yield from self.commits(group_id)

    def of_group(self, group_id: GroupId) -> OffsetsOfGroup:
        """Not to be changed; empty for a group that has committed nothing."""
        return self._by_group.get(group_id, {})

    def commits(self, group_id: GroupId) -> Iterator[OffsetCommit]:
        """The group's offsets, as the records that say so."""
        for topic, partitions in self.of_group(group_id).items():
            for partition, committed in partitions.items():
                yield OffsetCommit(group_id, topic, partition, committed)

    def tombstones(
        self, group_id: GroupId, goes: Callable[[OffsetCommit], bool] = lambda _: True
    ) -> Records:
        """What takes back those of the group's offsets that are to go."""
        return tuple(
            OffsetTombstone(group_id, one.topic, one.partition)
            for one in self.commits(group_id)
            if goes(one)
        )

    def put(self, record: OffsetCommit) -> None:
        """The group is there now."""
        topics = self._by_group.setdefault(record.group_id, {})
        partitions = topics.setdefault(record.topic, {})
        self._count += record.partition not in partitions
        partitions[record.partition] = record.committed

    def remove(self, record: OffsetTombstone) -> None:
        """The group is nowhere on this partition."""
        topics = self._by_group.get(record.group_id, {})
        partitions = topics.get(record.topic, {})
        if partitions.pop(record.partition, None) is None:
            return
        self._count -= 1
        if not partitions:
            del topics[record.topic]
        if not topics:
            del self._by_group[record.group_id]
