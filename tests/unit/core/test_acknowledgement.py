"""Which acknowledgements are refused, with which error and in which words."""

from __future__ import annotations

import pytest

from sharegroup.core.delivery.acknowledgement import check_held, check_order, claims, tells_apart
from sharegroup.core.delivery.delivery import AckBatch, InFlightState, RecordState
from sharegroup.core.delivery.offset_runs import Run
from sharegroup.errors import InvalidRecordState, InvalidRequest
from sharegroup.ids import MemberId

A = MemberId("a")


@pytest.mark.parametrize(
    ("ack", "message"),
    [
        (AckBatch(5, 5, (1,)), "a batch ends at offset 4, before its first offset 5"),
        (AckBatch(5, 3, (1,)), "a batch ends at offset 2, before its first offset 5"),
        (AckBatch(5, 8, ()), "offsets 5 to 7 need 1 type or 3, one for each; got 0"),
        (AckBatch(5, 8, (1, 1)), "offsets 5 to 7 need 1 type or 3, one for each; got 2"),
        (AckBatch(5, 8, (1, 1, 1, 1)), "got 4"),
        (AckBatch(5, 8, (5,)), "offsets 5 to 7 have type 5; known are 0 to 4"),
        (AckBatch(5, 8, (1, -1, 1)), "have type -1"),
        (AckBatch(-1, 1, (1,)), "offsets -1 to 0 begin below 0"),
        (AckBatch(9, 11, (1,)), "offsets 9 to 10 reach past the last offset ever acquired, 9"),
        (AckBatch(0, 2**63 - 1, (1,)), "reach past the last offset ever acquired, 9"),
    ],
)
def test_malformed_batch_is_an_invalid_request(ack: AckBatch, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_order([ack], start_offset=0, end_offset=10)


def test_batches_that_do_not_ascend_are_an_invalid_request() -> None:
    acks = [AckBatch(5, 8, (1,)), AckBatch(2, 4, (1,))]
    with pytest.raises(InvalidRequest, match=r"2 to 3 must not begin before .* 5 to 7 ends"):
        check_order(acks, start_offset=0, end_offset=10)


def test_batches_that_share_one_offset_are_an_invalid_record_state() -> None:
    acks = [AckBatch(2, 5, (1,)), AckBatch(4, 8, (1,))]
    with pytest.raises(InvalidRecordState, match="offset 4 is acknowledged twice"):
        check_order(acks, start_offset=0, end_offset=10)


def test_shared_offset_below_the_start_is_settled_already() -> None:
    acks = [AckBatch(2, 5, (1,)), AckBatch(4, 8, (1,))]
    check_order(acks, start_offset=5, end_offset=10)
    with pytest.raises(InvalidRecordState, match="offset 4 is acknowledged twice"):
        check_order(acks, start_offset=4, end_offset=10)


def test_batch_beyond_the_acquired_offsets_is_an_invalid_request() -> None:
    acks = [AckBatch(0, 2, (1,)), AckBatch(9, 11, (1,))]
    with pytest.raises(InvalidRequest, match="offsets 9 to 10 reach past the last offset"):
        check_order(acks, start_offset=0, end_offset=10)


def test_no_batches_are_in_order() -> None:
    check_order([], start_offset=0, end_offset=0)


@pytest.mark.parametrize(
    ("delivery", "message"),
    [
        (InFlightState(RecordState.AVAILABLE, 1), "they are AVAILABLE"),
        (InFlightState(RecordState.ACKNOWLEDGED, 1), "they are ACKNOWLEDGED"),
        (InFlightState(RecordState.ACQUIRED, 1, MemberId("b"), 99), "member 'b' holds them"),
        (InFlightState(RecordState.ACQUIRED, 1, A, 50), "its lock ended at 50 ms and it is 50 ms"),
    ],
)
def test_only_the_holder_may_acknowledge(delivery: InFlightState, message: str) -> None:
    with pytest.raises(InvalidRecordState, match=message) as refused:
        check_held(Run(3, 6, delivery), A, 50)
    assert "offsets 3 to 5 are not acquired by member 'a'" in str(refused.value)


def test_holder_may_acknowledge_until_the_last_millisecond() -> None:
    check_held(Run(3, 6, InFlightState(RecordState.ACQUIRED, 1, A, 50)), A, 49)


def test_one_type_is_for_the_whole_range() -> None:
    assert list(claims(AckBatch(0, 2**62, (2,)))) == [(0, 2**62, 2)]


def test_equal_types_for_each_offset_are_one_range() -> None:
    assert list(claims(AckBatch(10, 13, (1, 1, 1)))) == [(10, 13, 1)]


def test_types_are_grouped_into_ranges() -> None:
    assert list(claims(AckBatch(10, 15, (1, 1, 3, 1, 1)))) == [
        (10, 12, 1),
        (12, 13, 3),
        (13, 15, 1),
    ]


@pytest.mark.parametrize(
    ("types", "expected"),
    [((0, 2, 4), False), ((2,), False), ((2, 1), True), ((2, 3), True), ((1,), True)],
)
def test_mixed_acknowledge_types_show_that_records_are_settled_individually(
    types: tuple[int, ...], expected: bool
) -> None:
    acks = [AckBatch(offset, offset + 1, (kind,)) for offset, kind in enumerate(types)]
    assert tells_apart(acks) is expected
