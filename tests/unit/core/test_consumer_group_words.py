"""What members of consumer groups and administrators are told, word for word."""

from __future__ import annotations

import pytest

from sharegroup.core.groups.classic.classic_groups import Committer
from sharegroup.core.groups.classic.member import LeavingMember, SyncReply
from sharegroup.core.groups.classic.sizes import ClassicGroupSizeLimits
from sharegroup.errors import (
    FencedInstanceId,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    KafkaError,
    NonEmptyGroup,
    PolicyViolation,
    RebalanceInProgress,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, MemberId, TopicName
from tests.unit.core.consumer_group_scene import GROUP, Scene

NOWHERE = "there is no group 'orders', so it has no member 'm': join without an id"


def said(scene: Scene, call: int, error: type[KafkaError]) -> str:
    reply = scene.answers[call]
    assert type(reply) is error
    return str(reply)


class TestUnknownGroup:
    def test_members_of_an_unknown_group_must_join_without_an_id(self) -> None:
        scene = Scene()
        for ask in (
            lambda: scene.ask_to_join("m", "m"),
            lambda: scene.sync("m", 1),
            lambda: scene.heartbeat("m", 1),
        ):
            with pytest.raises(UnknownMemberId) as refused:
                ask()
            assert str(refused.value) == NOWHERE

    def test_leave_of_an_unknown_group_is_refused_for_each_member(self) -> None:
        leaving = (LeavingMember(MemberId("m"), None), LeavingMember(MemberId("n"), None))
        scene = Scene()
        decision, outcomes = scene.groups.leave(GROUP, leaving, now=scene.now, limits=scene.limits)
        assert (decision.group_id, decision.records, decision.answers) == (GROUP, (), ())
        assert [str(outcome) for outcome in outcomes] == [NOWHERE, NOWHERE.replace("'m'", "'n'")]

    def test_unknown_group_is_refused_in_commit_and_describe(self) -> None:
        scene = Scene()
        with pytest.raises(GroupIdNotFound) as commit:
            scene.commit(1, member_id="m", generation=0)
        with pytest.raises(GroupIdNotFound) as description:
            scene.groups.describe(GROUP)
        told = "group 'orders': there is no such consumer group"
        assert (str(commit.value), str(description.value)) == (told, told)

    def test_empty_group_id_is_refused(self) -> None:
        scene = Scene()
        with pytest.raises(InvalidGroupId) as refused:
            scene.ask_to_join(group_id=GroupId(""))
        assert str(refused.value) == "the group id is empty"

    def test_groups_beyond_the_limit_are_not_made(self) -> None:
        scene = Scene(sizes=ClassicGroupSizeLimits(groups_max=0))
        for ask in (lambda: scene.ask_to_join("a"), lambda: scene.commit(1)):
            with pytest.raises(PolicyViolation) as refused:
                ask()
            assert str(refused.value) == (
                "group 'orders': there are 0 consumer groups already; delete some"
            )


class TestJoining:
    def test_session_timeout_has_bounds(self) -> None:
        scene = Scene(session_timeout_ms_min=6_000, session_timeout_ms_max=9_000)
        with pytest.raises(InvalidSessionTimeout) as refused:
            scene.ask_to_join(session_timeout_ms=5_999)
        assert str(refused.value) == (
            "group 'orders': a session timeout of 5999 ms is not between 6000 and 9000 ms"
        )
        scene.ask_to_join(session_timeout_ms=6_000)
        scene.ask_to_join(session_timeout_ms=9_000)

    def test_a_protocol_is_needed(self) -> None:
        with pytest.raises(InconsistentGroupProtocol) as refused:
            Scene().ask_to_join(protocols={})
        assert str(refused.value) == (
            "group 'orders': a member needs a protocol type and a protocol"
        )

    def test_error_of_a_full_group_names_its_size_and_limit(self) -> None:
        scene = Scene(members_max=1)
        scene.stable("a")
        call = scene.ask_to_join("b")
        assert said(scene, call, GroupMaxSizeReached) == (
            "group 'orders' has 1 members; group.max.size is 1"
        )

    def test_metadata_of_all_groups_has_a_bound(self) -> None:
        scene = Scene(sizes=ClassicGroupSizeLimits(all_bytes_max=2_000))
        scene.stable("a")
        with pytest.raises(PolicyViolation) as refused:
            scene.knock("b")
        assert str(refused.value) == (
            "group 'orders': 1120 more bytes and the 1121 bytes of all groups' members "
            "would exceed 2000"
        )

    def test_repeated_join_answers_the_earlier_one(self) -> None:
        scene = Scene()
        a, _ = scene.stable("a", "b")
        first = scene.ask_to_join("a", a)
        scene.ask_to_join("a", a)
        assert said(scene, first, RebalanceInProgress) == f"member {a!r} has sent a newer request"


class TestStaticMembers:
    def test_replaced_member_id_of_an_instance_is_fenced_in_every_request(self) -> None:
        scene = Scene()
        call = scene.ask_to_join("a", instance_id="i")
        scene.pass_ms(0)
        old = scene.joined(call).member_id
        scene.sync(old, 1, {old: b"A"})
        new = scene.joined(scene.ask_to_join("a", instance_id="i")).member_id
        told = f"group 'orders': instance 'i' is member {new!r} now, not {old!r}"
        committer = Committer(GROUP, old, "i", 1)
        for ask in (
            lambda: scene.sync(old, 1, instance_id="i"),
            lambda: scene.heartbeat(old, 1, "i"),
            lambda: scene.groups.check_commit(committer, (), bytes_max=1, now=scene.now),
        ):
            with pytest.raises(FencedInstanceId) as fenced:
                ask()
            assert str(fenced.value) == told

    def test_waiting_join_of_a_replaced_member_is_fenced_with_the_new_id(self) -> None:
        scene = Scene()
        a, b = scene.stable("a", "b", instance_id=None)
        scene.leave((a, None), (b, None))
        waiting = scene.ask_to_join("c", instance_id="i")
        again = scene.ask_to_join("d", instance_id="i")
        scene.pass_ms(0)
        new = scene.joined(again).member_id
        assert said(scene, waiting, FencedInstanceId) == (
            f"group 'orders': instance 'i' has joined again as {new!r}"
        )

    def test_unknown_instance_id_is_an_unknown_member(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        with pytest.raises(UnknownMemberId) as refused:
            scene.heartbeat(a, 1, "i")
        assert str(refused.value) == (
            f"group 'orders' has no member {a!r} with instance id 'i': join again without a "
            "member id"
        )


class TestRebalances:
    def test_waiting_sync_is_answered_by_a_repetition_or_a_rebalance(self) -> None:
        scene = Scene(initial_delay_ms=10)
        _, (b, _) = scene.knock("a"), scene.knock("b")
        scene.pass_ms(20)
        first, second = scene.sync(b, 1), scene.sync(b, 1)
        assert said(scene, first, RebalanceInProgress) == f"member {b!r} has sent a newer request"
        scene.knock("c")
        assert said(scene, second, RebalanceInProgress) == (
            "group 'orders': another rebalance has started"
        )
        with pytest.raises(RebalanceInProgress) as refused:
            scene.sync(b, 1)
        assert str(refused.value) == "group 'orders' is rebalancing: join again"

    def test_waiting_sync_of_a_removed_member_is_answered(self) -> None:
        scene = Scene(initial_delay_ms=10)
        _, (b, _) = scene.knock("a"), scene.knock("b")
        scene.pass_ms(20)
        waiting = scene.sync(b, 1)
        scene.leave((b, None))
        assert said(scene, waiting, UnknownMemberId) == (
            f"group 'orders': member {b!r} was removed; join again"
        )

    def test_commit_before_the_assignment_is_refused(self) -> None:
        scene = Scene()
        a, _ = scene.knock("a")
        scene.pass_ms(0)
        with pytest.raises(RebalanceInProgress) as refused:
            scene.commit(1, member_id=a, generation=1)
        assert str(refused.value) == "group 'orders': generation 1 has no assignment yet"

    def test_sync_names_the_protocol_and_refuses_another_one(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        assert scene.answers[scene.sync(a, 1)] == SyncReply("consumer", "range", b"A")
        with pytest.raises(InconsistentGroupProtocol) as refused:
            scene.sync(a, 1, protocol="sticky")
        assert str(refused.value) == f"group 'orders' uses 'range', member {a!r} sent 'sticky'"


class TestAdministration:
    def test_group_with_members_is_not_deleted(self) -> None:
        scene = Scene()
        scene.stable("a")
        with pytest.raises(NonEmptyGroup) as refused:
            scene.groups.delete_group(GROUP)
        assert str(refused.value) == (
            "group 'orders' must be empty; it has 1 members and is Stable"
        )

    def test_offsets_of_topics_that_are_read_are_not_deleted(self) -> None:
        scene = Scene()
        scene.stable("a")
        _, refused = scene.groups.delete_offsets(GROUP, {TopicName("t"): [0]})
        assert {topic: str(error) for topic, error in refused.items()} == {
            "t": "group 'orders' has members that read topic 't'"
        }
