"""As `test_found_by_mutants`, of consumer groups: who waits for what, and until when."""

from __future__ import annotations

import pytest

from sharegroup.core.groups.classic.classic_groups import (
    DescribedClassicGroup,
    DescribedConsumerMember,
)
from sharegroup.core.groups.classic.member import JoinReply, NewMemberId
from sharegroup.core.groups.classic.sizes import ClassicGroupSizeLimits
from sharegroup.errors import (
    GroupSubscribedToTopic,
    InvalidRequest,
    PolicyViolation,
    UnknownMemberId,
)
from sharegroup.ids import GroupId, TopicName
from tests.unit.core.consumer_group_scene import GROUP, TOPIC_ID, Scene

T, U = TopicName("t"), TopicName("u")
MEMBER_BYTES = 1_120
"""What a member with `Scene.request`'s protocol takes before it has an assignment."""


def static(scene: Scene, instance_id: str, **fields: object) -> int:
    return scene.ask_to_join(instance_id, instance_id=instance_id, **fields)


class TestMemory:
    def test_members_of_all_groups_may_use_the_memory_limit_to_the_last_byte(self) -> None:
        scene = Scene(
            initial_delay_ms=1_000,
            sizes=ClassicGroupSizeLimits(all_bytes_max=2 * MEMBER_BYTES),
        )
        scene.knock("a")
        scene.knock("b")
        with pytest.raises(PolicyViolation):
            scene.knock("c")

    def test_one_byte_too_many_is_refused(self) -> None:
        sizes = ClassicGroupSizeLimits(all_bytes_max=MEMBER_BYTES - 1)
        with pytest.raises(PolicyViolation):
            Scene(sizes=sizes).knock("a")

    def test_ids_of_a_member_count(self) -> None:
        sizes = ClassicGroupSizeLimits(all_bytes_max=MEMBER_BYTES + 4)
        for fields in ({"instance_id": "12345"}, {"client_id": "123456"}, {"client_id": "aä"}):
            with pytest.raises(PolicyViolation):
                Scene(sizes=sizes).ask_to_join("a", must_return=False, **fields)
        Scene(sizes=sizes).ask_to_join("a", must_return=False, client_id="12345")

    def test_memory_of_a_static_member_that_rejoined_and_left_is_freed(self) -> None:
        scene = Scene(sizes=ClassicGroupSizeLimits(all_bytes_max=2 * MEMBER_BYTES))
        static(scene, "i")
        scene.pass_ms(0)
        call = scene.ask_to_join("with-a-longer-name", instance_id="i")
        scene.leave((scene.joined(call).member_id, "i"))
        with pytest.raises(PolicyViolation):
            scene.ask_to_join("a", protocols={"range": b"t" * (MEMBER_BYTES + 2)})
        scene.ask_to_join("a", protocols={"range": b"t" * (MEMBER_BYTES + 1)})

    @pytest.mark.parametrize("label", ["instance_id", "protocol_type"])
    def test_labels_have_as_many_characters_as_names_of_topics(self, label: str) -> None:
        with pytest.raises(InvalidRequest, match=r"at most 249 characters, not 250"):
            Scene().ask_to_join("a", **{label: "x" * 250})
        Scene().ask_to_join("a", **{label: "x" * 249})

    def test_member_at_the_memory_limit_may_rejoin_only_without_more_metadata(self) -> None:
        """Even if a restart with lower limits finds more than they permit."""
        scene = Scene()
        (a,) = scene.stable("a")
        scene.sizes = ClassicGroupSizeLimits(all_bytes_max=MEMBER_BYTES - 1)
        scene.restart()
        scene.ask_to_join("a", a)
        with pytest.raises(PolicyViolation):
            scene.ask_to_join("a", a, protocols={"range": b"tt"})
        with pytest.raises(PolicyViolation):
            scene.ask_to_join("a", a, protocols={"range": b"t", "": b""})

    def test_joining_with_an_id_frees_its_place_among_the_pending_ids(self) -> None:
        scene = Scene(initial_delay_ms=1_000, sizes=ClassicGroupSizeLimits(pending_max=1))
        scene.knock("a")
        assert isinstance(scene.answers[scene.ask_to_join("b")], NewMemberId)
        assert (
            scene.ask_to_join("c") not in scene.answers
        )  # It joins without a second request, and waits.


class TestPendingMemberIds:
    def test_member_id_can_be_used_until_its_session_ends(self) -> None:
        scene = Scene()
        told = scene.answers[scene.ask_to_join("a")]
        assert isinstance(told, NewMemberId)
        scene.pass_ms(9_999)
        call = scene.ask_to_join("a", told.member_id)
        scene.pass_ms(0)
        assert scene.joined(call).generation == 1

    def test_unused_member_id_can_leave(self) -> None:
        scene = Scene()
        told = scene.answers[scene.ask_to_join("a")]
        assert isinstance(told, NewMemberId)
        assert scene.leave((told.member_id, None)) == [None]
        assert GROUP not in scene.groups

    def test_group_that_only_an_id_is_left_of_waits_no_longer(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        scene.ask_to_join("b")
        scene.leave((a, None))
        assert scene.groups.next_due_ms() == scene.now_ms
        scene.pass_ms(0)
        assert scene.state == "Empty"


class TestHangUp:
    def test_hang_up_of_an_unknown_call_changes_nothing(self) -> None:
        scene = Scene(initial_delay_ms=1_000)
        _, (_, call) = scene.knock("a"), scene.knock("b")
        decision = scene.groups.hang_up(GROUP, 999, now=scene.now, limits=scene.limits)
        assert (decision.group_id, decision.records, decision.answers) == (GROUP, (), ())
        scene.pass_ms(2_000)
        assert len(scene.groups.describe(GROUP).members) == 2
        assert scene.joined(call).generation == 1

    def test_group_does_not_wait_for_a_new_member_that_hung_up(self) -> None:
        scene = Scene(initial_delay_ms=1_000)
        _, call = scene.knock("a")
        _, lost = scene.knock("b")
        decision = scene.groups.hang_up(GROUP, lost, now=scene.now, limits=scene.limits)
        assert decision.group_id == GROUP
        scene.follow(decision)
        scene.pass_ms(2_000)
        assert isinstance(scene.answers[call], JoinReply)
        assert [member.client_id for member in scene.groups.describe(GROUP).members] == ["a"]


class TestPhases:
    def test_first_rebalance_ends_with_the_rebalance_timeout_to_the_millisecond(self) -> None:
        scene = Scene(initial_delay_ms=60_000)
        _, call = scene.knock("a")
        scene.knock("b")
        scene.pass_ms(59_999)
        assert call not in scene.answers
        scene.pass_ms(1)
        assert scene.joined(call).generation == 1

    def test_member_that_joins_during_the_initial_delay_waits_too(self) -> None:
        scene = Scene(initial_delay_ms=3_000)
        scene.knock("a")
        scene.pass_ms(1_000)
        scene.knock("b")
        scene.pass_ms(3_000)
        _, call = scene.knock("c")
        assert call not in scene.answers
        scene.pass_ms(5_000)
        assert len(scene.groups.describe(GROUP).members) == 3
        assert scene.joined(call).generation == 1

    def test_group_that_became_empty_before_its_assignment_has_no_deadline(self) -> None:
        scene = Scene()
        scene.commit(1)
        a, _ = scene.knock("a")
        scene.pass_ms(0)
        scene.leave((a, None))
        assert (scene.state, scene.groups.next_due_ms()) == ("Empty", None)

    def test_only_sessions_are_waited_for_when_all_have_synced(self) -> None:
        scene = Scene()
        scene.stable("a", "b", session_timeout_ms=100_000)
        assert scene.groups.next_due_ms() == scene.now_ms + 100_000

    def test_replaced_member_id_has_no_deadline(self) -> None:
        scene = Scene()
        scene.commit(1)
        call = static(scene, "i")
        scene.pass_ms(0)
        old = scene.joined(call).member_id
        scene.sync(old, 1, {old: b"A"})
        new = scene.joined(static(scene, "i")).member_id
        scene.leave((new, None))
        assert (scene.state, scene.groups.next_due_ms()) == ("Empty", None)

    def test_leave_of_an_unknown_member_starts_no_rebalance(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a")
        assert scene.leave(("stranger", None)) == [UnknownMemberId]
        assert scene.heartbeat(a, 1) is False


class TestLeaders:
    def test_join_reply_of_the_leader_has_the_instance_ids(self) -> None:
        scene = Scene(initial_delay_ms=10)
        call = static(scene, "i")
        scene.knock("b")
        scene.pass_ms(20)
        told = [(member.instance_id, member.metadata) for member in scene.joined(call).members]
        assert told == [("i", b"t"), (None, b"t")]

    def test_leader_stays_when_a_former_leader_rejoins(self) -> None:
        """The first leader misses a rebalance, loses its role, and joins the next one in time."""
        scene = Scene(initial_delay_ms=10)
        sessions = {"session_timeout_ms": 1_000_000}
        first, second = static(scene, "i", **sessions), static(scene, "j", **sessions)
        scene.pass_ms(20)
        i, j = scene.joined(first).member_id, scene.joined(second).member_id
        assert scene.joined(second).leader == i
        scene.sync(i, 1, {i: b"I", j: b"J"})
        again = scene.ask_to_join("j", j, instance_id="j", protocols={"range": b"u"}, **sessions)
        scene.pass_ms(60_000)
        assert scene.joined(again).leader == j
        again = scene.ask_to_join("j", j, instance_id="j", protocols={"range": b"t"}, **sessions)
        late = scene.ask_to_join("i", i, instance_id="i", protocols={"range": b"u"}, **sessions)
        assert (scene.joined(again).leader, scene.joined(late).leader) == (j, j)


class TestRestart:
    def test_full_group_is_stable_after_a_restart(self) -> None:
        scene = Scene(members_max=2)
        a, _ = scene.stable("a", "b")
        generation = scene.generations()[-1]
        scene.restart()
        assert scene.state == "Stable"
        assert scene.heartbeat(a, generation) is False

    def test_members_are_described_as_before(self) -> None:
        scene = Scene(initial_delay_ms=10)
        call = static(scene, "i")
        scene.pass_ms(20)
        member_id = scene.joined(call).member_id
        scene.sync(member_id, 1, {member_id: b"I"})
        described = DescribedClassicGroup(
            GROUP,
            "Stable",
            "consumer",
            "range",
            (DescribedConsumerMember(member_id, "i", "i", "/127.0.0.1", b"t", b"I"),),
        )
        assert scene.groups.describe(GROUP) == described
        scene.restart()
        assert scene.groups.describe(GROUP) == described

    def test_rebalance_after_it_ends_when_all_have_joined(self) -> None:
        scene = Scene()
        a, b = scene.stable("a", "b")
        generation = scene.generations()[-1]
        scene.restart()
        call = scene.ask_to_join("a", a, protocols={"range": b"u"})
        assert call not in scene.answers
        scene.ask_to_join("b", b)
        assert scene.joined(call).generation == generation + 1

    def test_member_that_waits_for_the_others_is_not_taken_for_silent(self) -> None:
        scene = Scene()
        a, b = scene.stable("a", "b")
        generation = scene.generations()[-1]
        scene.restart()
        call = scene.ask_to_join("a", a, protocols={"range": b"u"})
        scene.pass_ms(5_000)
        scene.heartbeat(b, generation)
        scene.pass_ms(10_000)
        assert scene.joined(call).generation == generation + 1


class TestOffsets:
    def test_all_are_listed(self) -> None:
        scene = Scene()
        scene.commit(1)
        scene.commit(2, group_id=GroupId("other"), topic="u", partition=3)
        listed = [
            (offset.group_id, offset.topic, offset.partition, offset.committed.offset)
            for offset in scene.groups.all_offsets()
        ]
        assert listed == [("orders", "t", 0, 1), ("other", "u", 3, 2)]

    def test_deleted_topic_affects_only_groups_with_offsets_of_its_id(self) -> None:
        scene = Scene()
        scene.commit(1, topic="u")
        scene.commit(2, group_id=GroupId("other"))
        assert [group for group, _ in scene.groups.topic_deleted(T, TOPIC_ID)] == ["other"]

    def test_commit_in_generation_0_of_an_empty_group_is_refused(self) -> None:
        scene = Scene()
        scene.commit(1)
        with pytest.raises(UnknownMemberId):
            scene.commit(2, generation=0)

    def test_offsets_of_unsubscribed_topics_expire_by_their_commit_time(self) -> None:
        scene = Scene()
        (a,) = scene.stable("a", session_timeout_ms=100_000)
        scene.pass_ms(5_000)
        scene.commit(1, member_id=a, generation=1, topic="u")
        scene.pass_ms(3_000)
        scene.expire(retention_ms=7_000)
        assert scene.offset("u") == 1
        scene.pass_ms(4_000)
        scene.expire(retention_ms=7_000)
        assert scene.offset("u") is None

    def test_no_offset_is_deleted_while_a_member_does_not_support_the_protocol(self) -> None:
        scene = Scene()
        scene.commit(1, topic="u")
        both = {"range": b"t", "sticky": b"t"}
        scene.stable("a", protocols=both)
        scene.knock("b", protocols={"sticky": b"t"})
        records, refused = scene.groups.delete_offsets(GROUP, {U: [0]})
        assert (records, [type(error) for error in refused.values()]) == (
            (),
            [GroupSubscribedToTopic],
        )

    def test_group_that_only_commits_is_described_without_a_protocol(self) -> None:
        scene = Scene()
        scene.commit(1)
        assert scene.groups.describe(GROUP) == DescribedClassicGroup(GROUP, "Empty", "", "", ())
