"""A share group's coordinator with a log in memory, driven as the broker drives it."""

from __future__ import annotations

from uuid import UUID

from sharegroup.core.groups.share.records import Records, ShareGroupRecord
from sharegroup.core.groups.share.share_group import HeartbeatReply
from sharegroup.core.groups.share.share_groups import (
    ShareGroupLimits,
    ShareGroups,
    ShareHeartbeat,
    TopicMetadata,
    Uninitialized,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName

GROUP = GroupId("orders")
WALL_MS = 1_700_000_000_000
"""The wall clock's time when the monotonic clock shows 0."""


def topic_id(name: str) -> TopicId:
    return TopicId(UUID(bytes=name.encode().ljust(16, b"\0")))


def topics(**partition_counts: int) -> dict[TopicName, TopicMetadata]:
    """Topics of these names and sizes."""
    return {
        TopicName(name): TopicMetadata(TopicName(name), topic_id(name), count)
        for name, count in partition_counts.items()
    }


def partitions(name: str, *numbers: int) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic_id(name), number) for number in numbers)


class GroupUnderTest:
    """`groups` is what is tested; `log` is all that was ever written."""

    def __init__(self, *, limits: ShareGroupLimits | None = None, **partition_counts: int) -> None:
        self.groups = ShareGroups()
        self.log: list[ShareGroupRecord] = []
        self.topics = topics(**partition_counts)
        self.limits = limits or ShareGroupLimits()
        self.now_ms = 0

    def append(self, records: Records) -> Records:
        self.log += records
        for record in records:
            self.groups.replay(record)
        return records

    def request(
        self, member_id: str, epoch: int, *names: str, group_id: GroupId = GROUP
    ) -> ShareHeartbeat:
        return ShareHeartbeat(
            group_id,
            MemberId(member_id),
            epoch,
            subscribed_topic_names=tuple(TopicName(name) for name in names) or None,
            client_id="client",
            client_host="/127.0.0.1",
        )

    def initialize(self, request: ShareHeartbeat) -> tuple[Uninitialized, ...]:
        found = self.groups.uninitialized(request, self.topics)
        self.append(self.groups.initialized(request.group_id, found))
        return found

    def records_of(self, request: ShareHeartbeat) -> tuple[Records, HeartbeatReply]:
        """What the broker does with one heartbeat."""
        self.groups.check_heartbeat(request, limits=self.limits)
        self.initialize(request)
        records, reply = self.decide(request)
        return self.append(records), reply

    def decide(self, request: ShareHeartbeat) -> tuple[Records, HeartbeatReply]:
        """The last step of it alone."""
        return self.groups.heartbeat(
            request,
            self.topics,
            limits=self.limits,
            now_ms=self.now_ms,
            wall_ms=WALL_MS + self.now_ms,
        )

    def heartbeat(self, member_id: str, epoch: int, *names: str) -> HeartbeatReply:
        return self.records_of(self.request(member_id, epoch, *names))[1]

    def restarted(self) -> ShareGroups:
        """What a restart would find."""
        groups = ShareGroups()
        for record in self.log:
            groups.replay(record)
        return groups
