"""The assignors ``uniform`` and ``range``: complete, balanced and sticky."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given, strategies as st

from sharegroup.core.groups.modern.assignors import (
    ASSIGNORS,
    AssignedMember,
    Assignor,
    assign_range,
    assign_uniform,
)
from sharegroup.core.groups.share.assignor import Assignment
from sharegroup.ids import MemberId, TopicId, TopicIdPartition
from tests.unit.core.group_under_test import partitions, topic_id

Counts = Mapping[TopicId, int]

TOPICS = [topic_id(name) for name in "abcd"]


def member(
    name: str, *topics: str, instance: str | None = None, current: Assignment = frozenset()
) -> AssignedMember:
    return AssignedMember(MemberId(name), instance, frozenset(map(topic_id, topics)), current)


@st.composite
def groups(draw: st.DrawFn, *, equal: bool | None = None) -> tuple[list[AssignedMember], Counts]:
    """Members with subscriptions and current partitions, which no two of them share."""
    counts = {topic: draw(st.integers(1, 8)) for topic in TOPICS}
    names = draw(st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True))
    everything = frozenset(draw(st.sets(st.sampled_from(TOPICS), min_size=1)))
    all_equal = draw(st.booleans()) if equal is None else equal
    owners = {
        TopicIdPartition(topic, number): draw(st.sampled_from([None, *names]))
        for topic in TOPICS
        for number in range(counts[topic] + 1)  # The last one does not exist.
    }
    members = []
    for name in names:
        topics = everything if all_equal else frozenset(draw(st.sets(st.sampled_from(TOPICS))))
        instance = draw(st.sampled_from([None, f"i{name}"]))
        current = frozenset(partition for partition, owner in owners.items() if owner == name)
        members.append(AssignedMember(MemberId(f"m{name}"), instance, topics, current))
    return members, counts


def check_complete(
    members: Sequence[AssignedMember], counts: Counts, assigned: Mapping[MemberId, Assignment]
) -> None:
    """Each partition that somebody reads has one member, which subscribes to its topic."""
    expected = {
        TopicIdPartition(topic, number)
        for topic in frozenset[TopicId]().union(*(reader.topic_ids for reader in members))
        for number in range(counts[topic])
    }
    given_out = [partition for share in assigned.values() for partition in share]
    assert sorted(given_out) == sorted(expected)
    assert assigned.keys() == {reader.member_id for reader in members}
    for reader in members:
        assert {partition.topic_id for partition in assigned[reader.member_id]} <= reader.topic_ids


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS.keys())
@given(group=groups())
def test_every_partition_has_one_member(
    assign: Assignor, group: tuple[list[AssignedMember], Counts]
) -> None:
    members, counts = group
    check_complete(members, counts, assign(members, counts))


@given(group=groups(equal=True))
def test_uniform_differs_by_one_at_most_and_moves_as_little_as_possible(
    group: tuple[list[AssignedMember], Counts],
) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    sizes = [len(share) for share in assigned.values()]
    assert max(sizes) - min(sizes) <= 1
    least, rest = divmod(sum(sizes), len(sizes))
    kept = sum(len(reader.current & assigned[reader.member_id]) for reader in members)
    held = sorted(
        (
            len(
                {
                    p
                    for p in reader.current
                    if p.topic_id in reader.topic_ids and p[1] < counts[p[0]]
                }
            )
            for reader in members
        ),
        reverse=True,
    )
    possible = sum(min(size, least + (rank < rest)) for rank, size in enumerate(held))
    assert kept == possible


@given(group=groups())
def test_uniform_leaves_no_move_that_would_balance_better(
    group: tuple[list[AssignedMember], Counts],
) -> None:
    members, counts = group
    assigned = assign_uniform(members, counts)
    readers = {reader.member_id: reader.topic_ids for reader in members}
    for giver, share in assigned.items():
        for taker, other in assigned.items():
            movable = any(partition.topic_id in readers[taker] for partition in share)
            assert not movable or len(share) - len(other) <= 1, (giver, taker)


@pytest.mark.parametrize("assign", ASSIGNORS.values(), ids=ASSIGNORS.keys())
@given(group=groups())
def test_second_assignment_changes_nothing(
    assign: Assignor, group: tuple[list[AssignedMember], Counts]
) -> None:
    members, counts = group
    first = assign(members, counts)
    again = [
        AssignedMember(
            reader.member_id, reader.instance_id, reader.topic_ids, first[reader.member_id]
        )
        for reader in members
    ]
    assert assign(again, counts) == first


def test_range_gives_the_same_partitions_of_equal_topics() -> None:
    members = [member("m1", "a", "b"), member("m2", "a", "b")]
    assert assign_range(members, {topic_id("a"): 3, topic_id("b"): 3}) == {
        "m1": partitions("a", 0, 1) | partitions("b", 0, 1),
        "m2": partitions("a", 2) | partitions("b", 2),
    }


def test_range_orders_static_members_first_by_their_instance_ids() -> None:
    members = [
        member("a", "a"),
        member("z", "a", instance="i1"),
        member("b", "a", instance="i2"),
    ]
    assert assign_range(members, {topic_id("a"): 5}) == {
        "z": partitions("a", 0, 1),
        "b": partitions("a", 2, 3),
        "a": partitions("a", 4),
    }


def test_uniform_without_topics_assigns_nothing() -> None:
    assert assign_uniform([member("m")], {}) == {"m": frozenset()}


def test_uniform_takes_a_partition_that_two_members_claim_from_the_second() -> None:
    both = partitions("a", 0)
    members = [member("m", "a", current=both), member("n", "a", current=both)]
    assigned = assign_uniform(members, {topic_id("a"): 2})
    assert assigned == {"m": both, "n": partitions("a", 1)}


def test_uniform_keeps_the_first_partitions() -> None:
    """What Kafka's assignor returns when a second and then a third member join."""
    counts = {topic_id("a"): 6}
    everything = partitions("a", *range(6))
    two = assign_uniform([member("m0", "a", current=everything), member("m1", "a")], counts)
    assert numbers(two) == {"m0": [0, 1, 2], "m1": [3, 4, 5]}
    three = assign_uniform(
        [*(member(name, "a", current=share) for name, share in two.items()), member("m2", "a")],
        counts,
    )
    assert numbers(three) == {"m0": [0, 1], "m1": [3, 4], "m2": [2, 5]}


def numbers(assigned: Mapping[MemberId, Assignment]) -> dict[str, list[int]]:
    return {
        str(member_id): sorted(partition.partition for partition in share)
        for member_id, share in assigned.items()
    }
