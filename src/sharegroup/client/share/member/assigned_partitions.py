"""The partitions assigned to a member, by partition leader.

The group coordinator assigns topic ids; names and leaders come from metadata.  While an assigned
partition has no known leader, or one that does not answer, metadata is requested repeatedly, in
the background and with pauses.

It is also requested every `LEADER_CHECK_SECONDS` while an assigned partition brings no records.  A
broker that is cut off from the controllers does not learn of the leader elected in its place.  It
answers fetches as if the partition had no new records, but another broker knows the new leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from sharegroup.client.net.cluster import NO_LEADER, Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.client.share.member.membership import Membership
from sharegroup.errors import KafkaError, NetworkException
from sharegroup.ids import TopicIdPartition

log = logging.getLogger(__name__)

LEADER_CHECK_SECONDS = 15.0

SLOW_SECONDS = 1.0
"""Time after which a metadata request without an answer counts as a problem."""

ByLeader = Mapping[int, tuple[TopicIdPartition, ...]]


class AssignedPartitions:
    """Finds the leaders of a member's assigned partitions, and refreshes metadata if needed."""

    def __init__(self, cluster: Cluster, membership: Membership) -> None:
        self._cluster = cluster
        self._membership = membership
        self._asked_at: float | None = None
        """When the metadata request under way was sent; None if there is none."""
        self._error: KafkaError | None = None
        """The error of the last metadata request; None if it succeeded."""
        self._not_before = 0.0
        self._check_at: float | None = None
        """The time of the next check of the leaders; None before the first fetch."""
        self._heard: set[TopicIdPartition] = set()
        """The partitions that brought records since the last check."""
        self._backoff = cluster.backoff()

    def named(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions by topic name, without topics of unknown names."""
        return frozenset(
            TopicPartition(name, key.partition)
            for key in self._membership.assignment
            if (name := self._cluster.name_of(key.topic_id)) is not None
        )

    def leaderless_count(self) -> int:
        """Return the number of assigned partitions without a known leader."""
        return sum(self._leader(key) == NO_LEADER for key in self._membership.assignment)

    def metadata_problem(self, now: float) -> str | None:
        """Return why the leaders may be unknown; None if the last metadata request succeeded."""
        if self._asked_at is not None and now - self._asked_at >= SLOW_SECONDS:
            return f"no response for {now - self._asked_at:.0f} s"
        return None if self._error is None else repr(self._error)

    def heard(self, keys: Iterable[TopicIdPartition]) -> None:
        """Note that these partitions brought records, so their leaders are right."""
        self._heard.update(keys)

    def outdate_leaders(self, node_id: int, keys: Iterable[TopicIdPartition]) -> None:
        """Note that this broker does not lead these partitions, so their leaders are looked for."""
        for key in keys:
            name = self._cluster.name_of(key.topic_id)
            if name is not None:
                self._cluster.outdate_leader(TopicPartition(name, key.partition), node_id)

    def by_leader(self, tasks: asyncio.TaskGroup, found: Callable[[], None]) -> ByLeader:
        """Return the assigned partitions by the node id of their leader.

        ``found`` is called after metadata was refreshed, when more leaders may be known.
        """
        keys_by_leader: dict[int, list[TopicIdPartition]] = defaultdict(list)
        leaderless_count = 0
        for key in self._membership.assignment:
            leader = self._leader(key)
            # Another broker may lead the partitions of one that does not answer, so metadata is
            # asked for.
            if leader == NO_LEADER or self._cluster.is_doubtful(leader):
                leaderless_count += 1
            if leader != NO_LEADER:
                keys_by_leader[leader].append(key)
        now = asyncio.get_running_loop().time()
        if not leaderless_count:
            self._backoff.reset()
        if self._is_to_ask(now, leaderless_count) and self._asked_at is None:
            self._asked_at = now
            tasks.create_task(self._ask(found))
        return {node_id: tuple(keys) for node_id, keys in keys_by_leader.items()}

    def _is_to_ask(self, now: float, unknown: int) -> bool:
        if self._check_at is None:
            self._check_at = now + LEADER_CHECK_SECONDS
        if now >= self._check_at:
            silent = self._membership.assignment - self._heard
            self._heard.clear()
            self._check_at = now + LEADER_CHECK_SECONDS
            if silent:
                return True
        return bool(unknown) and now >= self._not_before

    def _leader(self, key: TopicIdPartition) -> int:
        name = self._cluster.name_of(key.topic_id)
        topic = None if name is None else self._cluster.known_topic(name)
        # Another id is a topic that was created again under the name; its leaders are not this
        # one's.
        if topic is None or topic.topic_id != key.topic_id:
            return NO_LEADER
        return topic.leader_of(key.partition)

    async def _ask(self, on_found: Callable[[], None]) -> None:
        try:
            await self._cluster.refresh(self._membership.subscription)
            self._error = None
        except KafkaError as error:
            self._error = error
            # `Cluster` has logged an unreachable broker already.
            level = logging.DEBUG if isinstance(error, NetworkException) else logging.INFO
            log.log(
                level, "event=metadata.failed group=%s error=%r", self._membership.group_id, error
            )
        finally:
            self._asked_at = None
        # Pause after success too: the cluster may not have elected the leader yet.
        delay = self._backoff.next_ms() / 1000
        loop = asyncio.get_running_loop()
        self._not_before = loop.time() + delay
        # Later for the leaders that are still missing, and at once for those that were found.
        loop.call_later(delay, on_found)
        on_found()
