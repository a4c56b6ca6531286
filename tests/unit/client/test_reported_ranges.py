"""Unreadable offsets that the application was told of: decided, kept, released, renewed, lost."""

import pytest

from sharegroup.client.records import IllegalStateError
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.record import UnreadableDelivery
from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.errors import ShareSessionNotFound
from sharegroup.protocol_enums import AcknowledgeType
from tests.unit.client.test_held_records import ACCEPT, REJECT, RELEASE, RENEW, locked, table, taken

HUGE = 2**31


def reported(
    held: HeldRecords, first: int, end: int, *, lock: AcquisitionLock | None = None
) -> UnreadableDelivery:
    """What `poll` raised for these offsets."""
    lock = lock or locked(held, first, end, handed_out=False)
    held.report(lock, first, end)
    return UnreadableDelivery("bad checksum", lock, first, end, b"")


@pytest.mark.parametrize("explicit", [True, False], ids=["explicit", "implicit"])
def test_the_application_decides_about_the_whole_range(explicit: bool) -> None:
    held, _ = table(7, 7, explicit=explicit)
    error = reported(held, 10, 10 + HUGE)
    error.settle(ACCEPT)
    error.settle(REJECT)  # The type may change until it is sent.
    assert (held.unsettled_count, held.has_settled) == (0, True)
    request = taken(held)
    assert request.runs == (AckRun(10, 10 + HUGE, 3),)
    assert len(request.report(None).offsets) == HUGE, "the application sees its decision"
    assert held.is_empty
    with pytest.raises(
        IllegalStateError, match=r"unreadable offsets up to .* are not held any more"
    ):
        error.settle(RELEASE)


def test_a_part_of_the_range_is_settled_by_its_offsets() -> None:
    held, _ = table(7, 7)
    reported(held, 10, 15)
    for offset in (13, 11, 12):
        assert held.holds(offset)
        held.settle_offset(offset, REJECT)
    assert taken(held).runs == (AckRun(11, 14, 3),)
    assert held.unsettled_count == 2
    held.release_undecided()
    assert taken(held).runs == (AckRun(10, 11, 2), AckRun(14, 15, 2))


def test_the_next_poll_releases_what_was_not_decided_and_reports_nothing() -> None:
    held, _ = table(7, 7)
    error = reported(held, 10, 12)
    held.release_undecided()
    request = taken(held)
    assert request.runs == (AckRun(10, 12, 2),)
    assert len(request.report(None).offsets) == 0
    with pytest.raises(IllegalStateError, match="a later poll released them"):
        error.settle(REJECT)


def test_a_kept_range_stays_over_polls_and_is_renewed_until_it_is_settled() -> None:
    held, lock = table(7, 9)
    lock.end = lock.waiting_from = 12
    error = reported(held, 9, 12, lock=lock)
    held.keep_reported(lock, 9, 12)
    held.release_undecided()
    renewal = held.renewal_of([lock])
    assert renewal is not None
    assert renewal.runs == (AckRun(7, 12, RENEW),)
    held.settle(lock, 8, ACCEPT)
    renewal = held.renewal_of([lock])
    assert renewal is not None
    assert renewal.runs == (AckRun(7, 8, RENEW), AckRun(9, 12, RENEW))
    error.settle(REJECT)
    held.settle(lock, 7, ACCEPT)
    assert taken(held).runs == (AckRun(7, 9, 1), AckRun(9, 12, 3))
    assert lock.is_done


def test_renewing_the_error_renews_its_lock() -> None:
    held, _ = table(7, 7)
    error = reported(held, 10, 12)
    error.settle(RENEW)
    (renewal,) = held.take_renewals()
    assert renewal.runs == (AckRun(10, 12, RENEW),)


def test_a_second_delivery_is_not_settled_by_the_first_error() -> None:
    held, _ = table(7, 7)
    first, second = reported(held, 10, 12), reported(held, 10, 12)
    with pytest.raises(IllegalStateError, match="delivered again"):
        first.settle(REJECT)
    second.settle(RELEASE)
    assert taken(held).runs == (AckRun(10, 12, 2),)


def test_a_readable_delivery_takes_the_place_of_a_reported_one_and_the_reverse() -> None:
    held, _ = table(7, 7)
    error = reported(held, 10, 12)
    lock = locked(held, 10, 12)
    with pytest.raises(IllegalStateError):
        error.settle(REJECT)
    reported(held, 10, 11).settle(REJECT)
    assert (lock, 10) in held.superseded
    held.settle(lock, 11, ACCEPT)
    assert sorted(taken(held).runs) == [AckRun(10, 11, 3), AckRun(11, 12, 1)]


def test_a_lost_range_is_not_released_and_its_decision_is_reported_as_failed() -> None:
    held, _ = table(7, 7)
    error = reported(held, 10, 12)
    reported(held, 20, 22)
    error.settle(AcknowledgeType.REJECT)
    lost = ShareSessionNotFound("the session ended")
    held.lose(lost)
    held.release_undecided()
    request = taken(held)
    assert (request.runs, request.error) == ((AckRun(10, 12, 3),), lost)
    assert held.is_empty


def test_forgotten_ranges_cannot_be_settled() -> None:
    held, _ = table(7, 7)
    error = reported(held, 10, 12)
    held.forget_open()
    assert held.is_empty
    with pytest.raises(IllegalStateError):
        error.settle(REJECT)
