"""What happened to records and sessions since the broker started: plain numbers, for metrics.

Only what cannot be seen in a `picture`, which says how things stand and not how they came so.
A share partition's own counts lie with it (`LiveSharePartition`), and go when it leaves memory;
a counter that begins anew is nothing unusual to whoever scrapes.  What is counted by topic and
by group goes with the topic, and with the group.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from sharegroup.broker.distribution import RATIOS, Distribution
from sharegroup.core.delivery import Ack, AckBatch
from sharegroup.ids import GroupId, TopicId, TopicPartition


class TopicCounters:
    """Requests that named a topic, each counted once however many partitions it named."""

    __slots__ = ("acknowledge_count", "acknowledge_failed", "fetch_count", "fetch_failed")

    def __init__(self) -> None:
        self.fetch_count = 0
        self.fetch_failed = 0
        self.acknowledge_count = 0
        self.acknowledge_failed = 0


class GroupCounters:
    """Fetches of one group that brought records."""

    __slots__ = ("fetch_ratio", "fetch_seconds")

    def __init__(self) -> None:
        self.fetch_ratio = Distribution(RATIOS)
        """Of the partitions asked for, those that had records for the member."""
        self.fetch_seconds = Distribution()
        """From the request to its records, waiting included."""


class ShareCounters:
    """See the module's text.

    ``exists`` says whether a topic does; ``clock`` counts seconds, only to compare them.
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
        self, exists: Callable[[TopicId], bool], clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._exists = exists
        self.clock = clock
        self.acknowledged: dict[int, int] = dict.fromkeys(Ack, 0)
        """Offsets by acknowledgement type, once that is durable; gaps and repetitions too."""
        self.sessions_lost = 0
        """Sessions that ended because their connection did."""
        self.timed_out_count = 0
        """Records whose lock ended before anybody settled them."""
        self.load_seconds = Distribution()
        """What it took to load a share partition."""
        self.write_seconds = Distribution()
        """From a change of delivery state to its being durable."""
        self.waiting_count = 0
        """Share fetches that wait for records now."""
        self.watch_count = 0
        """What those wait for: keys that wake one of them, counted for each."""
        self.waits_expired = 0
        """Share fetches that waited for nothing."""
        self.topics: dict[TopicId, TopicCounters] = {}
        self.groups: dict[GroupId, GroupCounters] = {}

    def count(self, acks: Iterable[AckBatch]) -> None:
        """These acknowledgements are durable; costs what their types cost, not their offsets."""
        acknowledged = self.acknowledged
        for first, end, types in acks:
            alike = types.count(types[0])
            if alike == len(types):
                acknowledged[types[0]] += end - first
            else:
                for ack_type, number in Counter(types).items():
                    acknowledged[ack_type] += number

    def of_topics(self, partitions: Collection[TopicPartition]) -> list[TopicCounters]:
        """The counters of each topic that these are partitions of, if it exists.

        Nobody fills the memory with topic ids of his own.
        """
        if not partitions:
            return []
        ids: list[TopicId] = []
        for topic_id, _ in partitions:
            # A topic's partitions mostly stand together; hashing an id takes longer than this.
            if not ids or topic_id is not ids[-1]:
                ids.append(topic_id)
        return self.of_topic_ids(set(ids) if len(ids) > 1 else ids)

    def of_topic_ids(self, ids: Iterable[TopicId]) -> list[TopicCounters]:
        """The same of topics that are each named once."""
        found = []
        for topic_id in ids:
            counters = self.topics.get(topic_id)
            if counters is None:
                if not self._exists(topic_id):
                    continue
                counters = self.topics[topic_id] = TopicCounters()
            found.append(counters)
        return found

    def of_group(self, group_id: GroupId) -> GroupCounters:
        """The counters of a group that has share partitions here."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = GroupCounters()
        return found
