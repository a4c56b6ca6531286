"""A heartbeat that is worked out ahead, because it may move thousands of partitions.

The broker works on it in steps and serves other requests between them. Nothing changes meanwhile:
the plan is only used if the group, its topics and its limits are the same at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from sharegroup.core.groups.consumer.advance import (
    Advance,
    Change,
    Cluster,
    ModernGroupLimits,
    is_settled,
)
from sharegroup.core.groups.consumer.group import ModernGroup
from sharegroup.core.groups.consumer.heartbeat import HeartbeatRequest, described_member
from sharegroup.ids import TopicName

LONG_PARTITIONS = 1_000
"""Number of partitions from which on a heartbeat takes milliseconds."""


@dataclass(frozen=True, slots=True)
class GroupVersion:
    """A group at one time; ``group`` is None if there was none."""

    group: ModernGroup | None
    revision: int

    @classmethod
    def of(cls, group: ModernGroup | None) -> GroupVersion:
        return cls(group, 0 if group is None else group.revision)

    def is_current(self, group: ModernGroup | None) -> bool:
        """Return whether this is the group, and no record has changed it since."""
        # Both: a group that was deleted and made again may have the same revision.
        return group is self.group and (group is None or group.revision == self.revision)


@dataclass(frozen=True, slots=True)
class HeartbeatPlan:
    """The effect of a heartbeat on its group, and all that it depends on."""

    version: GroupVersion
    change: Change
    cluster: Cluster
    limits: ModernGroupLimits
    result: Advance

    def fits(
        self,
        group: ModernGroup | None,
        change: Change,
        cluster: Cluster,
        limits: ModernGroupLimits,
    ) -> bool:
        """Return whether the plan is still the effect of the heartbeat."""
        return (
            self.version.is_current(group)
            and self.change == change
            and (self.cluster.version, self.cluster.matches) == (cluster.version, cluster.matches)
            and self.limits == limits
        )


def is_long(group: ModernGroup | None, request: HeartbeatRequest, cluster: Cluster) -> bool:
    """Return whether the heartbeat has to be worked out for very many partitions."""
    partition_count = 0 if group is None else group.partition_count
    if partition_count < LONG_PARTITIONS:
        names = request.subscribed_topic_names or ()
        matched = cluster.matches.get(request.subscribed_topic_regex or "", ())
        partition_count = max(partition_count, _partition_count((*names, *matched), cluster))
    if partition_count < LONG_PARTITIONS:
        return False
    known = None if group is None else group.members.get(request.member_id)
    if group is None or known is None:
        return True
    change = Change(known, described_member(known, request), request.owned)
    return not is_settled(group, change, cluster)


def _partition_count(names: tuple[TopicName, ...], cluster: Cluster) -> int:
    return sum(
        topic.partition_count for name in names if (topic := cluster.topics.get(name)) is not None
    )
