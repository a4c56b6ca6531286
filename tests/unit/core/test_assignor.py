"""Who reads what: balance, coverage and stickiness of the assignor."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given, settings, strategies as st

from sharegroup.core.groups.share.assignor import Assignment, assign
from sharegroup.ids import MemberId, TopicId, TopicIdPartition

A, B, C = (TopicId(UUID(int=number)) for number in (1, 2, 3))


def members(names: str) -> list[MemberId]:
    return [MemberId(name) for name in names.split()]


def everybody_wants(names: str, *topic_ids: TopicId) -> dict[MemberId, frozenset[TopicId]]:
    return dict.fromkeys(members(names), frozenset(topic_ids))


def numbers(count: int) -> frozenset[int]:
    return frozenset(range(count))


def has(topic_id: TopicId, *partitions: int) -> Assignment:
    return frozenset(TopicIdPartition(topic_id, partition) for partition in partitions)


def sizes(assigned: dict[MemberId, Assignment]) -> list[int]:
    return sorted(len(assignment) for assignment in assigned.values())


def test_single_member_gets_all_partitions() -> None:
    assert assign(everybody_wants("m", A, B), {}, {A: numbers(2), B: numbers(1)}) == {
        "m": has(A, 0, 1) | has(B, 0)
    }


def test_no_members_need_nothing() -> None:
    assert assign({}, {}, {A: numbers(3)}) == {}


def test_members_get_empty_assignments_without_partitions() -> None:
    assert assign(everybody_wants("m n", A), {MemberId("m"): has(A, 0)}, {}) == {
        "m": frozenset(),
        "n": frozenset(),
    }


def test_partitions_are_divided_evenly() -> None:
    assigned = assign(everybody_wants("m n o", A), {}, {A: numbers(7)})
    assert assigned == {"m": has(A, 0, 3, 6), "n": has(A, 1, 4), "o": has(A, 2, 5)}


def test_more_members_than_partitions_share() -> None:
    assigned = assign(everybody_wants("m n o p q r", A), {}, {A: numbers(3)})
    assert assigned == {
        "m": has(A, 0),
        "n": has(A, 0),
        "o": has(A, 1),
        "p": has(A, 1),
        "q": has(A, 2),
        "r": has(A, 2),
    }


def test_partitions_are_shared_when_there_are_more_members() -> None:
    assigned = assign(everybody_wants("m n o", A), {}, {A: numbers(2)})
    assert assigned == {"m": has(A, 0, 1), "n": has(A, 0), "o": has(A, 1)}


def test_member_that_has_a_partition_already_is_next_in_line_for_another() -> None:
    before = {MemberId("m"): has(A, 0)}
    assert assign(everybody_wants("m n o p", A), before, {A: numbers(3)}) == {
        "m": has(A, 0, 1),
        "n": has(A, 0, 2),
        "o": has(A, 1),
        "p": has(A, 2),
    }


def test_new_member_takes_no_more_than_its_share() -> None:
    """Four of six stay where they are; which two move is decided by their numbers."""
    before = {MemberId("m"): has(A, 0, 1, 2), MemberId("n"): has(A, 3, 4, 5)}
    assert assign(everybody_wants("m n o", A), before, {A: numbers(6)}) == {
        "m": has(A, 1, 2),
        "n": has(A, 4, 5),
        "o": has(A, 0, 3),
    }


def test_member_with_most_partitions_keeps_them_in_a_balanced_assignment() -> None:
    before = {MemberId("m"): has(A, 0), MemberId("n"): has(A, 1, 2)}
    assert assign(everybody_wants("m n", A), before, {A: numbers(3)}) == before


def test_partitions_of_a_member_that_left_are_reassigned() -> None:
    before = {MemberId("m"): has(A, 0, 1), MemberId("gone"): has(A, 2, 3)}
    assert assign(everybody_wants("m n", A), before, {A: numbers(4)}) == {
        "m": has(A, 0, 1),
        "n": has(A, 2, 3),
    }


def test_partitions_of_an_unsubscribed_topic_are_revoked() -> None:
    before = {MemberId("m"): has(A, 0) | has(B, 0)}
    assert assign(everybody_wants("m", B), before, {A: numbers(1), B: numbers(2)}) == {
        "m": has(B, 0, 1)
    }


def test_shared_partition_is_revoked_from_the_member_with_most_partitions() -> None:
    """Of five members two are left, so their shared partition gets a single member."""
    before = {MemberId("m"): has(A, 0, 1), MemberId("n"): has(A, 0)}
    assert assign(everybody_wants("m n", A), before, {A: numbers(2)}) == {
        "m": has(A, 1),
        "n": has(A, 0),
    }


def test_share_goes_to_another_member_if_the_next_one_has_the_partition() -> None:
    """The greater quota belongs to m, which already has its only possible partition."""
    current = {
        MemberId("m"): has(A, 0),
        MemberId("n"): has(A, 1),
        MemberId("o"): has(A, 1),
    }
    assigned = assign(everybody_wants("m n o", A), current, {A: numbers(2)})
    assert assigned == {"m": has(A, 0), "n": has(A, 0, 1), "o": has(A, 1)}


def test_share_that_no_member_below_quota_can_take_goes_to_the_least_loaded() -> None:
    """Only d is below quota, and d already has partition 2. Of the others a is first by name."""
    before = dict(zip(members("a b c d"), [has(A, 0), has(A), has(A), has(A, 2)], strict=True))
    assert assign(everybody_wants("a b c d", A), before, {A: numbers(3)}) == {
        "a": has(A, 0, 1),
        "b": has(A, 0, 2),
        "c": has(A, 1),
        "d": has(A, 2),
    }


def test_unequal_subscriptions_are_served_topic_by_topic() -> None:
    wants = {
        MemberId("m"): frozenset({A}),
        MemberId("n"): frozenset({A, B}),
        MemberId("o"): frozenset({B}),
    }
    assert assign(wants, {}, {A: numbers(4), B: numbers(2)}) == {
        "m": has(A, 0, 2),
        "n": has(A, 1, 3) | has(B, 0),
        "o": has(B, 1),
    }


topic_ids = st.frozensets(st.sampled_from([A, B, C]))
some_partitions = st.dictionaries(
    st.sampled_from([A, B, C]), st.integers(0, 9).map(lambda count: frozenset(range(count)))
)
some_members = st.lists(
    st.integers(0, 30).map(lambda number: MemberId(f"m{number}")), unique=True, max_size=12
)
assignments = st.frozensets(
    st.builds(TopicIdPartition, st.sampled_from([A, B, C]), st.integers(0, 11)), max_size=12
)


@st.composite
def groups(draw: st.DrawFn, *, equal: bool) -> tuple[dict, dict, dict]:
    names = draw(some_members)
    same = draw(topic_ids)
    wants = {name: same if equal else draw(topic_ids) for name in names}
    current = draw(st.dictionaries(st.sampled_from(names), assignments)) if names else {}
    return wants, current, draw(some_partitions)


def wanted(wants: dict, partitions: dict, member_id: MemberId) -> Assignment:
    return frozenset(
        TopicIdPartition(topic_id, partition)
        for topic_id in wants[member_id]
        for partition in partitions.get(topic_id, ())
    )


@settings(derandomize=True)
@given(groups(equal=False))
def test_members_get_only_subscribed_topics_and_every_partition_is_assigned(group: tuple) -> None:
    wants, current, partitions = group
    assigned = assign(wants, current, partitions)
    assert assigned.keys() == wants.keys()
    for member_id, assignment in assigned.items():
        assert assignment <= wanted(wants, partitions, member_id)
        assert bool(assignment) == bool(wanted(wants, partitions, member_id))
    everything = frozenset().union(*(wanted(wants, partitions, member_id) for member_id in wants))
    assert everything == frozenset().union(*assigned.values())


@settings(derandomize=True)
@given(groups(equal=True))
def test_sizes_differ_by_at_most_one(group: tuple) -> None:
    wants, current, partitions = group
    found = sizes(assign(wants, current, partitions))
    assert not found or found[-1] - found[0] <= 1


@settings(derandomize=True)
@given(groups(equal=True))
def test_every_partition_is_shared_by_as_many_as_the_others(group: tuple) -> None:
    wants, current, partitions = group
    assigned = assign(wants, current, partitions)
    for member_id in list(wants)[:1]:
        targets = wanted(wants, partitions, member_id)
        for target in targets:
            sharing = sum(target in assignment for assignment in assigned.values())
            assert sharing == -(-len(wants) // len(targets))


@settings(derandomize=True)
@given(groups(equal=False))
def test_assigning_again_moves_nothing(group: tuple) -> None:
    wants, current, partitions = group
    assigned = assign(wants, current, partitions)
    assert assign(wants, assigned, partitions) == assigned


@settings(derandomize=True)
@given(st.integers(1, 11), st.integers(1, 40), st.randoms(use_true_random=False))
def test_join_moves_only_the_partitions_of_the_new_member(
    members_count: int, count: int, random
) -> None:
    """With at least as many partitions as members, no other partition has to move."""
    names = [MemberId(f"m{number}") for number in range(members_count + 1)]
    count = max(count, len(names))
    before = assign(dict.fromkeys(names[:-1], frozenset({A})), {}, {A: numbers(count)})
    random.shuffle(names)
    after = assign(dict.fromkeys(names, frozenset({A})), before, {A: numbers(count)})
    moved = sum(len(before[name] - after[name]) for name in before)
    assert moved == len(after[MemberId(f"m{members_count}")])


@settings(derandomize=True)
@given(groups(equal=False))
def test_each_topic_is_divided_evenly_among_its_subscribers_in_a_mixed_group(
    group: tuple,
) -> None:
    """With unequal subscriptions each topic is assigned separately: its shares differ by one."""
    wants, current, partitions = group
    if len(set(wants.values())) == 1:
        return
    assigned = assign(wants, current, partitions)
    for topic_id, numbers_ in partitions.items():
        shares = [
            sum(target.topic_id == topic_id for target in assigned[member_id])
            for member_id in wants
            if topic_id in wants[member_id]
        ]
        assert not shares or not numbers_ or max(shares) - min(shares) <= 1


@settings(derandomize=True)
@given(groups(equal=True), st.data())
def test_remaining_members_keep_their_partitions_when_a_member_leaves(
    group: tuple, data: st.DataObject
) -> None:
    """Holds with at least as many partitions as members; otherwise sharing may decrease."""
    wants, current, partitions = group
    targets = {target for member_id in wants for target in wanted(wants, partitions, member_id)}
    if len(wants) < 2 or len(targets) < len(wants):
        return
    before = assign(wants, current, partitions)
    gone = data.draw(st.sampled_from(sorted(wants)))
    stay = {member_id: names for member_id, names in wants.items() if member_id != gone}
    after = assign(stay, before, partitions)
    for member_id in stay:
        assert before[member_id] <= after[member_id]


@settings(derandomize=True)
@given(groups(equal=True))
def test_new_partitions_move_no_more_partitions_than_balance_requires(group: tuple) -> None:
    """When a topic grows, a member keeps its partitions, or has as many as any other member."""
    wants, current, partitions = group
    if not wants or len(frozenset().union(*partitions.values(), frozenset())) == 0:
        return
    before = assign(wants, current, partitions)
    grown = {
        topic_id: frozenset(range(len(numbers_) + 3)) for topic_id, numbers_ in partitions.items()
    }
    after = assign(wants, before, grown)
    if all(len(wanted(wants, partitions, name)) >= len(wants) for name in wants):
        for member_id in wants:
            assert before[member_id] <= after[member_id]
