"""Lets single partitions fail inside of a handler, with the handler's own treatment of errors.

A handler looks up the log, or the share partition, of every partition that it serves.  For a
request with a fault it gets parts in which these look-ups raise the error of the fault.  So the
answer has the error in its place, other partitions are served, and nothing is locked or written
for the partition that fails.
"""

from __future__ import annotations

import copy
from typing import Any, cast

from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.parts import Parts
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.errors import (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRecordState,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.faults.script import Fail, Fault
from sharegroup.ids import SharePartitionKey

PARTITION_APIS = frozenset(
    {
        "Produce",
        "Fetch",
        "ListOffsets",
        "DeleteRecords",
        "ShareFetch",
        "ShareAcknowledge",
        "DescribeShareGroupOffsets",
        "AlterShareGroupOffsets",
    }
)
"""The APIs whose handlers look up each partition."""

PARTITION_ERRORS: tuple[type[KafkaError], ...] = (
    CorruptMessage,
    FencedLeaderEpoch,
    InvalidRecordState,
    KafkaStorageError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    ReplicaNotAvailable,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
"""The errors that Kafka answers for a partition; others fail the request as a whole."""


def parts_with(parts: Parts, fault: Fault) -> Parts:
    """Return the parts for one request, in which the partitions of a fault cannot be used."""
    refusal = _Refusal(fault)
    faulty = copy.copy(parts)
    # The proxies have all methods of the classes, and handlers use nothing else of them.
    faulty.topics = cast("Topics", _FaultyTopics(parts.topics, refusal))
    faulty.share_partitions = cast(
        "SharePartitions", _FaultySharePartitions(parts.share_partitions, parts.topics, refusal)
    )
    return faulty


class _Refusal:
    """Raises the error of a fault for its partitions; counts the request at the first one."""

    __slots__ = ("_fault", "_has_begun")

    def __init__(self, fault: Fault) -> None:
        self._fault = fault
        self._has_begun = False

    def is_of(self, error: type[KafkaError]) -> bool:
        """Return whether it raises this error."""
        return isinstance(self._fault.action, Fail) and self._fault.action.error is error

    def check(self, topic: str, partition: int) -> None:
        """Raise the error if the fault affects the partition."""
        fault = self._fault
        if fault.filter.topic not in (None, topic):
            return
        if fault.filter.partition not in (None, partition):
            return
        if not self._has_begun:
            if fault.is_used_up:
                return  # By another request, since this one arrived.
            fault.count += 1
            self._has_begun = True
        assert isinstance(fault.action, Fail)
        raise fault.action.error(f"topic {topic!r} partition {partition}: {fault!r}")


class _FaultyTopics:
    """The topics of a broker, of which some partitions cannot be used."""

    def __init__(self, topics: Topics, refusal: _Refusal) -> None:
        self._topics = topics
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topics, name)

    def named(self, name: Any, partition: int) -> Any:
        found = self._topics.named(name, partition)
        self._refusal.check(name, partition)
        return found

    def identified(self, topic_id: Any, partition: int) -> Any:
        found = self._topics.identified(topic_id, partition)
        self._refusal.check(found[0].name, partition)
        return found


class _FaultySharePartitions:
    """The share partitions of a broker, of which some cannot be used."""

    def __init__(
        self, share_partitions: SharePartitions, topics: Topics, refusal: _Refusal
    ) -> None:
        self._share_partitions = share_partitions
        self._topics = topics
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._share_partitions, name)

    def get(self, key: SharePartitionKey) -> Any:
        """Return the share partition for a fetch; only acknowledgements have an invalid state."""
        if not self._refusal.is_of(InvalidRecordState):
            self._check(key)
        return self._share_partitions.get(key)

    def loaded(self, key: SharePartitionKey) -> Any:
        self._check(key)
        return self._share_partitions.loaded(key)

    def _check(self, key: SharePartitionKey) -> None:
        topic = self._topics.catalog.by_id(key.topic_id)
        if topic is not None:
            self._refusal.check(topic.name, key.partition)
