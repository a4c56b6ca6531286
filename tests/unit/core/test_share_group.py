"""Share groups beside their heartbeats: initializing, sessions, administration, replay."""

from __future__ import annotations

import pytest

from sharegroup.core.groups.share.records import (
    GroupEpoch,
    InitializedTopic,
    ShareGroupRecordType,
    ShareGroupStatePartitionMetadata,
    ShareGroupTombstone,
    by_topic,
)
from sharegroup.core.groups.share.share_group import ShareGroupMember, existing_names
from sharegroup.core.groups.share.share_groups import (
    AlteredOffset,
    DescribedShareGroup,
    ListedGroup,
    ShareGroupLimits,
    ShareGroups,
    Uninitialized,
)
from sharegroup.errors import GroupIdNotFound, InvalidGroupId, NonEmptyGroup
from sharegroup.ids import GroupId, MemberId, SharePartitionKey, TopicIdPartition
from tests.unit.core.group_under_test import GROUP, GroupUnderTest, partitions, topic_id, topics

A, B = topic_id("a"), topic_id("b")
EXISTING = {"a", "b", "c", "d"}


def key(topic: object, partition: int) -> SharePartitionKey:
    return SharePartitionKey(GROUP, topic, partition)


def emptied(**partition_counts: int) -> GroupUnderTest:
    """A group that read these topics and has no member any more; its epoch is 3."""
    group = GroupUnderTest(**partition_counts)
    group.heartbeat("m", 0, *partition_counts)
    group.heartbeat("m", -1)
    return group


# Initializing.


def test_new_topic_is_marked_to_start_by_the_reset_policy() -> None:
    group = GroupUnderTest(a=2)
    assert group.groups.uninitialized(group.request("m", 0, "a", "none"), group.topics) == (
        Uninitialized(key(A, 0), "a", topic_is_new=True, state_epoch=2),
        Uninitialized(key(A, 1), "a", topic_is_new=True, state_epoch=2),
    )


def test_partition_added_to_a_known_topic_starts_at_its_beginning() -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    group.topics = topics(a=2)
    assert group.groups.uninitialized(group.request("m", 2), group.topics) == (
        Uninitialized(key(A, 1), "a", topic_is_new=False, state_epoch=3),
    )


def test_names_are_those_of_the_request_and_of_all_members() -> None:
    group = GroupUnderTest(a=1)
    assert group.groups.subscribed_names(group.request("m", 0, "a"), EXISTING) == {"a"}
    group.heartbeat("m", 0, "a", "b")
    assert group.groups.subscribed_names(group.request("n", 0, "c"), EXISTING) == {"a", "b", "c"}
    assert group.groups.subscribed_names(group.request("m", 2), EXISTING) == {"a", "b"}


class Looked(set[str]):
    """Names of topics; counts how often one was looked up."""

    count = 0

    def __contains__(self, name: object) -> bool:
        self.count += 1
        return super().__contains__(name)


@pytest.mark.parametrize("length", [3, 100, 29_000])
def test_names_of_missing_topics_need_few_look_ups(length: int) -> None:
    names = tuple(sorted([*(f"topic-{number:05}" for number in range(length)), "a", "z"]))
    existing = Looked({"a", "b", "z", "topic-00001", "topic-99999"})
    assert set(existing_names(names, existing)) == {"a", "topic-00001", "z"}
    assert existing.count < 50


def test_initialized_partitions_are_recorded_with_those_before() -> None:
    group = GroupUnderTest(a=2, b=1)
    group.heartbeat("m", 0, "a")
    found = group.groups.uninitialized(group.request("m", 2, "a", "b"), group.topics)
    assert group.groups.initialized(GROUP, found) == (
        ShareGroupStatePartitionMetadata(
            GROUP,
            (
                InitializedTopic(A, "a", frozenset({0, 1})),
                InitializedTopic(B, "b", frozenset({0})),
            ),
        ),
    )


def test_initializing_nothing_writes_nothing() -> None:
    group = GroupUnderTest(a=1)
    assert group.groups.initialized(GROUP, ()) == ()
    found = group.initialize(group.request("m", 0, "a"))
    assert group.groups.initialized(GROUP, found) == ()


def test_initialized_topics_and_keys() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    assert group.groups.initialized_topics(GROUP) == (InitializedTopic(A, "a", frozenset({0, 1})),)
    assert group.groups.initialized_topics(GroupId("none")) == ()
    assert group.groups.initialized_keys() == {key(A, 0), key(A, 1)}


# Sessions.


def test_member_that_is_silent_for_too_long_is_removed() -> None:
    group = GroupUnderTest(a=2, limits=ShareGroupLimits(session_timeout_ms=45_000))
    group.heartbeat("m", 0, "a")
    group.heartbeat("n", 0, "a")
    group.now_ms = 44_999
    group.heartbeat("n", 3)
    assert group.groups.next_session_expiry_ms() == 45_000
    assert group.groups.expire_sessions(44_999) == ((), ())
    records, removed = group.groups.expire_sessions(45_000)
    assert removed == ((GROUP, "m"),)
    group.append(records)
    assert [member.member_id for member in group.groups.describe(GROUP).members] == ["n"]
    assert group.groups.next_session_expiry_ms() == 89_999


def test_members_removed_together_raise_the_epoch_once() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    group.heartbeat("n", 0, "a")
    records, removed = group.groups.expire_sessions(45_000)
    assert removed == ((GROUP, "m"), (GROUP, "n"))
    group.append(records)
    described = group.groups.describe(GROUP)
    assert (described.state, described.epoch, described.assignment_epoch) == ("Empty", 4, 4)
    assert group.groups.next_session_expiry_ms() is None


def test_expiry_that_was_not_replayed_can_be_repeated() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    assert group.groups.expire_sessions(45_000) == group.groups.expire_sessions(45_000)


def test_session_of_a_join_that_was_not_replayed_ends_without_a_record() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    group.decide(group.request("n", 0, "a"))
    group.decide(group.request("n", 0, "a", group_id=GroupId("returns")))
    group.now_ms = 10_000
    group.heartbeat("m", 2)
    assert group.groups.expire_sessions(45_000) == ((), ())
    assert group.groups.next_session_expiry_ms() == 55_000


def test_refused_heartbeat_does_not_prolong_a_session() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    group.now_ms = 10_000
    request = group.request("m", 9)
    with pytest.raises(Exception, match="must join again"):
        group.decide(request)
    assert group.groups.next_session_expiry_ms() == 45_000


def test_leaving_ends_the_session() -> None:
    assert emptied(a=1).groups.next_session_expiry_ms() is None


def test_sessions_restart_with_the_whole_timeout() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    restarted = group.restarted()
    assert restarted.next_session_expiry_ms() is None
    restarted.restart_sessions(500, session_timeout_ms=lambda _: 30_000)
    assert restarted.next_session_expiry_ms() == 30_500
    assert restarted.expire_sessions(30_500)[1] == ((GROUP, "m"),)


# Administration.


def test_description() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("n", 0, "a")
    group.heartbeat("m", 0, "a", "none")
    assert group.groups.describe(GROUP) == DescribedShareGroup(
        GROUP,
        "Stable",
        3,
        3,
        "simple",
        (
            ShareGroupMember(
                MemberId("m"), None, "client", "/127.0.0.1", ("a", "none"), 3, 0, partitions("a", 0)
            ),
            ShareGroupMember(
                MemberId("n"), None, "client", "/127.0.0.1", ("a",), 2, 0, partitions("a", 0, 1)
            ),
        ),
    )


def test_group_that_does_not_exist_is_not_described() -> None:
    with pytest.raises(GroupIdNotFound, match="group 'orders': there is no such share group"):
        ShareGroups().describe(GROUP)


def test_list_of_groups() -> None:
    group = emptied(a=1)
    group.records_of(group.request("x", 0, "a", group_id=GroupId("bills")))
    assert group.groups.list_groups() == (
        ListedGroup(GroupId("bills"), "Stable"),
        ListedGroup(GROUP, "Empty"),
    )


def test_deleting_a_group_deletes_all_its_state() -> None:
    group = emptied(a=2)
    records, keys = group.groups.delete_group(GROUP)
    assert records == (
        ShareGroupTombstone(ShareGroupRecordType.TARGET_ASSIGNMENT_METADATA, GROUP),
        ShareGroupTombstone(ShareGroupRecordType.STATE_PARTITION_METADATA, GROUP),
        ShareGroupTombstone(ShareGroupRecordType.METADATA, GROUP),
    )
    assert keys == (key(A, 0), key(A, 1))
    group.append(records)
    assert (len(group.groups), GROUP in group.groups) == (0, False)
    assert len(group.restarted()) == 0


def test_deleted_group_can_be_created_again() -> None:
    group = emptied(a=2)
    group.append(group.groups.delete_group(GROUP)[0])
    answer = group.heartbeat("m", 0, "a")
    assert (answer.member_epoch, answer.assignment) == (2, partitions("a", 0, 1))


def test_group_with_members_is_not_deleted_or_altered() -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    for command in (
        lambda: group.groups.delete_group(GROUP),
        lambda: group.groups.delete_offsets(GROUP, [A]),
        lambda: group.groups.alter_offsets(GROUP, {TopicIdPartition(A, 0): 5}, group.topics),
    ):
        with pytest.raises(NonEmptyGroup, match="group 'orders' must be empty; it has 1 members"):
            command()


def test_group_that_does_not_exist_is_not_deleted() -> None:
    with pytest.raises(GroupIdNotFound):
        ShareGroups().delete_group(GROUP)
    with pytest.raises(GroupIdNotFound):
        ShareGroups().delete_offsets(GROUP, [A])


def test_deleting_offsets_names_the_states_to_delete() -> None:
    group = emptied(a=2, b=1)
    records, keys = group.groups.delete_offsets(GROUP, [A, topic_id("none")])
    assert keys == (key(A, 0), key(A, 1))
    assert records == (
        ShareGroupStatePartitionMetadata(GROUP, (InitializedTopic(B, "b", frozenset({0})),)),
    )


def test_deleting_offsets_of_topics_without_any_writes_nothing() -> None:
    assert emptied(a=1).groups.delete_offsets(GROUP, [B]) == ((), ())


def test_topic_with_deleted_offsets_is_new_again_in_a_later_epoch() -> None:
    group = emptied(a=1)
    group.append(group.groups.delete_offsets(GROUP, [A])[0])
    assert group.groups.uninitialized(group.request("m", 0, "a"), group.topics) == (
        Uninitialized(key(A, 0), "a", topic_is_new=True, state_epoch=4),
    )


def test_altering_offsets_raises_the_epoch_and_fences_with_it() -> None:
    group = emptied(a=2)
    records, altered = group.groups.alter_offsets(GROUP, {TopicIdPartition(A, 1): 70}, group.topics)
    assert altered == (AlteredOffset(key(A, 1), 70, state_epoch=4),)
    metadata = records[0]
    assert isinstance(metadata, GroupEpoch)
    assert metadata.epoch == 4


def test_altering_twice_fences_twice() -> None:
    group = emptied(a=1)
    offsets = {TopicIdPartition(A, 0): 70}
    group.append(group.groups.alter_offsets(GROUP, offsets, group.topics)[0])
    assert group.groups.alter_offsets(GROUP, offsets, group.topics)[1] == (
        AlteredOffset(key(A, 0), 70, state_epoch=5),
    )


def test_altering_offsets_creates_the_group_and_initializes_the_partitions() -> None:
    group = GroupUnderTest(a=2)
    records, altered = group.groups.alter_offsets(GROUP, {TopicIdPartition(A, 1): 7}, group.topics)
    assert altered == (AlteredOffset(key(A, 1), 7, state_epoch=2),)
    group.append(records)
    assert group.groups.list_groups() == (ListedGroup(GROUP, "Empty"),)
    assert group.groups.initialized_topics(GROUP) == (InitializedTopic(A, "a", frozenset({1})),)


def test_altering_without_a_group_id_is_refused() -> None:
    with pytest.raises(InvalidGroupId):
        ShareGroups().alter_offsets(GroupId(""), {}, {})


def test_deleted_topic_is_forgotten_by_every_group() -> None:
    group = emptied(a=1, b=1)
    group.records_of(group.request("x", 0, "a", group_id=GroupId("bills")))
    assert group.groups.topic_deleted(A) == (
        ShareGroupStatePartitionMetadata(GROUP, (InitializedTopic(B, "b", frozenset({0})),)),
        ShareGroupStatePartitionMetadata(GroupId("bills"), ()),
    )
    assert group.groups.topic_deleted(topic_id("none")) == ()


# Replay.


def test_replay_of_the_log_gives_the_same_group() -> None:
    group = GroupUnderTest(a=3, b=1)
    group.heartbeat("m", 0, "a")
    group.heartbeat("n", 0, "a", "b")
    group.heartbeat("m", 2)
    group.heartbeat("o", 0, "b")
    group.heartbeat("o", -1)
    restarted = group.restarted()
    assert restarted.describe(GROUP) == group.groups.describe(GROUP)
    assert restarted.initialized_keys() == group.groups.initialized_keys()


def test_restarted_group_continues_without_a_new_epoch() -> None:
    group = GroupUnderTest(a=3)
    group.heartbeat("m", 0, "a")
    group.groups = group.restarted()
    assert group.records_of(group.request("m", 2))[0] == ()


def test_tombstone_of_an_unknown_group_is_passed_over() -> None:
    groups = ShareGroups()
    groups.replay(ShareGroupTombstone(ShareGroupRecordType.MEMBER_METADATA, GROUP, MemberId("m")))
    groups.replay(ShareGroupTombstone(ShareGroupRecordType.METADATA, GROUP))
    assert len(groups) == 0


def test_assignment_is_grouped_by_topic_with_sorted_partitions() -> None:
    assert by_topic(partitions("b", 1) | partitions("a", 10, 2)) == {A: (2, 10), B: (1,)}
