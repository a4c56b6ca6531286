"""One member of a share group: its heartbeats, its partitions by leader, and whether it is idle.

    heartbeats ---> assignment ---> partitions by leader ---> fetches of the owner of this object
                                          ^                              |
                                          '--- fetch_ended: leaders that moved, errors, records

Its owners, `ShareMember` and `ShareRanges`, fetch and acknowledge.  They differ in what they hold.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from sharegroup.client.metrics.client_metrics import ShareConsumerMetrics
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import ConsumerHealth
from sharegroup.client.share.member.assigned_partitions import AssignedPartitions
from sharegroup.client.share.member.idleness import Idleness
from sharegroup.client.share.member.membership import BeforeJoin, Heartbeats, Membership
from sharegroup.errors import KafkaError
from sharegroup.ids import TopicIdPartition


class GroupMember:
    """The membership of one client in a share group, without its fetches."""

    def __init__(
        self,
        cluster: Cluster,
        membership: Membership,
        *,
        changed: Callable[[], None],
        wants_records: Callable[[], bool],
        metrics: ShareConsumerMetrics | None = None,
        before_join: BeforeJoin | None = None,
    ) -> None:
        self._cluster = cluster
        self.membership = membership
        self.heartbeats = Heartbeats(
            cluster, self.membership, changed=changed, metrics=metrics, before_join=before_join
        )
        self.assigned = AssignedPartitions(cluster, self.membership)
        self.idleness = Idleness(
            cluster, self.membership, self.heartbeats, self.assigned, wants=wants_records
        )

    def start(self, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
        """Start the background tasks, which join the group."""
        return [tasks.create_task(self.heartbeats.run()), tasks.create_task(self.idleness.run())]

    @property
    def is_joined(self) -> bool:
        """Whether this is a member of its group, as far as the coordinator answers."""
        return self.heartbeats.is_confirmed

    def health(self) -> ConsumerHealth:
        """Return what a health check needs to know."""
        is_connected, lost = self._cluster.reachability()
        return ConsumerHealth(self.is_joined, is_connected, dict(lost), self.heartbeats.failure)

    def fetch_ended(
        self,
        node_id: int,
        *,
        with_records: Iterable[TopicIdPartition],
        errors: Sequence[KafkaError],
    ) -> None:
        """Note the end of a fetch: the partitions that brought records, and all of its errors."""
        keys = tuple(with_records)
        self.assigned.heard(keys)
        for error in errors:
            self.idleness.failed(node_id, error)
        if keys or not errors:
            self.idleness.fetched(node_id)
