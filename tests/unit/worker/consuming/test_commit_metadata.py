"""The metadata of commits: it is read as it was written, it fits, and foreign text is refused."""

from __future__ import annotations

import base64
import random
import zlib

import pytest
from hypothesis import given, strategies as st

from sharegroup.client.share.session.offset_set import OffsetSet
from sharegroup.worker.consuming.commit_metadata import (
    CHARACTERS_MAX,
    NOTHING,
    PREFIX,
    CommitState,
    DeliveryRange,
    UnreadableMetadata,
    read,
    written,
)

OFFSETS = st.integers(0, 2**62)
DISTANCES = st.sets(st.integers(1, 3_000), max_size=300)
SPANS = st.lists(st.tuples(st.integers(1, 10**6), st.integers(0, 1_000)), max_size=16)


def state_of(
    offset: int, distances: set[int], spans: list[tuple[int, int]], *, is_open: bool
) -> CommitState:
    deliveries = []
    end = offset
    for span, count in spans:
        end += span
        deliveries.append(DeliveryRange(end, count))
    finished = OffsetSet.of_offsets(sorted(offset + distance for distance in distances))
    return CommitState(finished, tuple(deliveries), is_open)


@given(OFFSETS, DISTANCES, SPANS, st.booleans())
def test_metadata_is_read_as_it_was_written(
    offset: int,
    distances: set[int],
    spans: list[tuple[int, int]],
    is_open: bool,
) -> None:
    state = state_of(offset, distances, spans, is_open=is_open)
    text = written(offset, state)
    assert len(text) <= CHARACTERS_MAX
    assert read(offset, text) == state


@given(OFFSETS, DISTANCES, st.integers(0, 400))
def test_a_lower_limit_cuts_the_upper_end(
    offset: int, distances: set[int], characters_max: int
) -> None:
    state = state_of(offset, distances, [(10, 1)], is_open=True)
    text = written(offset, state, characters_max=characters_max)
    assert len(text) <= characters_max
    if text:
        kept = read(offset, text)
        assert kept.deliveries == state.deliveries
        assert kept.finished.ranges == state.finished.ranges[: len(kept.finished.ranges)]


@pytest.mark.parametrize(
    "finished",
    [
        OffsetSet(((1, 900_000),)),
        OffsetSet.of_offsets(range(1, 25_000, 2)),
        OffsetSet.of_offsets(sorted(random.Random(7).sample(range(1, 20_000), 10_000))),
        OffsetSet.of_offsets(sorted(random.Random(7).sample(range(1, 900_000), 1_000))),
    ],
    ids=["one run", "every second", "random halves", "few of many"],
)
def test_large_sets_fit_without_a_cut(finished: OffsetSet) -> None:
    state = CommitState(finished)
    assert read(0, written(0, state)) == state


def test_a_set_that_does_not_fit_keeps_its_lowest_records() -> None:
    finished = OffsetSet.of_offsets(sorted(random.Random(1).sample(range(1, 200_000), 100_000)))
    text = written(0, CommitState(finished))
    kept = read(0, text).finished
    assert len(text) <= CHARACTERS_MAX
    assert kept.count > 10_000
    assert kept.ranges == finished.ranges[: len(kept.ranges)]


def test_nothing_to_say_is_an_empty_text() -> None:
    assert written(5, NOTHING) == ""
    assert read(5, "") == NOTHING


@given(st.text(max_size=200))
def test_foreign_metadata_is_refused(text: str) -> None:
    for metadata in (text, PREFIX + text):
        if metadata:
            with pytest.raises(UnreadableMetadata):
                read(5, metadata)


def test_metadata_of_another_offset_is_refused() -> None:
    text = written(5, CommitState(OffsetSet(((7, 9),))))
    with pytest.raises(UnreadableMetadata, match="checksum is not that of offset 6"):
        read(6, text)


@given(st.data())
def test_damaged_metadata_is_refused_or_says_the_same(data: st.DataObject) -> None:
    state = CommitState(OffsetSet(((7, 9), (20, 40))), (DeliveryRange(30, 2),), is_open=True)
    text = written(5, state)
    index = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.characters(min_codepoint=33, max_codepoint=126))
    damaged = text[:index] + character + text[index + 1 :]
    try:
        # The last byte of a compressed stream has bits without a meaning.
        assert read(5, damaged) == state
    except UnreadableMetadata:
        assert damaged != text


def test_a_bomb_is_refused() -> None:
    bomb = bytes((1, 0, 0, 0, 0, 0)) + zlib.compress(bytes(10**7))
    with pytest.raises(UnreadableMetadata, match="one stream of up to"):
        read(5, PREFIX + base64.b85encode(bomb).decode())
