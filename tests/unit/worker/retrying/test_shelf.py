"""A shelf against a slow, obvious model: what is done, what is committed, what comes again."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sharegroup.worker.retrying.shelf import Shelf
from sharegroup.worker.retrying.tier_log import Committed, TierRecord
from sharegroup.worker.retrying.waiting import RECORD_BYTES, Moment, ShelvedRecord, waiting_of


def record(offset: int, value: bytes = b"") -> ShelvedRecord:
    return waiting_of(TierRecord(offset, 0, None, value, ()), Moment(0, 0))


NOTHING = Committed(0)


def shelf(committed: Committed = NOTHING) -> Shelf:
    return Shelf(committed, records_max=10, bytes_max=10 * RECORD_BYTES)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 20), st.integers(1, 3)),
        st.tuples(st.just("take"), st.integers(0, 20), st.integers(1, 4)),
        st.tuples(st.just("done"), st.integers(0, 5), st.integers(1, 3)),
        st.tuples(st.just("fail"), st.integers(0, 5), st.integers(1, 20)),
        st.tuples(st.just("crash"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(steps, st.integers(0, 3))
def test_each_record_is_done_once_unless_it_was_not_committed(
    steps: list[tuple[str, int, int]], gap: int
) -> None:
    """The log has every offset but each multiple of ``gap``, as a compacted one may."""
    log = [offset for offset in range(500) if not (gap and offset % (gap + 1) == 0)]
    member, taken, done, durable = shelf(), [], set(), Committed(0)
    for step, number, count in steps:
        if step == "put":
            ahead = [offset for offset in log if offset >= member.next_offset][:count]
            for offset in ahead:
                member.put(record(offset), number)
        elif step == "take":
            found = member.take(number, count)
            assert not done & {waiting.record.offset for waiting in found}, "done once is done"
            taken += found
        elif step == "done":
            settled, taken = (
                taken[number : number + count],
                taken[:number] + taken[number + count :],
            )
            member.done(settled)
            done |= {waiting.record.offset for waiting in settled}
            if committed := member.to_commit():
                member.keep(committed)
                durable = committed
        elif step == "fail" and taken:
            member.put_back(taken.pop(0), count)
        elif step == "crash":
            member, taken = shelf(durable), []
        below = {offset for offset in log if offset < durable.offset}
        assert below <= done, "what is below the commit is done"
    member = shelf(durable)
    for offset in log:
        member.put(record(offset), 0)
    again = [waiting.record.offset for waiting in member.take(0, 500)]
    assert again == [offset for offset in log if offset not in done]


def test_commit_is_the_lowest_offset_that_is_not_done() -> None:
    member = shelf(Committed(100))
    for offset in (100, 101, 102, 103):
        member.put(record(offset), offset)
    first, second, third = member.take(102, 5)
    member.done([second, third])
    committed = member.to_commit()
    assert committed is not None
    assert committed.offset == 100
    member.keep(committed)
    assert member.to_commit() is None, "it was said already"
    member.done([first])
    assert member.to_commit() == Committed(103, "")


def test_next_owner_skips_done_records() -> None:
    member = shelf()
    for offset in range(4):
        member.put(record(offset), 0)
    taken = member.take(0, 4)
    member.done(taken[1:3])
    left = member.to_commit()
    assert left is not None
    other = shelf(left)
    for offset in range(4):
        other.put(record(offset), 0)
    assert [waiting.record.offset for waiting in other.take(0, 9)] == [0, 3]


def test_records_are_taken_when_ready_and_in_offset_order_at_equal_times() -> None:
    member = shelf()
    for offset, ready_ms in enumerate((30, 10, 20, 10)):
        member.put(record(offset), ready_ms)
    assert member.ready_ms == 10
    assert [waiting.record.offset for waiting in member.take(20, 2)] == [1, 3]
    assert [waiting.record.offset for waiting in member.take(20, 9)] == [2]
    assert member.take(29, 9) == []
    assert member.ready_ms == 30


@pytest.mark.parametrize(
    ("count", "value", "is_full", "has_room"),
    [
        (5, b"", False, True),
        (6, b"", False, False),
        (9, b"", False, False),
        (10, b"", True, False),
        (1, b"x" * 9 * RECORD_BYTES, True, False),
        (1, b"x" * 4 * RECORD_BYTES, False, True),
    ],
)
def test_shelf_is_full_by_records_or_by_bytes(
    count: int, value: bytes, is_full: bool, has_room: bool
) -> None:
    member = shelf()
    for offset in range(count):
        member.put(record(offset, value), 0)
    assert (member.is_full, member.has_room) == (is_full, has_room)
    member.done(member.take(0, count))
    assert (len(member), member.is_full, member.has_room) == (0, False, True)


def test_record_that_was_read_before_is_passed_over() -> None:
    member = shelf(Committed(5))
    for offset in (3, 5, 5, 4, 6):
        member.put(record(offset), 0)
    assert [waiting.record.offset for waiting in member.take(0, 9)] == [5, 6]
