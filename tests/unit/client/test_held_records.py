"""What is handed out, settled, taken, renewed and lost of one partition."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from sharegroup.client.records import IllegalStateError, TopicPartition
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.record import Record
from sharegroup.client.share.consumer.settled import Settled
from sharegroup.client.share.session.acknowledgements import AckRun, released_after
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import InvalidRecordState, ShareSessionNotFound
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType

_, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
KEY = TopicIdPartition(TopicId(UUID(int=1)), 3)


def locked(held: HeldRecords, first: int, end: int, *, handed_out: bool = True) -> AcquisitionLock:
    lock = AcquisitionLock(
        held,
        AcquiredRecords.of_range(first, end, 1),
        acquired_at=0.0,
        deadline=30.0,
        record_bytes=10.0,
    )
    held.acquired(lock)
    if handed_out:
        held.hand_out(lock, range(first, end))
        lock.waiting_from = end
    return lock


def table(first: int, end: int, *, explicit: bool = True) -> tuple[HeldRecords, AcquisitionLock]:
    """A table with one lock, all of whose records are handed out."""
    held = HeldRecords(KEY, TopicPartition("orders", 3), explicit=explicit)
    return held, locked(held, first, end)


def taken(held: HeldRecords) -> Settled:
    (request,) = held.take()
    return request


def test_settled_records_are_taken_in_order_and_once() -> None:
    held, lock = table(7, 10)
    for offset in (9, 7, 8):
        held.settle(lock, offset, ACCEPT)
    request = taken(held)
    assert (request.runs, request.error) == ((AckRun(7, 10, 1),), None)
    assert list(held.take()) == []
    assert held.is_empty
    assert lock.is_done


def test_open_records_stay() -> None:
    held, lock = table(7, 10)
    held.settle(lock, 8, REJECT)
    assert taken(held).runs == (AckRun(8, 9, 3),)
    assert (held.open_count, held.open_bytes) == (2, 20.0)
    held.settle(lock, 7, ACCEPT)
    held.settle(lock, 9, ACCEPT)
    assert taken(held).runs == (AckRun(7, 8, 1), AckRun(9, 10, 1))


def test_acknowledge_type_may_change_until_the_request_is_built() -> None:
    held, lock = table(7, 8)
    held.settle(lock, 7, ACCEPT)
    held.settle(lock, 7, RELEASE)
    assert held.open_count == 0
    assert taken(held).runs == (AckRun(7, 8, 2),)
    with pytest.raises(IllegalStateError, match=r"'orders' partition 3 offset 7 is not held"):
        held.settle(lock, 7, ACCEPT)


def test_a_record_never_delivered_is_refused() -> None:
    held, lock = table(7, 8)
    with pytest.raises(IllegalStateError, match="offset 10 is not held"):
        held.settle(lock, 10, ACCEPT)


def test_implicit_mode_refuses_a_choice() -> None:
    held, lock = table(7, 8, explicit=False)
    with pytest.raises(IllegalStateError, match="share_acknowledgement_mode='explicit'"):
        held.settle(lock, 7, ACCEPT)


def test_implicit_mode_accepts_open_records_and_keeps_chosen_types() -> None:
    held, lock = table(7, 10, explicit=False)
    held.choose(8, RELEASE)  # As the consumer does for a record that can't be read.
    held.accept_open()
    assert taken(held).runs == (AckRun(7, 8, 1), AckRun(8, 9, 2), AckRun(9, 10, 1))
    assert lock.open == 0


def test_gaps_are_sent_and_not_reported_as_records() -> None:
    held, lock = table(7, 8)
    gap = locked(held, 8, 10**9, handed_out=False)
    held.settle_unseen(gap, 8, 10**9, AcknowledgeType.GAP)
    assert held.has_settled
    request = taken(held)
    assert request.runs == (AckRun(8, 10**9, 0),)
    assert list(request.report(None).offsets) == []
    assert held.open_count == 1
    assert lock.open == 1


def test_records_never_delivered_to_the_application_are_sent_and_not_reported() -> None:
    held, lock = table(7, 8)
    unread = locked(held, 8, 2**62, handed_out=False)
    held.settle_unseen(unread, 8, 2**62, RELEASE)
    held.settle(lock, 7, ACCEPT)
    request = taken(held)
    assert sorted(request.runs) == [AckRun(7, 8, 1), AckRun(8, 2**62, 2)]
    assert list(request.report(None).offsets) == [7]


def test_records_settled_after_the_session_was_lost_have_its_error() -> None:
    held, lock = table(7, 9)
    held.settle_unseen(locked(held, 9, 12, handed_out=False), 9, 12, AcknowledgeType.GAP)
    held.settle(lock, 7, ACCEPT)
    lost = ShareSessionNotFound("gone")
    held.lose(lost)
    held.settle(lock, 8, ACCEPT)  # A worker in the middle of a batch is not disturbed.
    request = taken(held)
    assert request.error is lost
    assert request.runs == (AckRun(7, 9, 1),)
    assert list(held.locks()) == []


def test_redelivered_record_is_settled_only_by_its_second_delivery() -> None:
    held, first = table(7, 9)
    second = locked(held, 7, 9)
    assert held.open_count == 4, "the application holds both deliveries"
    held.settle(first, 7, ACCEPT)
    held.settle(second, 8, ACCEPT)
    good, stale = held.take()
    assert (good.runs, good.error) == ((AckRun(8, 9, 1),), None)
    assert stale.runs == (AckRun(7, 8, 1),)
    assert isinstance(stale.error, InvalidRecordState)
    assert "offset 7: its lock ended, and it was delivered to this consumer again" in str(
        stale.error
    )
    held.settle(second, 7, REJECT)
    assert taken(held).runs == (AckRun(7, 8, 3),)


def test_renewal_is_requested_and_the_record_stays_open() -> None:
    held, lock = table(7, 10)
    held.settle(lock, 8, AcknowledgeType.RENEW)
    held.settle(lock, 9, AcknowledgeType.RENEW)
    held.settle(lock, 9, ACCEPT)  # There is nothing left to renew of it.
    (renewal,) = held.take_renewals()
    assert renewal.runs == (AckRun(8, 9, 4),)
    assert renewal.renewals == ((lock, 8),)
    assert held.open_count == 2
    assert list(held.take_renewals()) == []


def test_settled_record_cannot_be_renewed() -> None:
    held, lock = table(7, 8)
    held.settle(lock, 7, ACCEPT)
    with pytest.raises(IllegalStateError, match="offset 7 can't be renewed: it is settled"):
        held.settle(lock, 7, AcknowledgeType.RENEW)


def test_lock_renewal_covers_all_its_open_and_waiting_offsets() -> None:
    """10 and 13 are open, 11 is settled, 12 and 15 are gaps; 14 and 16 to 19 wait."""
    held = HeldRecords(KEY, TopicPartition("orders", 3), explicit=True)
    lock = locked(held, 10, 20, handed_out=False)
    held.settle_unseen(lock, 12, 13, AcknowledgeType.GAP)
    held.settle_unseen(lock, 15, 16, AcknowledgeType.GAP)
    held.hand_out(lock, (10, 11, 13))
    lock.waiting_from = 14
    held.settle(lock, 11, ACCEPT)
    renewal = held.renewal_of([lock])
    assert renewal is not None
    assert [tuple(run) for run in renewal.runs] == [
        (10, 11, 4),
        (13, 14, 4),
        (14, 15, 4),
        (16, 20, 4),
    ]
    assert renewal.renewals == ((lock, None),)


def test_nothing_is_left_to_renew_of_a_lock_that_is_done() -> None:
    held, lock = table(7, 8)
    held.settle(lock, 7, ACCEPT)
    assert held.renewal_of([lock]) is None


def test_the_deadline_of_a_renewed_record_moves_alone() -> None:
    _, lock = table(7, 10)
    lock.renewed(8, 50.0)
    assert [lock.deadline_of(offset) for offset in (7, 8, 9)] == [30.0, 50.0, 30.0]
    assert lock.latest_deadline == 50.0
    lock.renewed(None, 60.0)
    assert [lock.deadline_of(offset) for offset in (7, 8, 9)] == [60.0, 60.0, 60.0]


def test_locks_that_are_done_with_are_forgotten() -> None:
    held = HeldRecords(KEY, TopicPartition("orders", 3), explicit=True)
    for first in range(0, 10_000, 2):
        lock = locked(held, first, first + 2)
        held.settle(lock, first, ACCEPT)
        held.settle(lock, first + 1, ACCEPT)
        list(held.take())
    assert len(held._locks) <= 65


def test_a_window_of_a_hundred_thousand_records_is_settled_one_by_one() -> None:
    """The cost of a settled record must not depend on the number of open ones."""
    held, lock = table(0, 100_000)
    for offset in range(0, 100_000, 100):
        held.settle(lock, offset, ACCEPT)
        assert taken(held).runs == (AckRun(offset, offset + 1, 1),)
    assert held.open_count == 99_000


@pytest.mark.parametrize("wrong", [AcknowledgeType.GAP, 5, -1])
def test_types_that_applications_cannot_use_are_refused(wrong: int) -> None:
    held, lock = table(7, 8)
    record = Record(lock, 7, 0, None, None, ())
    with pytest.raises(ValueError, match=r"expected an acknowledgement type \(ACCEPT, RELEASE"):
        record.settle(wrong)  # type: ignore[arg-type]
    assert held.open_count == 1
    record.settle(AcknowledgeType.ACCEPT)
    assert taken(held).runs == (AckRun(7, 8, 1),)


class Timers:
    """The releases that are to happen later."""

    def __init__(self) -> None:
        self.waiting: dict[object, tuple[float, Callable[[], None]]] = {}

    def later(self, seconds: float, call: Callable[[], None]) -> Any:
        timer = SimpleNamespace()
        timer.cancel = lambda: self.waiting.pop(id(timer), None)
        self.waiting[id(timer)] = (seconds, call)
        return timer

    def ring(self) -> None:
        for _, call in tuple(self.waiting.values()):
            call()


def kept(first: int, end: int) -> tuple[HeldRecords, AcquisitionLock, Timers]:
    """A table on a broker without delays, all of whose records are kept for half a minute."""
    timers = Timers()
    held = HeldRecords(KEY, TopicPartition("orders", 3), explicit=True, later=timers.later)
    lock = locked(held, first, end)
    for offset in range(first, end):
        held.release_after(lock, offset, 30_000)
    assert held.open_count == held.kept_count == end - first
    return held, lock, timers


def test_record_is_kept_until_its_delay_is_over() -> None:
    held, lock, timers = kept(7, 10)
    assert [seconds for seconds, _ in timers.waiting.values()] == [30.0] * 3
    assert list(held.take()) == []
    held.settle(lock, 8, ACCEPT)
    timers.ring()
    assert taken(held).runs == (AckRun(7, 8, 2), AckRun(8, 9, 1), AckRun(9, 10, 2))
    assert (held.kept_count, held.is_empty, timers.waiting) == (0, True, {})


def test_broker_with_delays_gets_the_delay() -> None:
    held, lock = table(7, 8)
    held.release_after(lock, 7, 30_000)
    assert taken(held).runs == (AckRun(7, 8, released_after(30_000)),)


def test_kept_records_of_a_lost_session_are_reported_at_once() -> None:
    held, _, timers = kept(7, 9)
    held.lose(ShareSessionNotFound("gone"))
    request = taken(held)
    assert (request.runs, type(request.error)) == ((AckRun(7, 9, 2),), ShareSessionNotFound)
    assert (held.is_empty, timers.waiting) == (True, {})


def test_kept_record_that_was_delivered_again_is_reported_as_failed() -> None:
    held, _, timers = kept(7, 8)
    locked(held, 7, 8)
    assert (held.open_count, held.kept_count) == (2, 1)
    timers.ring()
    assert type(taken(held).error) is InvalidRecordState
    assert held.open_count == 1


def test_kept_records_are_forgotten_with_the_open_ones() -> None:
    held, _, timers = kept(7, 9)
    held.forget_open()
    assert (held.kept_count, held.is_empty, timers.waiting) == (0, True, {})


def test_release_of_a_kept_record_again_replaces_its_delay() -> None:
    held, lock, timers = kept(7, 8)
    held.release_after(lock, 7, 1_000)
    assert [seconds for seconds, _ in timers.waiting.values()] == [1.0]
