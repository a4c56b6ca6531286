"""How much a member takes, changed while it runs."""

from sharegroup.client import AcquireMode
from sharegroup.client.share.consumer.inbox import Inbox, Parcel
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.session.acknowledgements import released_after
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from tests.unit.client.test_membership import answer, exchange, member, said
from tests.unit.client.test_window import Flight


def test_next_fetch_uses_the_limits_and_acquire_mode_of_the_window() -> None:
    flight = Flight(in_flight_max=100)
    flight.window.in_flight_max = 7
    flight.window.acquire_mode = AcquireMode.RECORD_LIMIT
    limits = flight.window.to_fetch(500, [flight.held], 0, 500)
    assert limits is not None
    assert (limits.max_records, limits.acquire_mode) == (7, "record_limit")


def test_quiet_member_subscribes_to_no_topic_and_does_not_rejoin() -> None:
    quiet = member("orders")
    exchange(quiet, answer(epoch=3, partitions=(0,)))
    quiet.quiet = True
    assert said(quiet) == (3, None, ())
    exchange(quiet, answer(epoch=4, partitions=()))
    assert (said(quiet), quiet.wants_heartbeat) == ((4, None, None), True)
    quiet.reset()
    assert not quiet.wants_heartbeat
    quiet.quiet = False
    assert (said(quiet), quiet.wants_heartbeat) == ((0, "rack-1", ("orders",)), True)


def test_waiting_records_are_released_unless_delivered_too_often() -> None:
    flight = Flight(in_flight_max=100)
    held, inbox = flight.held, Inbox(flight.config)
    locks = [
        AcquisitionLock(
            held,
            AcquiredRecords.of_range(first, first + 10, count),
            acquired_at=0,
            deadline=30,
            record_bytes=10.0,
        )
        for first, count in ((100, 1), (110, 4), (120, 3))
    ]
    for lock in locks:
        held.acquired(lock)
    locks[0].waiting_from = 105  # The application holds its first half.
    inbox.add([Parcel(held, b"", locks)])
    inbox.release_waiting(delivered_below=4)
    (unit,) = held.take()
    assert [(run.first, run.end, run.ack_type) for run in unit.runs] == [
        (105, 110, released_after(0)),
        (120, 130, released_after(0)),
    ]
    assert inbox.waiting == 10
