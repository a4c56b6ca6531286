"""Who is to fetch what: the assignor «simple» (docs/spec.md, «assignor»)."""

from __future__ import annotations

import pytest

from tests.spec.member import Member
from tests.spec.messages import Topic
from tests.spec.scene import Scene
from tests.spec.waiting import wait_for


def settle(*members: Member) -> None:
    """Heartbeats until all members have the assignment of the newest epoch."""

    def same() -> bool:
        return len({member.heartbeat().member_epoch for member in members}) == 1

    wait_for(lambda: same() and same() and same(), "one epoch for all")


def crowd(scene: Scene, size: int, *topics: Topic) -> list[Member]:
    """Members of one new group, all with the newest assignment."""
    group = scene.group()
    members = []
    for _ in range(size):
        member = scene.member(group)
        member.topics = topics
        assert member.heartbeat(topics=[topic.name for topic in topics]).error_code == 0
        members.append(member)
    wanted = sum(topic.partition_count for topic in topics)

    def all_assigned() -> bool:
        settle(*members)
        return len(set().union(*(member.assigned for member in members))) == wanted

    wait_for(all_assigned, "every partition to be somebody's")
    return members


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_assignor_1_every_partition_has_one_member_in_even_shares(scene: Scene, size: int) -> None:
    topic = scene.topic(7)
    members = crowd(scene, size, topic)
    everything = [partition for member in members for partition in member.assigned]
    assert sorted(number for _, number in everything) == list(range(7))
    sizes = [len(member.assigned) for member in members]
    assert max(sizes) - min(sizes) <= 1


def test_assignor_2_more_members_than_partitions_share_them(scene: Scene) -> None:
    members = crowd(scene, 5, scene.topic(2))
    assert sorted(len(member.assigned) for member in members) == [1, 1, 1, 1, 2]
    held = sorted(number for member in members for _, number in member.assigned)
    assert held == [0, 0, 0, 1, 1, 1]


def test_assignor_3_join_moves_only_the_partitions_of_the_new_member(scene: Scene) -> None:
    topic = scene.topic(6)
    members = crowd(scene, 2, topic)
    before = [set(member.assigned) for member in members]
    third = scene.member(members[0].group)
    third.heartbeat(topics=[topic.name])
    settle(*members, third)
    for member, had in zip(members, before, strict=True):
        assert member.assigned < had
        assert len(member.assigned) == 2
    assert len(third.assigned) == 2


def test_assignor_4_remaining_members_keep_their_partitions_after_a_leave(scene: Scene) -> None:
    members = crowd(scene, 3, scene.topic(6))
    before = [set(member.assigned) for member in members]
    members[2].leave()
    settle(*members[:2])
    for member, had in zip(members[:2], before, strict=False):
        assert member.assigned > had
        assert len(member.assigned) == 3


def test_assignor_5_members_get_only_subscribed_topics(scene: Scene) -> None:
    both, first, second = scene.group(), scene.topic(2), scene.topic(2)
    member, two = scene.member(both), scene.member(both)
    member.heartbeat(topics=[first.name])
    two.heartbeat(topics=[second.name])

    def parted() -> bool:
        settle(member, two)
        return (member.assigned, two.assigned) == (
            set(first.partitions()),
            set(second.partitions()),
        )

    wait_for(parted, "each its topic")


def test_assignor_6_partitions_of_all_topics_are_dealt_together(scene: Scene) -> None:
    topics = [scene.topic() for _ in range(4)]
    members = crowd(scene, 2, *topics)
    assert [len(member.assigned) for member in members] == [2, 2]


def test_assignor_7_unchanged_members_keep_their_partitions(scene: Scene) -> None:
    topic = scene.topic(4)
    members = crowd(scene, 2, topic)
    before = [set(member.assigned) for member in members]
    for member in members:
        member.heartbeat(epoch=0, topics=[topic.name])
    settle(*members)
    assert [member.assigned for member in members] == before


def test_assignor_8_topics_that_only_some_subscribe_are_dealt_one_by_one(scene: Scene) -> None:
    alone, shared = scene.topic(2), scene.topic(4)
    group = scene.group()
    member, two = scene.member(group), scene.member(group)
    member.heartbeat(topics=[alone.name, shared.name])
    two.heartbeat(topics=[shared.name])

    def dealt() -> bool:
        settle(member, two)
        return len(member.assigned | two.assigned) == 6

    wait_for(dealt, "all partitions")
    assert set(alone.partitions()) <= member.assigned
    assert len(two.assigned) == 2
    assert len(member.assigned) == 4


def test_assignor_9_join_moves_the_minimum_of_partitions(scene: Scene) -> None:
    """Three and two of five become two, two and one. Kafka may give the new member two."""
    topic = scene.topic(5)
    members = crowd(scene, 2, topic)
    third = scene.member(members[0].group)
    third.heartbeat(topics=[topic.name])
    settle(*members, third)
    assert len(third.assigned) in {"ours": {1}, "kafka": {1, 2}}[scene.kind]
