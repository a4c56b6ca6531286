"""All consumer groups: offsets, restarts, expiry, administration, and what is bounded."""

from __future__ import annotations

import pytest

from sharegroup.core.groups.classic.classic_groups import ListedClassicGroup
from sharegroup.core.groups.classic.member import NewMemberId
from sharegroup.core.groups.classic.records import GroupTombstone, OffsetCommit, OffsetTombstone
from sharegroup.core.groups.classic.sizes import ClassicGroupSizeLimits
from sharegroup.errors import (
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    InvalidGroupId,
    NonEmptyGroup,
    PolicyViolation,
    RebalanceInProgress,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, TopicName
from sharegroup.steps import STEP_ELEMENTS
from tests.unit.core.consumer_group_scene import GROUP, TOPIC_ID, WALL_MS, Scene

T, U = TopicName("t"), TopicName("u")
DAY_MS = 86_400_000


class TestCommits:
    def test_member_of_the_generation_commits(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.commit(7, member_id=a, generation=1)
        scene.commit(9, member_id=a, generation=1, partition=1)
        assert (scene.offset(), scene.offset(partition=1)) == (7, 9)

    def test_another_generation_and_strangers_are_fenced(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        with pytest.raises(IllegalGeneration):
            scene.commit(7, member_id=a, generation=0)
        with pytest.raises(UnknownMemberId):
            scene.commit(7, member_id="b", generation=1)
        with pytest.raises(UnknownMemberId):
            scene.commit(7)
        with pytest.raises(IllegalGeneration):
            scene.commit(7, member_id=a)
        assert scene.offset() is None

    def test_member_commits_while_others_join_but_not_before_the_assignment(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        _, call = scene.knock("b")
        scene.commit(7, member_id=a, generation=1)
        scene.ask_to_join("a", a)
        assert scene.joined(call).generation == 2
        with pytest.raises(RebalanceInProgress):
            scene.commit(8, member_id=a, generation=2)
        assert scene.offset() == 7

    def test_commit_is_as_good_as_a_heartbeat(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.pass_ms(9_000)
        scene.commit(7, member_id=a, generation=1)
        scene.pass_ms(9_000)
        assert scene.heartbeat(a, 1) is False

    def test_transaction_is_fenced_by_member_and_generation_if_it_names_any(self) -> None:
        """It may come without both, also while the group has members, and during a rebalance."""
        scene = Scene()
        (a,) = scene.stable("a")
        with pytest.raises(IllegalGeneration):
            scene.commit(7, member_id=a, generation=0, is_transactional=True)
        with pytest.raises(IllegalGeneration):
            scene.commit(7, member_id=a, is_transactional=True)
        with pytest.raises(UnknownMemberId):
            scene.commit(7, member_id="b", generation=1, is_transactional=True)
        with pytest.raises(UnknownMemberId):
            scene.commit(7, generation=1, is_transactional=True)
        scene.commit(7, is_transactional=True)
        assert scene.offset() == 7
        _, call = scene.knock("b")
        scene.ask_to_join("a", a)
        assert scene.joined(call).generation == 2
        scene.commit(8, member_id=a, generation=2, is_transactional=True)
        assert scene.offset() == 8

    def test_commit_in_a_transaction_is_no_heartbeat(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.pass_ms(9_000)
        scene.commit(7, member_id=a, generation=1, is_transactional=True)
        scene.pass_ms(2_000)
        with pytest.raises(UnknownMemberId):
            scene.heartbeat(a, 1)

    def test_offsets_without_a_generation_make_a_group_by_hand(self) -> None:
        scene = Scene()
        scene.commit(7)
        assert scene.groups.list_groups() == (ListedClassicGroup(GROUP, "", "Empty"),)
        assert scene.offset() == 7

    def test_generation_of_an_unknown_group_is_refused(self) -> None:
        scene = Scene()
        with pytest.raises(GroupIdNotFound):
            scene.commit(7, member_id="a", generation=0)
        assert GROUP not in scene.groups

    def test_empty_group_takes_offsets_from_an_administrator(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.leave((a, None))
        scene.commit(3)
        assert scene.offset() == 3


class TestRestart:
    def test_members_continue_in_their_generation_after_a_restart(self) -> None:
        scene = Scene()
        a, b = scene.stable("a", "b")
        scene.commit(7, member_id=a, generation=1)
        scene.restart()
        assert scene.heartbeat(a, 1) is False
        assert scene.synced(scene.sync(b, 1)) == b"B"
        scene.commit(8, member_id=b, generation=1)
        assert scene.offset() == 8

    def test_sessions_restart_after_a_restart(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.pass_ms(9_999)
        scene.restart()
        scene.pass_ms(9_999)
        assert scene.heartbeat(a, 1) is False
        scene.pass_ms(10_000)
        assert scene.state == "Empty"

    def test_member_without_heartbeats_after_a_restart_is_removed(self) -> None:
        scene = Scene()
        scene.stable("a")
        scene.restart()
        scene.pass_ms(10_000)
        assert scene.state == "Empty"

    def test_leader_is_still_the_leader(self) -> None:
        scene = Scene()
        a, b = scene.stable("a", "b")
        scene.restart()
        assert scene.joined(scene.ask_to_join("b", b)).leader == a
        scene.ask_to_join("a", a)
        assert scene.heartbeat(b, 1) is True

    def test_offsets_of_an_empty_group_still_count_from_the_last_members_leaving(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.commit(7, member_id=a, generation=1)
        scene.pass_ms(5_000)
        scene.leave((a, None))
        scene.restart()
        scene.pass_ms(DAY_MS - 1)
        scene.expire(DAY_MS)
        assert scene.offset() == 7

    def test_rebalance_that_was_not_over_never_happened(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        b, _ = scene.knock("b")
        scene.ask_to_join("a", a)
        scene.restart()
        assert scene.heartbeat(a, 1) is False
        with pytest.raises(UnknownMemberId):
            scene.sync(b, 2)

    def test_generation_of_an_empty_group_continues_after_a_restart(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.leave((a, None))
        scene.restart()
        _, call = scene.knock("b")
        scene.pass_ms(0)
        assert scene.joined(call).generation == 3

    def test_group_that_is_too_large_now_has_to_join_again(self) -> None:
        scene = Scene()
        a, _, _ = scene.stable("a", "b", "c")
        scene.limits = Scene(members_max=2).limits
        scene.restart()
        assert scene.heartbeat(a, 1) is True

    def test_deleted_group_stays_deleted(self) -> None:
        scene = Scene()
        scene.commit(7)
        scene.write(scene.groups.delete_group(GROUP))
        scene.restart()
        assert GROUP not in scene.groups
        assert scene.offset() is None


class TestDeletion:
    def test_deleting_a_group_deletes_its_offsets(self) -> None:
        scene = Scene()
        scene.commit(7)
        scene.commit(8, topic="u", partition=3)
        assert scene.groups.delete_group(GROUP) == (
            OffsetTombstone(GROUP, T, 0),
            OffsetTombstone(GROUP, U, 3),
            GroupTombstone(GROUP),
        )

    def test_group_with_members_stays(self) -> None:
        scene = Scene()
        scene.stable("a")
        with pytest.raises(NonEmptyGroup):
            scene.groups.delete_group(GROUP)

    def test_unknown_group_is_an_error(self) -> None:
        with pytest.raises(GroupIdNotFound):
            Scene().groups.delete_group(GROUP)
        with pytest.raises(GroupIdNotFound):
            Scene().groups.describe(GROUP)

    def test_offsets_are_deleted_except_of_subscribed_topics(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        for topic in ("t", "u"):
            scene.commit(7, member_id=a, generation=1, topic=topic)
        records, refused = scene.groups.delete_offsets(GROUP, {T: [0], U: [0, 1]})
        scene.write(records)
        assert [type(error) for error in refused.values()] == [GroupSubscribedToTopic]
        assert (scene.offset("t"), scene.offset("u")) == (7, None)

    def test_topics_of_a_member_that_cannot_be_understood_stay(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a", protocols={"range": b"?"})
        scene.commit(7, member_id=a, generation=1, topic="u")
        records, refused = scene.groups.delete_offsets(GROUP, {U: [0]})
        assert records == ()
        assert list(refused) == [U]

    def test_offsets_of_a_group_with_another_protocol_type_are_not_deleted(self) -> None:
        scene = Scene()
        call = scene.ask_to_join("a", must_return=False, protocol_type="connect")
        scene.pass_ms(0)
        scene.sync(scene.joined(call).member_id, 1, protocol_type="connect")
        with pytest.raises(NonEmptyGroup):
            scene.groups.delete_offsets(GROUP, {T: [0]})

    def test_offset_deletion_needs_a_group(self) -> None:
        scene = Scene()
        with pytest.raises(GroupIdNotFound):
            scene.groups.delete_offsets(GROUP, {T: [0]})
        with pytest.raises(InvalidGroupId):
            scene.groups.delete_offsets(GroupId(""), {T: [0]})

    def test_deleted_topic_id_deletes_its_offsets_and_not_those_of_a_namesake(self) -> None:
        scene = Scene()
        scene.commit(7)
        scene.commit(8, partition=1, expires_ms=WALL_MS + DAY_MS)
        scene.commit(9, topic="u")
        another = type(TOPIC_ID)(int=8)
        assert list(scene.groups.topic_deleted(T, another)) == [
            (GROUP, (OffsetTombstone(GROUP, T, 1),))
        ]
        for _, records in scene.groups.topic_deleted(T, TOPIC_ID):
            scene.write(records)
        assert (scene.offset("t"), scene.offset("t", 1), scene.offset("u")) == (None, None, 9)

    def test_a_commit_in_a_new_topic_of_the_name_outlives_the_deletion_of_the_old_one(self) -> None:
        """The offsets of the old topic are deleted in pieces; the commit is between two of them."""
        scene = Scene()
        for partition in range(STEP_ELEMENTS + 1):
            scene.commit(7, partition=partition)
        pieces = scene.groups.topic_deleted(T, TOPIC_ID)
        scene.write(next(pieces)[1])
        scene.commit(9, partition=STEP_ELEMENTS, topic_id=type(TOPIC_ID)(int=8))
        assert list(pieces) == []
        assert (scene.offset("t"), scene.offset("t", STEP_ELEMENTS)) == (None, 9)


class TestExpiry:
    def test_offsets_of_an_empty_group_count_from_the_last_members_leaving(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.commit(7, member_id=a, generation=1)
        scene.pass_ms(5_000)
        scene.leave((a, None))
        scene.pass_ms(DAY_MS - 1)
        scene.expire(DAY_MS)
        assert scene.offset() == 7
        scene.pass_ms(1)
        scene.expire(DAY_MS)
        assert scene.offset() is None
        assert GROUP not in scene.groups

    def test_offsets_committed_by_hand_count_from_the_commit(self) -> None:
        scene = Scene()
        scene.commit(7)
        scene.pass_ms(DAY_MS // 2)
        scene.commit(8, partition=1)
        scene.pass_ms(DAY_MS // 2)
        scene.expire(DAY_MS)
        assert (scene.offset(), scene.offset(partition=1)) == (None, 8)
        assert GROUP in scene.groups

    def test_offsets_of_subscribed_topics_do_not_expire(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a", session_timeout_ms=1_800_000)
        for topic in ("t", "u"):
            scene.commit(7, member_id=a, generation=1, topic=topic)
        scene.pass_ms(1_000_000)
        scene.expire(1_000_000)
        assert (scene.offset("t"), scene.offset("u")) == (7, None)
        assert scene.state == "Stable"

    def test_nothing_expires_while_a_group_rebalances(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a", session_timeout_ms=1_800_000, rebalance_timeout_ms=1_800_000)
        scene.commit(7, member_id=a, generation=1, topic="u")
        scene.pass_ms(1_000_000)
        scene.knock("b")
        scene.expire(1_000_000)
        assert scene.offset("u") == 7

    def test_client_may_set_the_expiry_of_an_offset(self) -> None:
        scene = Scene()
        scene.commit(7, expires_ms=WALL_MS + 1_000)
        scene.expire(DAY_MS)
        assert scene.offset() == 7
        scene.pass_ms(1_000)
        scene.expire(DAY_MS)
        assert scene.offset() is None

    def test_group_without_commits_is_removed_when_it_is_empty(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.expire(DAY_MS)
        assert GROUP in scene.groups
        scene.leave((a, None))
        scene.expire(DAY_MS)
        assert GROUP not in scene.groups
        assert scene.log[-1] == GroupTombstone(GROUP)

    def test_group_with_a_pending_member_id_is_kept(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.leave((a, None))
        told = scene.answers[scene.ask_to_join("b")]
        assert isinstance(told, NewMemberId)
        scene.expire(0)
        call = scene.ask_to_join("b", told.member_id)
        scene.pass_ms(0)
        assert scene.joined(call).generation == 3


class TestBounds:
    def test_number_of_groups(self) -> None:
        scene = Scene(sizes=ClassicGroupSizeLimits(groups_max=2))
        scene.commit(1, group_id=GroupId("one"))
        scene.ask_to_join("a", group_id=GroupId("two"))
        with pytest.raises(PolicyViolation):
            scene.ask_to_join("a", group_id=GroupId("three"))
        with pytest.raises(PolicyViolation):
            scene.commit(1, group_id=GroupId("three"))
        scene.commit(2, group_id=GroupId("one"))

    def test_new_members_beyond_the_pending_ids_limit_join_immediately(self) -> None:
        """Refusing would lock out honest members; so they join as older clients do."""
        scene = Scene(sizes=ClassicGroupSizeLimits(pending_max=2))
        for name in ("a", "b"):
            group_id = GroupId(f"of-{name}")
            told = scene.answers[scene.ask_to_join(name, group_id=group_id)]
            assert isinstance(told, NewMemberId)
        call = scene.ask_to_join("c")
        scene.pass_ms(0)
        assert scene.joined(call).member_id == "c-3"
        scene.pass_ms(10_000)
        told = scene.answers[scene.ask_to_join("d", group_id=GroupId("d"))]
        assert isinstance(told, NewMemberId), "expired ids do not count"

    def test_metadata_of_all_groups_together(self) -> None:
        scene = Scene(sizes=ClassicGroupSizeLimits(all_bytes_max=2_428))
        (a,) = scene.stable("a", protocols={"range": b"x" * 100})
        scene.sync(a, 1)
        other = {"group_id": GroupId("other"), "must_return": False}
        with pytest.raises(PolicyViolation):
            scene.ask_to_join("b", protocols={"range": b"x" * 100}, **other)
        assert GroupId("other") not in scene.groups
        for _ in range(5):
            scene.leave((a, None))
            (a,) = scene.stable("a", protocols={"range": b"x" * 100})
        scene.restart()
        scene.ask_to_join("b", protocols={"range": b"x" * 50}, **other)
        scene.leave((a, None))
        scene.ask_to_join("c", protocols={"range": b"x" * 50})

    def test_thousands_of_unused_member_ids_are_removed_completely(self) -> None:
        scene = Scene()
        for number in range(5_000):
            scene.ask_to_join(f"m{number}", group_id=GroupId(f"g{number % 50}"))
        scene.pass_ms(10_000)
        assert len(scene.groups) == 0
        assert scene.groups.next_due_ms() is None

    def test_deleted_group_frees_its_pending_ids(self) -> None:
        scene = Scene(sizes=ClassicGroupSizeLimits(pending_max=1))
        scene.commit(1)
        scene.ask_to_join("a")
        scene.write(scene.groups.delete_group(GROUP))
        assert scene.groups.next_due_ms() is None
        assert isinstance(scene.answers[scene.ask_to_join("b")], NewMemberId)
        scene.pass_ms(20_000)
        assert GROUP not in scene.groups


def test_description_has_metadata_only_while_stable() -> None:
    scene = Scene()
    (a,) = scene.stable("a")
    (member,) = scene.groups.describe(GROUP).members
    assert (member.member_id, member.client_id, member.client_host) == (a, "a", "/127.0.0.1")
    assert (member.metadata, member.assignment) == (b"t", b"A")
    assert scene.groups.describe(GROUP).protocol == "range"
    scene.ask_to_join("b", must_return=False)
    (member, _) = scene.groups.describe(GROUP).members
    assert member.metadata == b""
    assert scene.groups.describe(GROUP).protocol == ""


def test_groups_are_listed_by_id() -> None:
    scene = Scene()
    scene.stable("a")
    scene.commit(1, group_id=GroupId("by-hand"))
    assert scene.groups.list_groups() == (
        ListedClassicGroup(GroupId("by-hand"), "", "Empty"),
        ListedClassicGroup(GROUP, "consumer", "Stable"),
    )


def test_offset_commit_record_has_topic_id_and_commit_time() -> None:
    scene = Scene()
    scene.commit(7, topic="u", partition=3)
    (record,) = scene.log
    assert isinstance(record, OffsetCommit)
    assert (record.group_id, record.topic, record.partition) == (GROUP, U, 3)
    assert (record.committed.offset, record.committed.topic_id) == (7, TOPIC_ID)
    assert record.committed.committed_ms == WALL_MS
