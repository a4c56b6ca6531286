"""As `test_found_by_mutants`: what consumer groups count, and what several members do together."""

from __future__ import annotations

import pytest

from sharegroup.core.groups.classic.offsets import CommittedOffsets
from sharegroup.core.groups.classic.records import OffsetAndMetadata, OffsetCommit, OffsetTombstone
from sharegroup.core.groups.classic.sizes import ClassicGroupSizeLimits, group_totals
from sharegroup.errors import GroupSubscribedToTopic, InconsistentGroupProtocol, MessageTooLarge
from sharegroup.ids import GroupId, MemberId, TopicName
from tests.unit.core.consumer_group_scene import GROUP, TOPIC_ID, Scene

T, U, V = TopicName("t"), TopicName("u"), TopicName("v")

MEMBER_BYTES = 1_120
"""What a member with `Scene.request`'s protocol takes: 100, and «range», and one byte."""


class TestProtocol:
    @pytest.mark.parametrize(
        ("likes", "chosen"),
        [
            (("b a", "a b", "a b"), "a"),
            (("a b", "b a", "b a"), "b"),
            (("b a", "a b"), "b"),
            (("a b", "b a"), "a"),
            (("a b c", "b a c", "c a b", "b a c"), "b"),
        ],
        ids=["a later one has more", "likewise", "as many", "likewise as many", "of three"],
    )
    def test_most_votes_win_and_of_as_many_the_first(
        self, likes: tuple[str, ...], chosen: str
    ) -> None:
        """The names of the members do not matter."""
        assert protocol_of(likes) == chosen

    @pytest.mark.parametrize(
        "likes",
        [
            ("ours", "theirs ours", "theirs ours"),
            ("theirs ours", "ours", "theirs ours"),
            ("theirs ours", "theirs ours", "ours"),
        ],
        ids=["first", "middle", "last"],
    )
    def test_protocol_that_any_member_lacks_is_not_chosen(self, likes: tuple[str, ...]) -> None:
        assert protocol_of(likes) == "ours"

    @pytest.mark.parametrize("likes", [("ours", "mine ours"), ("mine ours", "ours")])
    def test_member_without_a_protocol_common_to_all_members_is_refused(
        self, likes: tuple[str, ...]
    ) -> None:
        scene = Scene(initial_delay_ms=10)
        for name, liked in zip("ab", likes, strict=True):
            scene.knock(name, protocols=dict.fromkeys(liked.split(), b""))
        with pytest.raises(
            InconsistentGroupProtocol, match=r"support the protocols \['ours'\]; .* \['mine'\]$"
        ):
            scene.ask_to_join("c", protocols={"mine": b""})


def protocol_of(likes: tuple[str, ...]) -> str | None:
    """What members agree upon, who like these protocols, the best first."""
    scene = Scene(initial_delay_ms=10)
    calls = [
        scene.knock(f"m{number}", protocols=dict.fromkeys(liked.split(), b""))[1]
        for number, liked in enumerate(likes)
    ]
    scene.pass_ms(10 * len(likes))
    (chosen,) = {scene.joined(call).protocol for call in calls}
    return chosen


class TestMemory:
    def test_assignment_takes_the_place_of_the_one_before(self) -> None:
        scene = Scene(sizes=ClassicGroupSizeLimits(group_bytes_max=MEMBER_BYTES + 20))
        (a,) = scene.stable("a")
        for generation in (2, 3, 4):
            assert assigned(scene, a, generation, b"x" * 20) == b"x" * 20
        scene.ask_to_join("a", a)
        with pytest.raises(MessageTooLarge, match="would take 1141 bytes, more than 1140"):
            scene.sync(a, 5, {a: b"x" * 21})

    def test_smaller_assignment_leaves_room_for_metadata(self) -> None:
        scene = Scene(sizes=ClassicGroupSizeLimits(group_bytes_max=MEMBER_BYTES + 20))
        (a,) = scene.stable("a")
        assigned(scene, a, 2, b"x" * 20)
        with pytest.raises(MessageTooLarge):
            scene.ask_to_join("a", a, protocols={"range": b"tt"})
        assigned(scene, a, 3, b"x" * 5)
        with pytest.raises(MessageTooLarge):
            scene.ask_to_join("a", a, protocols={"range": b"t" * 17})
        call = scene.ask_to_join("a", a, protocols={"range": b"t" * 16})
        assert scene.joined(call).generation == 4

    def test_rebalance_before_the_assignment_takes_the_old_one_back(self) -> None:
        """It was of a generation that two others have followed."""
        scene = Scene(sizes=ClassicGroupSizeLimits(group_bytes_max=2 * MEMBER_BYTES + 10))
        (a,) = scene.stable("a")
        assigned(scene, a, 2, b"x" * 10)
        scene.ask_to_join("a", a)
        scene.knock("b")
        assert [member.assignment for member in scene.groups.describe(GROUP).members] == [b"", b""]
        with pytest.raises(MessageTooLarge):
            scene.ask_to_join("a", a, protocols={"range": b"t" * 12})
        call = scene.ask_to_join("a", a, protocols={"range": b"t" * 11})
        assert scene.joined(call).generation == 4


def assigned(scene: Scene, leader: MemberId, generation: int, assignment: bytes) -> bytes:
    """The only member joins again, and gives itself something else."""
    scene.ask_to_join("a", leader)
    return scene.synced(scene.sync(leader, generation, {leader: assignment}))


class TestOffsets:
    OTHERS = GroupId("others")

    def offsets(self) -> CommittedOffsets:
        """Three of one group, in two topics; one of another."""
        offsets = CommittedOffsets(group_totals().offsets)
        for group_id, topic, partition in (
            (GROUP, T, 0),
            (GROUP, T, 1),
            (GROUP, U, 0),
            (self.OTHERS, T, 0),
        ):
            committed = OffsetAndMetadata(7, -1, "", 0, None, TOPIC_ID)
            offsets.put(OffsetCommit(group_id, topic, partition, committed))
        return offsets

    def size_bytes(self, offsets: CommittedOffsets) -> int:
        return offsets.bytes_of(GROUP) + offsets.bytes_of(self.OTHERS)

    def test_repeated_commit_of_an_offset_counts_once(self) -> None:
        offsets = self.offsets()
        before = self.size_bytes(offsets)
        for record in list(offsets):
            offsets.put(record)
        assert self.size_bytes(offsets) == before

    def test_removing_an_offset_keeps_the_others(self) -> None:
        offsets = self.offsets()
        left = []
        for group_id, topic, partition in (
            (GROUP, T, 0),
            (GROUP, U, 0),
            (GROUP, T, 1),
            (self.OTHERS, T, 0),
        ):
            offsets.remove(OffsetTombstone(group_id, topic, partition))
            there = [(offset.group_id, offset.topic, offset.partition) for offset in offsets]
            left.append(there)
        assert left == [
            [(GROUP, T, 1), (GROUP, U, 0), (self.OTHERS, T, 0)],
            [(GROUP, T, 1), (self.OTHERS, T, 0)],
            [(self.OTHERS, T, 0)],
            [],
        ]
        assert self.size_bytes(offsets) == 0

    def test_nothing_is_left_of_a_topic_or_group_without_offsets(self) -> None:
        offsets = self.offsets()
        offsets.remove(OffsetTombstone(GROUP, U, 0))
        assert list(offsets.of_group(GROUP)) == [T]
        offsets.remove(OffsetTombstone(self.OTHERS, T, 0))
        assert offsets.of_group(self.OTHERS) == {}

    def test_group_without_offsets_is_removed(self) -> None:
        """After its next commit the group is the last one, so its old entry was removed."""
        offsets = self.offsets()
        (first, *_), before = offsets, list(offsets.commits(GROUP))
        for entry in before:
            offsets.remove(OffsetTombstone(GROUP, entry.topic, entry.partition))
        offsets.put(first)
        assert [offset.group_id for offset in offsets] == [self.OTHERS, GROUP]

    @pytest.mark.parametrize(
        ("group_id", "topic", "partition"),
        [(GroupId("strangers"), T, 0), (GROUP, V, 0), (GROUP, T, 2), (OTHERS, U, 0)],
    )
    def test_tombstone_of_an_unknown_offset_changes_nothing(
        self, group_id: GroupId, topic: TopicName, partition: int
    ) -> None:
        """Compaction of the log may have removed the commit of a tombstone."""
        offsets = self.offsets()
        before = list(offsets)
        offsets.remove(OffsetTombstone(group_id, topic, partition))
        assert list(offsets) == before


class TestSubscribedTopics:
    def scene(self, first: bytes, second: bytes) -> Scene:
        """A stable group of two, with an offset in each of the topics t, u and v."""
        scene = Scene(initial_delay_ms=10)
        members = [
            scene.knock(name, protocols={"range": metadata})
            for name, metadata in (("a", first), ("b", second))
        ]
        scene.pass_ms(20)
        for member_id, call in members:
            assert scene.joined(call).generation == 1
            scene.sync(member_id, 1)
        assert scene.state == "Stable"
        for topic in (T, U, V):
            scene.commit(7, member_id=members[0][0], generation=1, topic=topic)
        return scene

    @pytest.mark.parametrize(("first", "second"), [(b"t", b"u"), (b"u", b"t"), (b"t u", b"t")])
    def test_offsets_of_topics_subscribed_by_any_member_are_kept(
        self, first: bytes, second: bytes
    ) -> None:
        scene = self.scene(first, second)
        records, refused = scene.groups.delete_offsets(GROUP, {T: [0], U: [0], V: [0]})
        assert records == (OffsetTombstone(GROUP, V, 0),)
        assert {topic: type(error) for topic, error in refused.items()} == {
            T: GroupSubscribedToTopic,
            U: GroupSubscribedToTopic,
        }
        scene.expire(0)
        assert [scene.offset(topic) for topic in (T, U, V)] == [7, 7, None]

    @pytest.mark.parametrize(("first", "second"), [(b"?", b"u"), (b"u", b"?")])
    def test_unreadable_subscription_of_a_member_keeps_all_offsets(
        self, first: bytes, second: bytes
    ) -> None:
        scene = self.scene(first, second)
        records, refused = scene.groups.delete_offsets(GROUP, {T: [0], V: [0]})
        assert (records, list(refused)) == ((), [T, V])
        scene.expire(0)
        assert [scene.offset(topic) for topic in (T, U, V)] == [7, 7, 7]
