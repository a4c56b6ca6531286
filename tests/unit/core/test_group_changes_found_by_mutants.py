"""As `test_found_by_mutants`: groups and their members, assignments, and fetch sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sharegroup.core.groups.classic.member import Decision
from sharegroup.core.groups.share.assignor import assign
from sharegroup.core.groups.share.heartbeat import ShareGroupLimits
from sharegroup.core.groups.share.records import (
    GroupEpoch,
    ShareGroupRecordType,
    ShareGroupTombstone,
    TargetAssignment,
)
from sharegroup.core.groups.share.share_group import TopicMetadata, metadata_hash
from sharegroup.core.sessions.fetch_session import (
    FetchKey,
    FetchPlan,
    FetchSender,
    FetchSessions,
    ReportedOffsets,
    RequestedPartition,
)
from sharegroup.errors import (
    GroupMaxSizeReached,
    InvalidFetchSessionEpoch,
    InvalidGroupId,
    InvalidRequest,
)
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from tests.unit.core.consumer_group_scene import GROUP as CONSUMERS, Scene as ConsumerScene
from tests.unit.core.group_under_test import GROUP, GroupUnderTest, partitions, topic_id

A, B = MemberId("a"), MemberId("b")


class TestShareGroup:
    def test_tombstones_of_an_unknown_member_change_nothing(self) -> None:
        """Compaction of the log may have removed the records that the tombstones delete."""
        group = GroupUnderTest(orders=1)
        group.heartbeat("a", 0, "orders")
        for record_type in (
            ShareGroupRecordType.MEMBER_METADATA,
            ShareGroupRecordType.TARGET_ASSIGNMENT_MEMBER,
        ):
            group.append((ShareGroupTombstone(record_type, GROUP, B),))
        described = group.groups.describe(GROUP)
        assert [member.member_id for member in described.members] == [A]

    def test_tombstone_of_the_state_metadata_removes_all_topics(self) -> None:
        group = GroupUnderTest(orders=2)
        group.heartbeat("a", 0, "orders")
        group.append((ShareGroupTombstone(ShareGroupRecordType.STATE_PARTITION_METADATA, GROUP),))
        assert group.groups.initialized_topics(GROUP) == ()

    def test_member_that_rejoins_gets_a_new_target_record(self) -> None:
        group = GroupUnderTest(orders=1)
        group.heartbeat("a", 0, "orders")
        group.heartbeat("a", -1)
        records, _ = group.records_of(group.request("a", 0, "orders"))
        assert TargetAssignment(GROUP, A, partitions("orders", 0)) in records

    def test_restart_uses_the_session_timeout_of_each_group(self) -> None:
        group = GroupUnderTest(orders=1)
        group.heartbeat("a", 0, "orders")
        groups = group.restarted()
        groups.restart_sessions(100, session_timeout_ms={GROUP: 30}.__getitem__)
        assert groups.next_session_expiry_ms() == 130

    def test_altered_offsets_leave_the_digest_of_the_topics(self) -> None:
        group = GroupUnderTest(orders=1)
        group.heartbeat("a", 0, "orders")
        left, _ = group.records_of(group.request("a", -1))
        offsets = {TopicIdPartition(topic_id("orders"), 0): 5}
        altered, _ = group.groups.alter_offsets(GROUP, offsets, group.topics)
        digests = [
            record.metadata_hash for record in (*left, *altered) if isinstance(record, GroupEpoch)
        ]
        assert len(digests) == 2
        assert digests[0] == digests[1] != 0

    def test_group_without_a_name_has_no_offsets(self) -> None:
        with pytest.raises(InvalidGroupId, match=r"^the group id is empty$"):
            GroupUnderTest().groups.alter_offsets(GroupId(""), {}, {})

    @pytest.mark.parametrize(
        ("names", "digest"),
        [
            ((), 0),
            (("orders",), 7915813200192291772),
            (("orders", "returns"), 297256831346286401),
            (("x", "y"), -5018054854332649626),
            (("\udc80",), 555146765679302563),
        ],
    )
    def test_digest_of_the_topics_is_the_same_in_every_version(
        self, names: tuple[str, ...], digest: int
    ) -> None:
        """It is in the log; another one after an update would move every group's epoch."""
        found = [
            TopicMetadata(TopicName(name), TopicId(UUID(int=number)), 2)
            for number, name in enumerate(names, 1)
        ]
        sizes = {topic.topic_id: frozenset({0, 1}) for topic in found}
        assert metadata_hash(found, sizes) == digest

    def test_description_names_the_rack_of_a_member(self) -> None:
        group = GroupUnderTest(orders=1)
        group.records_of(replace(group.request("a", 0, "orders"), rack_id="north"))
        (member,) = group.groups.describe(GROUP).members
        assert member.rack_id == "north"

    def test_member_that_does_not_name_its_rack_again_keeps_it(self) -> None:
        group = GroupUnderTest(orders=1)
        group.records_of(replace(group.request("a", 0, "orders"), rack_id="north"))
        group.heartbeat("a", 2, "orders")
        (member,) = group.groups.describe(GROUP).members
        assert member.rack_id == "north"

    def test_group_created_by_altering_offsets_has_no_metadata_hash(self) -> None:
        group = GroupUnderTest(orders=1)
        offsets = {TopicIdPartition(topic_id("orders"), 0): 5}
        (record, _), _ = group.groups.alter_offsets(GROUP, offsets, group.topics)
        assert record == GroupEpoch(GROUP, 2, 0)

    def test_session_ends_with_the_member_and_not_with_its_assignment(self) -> None:
        group = GroupUnderTest(orders=1)
        group.heartbeat("a", 0, "orders")
        group.append(
            (ShareGroupTombstone(ShareGroupRecordType.CURRENT_MEMBER_ASSIGNMENT, GROUP, A),)
        )
        assert group.groups.next_session_expiry_ms() == 45_000
        group.append((ShareGroupTombstone(ShareGroupRecordType.MEMBER_METADATA, GROUP, A),))
        assert group.groups.next_session_expiry_ms() is None

    def test_target_that_stays_is_not_written_again_when_another_joins(self) -> None:
        group = GroupUnderTest(orders=1)
        group.heartbeat("a", 0, "orders")
        records, _ = group.records_of(group.request("b", 0, "orders"))
        targets = [r for r in records if isinstance(r, TargetAssignment)]
        assert [target.member_id for target in targets] == [B]

    def test_member_without_a_target_gets_an_empty_assignment(self) -> None:
        """Its topic does not exist, so the assignment may be delayed."""
        group = GroupUnderTest(orders=1)
        group.heartbeat("a", 0, "orders")
        reply = group.heartbeat("b", 0, "returns")
        assert (reply.member_epoch, reply.assignment) == (2, frozenset())

    def test_member_id_may_be_as_long_as_a_uuid_in_words(self) -> None:
        group = GroupUnderTest(orders=1)
        assert group.heartbeat("m" * 36, 0, "orders").member_epoch == 2

    @pytest.mark.parametrize(
        ("change", "problem"),
        [
            ({"group_id": ""}, "group '', member 'a': the group id is empty"),
            ({"member_id": ""}, "group 'orders', member '': the member id is empty"),
            (
                {"rack_id": " "},
                "group 'orders', member 'a': the rack id is empty; leave it out if there is none",
            ),
            (
                {"subscribed_topic_names": ()},
                "group 'orders', member 'a': a member that joins must subscribe to a topic",
            ),
        ],
    )
    def test_error_of_a_malformed_heartbeat_names_the_problem(
        self, change: dict[str, Any], problem: str
    ) -> None:
        group = GroupUnderTest(orders=1)
        with pytest.raises(InvalidRequest) as refused:
            group.records_of(replace(group.request("a", 0, "orders"), **change))
        assert str(refused.value) == problem

    def test_error_of_a_full_share_group_names_its_size(self) -> None:
        group = GroupUnderTest(orders=1, limits=ShareGroupLimits(members_max=1))
        group.heartbeat("a", 0, "orders")
        with pytest.raises(GroupMaxSizeReached) as refused:
            group.heartbeat("b", 0, "orders")
        assert str(refused.value) == "group 'orders', member 'b': the group has 1 members"


class TestAssignor:
    def test_overloaded_member_loses_the_partition_that_others_have_too(self) -> None:
        """So n, which has no more than its share, keeps its partition."""
        topic = TopicId(UUID(int=1))
        zero, first = TopicIdPartition(topic, 0), TopicIdPartition(topic, 1)
        m, n = MemberId("m"), MemberId("n")
        before = {n: frozenset({first}), m: frozenset({zero, first})}
        wanted = {n: frozenset({topic}), m: frozenset({topic})}
        assigned = assign(wanted, before, {topic: frozenset({0, 1})})
        assert assigned == {n: frozenset({first}), m: frozenset({zero})}

    def test_shared_partition_is_revoked_from_the_busiest_member_for_any_names(
        self,
    ) -> None:
        topic = TopicId(UUID(int=1))
        m, n = MemberId("m"), MemberId("n")
        zero, first = TopicIdPartition(topic, 0), TopicIdPartition(topic, 1)
        before = {m: frozenset({zero}), n: frozenset({zero, first})}
        wanted = {m: frozenset({topic}), n: frozenset({topic})}
        assigned = assign(wanted, before, {topic: frozenset(range(5))})
        assert zero in assigned[m]
        assert first in assigned[n]


class TestFetchSession:
    FIRST: FetchKey = ("a", 0)
    SECOND: FetchKey = ("b", 0)
    FROM_5 = RequestedPartition(fetch_offset=5, bytes_max=100, leader_epoch=-1)
    FROM_9 = RequestedPartition(fetch_offset=9, bytes_max=100, leader_epoch=-1)

    def plan(
        self,
        sessions: FetchSessions,
        session_id: int,
        epoch: int,
        *,
        named: dict[FetchKey, RequestedPartition] | None = None,
        forgotten: tuple[FetchKey, ...] = (),
    ) -> FetchPlan:
        return sessions.plan(
            session_id,
            epoch,
            sender=FetchSender(1),
            named=named or {},
            forgotten=forgotten,
            now_ms=0,
        )

    def opened(self) -> FetchSessions:
        """Session 1, with both partitions."""
        sessions = FetchSessions(10)
        both = {self.FIRST: self.FROM_5, self.SECOND: self.FROM_9}
        assert self.plan(sessions, 0, 0, named=both) == (1, both, False)
        return sessions

    def test_each_request_uses_up_one_epoch(self) -> None:
        sessions = self.opened()
        for epoch in (1, 2, 3):
            assert self.plan(sessions, 1, epoch).incremental
        with pytest.raises(InvalidFetchSessionEpoch, match="expected epoch 4, got 3"):
            self.plan(sessions, 1, 3)

    def test_sessions_are_numbered_in_turn(self) -> None:
        sessions = self.opened()
        named = {self.FIRST: self.FROM_5}
        assert [self.plan(sessions, 0, 0, named=named).session_id for _ in range(3)] == [2, 3, 4]

    @pytest.mark.parametrize("epoch", [0, -1])
    def test_session_ends_when_its_id_is_sent_with_epoch_0_or_minus_1(self, epoch: int) -> None:
        sessions = self.opened()
        self.plan(sessions, 1, epoch)
        assert len(sessions) == 0

    def test_partition_with_records_moves_to_the_end_of_its_session(self) -> None:
        sessions = self.opened()
        sessions.records_returned(1, [self.FIRST, ("unknown", 0)])
        wanted = self.plan(sessions, 1, 1).partitions
        assert list(wanted.items()) == [(self.SECOND, self.FROM_9), (self.FIRST, self.FROM_5)]

    def test_offsets_of_a_forgotten_partition_are_news_again(self) -> None:
        sessions = self.opened()
        picture = ReportedOffsets(high_watermark=7, start_offset=0)
        assert sessions.news(1, self.FIRST, picture)
        assert not sessions.news(1, self.FIRST, picture)
        self.plan(sessions, 1, 1, forgotten=(self.FIRST, ("unknown", 0)))
        self.plan(sessions, 1, 2, named={self.FIRST: self.FROM_5})
        assert sessions.news(1, self.FIRST, picture)


class TestConsumerGroup:
    def test_new_member_that_hung_up_is_removed_from_the_rebalance(self) -> None:
        scene = ConsumerScene()
        (first,) = scene.stable("a")
        _, waiting = scene.knock("b")
        scene.follow(scene.groups.hang_up(CONSUMERS, waiting, now=scene.now, limits=scene.limits))
        again = scene.joined(scene.ask_to_join("a", first))
        assert [member.member_id for member in again.members] == [first]

    def test_known_member_that_hung_up_may_join_again(self) -> None:
        scene = ConsumerScene()
        first, second = scene.stable("a", "b")
        unheard = scene.ask_to_join("a", first)
        decision = scene.groups.hang_up(CONSUMERS, unheard, now=scene.now, limits=scene.limits)
        assert decision == Decision(CONSUMERS, (), ())
        waiting = scene.ask_to_join("a", first)
        scene.ask_to_join("b", second)
        again = scene.joined(waiting)
        assert {member.member_id for member in again.members} == {first, second}

    def test_hang_up_in_an_unknown_group_changes_nothing(self) -> None:
        scene = ConsumerScene()
        decision = scene.groups.hang_up(CONSUMERS, 1, now=scene.now, limits=scene.limits)
        assert decision == Decision(CONSUMERS, (), ())
