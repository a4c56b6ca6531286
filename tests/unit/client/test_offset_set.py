from __future__ import annotations

from hypothesis import given, strategies as st

from sharegroup.client.share.session.offset_set import EMPTY, OffsetSet

offsets = st.frozensets(st.integers(0, 60))


def as_set(ranges: OffsetSet) -> frozenset[int]:
    ranges.check()
    return frozenset(offset for first, end in ranges for offset in range(first, end))


def of(*members: int) -> OffsetSet:
    return OffsetSet.of((member, member + 1) for member in members)


def test_ranges_in_any_order_are_sorted_and_joined() -> None:
    assert OffsetSet.of([(9, 11), (3, 5), (5, 6), (4, 4)]).ranges == ((3, 6), (9, 11))


def test_subtraction_cuts_a_range_in_pieces() -> None:
    whole = OffsetSet.of([(0, 10), (12, 20)])
    assert (whole - OffsetSet.of([(2, 4), (6, 7), (9, 14)])).ranges == (
        (0, 2),
        (4, 6),
        (7, 9),
        (14, 20),
    )


def test_from_offset_drops_lower_offsets() -> None:
    assert OffsetSet.of([(0, 10), (12, 20)]).from_offset(5).ranges == ((5, 10), (12, 20))
    assert OffsetSet.of([(0, 10), (12, 20)]).from_offset(20) == EMPTY


def test_empty_set_is_false_and_has_count_zero() -> None:
    assert not EMPTY
    assert EMPTY.count == 0
    assert OffsetSet.of([(0, 10), (12, 20)]).count == 18


def test_range_between_an_offset_and_itself_is_empty() -> None:
    assert of(1, 2, 3).between(2, 2) == of()


@given(offsets, offsets, st.integers(0, 61))
def test_operations_agree_with_those_of_a_set(
    left: frozenset[int], right: frozenset[int], offset: int
) -> None:
    first, other = of(*left), of(*right)
    assert as_set(first) == left
    assert as_set(first | other) == left | right
    assert as_set(first & other) == left & right
    assert as_set(first - other) == left - right
    low, high = min(offset, 30), max(offset, 30)
    assert as_set(first.between(low, high)) == {offset for offset in left if low <= offset < high}
    assert as_set(first.from_offset(offset)) == {member for member in left if member >= offset}
