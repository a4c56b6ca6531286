"""Consumer groups of KIP-848 with a log in memory, driven as the broker drives them."""

from __future__ import annotations

from typing import Any

from sharegroup.core.deadlines import Now
from sharegroup.core.groups.modern.advance import Cluster, ModernGroupLimits
from sharegroup.core.groups.modern.group import ModernGroup
from sharegroup.core.groups.modern.heartbeat import ModernHeartbeat
from sharegroup.core.groups.modern.member import ModernMember
from sharegroup.core.groups.modern.modern_groups import ModernGroups
from sharegroup.core.groups.modern.records import ModernGroupRecord, Records
from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.core.groups.share.share_group import HeartbeatReply
from sharegroup.core.patterns import Pattern
from sharegroup.ids import GroupId, MemberId, TopicIdPartition, TopicName
from tests.unit.core.group_under_test import WALL_MS, partitions, topic_id, topics

GROUP = GroupId("orders")
REBALANCE_MS = 60_000

__all__ = ["GROUP", "REBALANCE_MS", "GroupScene", "partitions", "topic_id", "topics"]


class GroupScene:
    """`groups` is what is tested; `log` is all that was ever written."""

    def __init__(self, *, limits: ModernGroupLimits | None = None, **partition_counts: int) -> None:
        self.groups = ModernGroups()
        self.log: list[ModernGroupRecord] = []
        self.topics = topics(**partition_counts)
        self.version = 1
        self.limits = limits or ModernGroupLimits(assignment_interval_ms=0)
        self.now_ms = 0

    # The cluster

    def change_topics(self, **partition_counts: int) -> None:
        """Topics are created, deleted or get partitions."""
        self.topics = topics(**partition_counts)
        self.version += 1

    def cluster(self, *patterns: str) -> Cluster:
        matches = {}
        for pattern in patterns:
            compiled = Pattern(pattern)
            matches[pattern] = frozenset(name for name in self.topics if compiled.matches(name))
        return Cluster(self.topics, self.version, matches)

    # Requests

    def request(self, member_id: str, epoch: int, *names: str, **fields: Any) -> ModernHeartbeat:
        """A heartbeat; a join has all fields that a join must have."""
        if epoch == 0:
            fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
            fields.setdefault("owned", frozenset())
            if "subscribed_topic_regex" not in fields:
                fields.setdefault("subscribed_topic_names", ())
        if names:
            fields["subscribed_topic_names"] = tuple(map(TopicName, names))
        return ModernHeartbeat(
            GROUP,
            MemberId(member_id),
            epoch,
            client_id="client",
            client_host="/127.0.0.1",
            **fields,
        )

    def decide(self, request: ModernHeartbeat) -> tuple[Records, HeartbeatReply]:
        """What the broker does with a heartbeat that does not leave, before it writes."""
        self.groups.check_heartbeat(request, self.limits)
        patterns = self.groups.patterns(request, self.version)
        return self.groups.heartbeat(
            request,
            self.cluster(*patterns),
            limits=self.limits,
            now=Now(self.now_ms, WALL_MS + self.now_ms),
        )

    def heartbeat(self, member_id: str, epoch: int, *names: str, **fields: Any) -> HeartbeatReply:
        request = self.request(member_id, epoch, *names, **fields)
        patterns = self.groups.patterns(request, self.version)
        records, reply = self.decide(request)
        self.append(records)
        self.groups.seen(GROUP, self.cluster(*patterns))
        return reply

    def join(self, member_id: str, *names: str, **fields: Any) -> HeartbeatReply:
        return self.heartbeat(member_id, 0, *names, **fields)

    def leave(self, member_id: str, epoch: int = -1, **fields: Any) -> None:
        request = self.request(member_id, epoch, **fields)
        self.groups.check_heartbeat(request, self.limits)
        records = self.groups.leave(request)
        if records is None:
            records = self.groups.removed(GROUP, [request.member_id], self.cluster())
        self.append(records)

    def pass_time(self, ms: int) -> dict[str, str]:
        """Let time pass and remove the members whose time is over; return why, by member."""
        self.now_ms += ms
        removed: dict[str, str] = {}
        for group_id, members in self.groups.expired(self.now_ms).items():
            removed.update(members)
            self.append(self.groups.removed(group_id, list(members), self.cluster()))
        return removed

    # The log

    def append(self, records: Records) -> None:
        self.log += records
        for record in records:
            self.groups.replay(record)

    def restarted(self) -> ModernGroups:
        """What a restart would find."""
        groups = ModernGroups()
        for record in self.log:
            groups.replay(record)
        return groups

    # What is there

    @property
    def group(self) -> ModernGroup:
        return self.groups.existing(GROUP)

    def member(self, member_id: str) -> ModernMember:
        return self.group.members[MemberId(member_id)]

    def assigned(self, member_id: str) -> Assignment:
        return frozenset(self.member(member_id).assigned)

    def epoch(self, member_id: str) -> int:
        return self.member(member_id).member_epoch

    def settle(self, *member_ids: str, rounds: int = 6) -> None:
        """Let members send heartbeats that confirm everything that they were asked to revoke."""
        for _ in range(rounds):
            for member_id in member_ids:
                self.heartbeat(member_id, self.epoch(member_id), owned=self.assigned(member_id))


def numbers(assignment: frozenset[TopicIdPartition] | None) -> list[int]:
    """The partition numbers of an assignment of one topic."""
    return sorted(partition.partition for partition in assignment or ())
