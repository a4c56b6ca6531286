"""The partitions assigned to a member, sorted by the brokers that lead them.

The coordinator assigns topic ids; names and leaders come from metadata, which is asked again,
in the background and with pauses, as long as an assigned partition has no known leader.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from sharegroup.client.cluster import NO_LEADER, Cluster
from sharegroup.client.membership import Membership
from sharegroup.client.records import TopicPartition
from sharegroup.errors import KafkaError, NetworkException
from sharegroup.ids import TopicPartition as TopicIdPartition

log = logging.getLogger(__name__)

ByLeader = Mapping[int, tuple[TopicIdPartition, ...]]


class AssignedPartitions:
    """See the module's text."""

    def __init__(self, cluster: Cluster, membership: Membership) -> None:
        self._cluster = cluster
        self._membership = membership
        self._asking = False
        self._not_before = 0.0
        self._backoff = cluster.backoff()

    def named(self) -> frozenset[TopicPartition]:
        """The assignment by topic name; what has no known name yet is left out."""
        return frozenset(
            TopicPartition(name, key.partition)
            for key in self._membership.assignment
            if (name := self._cluster.name_of(key.topic_id)) is not None
        )

    def by_leader(self, tasks: asyncio.TaskGroup, found: Callable[[], None]) -> ByLeader:
        """Assigned partitions by the node to fetch from; ``found`` is called when more are."""
        led: dict[int, list[TopicIdPartition]] = defaultdict(list)
        unknown = 0
        for key in self._membership.assignment:
            leader = self._leader(key)
            if leader == NO_LEADER:
                unknown += 1
            else:
                led[leader].append(key)
        if not unknown:
            self._backoff.reset()
        elif not self._asking and time.monotonic() >= self._not_before:
            self._asking = True
            tasks.create_task(self._ask(found))
        return {node_id: tuple(keys) for node_id, keys in led.items()}

    def _leader(self, key: TopicIdPartition) -> int:
        name = self._cluster.name_of(key.topic_id)
        topic = None if name is None else self._cluster.known_topic(name)
        if topic is None or topic.topic_id != key.topic_id:
            return NO_LEADER
        return topic.leader_of(key.partition)

    async def _ask(self, found: Callable[[], None]) -> None:
        try:
            await self._cluster.refresh(self._membership.subscription)
        except KafkaError as error:
            # A broker that can't be reached is told of where that is found out, and once.
            level = logging.DEBUG if isinstance(error, NetworkException) else logging.INFO
            log.log(level, "metadata.failed group=%s error=%r", self._membership.group_id, error)
        finally:
            self._asking = False
        # Also after success: the cluster may not have elected the leader yet.
        delay = self._backoff.next_ms() / 1000
        self._not_before = time.monotonic() + delay
        asyncio.get_running_loop().call_later(delay, found)
        found()
