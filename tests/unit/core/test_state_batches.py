"""Statements about offsets, against a table with one cell per offset."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from sharegroup.core.delivery.delivery import RecordState, StateBatch
from sharegroup.core.delivery.stored.share_states import combined

AVAILABLE, ACKNOWLEDGED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED
ARCHIVING, ARCHIVED = RecordState.ARCHIVING, RecordState.ARCHIVED
DURABLE = [AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED]

statements = st.builds(
    lambda first, length, *value: StateBatch(first, first + length, *value),
    st.integers(0, 30),
    st.integers(1, 8),
    st.sampled_from(DURABLE),
    st.integers(0, 4),
    st.sampled_from([0, 0, 100, 200]),
    st.sampled_from([0, 0, 1, 2]),
)
several = st.lists(statements, max_size=8).map(tuple)


def cells_of(batches: tuple[StateBatch, ...], start_offset: int) -> dict[int, tuple[int, ...]]:
    cells: dict[int, tuple[int, ...]] = {}
    for batch in batches:
        for offset in range(max(batch.first, start_offset), batch.end):
            said = (batch.delivery_count, int(batch.state), batch.due_ms, batch.reason)
            cells[offset] = max(cells.get(offset, said), said)
    return cells


@given(several, several, st.integers(-1, 35))
def test_each_offset_has_its_greatest_written_count_and_state(
    before: tuple[StateBatch, ...], after: tuple[StateBatch, ...], start_offset: int
) -> None:
    found = combined(before, after, start_offset=start_offset)
    assert cells_of(found, start_offset) == cells_of(before + after, start_offset)


@given(several, st.integers(-1, 35))
def test_combined_batches_are_sorted_disjoint_and_joined(
    said: tuple[StateBatch, ...], start_offset: int
) -> None:
    previous = StateBatch(-1, start_offset, AVAILABLE, -1)
    for batch in combined(said, start_offset=start_offset):
        assert previous.end <= batch.first < batch.end
        assert previous.end < batch.first or previous[2:] != batch[2:]
        previous = batch


@given(st.permutations(range(4)), st.lists(several, min_size=4, max_size=4))
def test_order_of_the_writes_does_not_matter(
    order: list[int], said: list[tuple[StateBatch, ...]]
) -> None:
    expected = combined(*said, start_offset=3)
    assert combined(*(said[index] for index in order), start_offset=3) == expected


@given(several, st.integers(-1, 35))
def test_repeated_writes_change_nothing(said: tuple[StateBatch, ...], start_offset: int) -> None:
    once = combined(said, start_offset=start_offset)
    assert combined(once, said, once, start_offset=start_offset) == once


@pytest.mark.parametrize(
    ("greater", "lesser"),
    [
        ((AVAILABLE, 2), (ACKNOWLEDGED, 1)),
        ((ACKNOWLEDGED, 1), (AVAILABLE, 1)),
        ((ARCHIVING, 1), (ACKNOWLEDGED, 1)),
        ((ARCHIVED, 1), (ARCHIVING, 1)),
    ],
)
def test_a_higher_count_wins_and_then_a_later_state(
    greater: tuple[RecordState, int], lesser: tuple[RecordState, int]
) -> None:
    for said in ((greater, lesser), (lesser, greater)):
        batches = tuple(StateBatch(10, 20, state, count) for state, count in said)
        assert combined(batches, start_offset=0) == (StateBatch(10, 20, *greater),)


def test_one_statement_is_cut_at_the_start_offset() -> None:
    said = (StateBatch(10, 20, ACKNOWLEDGED, 1),)
    assert combined(said, start_offset=10) == said
    assert combined(said, start_offset=15) == (StateBatch(15, 20, ACKNOWLEDGED, 1),)
    assert combined(said, start_offset=20) == ()
    assert combined(said, start_offset=-1) == said
    assert combined((), start_offset=7) == ()
