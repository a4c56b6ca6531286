"""What is done above a commit is told in its metadata, within Kafka's limit."""

from __future__ import annotations

import base64
import logging
import random
import zlib

import pytest
from hypothesis import given, strategies as st

from sharegroup.waiting import done_offsets

KAFKAS_LIMIT = 4_096
"""offset.metadata.max.bytes of a broker that nobody configured."""


@given(st.integers(0, 2**62), st.sets(st.integers(1, done_offsets.OFFSETS_MAX - 1), max_size=200))
def test_done_offsets_survive_a_round_trip(committed: int, above: set[int]) -> None:
    done = {committed + gap for gap in above}
    assert done_offsets.read(committed, done_offsets.written(committed, done)) == done


def test_nothing_above_the_commit_is_no_metadata() -> None:
    assert done_offsets.written(100, ()) == ""
    assert done_offsets.read(100, "") == set()


def test_offsets_too_far_above_the_committed_offset_are_left_out() -> None:
    near, far = 100 + done_offsets.OFFSETS_MAX - 1, 100 + done_offsets.OFFSETS_MAX
    assert done_offsets.read(100, done_offsets.written(100, {near, far})) == {near}
    assert done_offsets.written(100, {far}) == ""


def test_worst_case_fits_into_a_commit() -> None:
    chance = random.Random(7)
    done = {number for number in range(1, done_offsets.OFFSETS_MAX) if chance.random() < 0.5}
    text = done_offsets.written(0, done)
    assert len(text) <= KAFKAS_LIMIT
    assert done_offsets.read(0, text) == done


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param("by hand", id="somebody else's"),
        pytest.param("done1:???", id="no base64"),
        pytest.param("done1:AAAA", id="not compressed"),
        pytest.param("done1:\u00e4", id="not ASCII"),
    ],
)
def test_foreign_commit_metadata_is_refused_with_a_log_line(
    metadata: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert done_offsets.read(100, metadata) == set()
    assert [record.getMessage().split()[0] for record in caplog.records] == [
        "event=done_offsets_refused"
    ]


def test_oversized_commit_metadata_is_read_up_to_the_limit() -> None:
    bomb = base64.b64encode(zlib.compress(b"\xff" * 10_000_000)).decode()
    assert len(done_offsets.read(0, f"done1:{bomb}")) == done_offsets.OFFSETS_MAX - 1


@given(st.text(max_size=100) | st.binary(max_size=60).map(lambda text: f"done1:{text!r}"))
def test_no_metadata_raises(metadata: str) -> None:
    done_offsets.read(5, metadata)
