"""What is handed out, settled, taken and lost of one partition."""

from uuid import UUID

import pytest

from sharegroup.client.acknowledgements import AckRun
from sharegroup.client.held_records import HeldRecords
from sharegroup.client.records import AcknowledgeType, IllegalStateError, TopicPartition
from sharegroup.errors import ShareSessionNotFound
from sharegroup.ids import TopicId
from sharegroup.ids import TopicPartition as TopicIdPartition

ACCEPT, RELEASE, REJECT = AcknowledgeType
KEY = TopicIdPartition(TopicId(UUID(int=1)), 3)


def table(*offsets: int, explicit: bool = True) -> HeldRecords:
    held = HeldRecords(KEY, TopicPartition("orders", 3), explicit=explicit)
    held.hand_out(offsets)
    return held


def test_settled_records_are_taken_in_order_and_once() -> None:
    held = table(7, 8, 9)
    for offset in (9, 7, 8):
        held.settle(offset, ACCEPT)
    taken = held.take()
    assert taken is not None
    assert (taken.offsets, taken.runs) == ((7, 8, 9), (AckRun(7, 10, 1),))
    assert taken.error is None
    assert held.take() is None
    assert held.is_empty


def test_open_records_stay() -> None:
    held = table(7, 8, 9)
    held.settle(8, REJECT)
    taken = held.take()
    assert taken is not None
    assert taken.offsets == (8,)
    assert held.open_count == 2
    held.settle(7, ACCEPT)
    held.settle(9, ACCEPT)
    taken = held.take()
    assert taken is not None
    assert taken.offsets == (7, 9)


def test_a_type_may_change_until_it_is_taken() -> None:
    held = table(7)
    held.settle(7, ACCEPT)
    held.settle(7, RELEASE)
    assert held.open_count == 0
    taken = held.take()
    assert taken is not None
    assert taken.runs == (AckRun(7, 8, 2),)
    with pytest.raises(IllegalStateError, match=r"'orders' partition 3 offset 7 is not held"):
        held.settle(7, ACCEPT)


def test_a_record_never_delivered_is_refused() -> None:
    with pytest.raises(IllegalStateError, match="offset 10 is not held"):
        table(7).settle(10, ACCEPT)


def test_implicit_mode_refuses_a_choice() -> None:
    with pytest.raises(IllegalStateError, match="share_acknowledgement_mode='explicit'"):
        table(7, explicit=False).settle(7, ACCEPT)


def test_implicit_mode_accepts_what_is_open_and_keeps_what_was_chosen() -> None:
    held = table(7, 8, 9, explicit=False)
    held.choose(8, RELEASE)  # As the consumer does for a record that can't be read.
    held.accept_open()
    taken = held.take()
    assert taken is not None
    assert taken.runs == (AckRun(7, 8, 1), AckRun(8, 9, 2), AckRun(9, 10, 1))


def test_gaps_go_along_and_are_no_ones_records() -> None:
    held = table(7)
    held.add_gap(8, 10**9)
    assert held.has_settled
    taken = held.take()
    assert taken is not None
    assert (taken.offsets, taken.runs) == ((), (AckRun(8, 10**9, 0),))
    assert held.open_count == 1


def test_what_is_settled_after_the_loss_carries_its_error() -> None:
    held = table(7, 8)
    held.add_gap(9, 12)
    held.settle(7, ACCEPT)
    lost = ShareSessionNotFound("gone")
    held.lose(lost)
    held.settle(8, ACCEPT)  # A worker in the middle of a batch is not disturbed.
    taken = held.take()
    assert taken is not None
    assert taken.error is lost
    assert taken.offsets == (7, 8)
    assert taken.runs == (AckRun(7, 9, 1),)
