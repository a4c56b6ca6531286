"""Counts what happened to records and sessions since the broker started, for metrics.

These counters show past events, not the current state.  A share partition's own counters are in
`LiveSharePartition` and end when it is unloaded; metric scrapers handle counters that restart.
Counters of a topic and of a group end with the topic, and with the group.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from sharegroup.broker.load.request_counters import RATIOS, Distribution
from sharegroup.core.delivery.delivery import AckBatch
from sharegroup.ids import GroupId, TopicId, TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType


class TopicCounters:
    """Requests that named a topic, each counted once regardless of how many partitions it named."""

    __slots__ = ("acknowledge_count", "acknowledge_failed", "fetch_count", "fetch_failed")

    def __init__(self) -> None:
        self.fetch_count = 0
        self.fetch_failed = 0
        self.acknowledge_count = 0
        self.acknowledge_failed = 0


class GroupCounters:
    """Measurements of a group's fetches that returned records."""

    __slots__ = ("fetch_ratio", "fetch_seconds")

    def __init__(self) -> None:
        self.fetch_ratio = Distribution(RATIOS)
        """The ratio of requested partitions that had records for the member."""
        self.fetch_seconds = Distribution()
        """The time from the request until its records are acquired, including the wait."""


class ShareCounters:
    """Counters of records, share fetches and share sessions of one broker.

    ``exists`` returns whether a topic exists; ``clock`` counts seconds, only to compare them.
    """

    __slots__ = (
        "_exists",
        "acknowledged",
        "clock",
        "groups",
        "load_seconds",
        "sessions_lost",
        "timed_out_count",
        "topics",
        "waiting_count",
        "waits_expired",
        "watch_count",
        "write_seconds",
    )

    def __init__(
        self, exists: Callable[[TopicId], bool], clock: Callable[[], float] | None = None
    ) -> None:
        self._exists = exists
        self.clock = clock or time.perf_counter
        self.acknowledged: dict[int, int] = dict.fromkeys(AcknowledgeType, 0)
        """Durably acknowledged offsets by acknowledgement type, including gaps and repetitions."""
        self.sessions_lost = 0
        """Sessions that were closed with their connection, or to make room for others."""
        self.timed_out_count = 0
        """Records whose lock expired before they were settled."""
        self.load_seconds = Distribution()
        """The time to load a share partition."""
        self.write_seconds = Distribution()
        """The time from a change of delivery state until it is durable."""
        self.waiting_count = 0
        """Share fetches that wait for records now."""
        self.watch_count = 0
        """The keys that these fetches wait for, counted for each fetch."""
        self.waits_expired = 0
        """Share fetches that waited and got no records."""
        self.topics: dict[TopicId, TopicCounters] = {}
        self.groups: dict[GroupId, GroupCounters] = {}

    def count(self, acks: Iterable[AckBatch]) -> None:
        """Count durable acknowledgements; the cost grows with their types, not their offsets."""
        acknowledged = self.acknowledged
        for first, end, types, _ in acks:
            equal_count = types.count(types[0])
            if equal_count == len(types):
                acknowledged[types[0]] += end - first
            else:
                for ack_type, number in Counter(types).items():
                    acknowledged[ack_type] += number

    def of_topics(self, partitions: Collection[TopicIdPartition]) -> list[TopicCounters]:
        """Return the counters of the topics of these partitions, without topics that do not exist.

        So a client cannot fill the memory with made-up topic ids.
        """
        if not partitions:
            return []
        ids: list[TopicId] = []
        for topic_id, _ in partitions:
            # A topic's partitions are mostly adjacent; hashing an id takes longer than this check.
            if not ids or topic_id is not ids[-1]:
                ids.append(topic_id)
        return self.of_topic_ids(set(ids) if len(ids) > 1 else ids)

    def of_topic_ids(self, ids: Iterable[TopicId]) -> list[TopicCounters]:
        """Return the counters of the existing topics of these ids, which are unique."""
        counters_found = []
        for topic_id in ids:
            counters = self.topics.get(topic_id)
            if counters is None:
                if not self._exists(topic_id):
                    continue
                counters = self.topics[topic_id] = TopicCounters()
            counters_found.append(counters)
        return counters_found

    def of_group(self, group_id: GroupId) -> GroupCounters:
        """Return the counters of a group that has share partitions here."""
        counters = self.groups.get(group_id)
        if counters is None:
            counters = self.groups[group_id] = GroupCounters()
        return counters
