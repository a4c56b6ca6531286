"""The assignor ``wide``: limits, coverage, and how many pairs a change of the members moves."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given, settings, strategies as st

from sharegroup.core.groups.share.assignor import Assignment, Division, assign, assigning
from sharegroup.core.groups.share.wide import Width, stable_hash
from sharegroup.ids import MemberId, TopicIdPartition
from tests.unit.core.test_assignor import A, B, everybody_wants, groups, has, members, wanted

WIDTH = Width(32, 16)
widths = st.builds(Width, st.integers(1, 6), st.integers(1, 6))


def wide(
    names: list[MemberId], before: dict, partition_count: int, width: Width = WIDTH
) -> dict[MemberId, Assignment]:
    wants = dict.fromkeys(names, frozenset({A}))
    return assign(wants, before, {A: frozenset(range(partition_count))}, width)


def many(count: int) -> list[MemberId]:
    return [MemberId(f"m{number}") for number in range(count)]


def holders(assigned: dict[MemberId, Assignment]) -> Counter[TopicIdPartition]:
    return Counter(target for assignment in assigned.values() for target in assignment)


def moved(before: dict[MemberId, Assignment], after: dict[MemberId, Assignment]) -> int:
    """The pairs that members of both assignments have lost."""
    return sum(len(before[name] - after[name]) for name in before if name in after)


def sizes(assigned: dict[MemberId, Assignment]) -> set[int]:
    return {len(assignment) for assignment in assigned.values()}


def test_few_members_read_all_partitions() -> None:
    assigned = wide(many(16), {}, 32)
    assert set(assigned.values()) == {frozenset(TopicIdPartition(A, n) for n in range(32))}


def test_members_have_32_partitions_of_many() -> None:
    assigned = wide(many(100), {}, 320)
    assert sizes(assigned) == {32}
    assert set(holders(assigned).values()) <= {9, 10}  # 3,200 places
    assert len(holders(assigned)) == 320


def test_change_of_the_setting_is_made_in_short_steps() -> None:
    """At least one for each member that gets or loses partitions, so no step has two of them."""
    names, partitions = many(200), {A: frozenset(range(20))}
    wants = dict.fromkeys(names, frozenset({A}))
    simple = assign(wants, {}, partitions)
    after = assign(wants, simple, partitions, WIDTH)
    for before, width in ((simple, WIDTH), (after, None)):
        steps = assigning(Division(wants, before, partitions, width))
        assigned = assign(wants, before, partitions, width)
        changed = [name for name in names if before[name] != assigned[name]]
        assert len(changed) > 50
        assert len(list(steps)) >= len(changed)


def test_partitions_have_16_members_of_many() -> None:
    assigned = wide(many(100), {}, 32)
    assert sizes(assigned) == {5, 6}
    assert set(holders(assigned).values()) == {16}


def test_every_member_has_a_partition_beyond_the_limit_of_members() -> None:
    """Of 1,000 members 128 would fill the places of 8 partitions."""
    assigned = wide(many(1_000), {}, 8)
    assert sizes(assigned) == {1}
    assert set(holders(assigned).values()) == {125}


def test_every_partition_has_a_member_beyond_the_limit_of_partitions() -> None:
    assigned = wide(many(10), {}, 1_000)
    assert sizes(assigned) == {100}
    assert set(holders(assigned).values()) == {1}
    assert len(holders(assigned)) == 1_000


def test_new_member_of_a_small_group_takes_nothing_from_others() -> None:
    before = wide(many(7), {}, 8)
    after = wide(many(8), before, 8)
    assert moved(before, after) == 0
    assert sizes(after) == {8}


def test_members_that_join_and_leave_move_no_more_than_their_own_partitions() -> None:
    """With 40 partitions, over the numbers of members at which another limit counts."""
    for limits in (WIDTH, Width(3, 2), Width(2, 50), Width(50, 2)):
        assigned: dict[MemberId, Assignment] = {}
        for count in range(1, 60):
            after = wide(many(count), assigned, 40, limits)
            assert moved(assigned, after) <= len(after[MemberId(f"m{count - 1}")])
            assigned = after
        for count in range(59, 1, -1):
            gone = MemberId(f"m{(count * 7) % 59}")
            names = [name for name in assigned if name != gone]
            after = wide(names, assigned, 40, limits)
            # One more if it repairs what an earlier change could not balance.
            assert moved(assigned, after) <= len(assigned[gone]) + 1
            assigned = after


def test_two_members_have_few_partitions_in_common() -> None:
    """Of 32 each: blocks of consecutive partitions would have the same members."""
    assigned = wide(many(40), {}, 400)
    pairs = combinations(assigned.values(), 2)
    assert max(len(one & other) for one, other in pairs) < 16


def test_new_partitions_get_as_many_members_as_the_others() -> None:
    before = wide(many(2), {}, 32)
    after = wide(many(2), before, 40)
    assert sizes(after) == {32}
    assert len(holders(after)) == 40
    assert moved(before, after) == 8


def test_wide_begins_with_what_simple_has_assigned_and_goes_back_to_it() -> None:
    wants, counts = everybody_wants("m n o", A), {A: frozenset(range(6))}
    simple = assign(wants, {}, counts)
    assigned = assign(wants, simple, counts, WIDTH)
    assert sizes(assigned) == {6}
    assert sizes(assign(wants, assigned, counts)) == {2}


def test_topics_share_the_limit_of_members_with_unequal_subscriptions() -> None:
    wants = {MemberId("m"): frozenset({A, B}), MemberId("n"): frozenset({B})}
    counts = {A: frozenset(range(32)), B: frozenset(range(32))}
    assigned = assign(wants, {}, counts, WIDTH)
    assert len(assigned[MemberId("m")]) == 48, "16 of B, and A has no other member"
    assert len(assigned[MemberId("n")]) == 16


def test_member_without_a_place_in_any_topic_gets_one() -> None:
    """The subscriber of 40 partitions has the only one of B; n would have none."""
    wants = {MemberId("m"): frozenset({A, B}), MemberId("n"): frozenset({B})}
    counts = {A: frozenset(range(40)), B: frozenset({0})}
    assigned = assign(wants, {}, counts, WIDTH)
    assert assigned[MemberId("n")] == frozenset({TopicIdPartition(B, 0)})
    assert assign(wants, assigned, counts, WIDTH) == assigned


def test_hash_decides_in_the_same_way_in_every_process() -> None:
    assert stable_hash(b"member") == -2151606164565990252
    assigned = wide(members("m n o"), {}, 6, Width(3, 2))
    assert assigned == {"m": has(A, 1, 2, 3), "n": has(A, 0, 4, 5), "o": has(A, 1, 2, 5)}


@settings(derandomize=True)
@given(groups(equal=False), widths)
def test_members_get_only_subscribed_topics_and_nobody_is_left_out(
    group: tuple, width: Width
) -> None:
    wants, current, partitions = group
    assigned = assign(wants, current, partitions, width)
    assert assigned.keys() == wants.keys()
    for member_id, assignment in assigned.items():
        assert assignment <= wanted(wants, partitions, member_id)
        assert bool(assignment) == bool(wanted(wants, partitions, member_id))
    everything = frozenset().union(*(wanted(wants, partitions, member_id) for member_id in wants))
    assert everything == frozenset().union(*assigned.values())


@settings(derandomize=True)
@given(groups(equal=True), widths)
def test_limits_hold_where_nobody_would_be_left_out(group: tuple, width: Width) -> None:
    wants, current, partitions = group
    assigned = assign(wants, current, partitions, width)
    targets = {target for member_id in wants for target in wanted(wants, partitions, member_id)}
    if targets:
        member_max = max(width.member_partitions_max, -(-len(targets) // len(wants)))
        partition_max = max(width.partition_members_max, -(-len(wants) // len(targets)))
        found = sizes(assigned)
        assert max(found) <= member_max
        assert max(holders(assigned).values()) <= partition_max


@settings(derandomize=True)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 5))
def test_no_place_stays_free_when_partitions_may_have_another_member(
    member_count: int, partition_count: int, sharing: int
) -> None:
    """In whatever order the hashes of the members let them choose."""
    names, narrow = many(member_count), Width(32, sharing)
    before = wide(names, {}, partition_count, narrow)
    width = Width(32, sharing + 1)
    assigned = wide(names, before, partition_count, width)
    places = width.places(member_count, partition_count)
    assert sum(holders(assigned).values()) == places
    assert max(holders(assigned).values()) == -(-places // partition_count)


@settings(derandomize=True)
@given(groups(equal=False), widths)
def test_assigning_again_moves_nothing(group: tuple, width: Width) -> None:
    wants, current, partitions = group
    assigned = assign(wants, current, partitions, width)
    assert assign(wants, assigned, partitions, width) == assigned


@settings(derandomize=True)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=30), st.integers(1, 30), widths)
def test_whoever_joins_or_leaves_moves_only_what_it_has(
    changes: list[int], partition_count: int, width: Width
) -> None:
    """Each number joins, or leaves if it is there."""
    assigned: dict[MemberId, Assignment] = {}
    for number in changes:
        name = MemberId(f"m{number}")
        names = [other for other in assigned if other != name]
        joins = name not in assigned
        after = wide([*names, name] if joins else names, assigned, partition_count, width)
        if after:
            assert moved(assigned, after) <= len(after[name] if joins else assigned[name])
        assigned = after
