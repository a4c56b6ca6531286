"""Single acknowledgements become the fewest bytes that say the same."""

from datetime import timedelta

import pytest
from hypothesis import given, strategies as st

from sharegroup.client.share.session.acknowledgements import (
    AcknowledgementBatch,
    AckRun,
    batches_of,
    delay_ms_of,
    released_after,
    runs_of,
)

ACCEPT, RELEASE, REJECT, GAP = 1, 2, 3, 0


def test_neighbours_of_one_type_are_one_run() -> None:
    assert list(runs_of([5, 6, 7], [ACCEPT] * 3)) == [AckRun(5, 8, ACCEPT)]


def test_a_hole_or_another_type_ends_a_run() -> None:
    runs = list(runs_of([5, 6, 8, 9], [ACCEPT, ACCEPT, ACCEPT, RELEASE]))
    assert runs == [AckRun(5, 7, ACCEPT), AckRun(8, 9, ACCEPT), AckRun(9, 10, RELEASE)]


def test_no_offsets_give_no_run() -> None:
    assert list(runs_of([], [])) == []
    assert batches_of([]) == ()


def test_one_run_has_one_type_for_all() -> None:
    assert batches_of([AckRun(0, 500, ACCEPT)]) == (AcknowledgementBatch(0, 499, (ACCEPT,)),)
    assert batches_of([AckRun(0, 3, REJECT)]) == (AcknowledgementBatch(0, 2, (REJECT,)),)


def test_short_runs_share_a_batch_with_a_type_for_each() -> None:
    runs = [AckRun(10, 12, ACCEPT), AckRun(12, 13, RELEASE), AckRun(13, 15, ACCEPT)]
    assert batches_of(runs) == (AcknowledgementBatch(10, 14, (1, 1, 2, 1, 1)),)


def test_run_of_more_than_ten_offsets_has_a_separate_batch() -> None:
    runs = [AckRun(0, 1, RELEASE), AckRun(1, 12, ACCEPT), AckRun(12, 14, REJECT)]
    assert batches_of(runs) == (
        AcknowledgementBatch(0, 0, (RELEASE,)),
        AcknowledgementBatch(1, 11, (ACCEPT,)),
        AcknowledgementBatch(12, 13, (REJECT,)),
    )


def test_run_of_ten_offsets_shares_a_batch() -> None:
    runs = [AckRun(0, 1, RELEASE), AckRun(1, 11, ACCEPT)]
    assert batches_of(runs) == (AcknowledgementBatch(0, 10, (2, *[1] * 10)),)


def test_a_hole_ends_a_batch() -> None:
    runs = [AckRun(0, 2, ACCEPT), AckRun(3, 4, RELEASE)]
    assert batches_of(runs) == (
        AcknowledgementBatch(0, 1, (ACCEPT,)),
        AcknowledgementBatch(3, 3, (RELEASE,)),
    )


def test_gaps_may_be_in_any_order_and_of_any_length() -> None:
    runs = [AckRun(5, 6, ACCEPT), AckRun(6, 10**12, GAP), AckRun(2, 5, GAP)]
    assert batches_of(runs) == (
        AcknowledgementBatch(2, 5, (0, 0, 0, 1)),
        AcknowledgementBatch(6, 10**12 - 1, (GAP,)),
    )


@given(st.dictionaries(st.integers(0, 80), st.sampled_from([ACCEPT, RELEASE, REJECT])))
def test_batches_contain_exactly_the_chosen_types(chosen: dict[int, int]) -> None:
    offsets = sorted(chosen)
    said: dict[int, int] = {}
    last_before = -1
    for batch in batches_of(runs_of(offsets, [chosen[offset] for offset in offsets])):
        assert batch.first_offset > last_before
        last_before = batch.last_offset
        count = batch.last_offset + 1 - batch.first_offset
        types = batch.acknowledge_types
        types = types * count if len(types) == 1 else types
        assert len(types) == count
        said.update(zip(range(batch.first_offset, batch.last_offset + 1), types, strict=True))
    assert said == chosen


def test_releases_with_a_delay_have_batches_of_their_own() -> None:
    later, at_once = released_after(30_000), released_after(0)
    runs = [
        AckRun(0, 2, RELEASE),
        AckRun(2, 3, later),
        AckRun(3, 4, later),
        AckRun(4, 5, at_once),
        AckRun(5, 6, ACCEPT),
        AckRun(6, 20, later),
    ]
    assert batches_of(runs) == (
        AcknowledgementBatch(0, 1, (RELEASE,)),
        AcknowledgementBatch(2, 3, (RELEASE,), 30_000),
        AcknowledgementBatch(4, 4, (RELEASE,), 0),
        AcknowledgementBatch(5, 5, (ACCEPT,)),
        AcknowledgementBatch(6, 19, (RELEASE,), 30_000),
    )


@pytest.mark.parametrize(
    ("delay", "delay_ms"),
    [("30s", 30_000), ("1h30m", 5_400_000), ("24h", 86_400_000), (0.25, 250), (timedelta(0), 0)],
)
def test_delay_of_a_released_record_is_written_in_any_way(delay: object, delay_ms: int) -> None:
    assert delay_ms_of(delay) == delay_ms  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("delay", "message"),
    [
        ("30", "expected numbers with units, as '250ms'"),
        ("25h", "expected a delay of 0 to 24 hours, found 25h"),
        (timedelta(days=1, milliseconds=1), "0 to 24 hours, found 1 day, 0:00:00.001"),
        (timedelta(seconds=-1), "0 or more"),
    ],
)
def test_wrong_delay_of_a_released_record_is_refused(delay: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        delay_ms_of(delay)  # type: ignore[arg-type]
