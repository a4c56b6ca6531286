"""Totals of share groups: what a heartbeat may add, what is counted, and what only loads."""

from __future__ import annotations

import gc
import tracemalloc
from uuid import UUID

import pytest

from sharegroup.core.groups.share.heartbeat import ShareGroupLimits
from sharegroup.core.groups.share.records import ShareGroupMemberMetadata
from sharegroup.core.groups.share.share_groups import ShareGroups, ShareHeartbeat, TopicMetadata
from sharegroup.core.groups.share.sizes import GROUP_BYTES_MAX, GROUP_ROOM_BYTES, SizeLimits
from sharegroup.errors import GroupMaxSizeReached, InvalidGroupId, InvalidRequest, KafkaError
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName

TOPIC = TopicMetadata(TopicName("orders"), TopicId(UUID(int=1)), 10)


def request(
    group: str = "g", member: str = "m", names: list[str] | None = None, *, epoch: int = 0
) -> ShareHeartbeat:
    subscribed = ["orders"] if names is None else names
    return ShareHeartbeat(
        GroupId(group),
        MemberId(member),
        epoch,
        subscribed_topic_names=tuple(TopicName(name) for name in subscribed),
        client_id="client",
        client_host="/127.0.0.1",
    )


def beat(groups: ShareGroups, heartbeat: ShareHeartbeat, **sizes: int) -> None:
    limits = ShareGroupLimits(sizes=SizeLimits(**sizes))
    groups.check_heartbeat(heartbeat, limits=limits)
    records, _ = groups.heartbeat(heartbeat, {}, limits=limits, now_ms=0, wall_ms=0)
    for record in records:
        groups.replay(record)


def beat_all(groups: ShareGroups, heartbeats: list[ShareHeartbeat], **sizes: int) -> None:
    for heartbeat in heartbeats:
        beat(groups, heartbeat, **sizes)


def names(count: int, *, length: int = 50, prefix: str = "t") -> list[str]:
    return [f"{prefix}-{number}-".ljust(length, "x") for number in range(count)]


@pytest.mark.parametrize("name", ["", "x" * 250, "a b", ".", "..", "a/b", "é", "a\n"])
def test_name_that_no_topic_can_have_is_kept(name: str) -> None:
    groups = ShareGroups()
    beat(groups, request(names=["orders", name]))
    (member,) = groups.describe(GroupId("g")).members
    assert set(member.subscribed_topic_names) == {"orders", name}


def test_long_names_fill_a_group() -> None:
    with pytest.raises(GroupMaxSizeReached, match=f"{GROUP_BYTES_MAX} are allowed"):
        beat(ShareGroups(), request(names=names(70, length=32_767)))


def test_member_may_subscribe_to_so_many_topics() -> None:
    groups = ShareGroups()
    beat(groups, request(names=names(10)), topic_names_max=10)
    with pytest.raises(InvalidRequest, match="may subscribe to at most 10 topics, not 11"):
        beat(groups, request(names=names(11)), topic_names_max=10)


def test_new_group_has_a_short_id() -> None:
    groups = ShareGroups()
    beat(groups, request("g" * 249))
    with pytest.raises(InvalidGroupId, match="at most 249 characters, not 250"):
        beat(groups, request("g" * 250))
    with pytest.raises(InvalidGroupId):
        groups.alter_offsets(GroupId("g" * 250), {}, {})


def test_group_is_bounded_by_the_names_of_all_its_members() -> None:
    groups = ShareGroups()
    with pytest.raises(GroupMaxSizeReached, match=f"{GROUP_BYTES_MAX} are allowed"):
        beat_all(
            groups,
            [request(member=f"m{n}", names=names(1_000, prefix=f"p{n}")) for n in range(100)],
        )
    assert GROUP_BYTES_MAX - 200_000 < groups.size_bytes <= GROUP_BYTES_MAX


def test_members_with_the_same_subscription_share_it() -> None:
    groups = ShareGroups()
    for number in range(100):
        beat(groups, request(member=f"m{number}", names=names(1_000)))
    assert groups.size_bytes < 400_000
    tuples = {id(member.subscribed_topic_names) for member in groups.describe(GroupId("g")).members}
    assert len(tuples) == 1


def test_all_groups_together_are_bounded() -> None:
    groups = ShareGroups()
    with pytest.raises(GroupMaxSizeReached, match="100000 are allowed; delete some"):
        beat_all(groups, [request(f"g{number}") for number in range(100)], all_bytes_max=100_000)
    assert len(groups) == 100_000 // GROUP_ROOM_BYTES
    assert groups.size_bytes == len(groups) * GROUP_ROOM_BYTES


def test_member_of_a_small_group_joins_again_while_others_have_taken_all_room() -> None:
    groups = ShareGroups()
    beat(groups, request("honest"))
    with pytest.raises(GroupMaxSizeReached):
        beat_all(groups, [request(f"g{number}") for number in range(100)], all_bytes_max=100_000)
    beat(groups, ShareHeartbeat(GroupId("honest"), MemberId("m"), -1), all_bytes_max=100_000)
    beat(groups, request("honest"), all_bytes_max=100_000)
    beat(groups, request("honest", "second"), all_bytes_max=100_000)


def test_members_are_served_and_may_leave_while_all_groups_are_too_large() -> None:
    groups = ShareGroups()
    beat(groups, request())
    beat(groups, request(epoch=1), all_bytes_max=0)
    beat(groups, ShareHeartbeat(GroupId("g"), MemberId("m"), 1), all_bytes_max=0)
    beat(groups, ShareHeartbeat(GroupId("g"), MemberId("m"), -1), all_bytes_max=0)


def test_removed_members_and_groups_free_memory() -> None:
    groups = ShareGroups()
    beat(groups, request(member="a", names=names(100)))
    beat(groups, request(member="b", names=names(100)))
    with_both = groups.size_bytes
    beat(groups, ShareHeartbeat(GroupId("g"), MemberId("b"), -1))
    assert 0 < with_both - groups.size_bytes < 2_000
    beat(groups, request(member="a", names=names(3)))
    beat(groups, ShareHeartbeat(GroupId("g"), MemberId("a"), -1))
    records, _ = groups.delete_group(GroupId("g"))
    for record in records:
        groups.replay(record)
    assert (groups.size_bytes, groups.partition_count) == (0, 0)


def test_share_partitions_of_all_groups_are_bounded() -> None:
    groups, topics = ShareGroups(), {TOPIC.name: TOPIC}
    limits = ShareGroupLimits(sizes=SizeLimits(all_partitions_max=15))
    first = groups.uninitialized(request("a"), topics)
    groups.check_partitions(request("a"), first, limits=limits.sizes)
    for record in groups.initialized(GroupId("a"), first):
        groups.replay(record)
    assert groups.partition_count == 10
    second = groups.uninitialized(request("b"), topics)
    with pytest.raises(GroupMaxSizeReached, match="would have 20, 15 are allowed"):
        groups.check_partitions(request("b"), second, limits=limits.sizes)
    offsets = {TopicIdPartition(TOPIC.topic_id, partition): 0 for partition in range(6)}
    with pytest.raises(GroupMaxSizeReached, match="would have 16, 15 are allowed"):
        groups.alter_offsets(GroupId("b"), offsets, topics, limits=limits.sizes)
    groups.alter_offsets(GroupId("a"), offsets, topics, limits=limits.sizes)


def test_group_larger_than_the_limits_can_be_loaded_used_and_deleted() -> None:
    groups, old = ShareGroups(), GroupId("g" * 32_000)
    subscribed = tuple(TopicName("n" * 30_000 + str(number)) for number in range(200))
    groups.replay(ShareGroupMemberMetadata(old, MemberId("m"), None, "c", "/h", subscribed))
    assert groups.size_bytes > GROUP_BYTES_MAX
    beat(groups, ShareHeartbeat(old, MemberId("m"), 0, None, (TopicName("orders"),), "c", "/h"))
    beat(groups, ShareHeartbeat(old, MemberId("m"), -1))
    records, _ = groups.delete_group(old)
    for record in records:
        groups.replay(record)
    assert groups.size_bytes == 0


def test_memory_of_groups_is_within_the_estimate() -> None:
    """Small groups of one member each, and one group with many names."""
    tracemalloc.start()
    try:
        groups = ShareGroups()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2_000):
            beat(groups, request(f"group-{number}", f"member-{number}", names(2)))
        for number in range(9):
            beat(groups, request("large", f"m{number}", names(1_000, prefix=f"p{number}")))
        gc.collect()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used <= groups.size_bytes


def test_refused_heartbeat_changes_nothing() -> None:
    groups = ShareGroups()
    beat(groups, request())
    size = groups.size_bytes
    with pytest.raises(KafkaError):
        beat(groups, request(member="n", names=names(6_000)))
    assert (groups.size_bytes, len(groups.describe(GroupId("g")).members)) == (size, 1)
