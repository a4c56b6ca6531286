"""One consumer group: joining, syncing, staying, leaving."""

from __future__ import annotations

import pytest

from sharegroup.core.groups.classic.member import JoinedMember, NewMemberId
from sharegroup.core.groups.classic.records import GroupMetadata, StoredMember
from sharegroup.core.groups.classic.sizes import ClassicGroupSizeLimits
from sharegroup.errors import (
    FencedInstanceId,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidSessionTimeout,
    MessageTooLarge,
    RebalanceInProgress,
    UnknownMemberId,
)
from sharegroup.ids import GroupId
from tests.unit.core.consumer_group_scene import GROUP, NOBODY, WALL_MS, Scene

MINUTE_MS = 60_000


def test_first_member_gets_an_id_and_becomes_the_leader() -> None:
    scene = Scene()
    asked = scene.ask_to_join("a")
    assert scene.answers[asked] == NewMemberId("a-1")
    call = scene.ask_to_join("a", "a-1")
    assert call not in scene.answers
    scene.pass_ms(0)
    reply = scene.joined(call)
    assert (reply.member_id, reply.generation, reply.leader) == ("a-1", 1, "a-1")
    assert (reply.protocol_type, reply.protocol) == ("consumer", "range")
    assert reply.members == (JoinedMember("a-1", None, b"t"),)
    assert scene.synced(scene.sync("a-1", 1, {"a-1": b"all"})) == b"all"
    assert scene.state == "Stable"
    assert scene.log == [
        GroupMetadata(
            GROUP, "consumer", 1, "range", "a-1", WALL_MS,
            (StoredMember("a-1", None, "a", "/127.0.0.1", 10_000, 60_000, b"t", b"all"),),
        )
    ]  # fmt: skip


def test_new_group_waits_the_initial_delay_for_more_members() -> None:
    scene = Scene(initial_delay_ms=3_000)
    _, call = scene.knock("a")
    scene.pass_ms(2_999)
    assert call not in scene.answers
    scene.pass_ms(1)
    assert scene.joined(call).generation == 1


def test_each_join_prolongs_the_wait_of_a_new_group() -> None:
    scene = Scene(initial_delay_ms=3_000)
    _, first = scene.knock("a")
    scene.pass_ms(2_000)
    _, second = scene.knock("b")
    scene.pass_ms(1_000)
    assert first not in scene.answers, "the second member prolonged the wait"
    scene.pass_ms(3_000)
    assert scene.joined(first).generation == scene.joined(second).generation == 1


def test_new_group_waits_no_longer_than_the_rebalance_timeout() -> None:
    scene = Scene(initial_delay_ms=3_000)
    _, first = scene.knock("a", rebalance_timeout_ms=5_000)
    for name in "bcdefg":
        scene.pass_ms(1_000)
        scene.knock(name, rebalance_timeout_ms=5_000)
    assert scene.now_ms == 6_000
    assert scene.joined(first).generation == 1


def test_followers_wait_for_the_leader_to_assign() -> None:
    scene = Scene(initial_delay_ms=10)
    (a, join_a), (b, join_b) = scene.knock("a"), scene.knock("b")
    scene.pass_ms(20)
    assert scene.joined(join_a).leader == scene.joined(join_b).leader == a
    assert [member.member_id for member in scene.joined(join_a).members] == [a, b]
    assert scene.joined(join_b).members == ()
    call = scene.sync(b, 1)
    assert call not in scene.answers
    scene.sync(a, 1, {a: b"A", b: b"B"})
    assert scene.synced(call) == b"B"


def test_member_that_the_leader_forgets_gets_nothing() -> None:
    scene = Scene(initial_delay_ms=10)
    (a, _), (b, _) = scene.knock("a"), scene.knock("b")
    scene.pass_ms(20)
    scene.sync(a, 1, {a: b"A", "stranger": b"S"})
    assert scene.synced(scene.sync(b, 1)) == b""


def test_another_member_makes_everybody_join_again() -> None:
    scene = Scene()
    (a,) = scene.stable("a")
    assert scene.heartbeat(a, 1) is False
    _, call = scene.knock("b")
    assert scene.state == "PreparingRebalance"
    assert scene.heartbeat(a, 1) is True
    with pytest.raises(RebalanceInProgress):
        scene.sync(a, 1)
    again = scene.ask_to_join("a", a)
    assert scene.joined(again).generation == scene.joined(call).generation == 2


def test_member_that_does_not_rejoin_is_removed_after_the_rebalance_timeout() -> None:
    scene = Scene()
    a, b = scene.stable("a", "b", session_timeout_ms=1_000_000)
    _, call = scene.knock("c")
    again = scene.ask_to_join("b", b)
    scene.pass_ms(MINUTE_MS - 1)
    assert call not in scene.answers
    scene.pass_ms(1)
    assert {member.member_id for member in scene.joined(again).members} == {b, "c-5"}
    assert scene.joined(call).leader == b, "the leader did not rejoin, so another member leads"
    with pytest.raises(UnknownMemberId):
        scene.heartbeat(a, 2)


def test_member_without_heartbeats_is_removed_after_its_session_timeout() -> None:
    scene = Scene()
    a, b = scene.stable("a", "b")
    scene.pass_ms(9_000)
    generation = scene.generations()[-1]
    assert scene.heartbeat(a, generation) is False
    scene.pass_ms(1_000)
    assert scene.heartbeat(a, generation) is True
    with pytest.raises(UnknownMemberId):
        scene.heartbeat(b, generation)


def test_member_that_waits_for_others_needs_no_heartbeat() -> None:
    scene = Scene()
    a, b = scene.stable("a", "b", session_timeout_ms=10_000)
    call = scene.ask_to_join("a", a, session_timeout_ms=10_000)
    for _ in range(5):
        scene.pass_ms(9_000)
        scene.heartbeat(b, 1)
    assert call not in scene.answers
    scene.ask_to_join("b", b)
    assert scene.joined(call).generation == 2


def test_unused_member_id_is_forgotten_after_the_session_timeout() -> None:
    scene = Scene()
    (a,) = scene.stable("a")
    lost = scene.answers[scene.ask_to_join("lost")]
    again = scene.ask_to_join("a", a)
    assert again not in scene.answers, "the group waits for the member with the new id"
    scene.pass_ms(10_000)
    assert scene.joined(again).generation == 2
    assert isinstance(lost, NewMemberId)
    with pytest.raises(UnknownMemberId):
        scene.ask_to_join("lost", lost.member_id)


def test_group_with_only_unused_member_ids_is_forgotten() -> None:
    scene = Scene()
    scene.ask_to_join("a")
    assert GROUP in scene.groups
    scene.pass_ms(10_000)
    assert GROUP not in scene.groups
    assert scene.groups.next_due_ms() is None
    assert scene.log == []


def test_group_that_never_had_an_assignment_is_forgotten() -> None:
    scene = Scene()
    a, _ = scene.knock("a")
    scene.pass_ms(0)
    assert scene.state == "CompletingRebalance"
    scene.leave((a, None))
    assert GROUP not in scene.groups
    assert scene.log == []
    assert scene.groups.next_due_ms() is None


def test_member_that_never_syncs_is_removed_after_the_rebalance_timeout() -> None:
    scene = Scene(initial_delay_ms=10)
    fields = {"session_timeout_ms": 1_000_000}
    (a, _), (b, _) = scene.knock("a", **fields), scene.knock("b", **fields)
    scene.pass_ms(20)
    scene.sync(a, 1, {a: b"A", b: b"B"})
    scene.pass_ms(MINUTE_MS)
    assert scene.heartbeat(a, 1) is True
    with pytest.raises(UnknownMemberId):
        scene.heartbeat(b, 1)


def test_last_member_leaves_and_the_group_is_empty_in_another_generation() -> None:
    scene = Scene()
    (a,) = scene.stable("a")
    assert scene.leave((a, None)) == [None]
    assert scene.state == "Empty"
    assert scene.log[-1] == GroupMetadata(GROUP, "consumer", 2, None, None, WALL_MS, ())


def test_members_leave_together_with_one_rebalance() -> None:
    scene = Scene()
    a, b, c = scene.stable("a", "b", "c")
    before = scene.generations()[-1]
    assert scene.leave((a, None), ("stranger", None), (b, None)) == [None, UnknownMemberId, None]
    assert scene.joined(scene.ask_to_join("c", c)).generation == before + 1


def test_waiting_join_is_answered_when_its_member_leaves() -> None:
    scene = Scene()
    a, _ = scene.stable("a", "b")
    call = scene.ask_to_join("a", a)
    scene.leave((a, None))
    assert isinstance(scene.answers[call], UnknownMemberId)


def test_waiting_sync_is_answered_when_another_rebalance_begins() -> None:
    scene = Scene(initial_delay_ms=10)
    _, (b, _) = scene.knock("a"), scene.knock("b")
    scene.pass_ms(20)
    waiting = scene.sync(b, 1)
    scene.knock("c")
    assert isinstance(scene.answers[waiting], RebalanceInProgress)


def test_request_that_is_sent_again_ends_the_first() -> None:
    scene = Scene()
    a, _ = scene.stable("a", "b")
    first = scene.ask_to_join("a", a)
    second = scene.ask_to_join("a", a)
    assert isinstance(scene.answers[first], RebalanceInProgress)
    assert second not in scene.answers


def test_rejoining_follower_without_changes_gets_the_current_generation() -> None:
    scene = Scene()
    _, b = scene.stable("a", "b")
    reply = scene.joined(scene.ask_to_join("b", b))
    assert (reply.generation, reply.members) == (1, ())
    assert scene.state == "Stable"


def test_leader_that_joins_again_wants_a_rebalance() -> None:
    scene = Scene()
    a, b = scene.stable("a", "b")
    scene.ask_to_join("a", a)
    assert scene.heartbeat(b, 1) is True


def test_follower_with_changed_metadata_starts_a_rebalance() -> None:
    scene = Scene()
    a, b = scene.stable("a", "b")
    scene.ask_to_join("b", b, protocols={"range": b"t u"})
    assert scene.heartbeat(a, 1) is True


def test_each_agreement_is_written_once() -> None:
    scene = Scene()
    (a,) = scene.stable("a")
    scene.heartbeat(a, 1)
    scene.sync(a, 1)
    scene.leave((a, None))
    assert scene.generations() == [1, 2]


def test_only_sessions_are_waited_for_when_all_have_synced() -> None:
    scene = Scene()
    scene.stable("a")
    assert scene.groups.next_due_ms() == 10_000
    scene.pass_ms(10_000)
    assert scene.state == "Empty"
    assert scene.groups.next_due_ms() is None


def test_session_of_a_waiting_follower_begins_when_its_sync_is_answered() -> None:
    scene = Scene(initial_delay_ms=10)
    (a, _), (b, _) = scene.knock("a"), scene.knock("b")
    scene.pass_ms(20)
    waiting = scene.sync(b, 1)
    scene.pass_ms(9_000)
    scene.sync(a, 1, {b: b"B"})
    scene.pass_ms(9_000)
    assert scene.synced(waiting) == b"B"
    assert scene.heartbeat(b, 1) is False


def test_generation_that_is_not_the_groups_is_refused() -> None:
    scene = Scene()
    (a,) = scene.stable("a")
    with pytest.raises(IllegalGeneration, match="generation 1, not 0"):
        scene.heartbeat(a, 0)
    with pytest.raises(IllegalGeneration):
        scene.sync(a, 2)


def test_protocol_that_all_know_and_most_like_is_chosen() -> None:
    scene = Scene(initial_delay_ms=10)
    scene.knock("a", protocols={"mine": b"", "range": b"1", "sticky": b"2"})
    scene.knock("b", protocols={"sticky": b"3", "range": b"4"})
    _, call = scene.knock("c", protocols={"sticky": b"5", "range": b"6"})
    scene.pass_ms(20)
    assert scene.joined(call).protocol == "sticky"


def test_protocol_that_not_all_know_is_not_chosen() -> None:
    scene = Scene(initial_delay_ms=10)
    scene.knock("a", protocols={"mine": b"", "ours": b""})
    _, call = scene.knock("b", protocols={"ours": b""})
    scene.pass_ms(20)
    assert scene.joined(call).protocol == "ours"


@pytest.mark.parametrize("fields", [{"protocols": {}}, {"protocol_type": ""}])
def test_first_member_needs_a_protocol_and_its_type(fields: dict[str, object]) -> None:
    with pytest.raises(InconsistentGroupProtocol):
        Scene().ask_to_join("a", **fields)


def test_member_without_a_common_protocol_is_refused() -> None:
    scene = Scene()
    scene.stable("a")
    with pytest.raises(InconsistentGroupProtocol):
        scene.ask_to_join("b", protocols={"other": b""})
    with pytest.raises(InconsistentGroupProtocol):
        scene.ask_to_join("b", protocol_type="connect")
    with pytest.raises(InconsistentGroupProtocol):
        scene.ask_to_join("b", protocols={})
    assert scene.state == "Stable"


def test_sync_of_another_protocol_is_refused() -> None:
    scene = Scene()
    (a,) = scene.stable("a")
    with pytest.raises(InconsistentGroupProtocol):
        scene.sync(a, 1, protocol="sticky")
    with pytest.raises(InconsistentGroupProtocol):
        scene.sync(a, 1, protocol_type="connect")
    assert scene.synced(scene.sync(a, 1, protocol=None, protocol_type=None)) == b"A"


@pytest.mark.parametrize("session_timeout_ms", [999, 1_800_001, -1])
def test_session_timeout_out_of_range_is_refused(session_timeout_ms: int) -> None:
    with pytest.raises(InvalidSessionTimeout):
        Scene().ask_to_join("a", session_timeout_ms=session_timeout_ms)


def test_empty_group_id_is_refused() -> None:
    scene = Scene()
    nobody = GroupId("")
    with pytest.raises(InvalidGroupId):
        scene.ask_to_join("a", group_id=nobody)
    with pytest.raises(InvalidGroupId):
        scene.sync("a", 1, group_id=nobody)
    with pytest.raises(InvalidGroupId):
        scene.groups.leave(nobody, (), now=scene.now, limits=scene.limits)


def test_unknown_group_has_no_members() -> None:
    scene = Scene()
    for request in (
        lambda: scene.ask_to_join("a", "a-1"),
        lambda: scene.sync("a-1", 1),
        lambda: scene.heartbeat("a-1", 1),
    ):
        with pytest.raises(UnknownMemberId):
            request()
    assert scene.leave(("a-1", None)) == [UnknownMemberId]


def test_full_group_refuses_new_members() -> None:
    scene = Scene(members_max=2)
    scene.stable("a", "b")
    assert isinstance(scene.answers[scene.ask_to_join("c")], GroupMaxSizeReached)
    assert scene.state == "Stable"


def test_first_members_to_rejoin_get_the_places_of_a_smaller_group() -> None:
    """The group has three members and, since its limit was lowered, places for two."""
    scene = Scene()
    a, b, c = scene.stable("a", "b", "c")
    scene.limits = Scene(members_max=2).limits
    first = scene.ask_to_join("a", a)
    second = scene.ask_to_join("b", b)
    third = scene.ask_to_join("c", c)
    assert isinstance(scene.answers[third], GroupMaxSizeReached)
    assert scene.joined(first).generation == scene.joined(second).generation == 2
    assert c not in {member.member_id for member in scene.joined(first).members}


def test_old_client_joins_without_the_detour_for_an_id() -> None:
    scene = Scene()
    call = scene.ask_to_join("a", must_return=False)
    scene.pass_ms(0)
    assert scene.joined(call).member_id == "a-1"


def test_new_member_whose_join_waits_too_long_is_unknown_and_must_rejoin() -> None:
    scene = Scene()
    a, _ = scene.stable("a", "b", session_timeout_ms=1_000_000, rebalance_timeout_ms=1_000_000)
    _, call = scene.knock("c")
    scene.pass_ms(5 * MINUTE_MS)
    assert isinstance(scene.answers[call], UnknownMemberId)
    assert scene.heartbeat(a, 1) is True


def test_metadata_of_all_members_is_bounded() -> None:
    """A protocol counts a hundred bytes more than its name and its metadata."""
    scene = Scene(sizes=ClassicGroupSizeLimits(group_bytes_max=1_214))
    (a,) = scene.stable("a", protocols={"range": b"x" * 60})
    with pytest.raises(MessageTooLarge):
        scene.ask_to_join("b", protocols={"range": b"x" * 60})
    scene.ask_to_join("a", a, protocols={"range": b"x" * 90})
    with pytest.raises(MessageTooLarge):
        scene.sync(a, 2, {a: b"y" * 10})
    assert scene.synced(scene.sync(a, 2, {a: b"y" * 5})) == b"y" * 5
    with pytest.raises(MessageTooLarge):
        scene.ask_to_join("a", a, protocols={"range": b"x" * 91})


class TestStaticMembers:
    def test_member_that_restarts_keeps_its_place_without_a_rebalance(self) -> None:
        scene = Scene()
        old, generation = self.static(scene)
        call = scene.ask_to_join("s", instance_id="s")
        reply = scene.joined(call)
        assert (reply.member_id, reply.generation) == ("s-2", generation)
        assert (reply.leader, reply.skip_assignment) == ("s-2", True)
        assert scene.state == "Stable"
        assert scene.synced(scene.sync("s-2", generation, instance_id="s")) == b"all"
        with pytest.raises(FencedInstanceId):
            scene.heartbeat(old, generation, "s")
        with pytest.raises(UnknownMemberId):
            scene.heartbeat(old, generation)

    def test_group_does_not_wait_for_the_old_id_of_a_static_member_that_rejoined(self) -> None:
        scene = Scene(initial_delay_ms=10)
        fields = {"session_timeout_ms": 1_000_000}
        a, _ = scene.knock("a", **fields)
        scene.ask_to_join("s", instance_id="s", **fields)
        scene.pass_ms(20)
        scene.sync(a, 1, {a: b"A"})
        again = scene.joined(scene.ask_to_join("s", instance_id="s", **fields)).member_id
        scene.sync(again, 1, instance_id="s")
        scene.pass_ms(10 * MINUTE_MS)
        assert scene.heartbeat(a, 1) is False

    def test_session_under_the_new_id_ends_like_any_other(self) -> None:
        scene = Scene()
        self.static(scene)
        scene.ask_to_join("s", instance_id="s")
        scene.pass_ms(10_000)
        assert scene.state == "Empty"

    def test_static_member_that_left_joins_as_a_new_member(self) -> None:
        scene = Scene()
        old, _ = self.static(scene)
        scene.leave((old, "s"))
        call = scene.ask_to_join("s", instance_id="s")
        scene.pass_ms(0)
        assert (scene.joined(call).member_id, scene.joined(call).generation) == ("s-2", 3)

    def test_new_id_is_written_at_once(self) -> None:
        scene = Scene()
        self.static(scene)
        scene.ask_to_join("s", instance_id="s")
        scene.restart()
        assert scene.synced(scene.sync("s-2", 1, instance_id="s")) == b"all"

    def test_older_client_that_rejoins_as_leader_is_not_told_that_it_leads(self) -> None:
        scene = Scene()
        old, _ = self.static(scene)
        call = scene.ask_to_join("s", instance_id="s", skips_assignment=False)
        reply = scene.joined(call)
        assert (reply.leader, reply.members, reply.skip_assignment) == (old, (), False)

    def test_restart_with_another_favourite_protocol_is_a_rebalance(self) -> None:
        scene = Scene()
        call = scene.ask_to_join("s", instance_id="s", protocols={"a": b"", "b": b""})
        scene.pass_ms(0)
        scene.sync("s-1", 1, protocol="a", instance_id="s")
        call = scene.ask_to_join("s", instance_id="s", protocols={"b": b"", "a": b""})
        assert scene.joined(call).generation == 2
        assert scene.joined(call).protocol == "b"

    def test_restart_between_join_and_sync_is_a_rebalance(self) -> None:
        scene = Scene()
        scene.ask_to_join("s", instance_id="s")
        scene.pass_ms(0)
        assert scene.state == "CompletingRebalance"
        call = scene.ask_to_join("s", instance_id="s")
        assert scene.joined(call).generation == 2

    def test_static_member_that_rejoined_must_sync_before_the_rebalance_timeout(self) -> None:
        scene = Scene(initial_delay_ms=10)
        fields = {"session_timeout_ms": 1_000_000}
        a, _ = scene.knock("a", **fields)
        scene.ask_to_join("s", instance_id="s", **fields)
        scene.pass_ms(20)
        scene.sync(a, 1, {a: b"A"})
        reply = scene.joined(scene.ask_to_join("s", instance_id="s", **fields))
        assert scene.state == "Stable"
        scene.pass_ms(MINUTE_MS)
        with pytest.raises(UnknownMemberId):
            scene.heartbeat(reply.member_id, 1, "s")

    def test_twin_fences_the_one_that_waits(self) -> None:
        scene = Scene()
        scene.stable("a")
        first = scene.ask_to_join("s", instance_id="s")
        second = scene.ask_to_join("s", instance_id="s")
        assert isinstance(scene.answers[first], FencedInstanceId)
        assert second not in scene.answers

    def test_late_static_member_stays_until_its_session_ends(self) -> None:
        scene = Scene()
        old, _ = self.static(scene, session_timeout_ms=100_000)
        _, call = scene.knock("b")
        scene.pass_ms(MINUTE_MS)
        assert [member.member_id for member in scene.joined(call).members] == [old, "b-2"]
        scene.sync("b-2", 2, {"b-2": b"B"})
        assert scene.synced(scene.sync(old, 2, instance_id="s")) == b""

    def test_group_of_late_static_members_waits_until_their_sessions_end(self) -> None:
        scene = Scene()
        self.static(scene, session_timeout_ms=200_000, rebalance_timeout_ms=1)
        lost = scene.answers[scene.ask_to_join("lost", protocols={"range": b"other"})]
        assert isinstance(lost, NewMemberId)
        call = scene.ask_to_join("lost", lost.member_id, rebalance_timeout_ms=1)
        scene.leave((lost.member_id, None))
        assert isinstance(scene.answers[call], UnknownMemberId)
        scene.pass_ms(100_000)
        assert scene.state in ("PreparingRebalance", "CompletingRebalance")
        scene.pass_ms(300_000)
        assert scene.state == "Empty"

    def test_administrator_removes_a_member_by_its_instance_alone(self) -> None:
        scene = Scene()
        self.static(scene)
        assert scene.leave((NOBODY, "nobody"), (NOBODY, "s")) == [UnknownMemberId, None]
        assert scene.state == "Empty"

    def test_member_with_an_instance_of_another_is_fenced(self) -> None:
        scene = Scene()
        self.static(scene)
        assert scene.leave(("s-9", "s")) == [FencedInstanceId]
        with pytest.raises(FencedInstanceId):
            scene.ask_to_join("s", "s-9", instance_id="s")
        with pytest.raises(UnknownMemberId):
            scene.ask_to_join("s", "s-1", instance_id="other")

    def static(self, scene: Scene, **fields: object) -> tuple[str, int]:
        """A group with one static member, which has everything."""
        call = scene.ask_to_join("s", instance_id="s", **fields)
        scene.pass_ms(0)
        reply = scene.joined(call)
        scene.sync(reply.member_id, 1, {reply.member_id: b"all"}, instance_id="s")
        return reply.member_id, reply.generation
