"""Membership by heartbeat: joining, epochs, assignment, leaving, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sharegroup.core.groups.share.records import (
    GroupEpoch,
    ShareGroupCurrentMemberAssignment,
    ShareGroupMemberMetadata,
    ShareGroupRecordType,
    ShareGroupTombstone,
    TargetAssignment,
    TargetAssignmentEpoch,
)
from sharegroup.core.groups.share.share_group import HeartbeatReply
from sharegroup.core.groups.share.share_groups import ShareGroupLimits
from sharegroup.errors import (
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    KafkaError,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId
from tests.unit.core.group_under_test import (
    GROUP,
    WALL_MS,
    GroupUnderTest,
    partitions,
    topic_id,
    topics,
)


def reply(member_id: str, epoch: int, *assigned: frozenset) -> HeartbeatReply:
    """The expected reply; without ``assigned``, one that leaves the assignment as it was."""
    assignment = frozenset().union(*assigned) if assigned else None
    return HeartbeatReply(MemberId(member_id), epoch, 5_000, assignment)


def test_first_heartbeat_of_a_new_group_gets_all_partitions() -> None:
    group = GroupUnderTest(a=3)
    assert group.heartbeat("m", 0, "a") == reply("m", 2, partitions("a", 0, 1, 2))


def test_records_of_a_join_are_in_kafkas_order() -> None:
    group = GroupUnderTest(a=1)
    group.now_ms = 77
    records, _ = group.records_of(group.request("m", 0, "b", "a", "b"))
    digest = records[1].metadata_hash if isinstance(records[1], GroupEpoch) else None
    assert records == (
        ShareGroupMemberMetadata(GROUP, "m", None, "client", "/127.0.0.1", ("a", "b")),
        GroupEpoch(GROUP, 2, digest),
        TargetAssignment(GROUP, "m", partitions("a", 0)),
        TargetAssignmentEpoch(GROUP, 2, WALL_MS + 77),
        ShareGroupCurrentMemberAssignment(GROUP, "m", 2, 0, partitions("a", 0)),
    )


def test_heartbeat_without_changes_writes_no_records() -> None:
    group = GroupUnderTest(a=3)
    group.heartbeat("m", 0, "a")
    assert group.records_of(group.request("m", 2)) == ((), reply("m", 2))


def test_heartbeat_that_was_not_replayed_can_be_repeated() -> None:
    group = GroupUnderTest(a=3)
    request = group.request("m", 0, "a")
    group.initialize(request)
    assert group.decide(request) == group.decide(request)
    assert group.groups.describe(GROUP).members == ()


def test_second_member_shares_and_the_first_gets_a_new_assignment() -> None:
    group = GroupUnderTest(a=3)
    group.heartbeat("m", 0, "a")
    assert group.heartbeat("n", 0, "a") == reply("n", 3, partitions("a", 0))
    assert group.heartbeat("m", 2) == reply("m", 3, partitions("a", 1, 2))
    assert group.heartbeat("m", 3) == reply("m", 3)


def test_unknown_topic_is_assigned_as_soon_as_it_exists() -> None:
    group = GroupUnderTest()
    assert group.heartbeat("m", 0, "later") == reply("m", 2, frozenset())
    group.topics = topics(later=2)
    assert group.heartbeat("m", 2) == reply("m", 3, partitions("later", 0, 1))


def test_partitions_added_to_a_topic_are_assigned_at_the_next_heartbeat() -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    group.topics = topics(a=3)
    assert group.heartbeat("m", 2) == reply("m", 3, partitions("a", 0, 1, 2))


def test_partition_that_was_not_initialized_is_not_assigned() -> None:
    group = GroupUnderTest(a=2)
    request = group.request("m", 0, "a")
    first, _ = group.groups.uninitialized(request, group.topics)
    group.append(group.groups.initialized(GROUP, [first]))
    assert group.decide(request)[1] == reply("m", 2, partitions("a", 0))


def test_deleted_topic_is_taken_away_before_the_target_follows() -> None:
    group = GroupUnderTest(a=1, b=1)
    group.heartbeat("m", 0, "a", "b")
    group.topics = topics(b=1)
    group.append(group.groups.topic_deleted(topic_id("a")))
    assert group.heartbeat("m", 2) == reply("m", 2, partitions("b", 0))
    group.now_ms = 1_000
    assert group.heartbeat("m", 2) == reply("m", 3)


def test_recreated_topic_is_another_topic() -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    group.append(group.groups.topic_deleted(topic_id("a")))
    remade = group.topics["a"]._replace(topic_id=topic_id("a2"))
    group.topics = {"a": remade}
    assert group.heartbeat("m", 2) == reply("m", 3, partitions("a2", 0))


def test_changed_subscription_changes_the_assignment_at_once() -> None:
    group = GroupUnderTest(a=2, b=1)
    group.heartbeat("m", 0, "a")
    assert group.heartbeat("m", 2, "b") == reply("m", 3, partitions("b", 0))


def test_equal_subscription_in_another_order_changes_nothing() -> None:
    group = GroupUnderTest(a=2, b=1)
    group.heartbeat("m", 0, "a", "b")
    records, answer = group.records_of(group.request("m", 2, "b", "a"))
    assert records == ()
    assert answer == reply("m", 2, partitions("a", 0, 1), partitions("b", 0))


def test_changed_rack_is_recorded_without_a_new_epoch() -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    records, answer = group.records_of(replace(group.request("m", 2), rack_id="r1"))
    assert records == (ShareGroupMemberMetadata(GROUP, "m", "r1", "client", "/127.0.0.1", ("a",)),)
    assert answer == reply("m", 2)


def test_rejoin_with_the_same_id_keeps_the_member_and_repeats_its_assignment() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    records, answer = group.records_of(group.request("m", 0, "a"))
    assert (records, answer) == ((), reply("m", 2, partitions("a", 0, 1)))


def test_previous_epoch_is_accepted_because_the_reply_may_be_lost() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    group.heartbeat("n", 0, "a")
    lost = group.heartbeat("m", 2)
    assert group.heartbeat("m", 2) == lost == reply("m", 3, partitions("a", 1))


@pytest.mark.parametrize("epoch", [1, 2, 5])
def test_any_other_epoch_is_fenced(epoch: int) -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    group.heartbeat("n", 0, "a")
    group.heartbeat("m", 2)
    group.heartbeat("o", 0, "a")
    group.heartbeat("m", 3)
    text = f"epoch {epoch} is fenced: expected 4 or the previous epoch 3"
    with pytest.raises(FencedMemberEpoch, match=text):
        group.heartbeat("m", epoch)


def test_fenced_member_can_join_again() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    with pytest.raises(FencedMemberEpoch):
        group.heartbeat("m", 9)
    assert group.heartbeat("m", 0, "a") == reply("m", 2, partitions("a", 0, 1))


def test_assignment_interval_delays_a_rebalance_that_only_moves_partitions() -> None:
    """A member resubscribes to fewer topics; the others may wait for its former partitions."""
    group = GroupUnderTest(a=4, limits=ShareGroupLimits(assignment_interval_ms=1_000))
    for member_id in "mno":
        group.heartbeat(member_id, 0, "a")
    assert group.heartbeat("m", 2) == reply("m", 4, partitions("a", 2, 3))
    group.now_ms = 999
    records, answer = group.records_of(group.request("m", 4, "a", "later"))
    assert answer == reply("m", 4, partitions("a", 2, 3))
    assert [type(record) for record in records] == [ShareGroupMemberMetadata, GroupEpoch]
    group.now_ms = 1_000
    assert group.heartbeat("m", 4).member_epoch == 5


def test_interval_never_holds_back_the_partitions_of_a_member_that_left() -> None:
    group = GroupUnderTest(a=4, limits=ShareGroupLimits(assignment_interval_ms=10_000))
    group.heartbeat("m", 0, "a")
    group.heartbeat("n", 0, "a")
    group.heartbeat("m", 2)
    group.heartbeat("n", -1)
    assert group.heartbeat("m", 3) == reply("m", 4, partitions("a", 0, 1, 2, 3))


def test_interval_never_delays_a_member_without_partitions() -> None:
    group = GroupUnderTest(a=1, limits=ShareGroupLimits(assignment_interval_ms=10_000))
    group.heartbeat("m", 0, "a")
    assert group.heartbeat("n", 0, "a") == reply("n", 3, partitions("a", 0))


def test_interval_never_holds_back_a_topic_that_its_reader_dropped() -> None:
    group = GroupUnderTest(a=1, b=1, limits=ShareGroupLimits(assignment_interval_ms=10_000))
    group.heartbeat("m", 0, "a")
    group.heartbeat("n", 0, "a", "b")
    assert group.heartbeat("m", 2) == reply("m", 3)
    group.heartbeat("n", 3, "a")
    both = reply("m", 5, partitions("a", 0), partitions("b", 0))
    assert group.heartbeat("m", 3, "a", "b") == both


def test_interval_never_delays_a_member_with_another_subscription() -> None:
    """Its target is not empty, but has no partition of a subscribed topic."""
    group = GroupUnderTest(a=1, b=1, limits=ShareGroupLimits(assignment_interval_ms=10_000))
    group.heartbeat("n", 0, "b")
    group.heartbeat("m", 0, "a")
    assert group.heartbeat("m", 3, "b") == reply("m", 4, partitions("b", 0))


def test_interval_delays_nothing_after_the_clock_was_set_back() -> None:
    group = GroupUnderTest(a=4, limits=ShareGroupLimits(assignment_interval_ms=10_000))
    group.now_ms = 1_000_000
    group.heartbeat("m", 0, "a")
    group.now_ms = 999_000
    assert group.heartbeat("m", 2, "a", "later").member_epoch == 3


def test_member_that_unsubscribed_loses_the_topic_before_the_target_follows() -> None:
    """B is still targeted at m, which does not want it any more; n has it as well."""
    group = GroupUnderTest(a=1, b=1, limits=ShareGroupLimits(assignment_interval_ms=10_000))
    group.heartbeat("m", 0, "a", "b")
    group.heartbeat("n", 0, "a", "b")
    group.heartbeat("o", 0, "a", "b")
    had = group.heartbeat("m", 0, "a", "b").assignment
    assert had is not None
    kept = group.heartbeat("m", 4, "a").assignment
    assert kept is not None
    assert kept == frozenset(partition for partition in had if partition.topic_id == topic_id("a"))


def test_leaving_writes_tombstones_and_raises_the_epoch() -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    group.heartbeat("n", 0, "a")
    records, answer = group.records_of(group.request("m", -1))
    assert answer == reply("m", -1)
    assert records == (
        ShareGroupTombstone(ShareGroupRecordType.CURRENT_MEMBER_ASSIGNMENT, GROUP, MemberId("m")),
        ShareGroupTombstone(ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER, GROUP, MemberId("m")),
        ShareGroupTombstone(ShareGroupRecordType.MEMBER_METADATA, GROUP, MemberId("m")),
        GroupEpoch(GROUP, 4, records[3].metadata_hash),
    )


def test_last_member_leaves_the_assignment_up_to_date() -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    records, _ = group.records_of(group.request("m", -1))
    assert records[-1] == TargetAssignmentEpoch(GROUP, 3, 0)
    described = group.groups.describe(GROUP)
    assert (described.state, described.epoch, described.assignment_epoch) == ("Empty", 3, 3)


def test_epoch_of_a_group_continues_after_all_members_left() -> None:
    group = GroupUnderTest(a=2)
    group.heartbeat("m", 0, "a")
    group.heartbeat("m", -1)
    assert group.heartbeat("n", 0, "a") == reply("n", 4, partitions("a", 0, 1))


def test_leave_initializes_no_partitions() -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    group.topics = topics(a=5)
    assert group.groups.uninitialized(group.request("m", -1), group.topics) == ()


@pytest.mark.parametrize(
    ("group_id", "member_id", "epoch", "names", "problem"),
    [
        ("", "m", 0, ("a",), "the group id is empty"),
        (" ", "m", 0, ("a",), "the group id is empty"),
        ("g", "", 0, ("a",), "the member id is empty"),
        ("g", "m" * 37, 0, ("a",), "longer than 36 characters"),
        ("g", "m", -2, ("a",), "must be -1 or more, not -2"),
        ("g", "m", 0, None, "must subscribe"),
        ("g", "m", 0, (), "must subscribe"),
    ],
)
def test_request_that_contradicts_the_protocol_is_refused(
    group_id: str, member_id: str, epoch: int, names: tuple | None, problem: str
) -> None:
    group = GroupUnderTest(a=1)
    request = replace(
        group.request(member_id, epoch, group_id=GroupId(group_id)), subscribed_topic_names=names
    )
    with pytest.raises(InvalidRequest, match=problem):
        group.records_of(request)
    assert group.log == []


def test_empty_rack_is_refused() -> None:
    group = GroupUnderTest(a=1)
    with pytest.raises(InvalidRequest, match="rack id is empty"):
        group.records_of(replace(group.request("m", 0, "a"), rack_id=""))


@pytest.mark.parametrize("epoch", [-1, 1])
def test_group_that_does_not_exist_is_not_found(epoch: int) -> None:
    with pytest.raises(GroupIdNotFound, match="group 'orders', member 'm': there is no such"):
        GroupUnderTest(a=1).heartbeat("m", epoch)


@pytest.mark.parametrize("epoch", [-1, 1])
def test_member_that_does_not_exist_is_unknown(epoch: int) -> None:
    group = GroupUnderTest(a=1)
    group.heartbeat("m", 0, "a")
    with pytest.raises(UnknownMemberId, match="member 'n': the group has no such member"):
        group.heartbeat("n", epoch)


@pytest.mark.parametrize(
    ("epoch", "error"), [(0, GroupMaxSizeReached), (1, GroupMaxSizeReached), (-1, UnknownMemberId)]
)
def test_full_group_refuses_new_members(epoch: int, error: type[KafkaError]) -> None:
    group = GroupUnderTest(a=1, limits=ShareGroupLimits(members_max=1))
    group.heartbeat("m", 0, "a")
    with pytest.raises(error):
        group.heartbeat("n", epoch, "a")
    assert group.heartbeat("m", 2) == reply("m", 2)


def test_reply_has_the_heartbeat_interval_of_the_group() -> None:
    group = GroupUnderTest(a=1, limits=ShareGroupLimits(heartbeat_interval_ms=1_234))
    assert group.heartbeat("m", 0, "a").heartbeat_interval_ms == 1_234
