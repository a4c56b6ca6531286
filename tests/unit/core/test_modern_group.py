"""Consumer groups of KIP-848: joining, reconciliation, fencing, static members and timers."""

from __future__ import annotations

from typing import Any

import pytest

from sharegroup.core.groups.modern.advance import ModernGroupLimits
from sharegroup.core.groups.modern.group import ModernGroupState
from sharegroup.core.groups.modern.records import (
    MemberState,
    ModernGroupRecordType,
    ModernGroupTombstone,
    PartitionMetadata,
)
from sharegroup.core.groups.share.records import GroupEpoch, TargetAssignmentEpoch
from sharegroup.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from tests.unit.core.modern_group_scene import (
    GROUP,
    REBALANCE_MS,
    GroupScene,
    numbers,
    partitions,
)

# Joining


def test_first_heartbeat_of_a_new_group_has_all_partitions() -> None:
    scene = GroupScene(a=3)
    reply = scene.join("m", "a")
    assert (reply.member_epoch, reply.assignment) == (2, partitions("a", 0, 1, 2))
    assert scene.group.state is ModernGroupState.STABLE


def test_member_without_topics_joins_in_epoch_one() -> None:
    scene = GroupScene(a=3)
    reply = scene.join("m")
    assert (reply.member_epoch, reply.assignment) == (1, frozenset())


def test_heartbeat_that_changes_nothing_writes_nothing_and_repeats_no_assignment() -> None:
    scene = GroupScene(a=3)
    scene.join("m", "a")
    records, reply = scene.decide(scene.request("m", 2))
    assert (records, reply.assignment) == ((), None)


def test_full_request_gets_the_assignment_again() -> None:
    scene = GroupScene(a=3)
    scene.join("m", "a")
    owned = partitions("a", 0, 1, 2)
    reply = scene.heartbeat("m", 2, "a", owned=owned, rebalance_timeout_ms=REBALANCE_MS)
    assert reply.assignment == owned


@pytest.mark.parametrize(
    ("epoch", "fields", "text"),
    [
        (0, {"rebalance_timeout_ms": -1}, "rebalance timeout"),
        (0, {"owned": None}, "empty list"),
        (0, {"owned": partitions("a", 0)}, "empty list"),
        (0, {"subscribed_topic_names": None}, "topic names or a regular expression"),
        (-3, {}, "must be -2 or more, not -3"),
        (-2, {}, "the instance id is missing"),
        (0, {"instance_id": " "}, "the instance id is empty"),
        (0, {"rack_id": ""}, "the rack id is empty"),
        (0, {"rack_id": "x" * 250}, "rack id has at most 249"),
    ],
)
def test_invalid_requests_are_refused(epoch: int, fields: dict[str, Any], text: str) -> None:
    scene = GroupScene(a=1)
    with pytest.raises(InvalidRequest, match=text):
        scene.decide(scene.request("m", epoch, **fields))


def test_member_id_may_be_empty_only_where_the_broker_chooses_it() -> None:
    scene = GroupScene(a=1)
    with pytest.raises(InvalidRequest, match="member id is empty"):
        scene.decide(scene.request("", 0, "a"))
    scene.groups.check_heartbeat(scene.request("", 0, "a", names_itself=False), scene.limits)


def test_unknown_assignor_is_refused() -> None:
    scene = GroupScene(a=1)
    with pytest.raises(UnsupportedAssignor, match="expected one of uniform, range"):
        scene.join("m", "a", server_assignor="sticky")


def test_overlong_group_id_is_refused() -> None:
    scene = GroupScene(a=1)
    request = scene.request("m", 0, "a")
    with pytest.raises(InvalidGroupId, match="at most 249"):
        scene.groups.check_heartbeat(
            type(request)(**{**_fields(request), "group_id": "g" * 250}), scene.limits
        )


def _fields(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__slots__}


def test_group_that_does_not_exist_is_created_only_by_a_join() -> None:
    scene = GroupScene(a=1)
    with pytest.raises(GroupIdNotFound, match="there is no consumer group 'orders'"):
        scene.heartbeat("m", 2)


def test_full_group_refuses_a_new_member_and_keeps_its_own() -> None:
    scene = GroupScene(a=1, limits=ModernGroupLimits(members_max=1))
    scene.join("m", "a")
    with pytest.raises(GroupMaxSizeReached, match="has 1 members already"):
        scene.join("n", "a")
    assert scene.join("m", "a").member_epoch == 2


# Reconciliation


def test_partitions_are_revoked_before_another_member_gets_them() -> None:
    scene = GroupScene(a=4)
    scene.join("m", "a")
    second = scene.join("n", "a")
    assert (second.member_epoch, second.assignment) == (3, frozenset())
    assert scene.member("n").state is MemberState.UNRELEASED_PARTITIONS

    asked = scene.heartbeat("m", 2)
    assert (asked.member_epoch, len(asked.assignment or ())) == (2, 2)
    assert scene.member("m").state is MemberState.UNREVOKED_PARTITIONS
    assert scene.heartbeat("n", 3).assignment is None, "the partitions are not free yet"

    kept = scene.assigned("m")
    confirmed = scene.heartbeat("m", 2, owned=kept)
    assert (confirmed.member_epoch, confirmed.assignment) == (3, None)
    got = scene.heartbeat("n", 3)
    assert got.assignment == partitions("a", 0, 1, 2, 3) - kept
    assert scene.group.state is ModernGroupState.STABLE


def test_member_that_still_owns_a_revoked_partition_stays_in_its_epoch() -> None:
    scene = GroupScene(a=4)
    scene.join("m", "a")
    scene.join("n", "a")
    scene.heartbeat("m", 2)
    for owned in (None, partitions("a", 0, 1, 2, 3)):
        assert scene.heartbeat("m", 2, owned=owned).member_epoch == 2
    assert numbers(scene.heartbeat("n", 3).assignment) == []


def test_partition_that_is_assigned_back_while_it_is_revoked_is_free_for_its_member() -> None:
    scene = GroupScene(a=2)
    scene.join("m", "a")
    scene.join("n", "a")
    scene.heartbeat("m", 2)
    scene.leave("n")
    reply = scene.heartbeat("m", 2, owned=scene.assigned("m"))
    assert reply.assignment == partitions("a", 0, 1)


def test_changed_subscription_revokes_unsubscribed_topics_at_once() -> None:
    scene = GroupScene(a=2, b=2)
    scene.join("m", "a", "b")
    reply = scene.heartbeat("m", 2, "b")
    assert reply.assignment == partitions("b", 0, 1)
    assert scene.member("m").pending_revocation.keys() == partitions("a", 0, 1)


def test_unknown_state_of_a_newer_version_fences_the_member() -> None:
    scene = GroupScene(a=2)
    scene.join("m", "a")
    current = scene.member("m").current_assignment(GROUP)
    scene.append((type(current)(**{**_fields(current), "state": MemberState.UNKNOWN}),))
    with pytest.raises(FencedMemberEpoch, match="does not know"):
        scene.heartbeat("m", 2)
    assert scene.heartbeat("m", 2, owned=frozenset()).member_epoch == 2


# Topics


def test_new_partitions_and_topics_are_assigned() -> None:
    scene = GroupScene(a=1)
    scene.join("m", "a", "b")
    scene.change_topics(a=2, b=1)
    reply = scene.heartbeat("m", 2)
    assert reply.assignment == partitions("a", 0, 1) | partitions("b", 0)
    assert reply.member_epoch == 3


def test_change_of_topics_that_the_group_does_not_read_raises_no_epoch() -> None:
    scene = GroupScene(a=1)
    scene.join("m", "a")
    scene.change_topics(a=1, other=5)
    assert scene.decide(scene.request("m", 2))[0] == ()


def test_deleted_topic_is_taken_away() -> None:
    scene = GroupScene(a=1, b=1)
    scene.join("m", "a", "b")
    scene.change_topics(b=1)
    assert scene.heartbeat("m", 2).assignment == partitions("b", 0)


def test_pattern_is_resolved_in_the_first_heartbeat_and_follows_topics() -> None:
    scene = GroupScene(orders_eu=1, orders_us=1, users=1)
    reply = scene.join("m", subscribed_topic_regex="orders.*")
    assert reply.assignment == partitions("orders_eu", 0) | partitions("orders_us", 0)
    scene.change_topics(orders_eu=1, orders_asia=1, users=1)
    reply = scene.heartbeat("m", 2, owned=reply.assignment)
    assert reply.assignment == partitions("orders_eu", 0)
    reply = scene.heartbeat("m", 2, owned=reply.assignment)
    assert reply.assignment == partitions("orders_eu", 0) | partitions("orders_asia", 0)


def test_pattern_without_members_is_deleted() -> None:
    scene = GroupScene(a=1, b=1)
    scene.join("m", subscribed_topic_regex="a")
    scene.join("n", subscribed_topic_regex="b")
    assert sorted(scene.group.regexes) == ["a", "b"]
    scene.heartbeat("m", 2, subscribed_topic_regex="")
    assert list(scene.group.regexes) == ["b"]
    scene.leave("n")
    assert scene.group.regexes == {}


def test_names_and_pattern_together_subscribe_to_both() -> None:
    scene = GroupScene(a=1, b=1)
    reply = scene.join("m", "a", subscribed_topic_regex="b")
    assert reply.assignment == partitions("a", 0) | partitions("b", 0)


def test_old_partition_metadata_is_deleted_at_the_next_epoch() -> None:
    scene = GroupScene(a=1)
    scene.join("m", "a")
    scene.append((PartitionMetadata(GROUP),))
    scene.join("n", "a")
    tombstone = ModernGroupTombstone(ModernGroupRecordType.PARTITION_METADATA, GROUP)
    assert scene.log.count(tombstone) == 1
    assert not scene.group.has_partition_metadata


# Epochs


def test_epoch_above_the_members_epoch_is_fenced() -> None:
    scene = GroupScene(a=1)
    scene.join("m", "a")
    with pytest.raises(FencedMemberEpoch, match="epoch 3 is fenced: expected 2"):
        scene.heartbeat("m", 3)


def test_previous_epoch_is_accepted_from_a_member_that_owns_no_more_than_it_has() -> None:
    scene = GroupScene(a=2)
    scene.join("m", "a")
    scene.change_topics(a=3)
    scene.heartbeat("m", 2)
    assert scene.heartbeat("m", 2, owned=partitions("a", 0, 1)).member_epoch == 3
    for owned in (None, partitions("a", 7)):
        with pytest.raises(FencedMemberEpoch):
            scene.heartbeat("m", 2, owned=owned)


def test_fenced_member_joins_again_under_its_id() -> None:
    scene = GroupScene(a=1)
    scene.join("m", "a")
    reply = scene.join("m", "a")
    assert (reply.member_epoch, reply.assignment) == (2, partitions("a", 0))
    assert list(scene.group.members) == ["m"]


def test_unknown_member_has_to_join() -> None:
    scene = GroupScene(a=1)
    scene.join("m", "a")
    with pytest.raises(UnknownMemberId, match="must join with epoch 0"):
        scene.heartbeat("n", 2)
    with pytest.raises(UnknownMemberId):
        scene.leave("n")


# Leaving


def test_partitions_of_a_leaving_member_go_to_the_others() -> None:
    scene = GroupScene(a=2)
    scene.join("m", "a")
    scene.join("n", "a")
    scene.settle("m", "n")
    scene.leave("m")
    scene.settle("n")
    assert scene.assigned("n") == partitions("a", 0, 1)


def test_group_without_members_is_empty_and_its_next_member_starts_at_once() -> None:
    scene = GroupScene(a=1, limits=ModernGroupLimits(assignment_interval_ms=15_000))
    scene.join("m", "a")
    scene.leave("m")
    assert scene.group.state is ModernGroupState.EMPTY
    assert scene.log[-2:] == [
        GroupEpoch(GROUP, 3, 0),
        TargetAssignmentEpoch(GROUP, 3, 0),
    ]
    assert scene.join("n", "a").assignment == partitions("a", 0)


def test_members_removed_together_raise_the_epoch_once() -> None:
    scene = GroupScene(a=2)
    scene.join("m", "a")
    scene.join("n", "a")
    epoch = scene.group.epoch
    assert scene.pass_time(45_000) == {"m": "session", "n": "session"}
    assert scene.group.epoch == epoch + 1
    assert not scene.group.members


def test_group_with_members_is_not_deleted() -> None:
    scene = GroupScene(a=1)
    scene.join("m", "a")
    with pytest.raises(NonEmptyGroup, match="it has 1 members"):
        scene.groups.deleted(GROUP)
    scene.leave("m")
    scene.append(scene.groups.deleted(GROUP))
    assert GROUP not in scene.groups
    assert scene.groups.memory.used == 0


# Assignments


def test_assignment_interval_delays_a_second_assignment() -> None:
    scene = GroupScene(a=4, limits=ModernGroupLimits(assignment_interval_ms=1_000))
    scene.join("m", "a")
    scene.join("n", "a")
    scene.join("o", "a")
    assert scene.group.state is ModernGroupState.RECONCILING
    assert scene.group.assignment_epoch == 4, "o has nothing, and m had four"
    scene.join("p", "a")
    assert scene.group.assignment_epoch == 5
    scene.join("q", "a")
    assert scene.group.assignment_epoch == 5, "there is nothing that q could get"
    scene.pass_time(1_000)
    scene.heartbeat("q", scene.epoch("q"))
    assert scene.group.assignment_epoch == 6


def test_most_wanted_assignor_is_used() -> None:
    scene = GroupScene(a=4)
    scene.join("m", "a")
    assert scene.groups.describe(GROUP, scene.limits).assignor_name == "uniform"
    scene.join("n", "a", server_assignor="range")
    assert scene.groups.describe(GROUP, scene.limits).assignor_name == "range"
    epoch = scene.group.epoch
    scene.heartbeat("n", scene.epoch("n"), server_assignor="uniform")
    assert scene.group.epoch == epoch + 1


# Static members


def test_static_member_that_returns_keeps_its_partitions() -> None:
    scene = GroupScene(a=2)
    scene.join("m1", "a", instance_id="i")
    scene.leave("m1", -2, instance_id="i")
    assert scene.epoch("m1") == -2
    epoch = scene.group.epoch
    reply = scene.join("m2", "a", instance_id="i")
    assert (reply.member_epoch, reply.assignment) == (epoch, partitions("a", 0, 1))
    assert list(scene.group.members) == ["m2"]


def test_instance_id_of_a_present_member_is_not_released() -> None:
    scene = GroupScene(a=2)
    scene.join("m1", "a", instance_id="i")
    with pytest.raises(UnreleasedInstanceId, match="is member 'm1', which has not left"):
        scene.join("m2", "a", instance_id="i")


def test_replaced_static_member_is_fenced() -> None:
    scene = GroupScene(a=2)
    scene.join("m1", "a", instance_id="i")
    scene.leave("m1", -2, instance_id="i")
    scene.join("m2", "a", instance_id="i")
    with pytest.raises(FencedInstanceId, match="is member 'm2' now"):
        scene.heartbeat("m1", 2, instance_id="i")
    with pytest.raises(UnknownMemberId, match="'j'"):
        scene.heartbeat("m1", 2, instance_id="j")


def test_static_member_that_does_not_return_is_removed_after_its_session() -> None:
    scene = GroupScene(a=2)
    scene.join("m1", "a", instance_id="i")
    scene.join("n", "a")
    scene.settle("m1", "n")
    scene.leave("m1", -2, instance_id="i")
    scene.pass_time(40_000)
    scene.heartbeat("n", scene.epoch("n"))
    assert scene.pass_time(5_000) == {"m1": "session"}


def test_static_member_that_returns_with_its_member_id_has_a_session() -> None:
    scene = GroupScene(a=2)
    scene.join("m1", "a", instance_id="i")
    scene.leave("m1", -2, instance_id="i")
    scene.pass_time(5_000)
    scene.join("m1", "a", instance_id="i")
    assert scene.pass_time(44_999) == {}
    assert scene.pass_time(1) == {"m1": "session"}


def test_static_member_that_is_away_need_not_revoke_in_time() -> None:
    scene = GroupScene(a=2)
    scene.join("m1", "a", instance_id="i", rebalance_timeout_ms=10_000)
    scene.join("n", "a")
    scene.heartbeat("m1", 2, instance_id="i")
    assert scene.member("m1").state is MemberState.UNREVOKED_PARTITIONS
    scene.leave("m1", -2, instance_id="i")
    assert scene.pass_time(10_000) == {}
    scene.groups.start((GROUP,), scene.now_ms, {GROUP: 45_000})
    assert scene.pass_time(10_000) == {}
    scene.heartbeat("n", 3)
    assert scene.pass_time(35_000) == {"m1": "session"}


# Timers


def test_member_that_does_not_revoke_in_time_is_removed() -> None:
    scene = GroupScene(a=2)
    scene.join("m", "a", rebalance_timeout_ms=10_000)
    scene.join("n", "a")
    scene.heartbeat("m", 2)
    assert scene.pass_time(9_999) == {}
    scene.heartbeat("m", 2)
    assert scene.pass_time(1) == {"m": "revocation"}
    assert scene.heartbeat("n", 3).assignment == partitions("a", 0, 1)


def test_member_that_has_revoked_keeps_its_place() -> None:
    scene = GroupScene(a=2)
    scene.join("m", "a", rebalance_timeout_ms=10_000)
    scene.join("n", "a")
    scene.heartbeat("m", 2)
    scene.heartbeat("m", 2, owned=scene.assigned("m"))
    assert scene.pass_time(10_000) == {}


def test_timer_of_a_write_that_failed_is_forgotten() -> None:
    scene = GroupScene(a=2)
    scene.decide(scene.request("m", 0, "a"))
    assert scene.groups.next_due_ms() == 45_000
    assert scene.pass_time(45_000) == {}
    assert scene.groups.next_due_ms() is None


def test_restart_gives_every_member_all_its_time() -> None:
    scene = GroupScene(a=2)
    scene.join("m", "a", rebalance_timeout_ms=10_000)
    scene.join("n", "a")
    scene.heartbeat("m", 2)
    scene.groups = scene.restarted()
    scene.groups.start((GROUP,), 100_000, {GROUP: 45_000})
    scene.now_ms = 100_000
    assert scene.pass_time(10_000) == {"m": "revocation"}
    assert scene.pass_time(35_000) == {"n": "session"}


# The log


def test_replay_of_the_log_gives_the_same_group() -> None:
    scene = GroupScene(a=4, b=2)
    scene.join("m", "a", instance_id="i")
    scene.join("n", "a", subscribed_topic_regex="b.*")
    scene.heartbeat("m", 2)
    scene.leave("m", -2, instance_id="i")
    scene.join("m2", "a", instance_id="i")
    scene.join("o", "b")
    scene.settle("m2", "n", "o")
    scene.leave("o")
    again = scene.restarted().existing(GROUP)
    for name in again.__slots__:
        if name != "topics_version":
            assert getattr(again, name) == getattr(scene.group, name), name
    assert scene.restarted().memory.used == scene.groups.memory.used


def test_compacted_log_gives_the_same_group() -> None:
    """Compaction keeps the last record of each key, so a member's metadata may come last."""
    scene = GroupScene(a=4)
    scene.join("m", "a")
    scene.join("n", "a")
    scene.settle("m", "n")
    scene.heartbeat("m", scene.epoch("m"), rack_id="r")
    metadata = [scene.member(member).metadata(GROUP) for member in ("m", "n")]
    rest = [record for record in scene.log if type(record) is not type(metadata[0])]
    scene.log = [*rest, *metadata]
    again = scene.restarted().existing(GROUP)
    assert again.members == scene.group.members
    assert (again.owners, again.target) == (scene.group.owners, scene.group.target)
