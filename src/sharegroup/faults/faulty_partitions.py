"""Lets single partitions fail inside of a handler, with the handler's own treatment of errors.

A handler looks up the log, or the share partition, of every partition that it serves.  For a
request with a fault it gets parts in which these look-ups raise the error of the fault.  So the
answer has the error in its place, other partitions are served, and nothing is locked or written
for the partition that fails.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, cast

from sharegroup import errors
from sharegroup.broker.cluster.topics import Topics
from sharegroup.broker.parts import Parts
from sharegroup.broker.share.share_partitions import SharePartitions
from sharegroup.errors import KafkaError
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
    errors.CorruptMessage,
    errors.FencedLeaderEpoch,
    errors.InvalidRecordState,
    errors.KafkaStorageError,
    errors.LeaderNotAvailable,
    errors.NotLeaderOrFollower,
    errors.OffsetNotAvailable,
    errors.OffsetOutOfRange,
    errors.ReplicaNotAvailable,
    errors.TopicAuthorizationFailed,
    errors.UnknownLeaderEpoch,
    errors.UnknownServerError,
    errors.UnknownTopicId,
    errors.UnknownTopicOrPartition,
)
"""The errors that Kafka answers for a partition; others fail the request as a whole."""


def parts_with(parts: Parts, faults: Sequence[Fault]) -> Parts:
    """Return the parts for one request, in which the partitions of the faults cannot be used."""
    refusal = _Refusal(faults)
    # A copy for this request alone; other requests use the parts meanwhile.
    faulty = copy.copy(parts)
    # The proxies have all methods of the classes, and handlers use nothing else of them.
    faulty.topics = cast("Topics", _FaultyTopics(parts.topics, refusal))
    faulty.share_partitions = cast(
        "SharePartitions", _FaultySharePartitions(parts.share_partitions, parts.topics, refusal)
    )
    return faulty


class _Refusal:
    """Raises the error of the first fault that affects a partition.

    A fault counts the request when it raises for the first time.
    """

    __slots__ = ("_begun", "_faults")

    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._begun: set[int] = set()

    def check(self, topic: str, partition: int, *, fetches: bool = False) -> None:
        """Raise the error of a fault; only acknowledgements, not fetches, have an invalid state."""
        for fault in self._faults:
            assert isinstance(fault.action, Fail)
            error = fault.action.error
            if fault.filter.topic not in (None, topic):
                continue
            if fault.filter.partition not in (None, partition):
                continue
            if fetches and error is errors.InvalidRecordState:
                continue
            if fault.number not in self._begun:
                if fault.is_used_up:
                    continue  # By another request, since this one arrived.
                fault.count += 1
                self._begun.add(fault.number)
            raise error(f"topic {topic!r} partition {partition}: {fault!r}")


class _FaultyTopics:
    """The topics of a broker, of which some partitions cannot be used."""

    def __init__(self, topics: Topics, refusal: _Refusal) -> None:
        self._topics = topics
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topics, name)

    def named(self, name: Any, partition: int) -> Any:
        # First, so a partition that does not exist has its own error and counts no fault.
        found = self._topics.named(name, partition)
        self._refusal.check(name, partition)
        return found

    def identified(self, topic_id: Any, partition: int) -> Any:
        # First, as in `named`; it also tells the name, by which faults are set.
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
        """Return the share partition for a fetch."""
        self._check(key, fetches=True)
        return self._share_partitions.get(key)

    def loaded(self, key: SharePartitionKey) -> Any:
        self._check(key)
        return self._share_partitions.loaded(key)

    def _check(self, key: SharePartitionKey, *, fetches: bool = False) -> None:
        topic = self._topics.catalog.by_id(key.topic_id)
        if topic is not None:
            self._refusal.check(topic.name, key.partition, fetches=fetches)
