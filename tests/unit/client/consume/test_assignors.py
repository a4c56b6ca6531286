"""The assignors of the classic protocol."""

from __future__ import annotations

from hypothesis import given, strategies as st

from sharegroup.client.consume.assignors import (
    GroupAssignment,
    MemberSubscription,
    assign,
    range_assignment,
    round_robin_assignment,
    sticky_assignment,
    withhold_moving,
)
from sharegroup.client.records import TopicPartition

MEMBERS = "abcdef"
TOPICS = "tuv"


def members(**topics: str) -> dict[str, MemberSubscription]:
    return {member: MemberSubscription(frozenset(read)) for member, read in topics.items()}


def numbers(assignment: GroupAssignment) -> dict[str, list[str]]:
    return {
        member: sorted(f"{topic}{partition}" for topic, partition in partitions)
        for member, partitions in assignment.items()
    }


def owning(assignment: GroupAssignment, generation: int = 1) -> dict[str, MemberSubscription]:
    return {
        member: MemberSubscription(frozenset(TOPICS), frozenset(owned), generation)
        for member, owned in assignment.items()
    }


def test_range_gives_runs_of_each_topic_and_the_first_members_one_more() -> None:
    assignment = range_assignment({"t": 5, "u": 3}, members(b="tu", a="tu"))
    assert numbers(assignment) == {"a": ["t0", "t1", "t2", "u0", "u1"], "b": ["t3", "t4", "u2"]}


def test_round_robin_deals_all_partitions_and_skips_members_without_the_topic() -> None:
    assignment = round_robin_assignment({"t": 3, "u": 2}, members(a="tu", b="t", c="tu"))
    assert numbers(assignment) == {"a": ["t0", "u0"], "b": ["t1"], "c": ["t2", "u1"]}


def test_static_members_come_first_by_their_instance_ids() -> None:
    group = {
        "a": MemberSubscription(frozenset("t")),
        "y": MemberSubscription(frozenset("t"), instance_id="2"),
        "z": MemberSubscription(frozenset("t"), instance_id="1"),
    }
    assert numbers(range_assignment({"t": 3}, group)) == {"a": ["t2"], "y": ["t1"], "z": ["t0"]}


def test_sticky_moves_only_what_a_new_member_needs() -> None:
    before = {"a": {TopicPartition("t", n) for n in (0, 1, 2)}, "b": {TopicPartition("t", 3)}}
    group = {**owning(before), "c": MemberSubscription(frozenset("t"))}
    after = sticky_assignment({"t": 4}, group)
    assert before["b"] <= after["b"]
    assert len(after["a"] & before["a"]) == 2
    assert sorted(map(len, after.values())) == [1, 1, 2]


def test_of_two_owners_the_one_of_the_newer_generation_counts() -> None:
    where = frozenset({TopicPartition("t", 0)})
    group = {
        "a": MemberSubscription(frozenset("t"), where, 4),
        "b": MemberSubscription(frozenset("t"), where, 5),
    }
    assert numbers(sticky_assignment({"t": 1}, group)) == {"a": [], "b": ["t0"]}


def test_cooperative_withholds_partitions_that_another_member_owns() -> None:
    owned = {TopicPartition("t", n) for n in range(4)}
    group = {**owning({"a": owned}), "b": MemberSubscription(frozenset("t"))}
    first = assign("cooperative-sticky", {"t": 4}, group)
    assert len(first["a"]) == 2
    assert first["b"] == set()
    second = assign("cooperative-sticky", {"t": 4}, {**owning(first), "b": group["b"]})
    assert second["a"] == first["a"]
    assert second["b"] == owned - first["a"]


subscriptions = st.dictionaries(
    st.sampled_from(MEMBERS),
    st.sets(st.sampled_from(TOPICS)).map(frozenset).map(MemberSubscription),
    min_size=1,
)
counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))


@given(counts, subscriptions)
def test_every_assignor_gives_every_readable_partition_to_one_reader(
    topics: dict[str, int], group: dict[str, MemberSubscription]
) -> None:
    wanted = {
        TopicPartition(topic, number)
        for topic, count in topics.items()
        if any(topic in member.topics for member in group.values())
        for number in range(count)
    }
    for name in ("range", "roundrobin", "sticky", "cooperative-sticky"):
        assignment = assign(name, topics, group)
        given_out = [where for partitions in assignment.values() for where in partitions]
        assert sorted(given_out) == sorted(wanted), name
        for member, partitions in assignment.items():
            assert {where.topic for where in partitions} <= group[member].topics


@given(counts, st.sets(st.sampled_from(MEMBERS), min_size=1), st.sets(st.sampled_from(MEMBERS)))
def test_sticky_is_balanced_and_keeps_a_balanced_assignment(
    topics: dict[str, int], first: set[str], others: set[str]
) -> None:
    joined = {member: MemberSubscription(frozenset(TOPICS)) for member in first}
    before = sticky_assignment(topics, joined)
    assert sticky_assignment(topics, owning(before)) == before
    after = sticky_assignment(
        topics, {**{m: MemberSubscription(frozenset(TOPICS)) for m in others}, **owning(before)}
    )
    sizes = [len(partitions) for partitions in after.values()]
    assert max(sizes) - min(sizes) <= 1
    assert withhold_moving(after, owning(before)).keys() == after.keys()
    for member in first:  # A member that shrinks only loses, and one that grows only wins.
        assert after[member] <= before[member] or before[member] <= after[member]
