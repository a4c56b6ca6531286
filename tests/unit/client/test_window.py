"""How much may be fetched and handed out beside what is in flight."""

from typing import Any
from uuid import UUID

import pytest

from sharegroup.client.records import TopicPartition
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.inbox import Inbox, Parcel
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.window import Window
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.ids import TopicId, TopicIdPartition

RECORD_BYTES = 10.0


class Flight:
    """A window, with so many records of ten bytes open and waiting."""

    def __init__(self, *, open_count: int = 0, waiting: int = 0, **options: Any) -> None:
        self.config = config = ShareConsumerConfig(
            group_id="g", share_acknowledgement_mode="explicit", **options
        )
        key = TopicIdPartition(TopicId(UUID(int=1)), 0)
        self.held = HeldRecords(key, TopicPartition("t", 0), explicit=True)
        inbox = Inbox(config)
        handed_out = self._lock(0, open_count)
        self.held.hand_out(handed_out, range(open_count))
        handed_out.waiting_from = open_count
        if waiting:
            inbox.add([Parcel(self.held, b"", [self._lock(1_000, 1_000 + waiting)])])
        self.window = Window(config, inbox)

    def _lock(self, first: int, end: int) -> AcquisitionLock:
        lock = AcquisitionLock(
            self.held,
            AcquiredRecords.of_range(first, end, 1),
            acquired_at=0,
            deadline=30,
            record_bytes=RECORD_BYTES,
        )
        self.held.acquired(lock)
        return lock

    def to_hand_out(self, wanted: int = 500) -> int:
        return self.window.to_hand_out(wanted, [self.held])

    def to_fetch(self, wanted: int = 500, asked: int = 0) -> tuple[int, int] | None:
        """Records and bytes of the next fetch; None: no fetch."""
        limits = self.window.to_fetch(wanted, [self.held], asked, 500)
        return None if limits is None else (limits.max_records, limits.max_bytes)


MIB_50 = 50 * 1024 * 1024


def test_without_a_window_only_the_poll_limit_applies() -> None:
    flight = Flight(open_count=10_000, waiting=10_000)
    assert flight.to_hand_out() == 500
    assert flight.to_fetch(asked=10_000) == (500, MIB_50)


@pytest.mark.parametrize(("open_count", "room"), [(0, 100), (60, 40), (100, 0), (130, 0)])
def test_no_more_records_are_returned_than_the_window_has_room_for(
    open_count: int, room: int
) -> None:
    assert Flight(open_count=open_count, in_flight_max=100).to_hand_out() == room


def test_waiting_and_requested_records_reduce_the_next_fetch() -> None:
    assert Flight(in_flight_max=100).to_fetch() == (100, MIB_50)
    flight = Flight(open_count=30, waiting=20, in_flight_max=100)
    assert flight.to_fetch(asked=10) == (40, MIB_50)
    assert flight.to_fetch(asked=50) is None
    assert flight.to_hand_out() == 70, "waiting records do not reduce the number to hand out"


def test_bytes_are_counted_by_the_average_of_each_fetch() -> None:
    flight = Flight(open_count=4, waiting=3, in_flight_bytes=100)
    assert flight.to_hand_out() == 6
    assert flight.to_fetch() == (500, 30)
    assert Flight(open_count=10, waiting=3, in_flight_bytes=100).to_hand_out() == 0
    assert Flight(open_count=10, in_flight_bytes=100).to_fetch() is None


def test_record_larger_than_the_window_is_returned_alone() -> None:
    assert Flight(waiting=3, in_flight_bytes=5).to_hand_out() == 1
    assert Flight(open_count=1, waiting=3, in_flight_bytes=5).to_hand_out() == 0


def test_narrower_limit_applies() -> None:
    flight = Flight(waiting=50, in_flight_max=3, in_flight_bytes=100)
    assert flight.to_hand_out() == 3
    flight = Flight(waiting=50, in_flight_max=30, in_flight_bytes=100)
    assert flight.to_hand_out() == 10
