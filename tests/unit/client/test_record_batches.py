"""Records as columns: the same records, the same settling, the same errors as one by one."""

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sharegroup.client.records import IllegalStateError, TopicPartition
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer import record_batches
from sharegroup.client.share.consumer.held_columns import HeldColumns
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.inbox import Inbox, Parcel
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import InvalidRecordState, UnreadableBatch
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.protocol_enums import AcknowledgeType
from sharegroup.wire.batches.batches import stamp
from sharegroup.wire.batches.records import encode_batch

_, ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType
CONFIG = ShareConsumerConfig(group_id="g", share_acknowledgement_mode="explicit")
LOCK_DEADLINE = 100.0


def table(partition: int = 0) -> HeldRecords:
    key = TopicIdPartition(TopicId(UUID(int=1)), partition)
    return HeldRecords(key, TopicPartition("t", partition), explicit=True)


def batch(first: int, *values: bytes | None) -> bytes:
    """A log batch with one record for each value, from offset ``first`` on."""
    made = encode_batch([(b"k", value, 1_000, [("a", b"b")]) for value in values])
    stamp(made, 0, base_offset=first, leader_epoch=0)
    return bytes(made)


def parcel(held: HeldRecords, records: bytes, *acquired: tuple[int, int, int]) -> Parcel:
    """What a fetch brought: first and end offset and delivery count of each range."""
    locks = [
        AcquisitionLock(
            held,
            AcquiredRecords.of_range(first, end, count),
            acquired_at=70.0,
            deadline=LOCK_DEADLINE,
            record_bytes=10.0,
        )
        for first, end, count in acquired
    ]
    for lock in locks:
        held.acquired(lock)
    return Parcel(held, records, locks)


def inbox(*parcels: Parcel) -> Inbox:
    made = Inbox(CONFIG)
    made.add(parcels)
    return made


def take(box: Inbox, count: int = 500) -> record_batches.HandedOut:
    return record_batches.handed_out(box.take_columns(count, now=0.0))


def settled(held: HeldRecords) -> list[tuple[int, int, int]]:
    return sorted(tuple(run) for taken in held.take() for run in taken.runs)  # type: ignore[misc]


def test_batch_has_all_columns_of_each_record() -> None:
    held = table()
    handed = take(inbox(parcel(held, batch(10, b"a", None), (10, 11, 1), (11, 12, 3))))
    assert handed.batch.schema == record_batches.SCHEMA
    moment = datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    shared = {"topic": "t", "partition": 0, "timestamp": moment, "key": b"k",
              "headers": [{"key": "a", "value": b"b"}]}  # fmt: skip
    assert handed.batch.to_pylist() == [
        {**shared, "offset": 10, "value": b"a", "delivery_count": 1},
        {**shared, "offset": 11, "value": None, "delivery_count": 3},
    ]
    assert held.open_count == 2


def test_a_whole_batch_is_settled_as_runs() -> None:
    held = table()
    handed = take(inbox(parcel(held, batch(10, b"a", b"b", b"c"), (10, 13, 1))))
    record_batches.settle(handed.batch, ACCEPT, [held], [handed])
    assert (held.open_count, handed.is_open) == (0, False)
    assert settled(held) == [(10, 13, 1)]
    assert settled(held) == []


def test_filtered_parts_are_settled_apart_and_change_until_sent() -> None:
    held = table()
    handed = take(inbox(parcel(held, batch(10, b"a", b"b", b"c", b"d"), (10, 14, 1))))
    even = pc.equal(pc.bit_wise_and(handed.batch["offset"], 1), 0)
    record_batches.settle(handed.batch.filter(even), ACCEPT, [held], [handed])
    assert held.open_count == 2
    record_batches.settle(handed.batch.filter(pc.invert(even)), REJECT, [held], [handed])
    record_batches.settle(handed.batch.slice(0, 1), RELEASE, [held], [handed])
    assert settled(held) == [(10, 11, 2), (11, 12, 3), (12, 13, 1), (13, 14, 3)]
    with pytest.raises(IllegalStateError, match="'t' partition 0 offset 10 is not held"):
        record_batches.settle(handed.batch, ACCEPT, [held], [handed])


@pytest.mark.parametrize("part", [lambda batch: batch, lambda batch: batch.slice(0)])
def test_whole_batch_and_an_equal_part_both_change_the_types_of_all_records(
    part: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> None:
    held = table()
    handed = take(inbox(parcel(held, batch(10, b"a", b"b", b"c", b"d"), (10, 14, 1))))
    record_batches.settle(handed.batch.slice(0, 2), RELEASE, [held], [handed])
    record_batches.settle(part(handed.batch), ACCEPT, [held], [handed])
    assert (held.open_count, settled(held)) == (0, [(10, 14, 1)])


@pytest.mark.parametrize("part", [lambda batch: batch, lambda batch: batch.slice(0)])
def test_whole_batch_and_an_equal_part_settle_nothing_if_a_record_was_sent(
    part: Callable[[pa.RecordBatch], pa.RecordBatch],
) -> None:
    held = table()
    handed = take(inbox(parcel(held, batch(10, b"a", b"b"), (10, 12, 1))))
    record_batches.settle(handed.batch.slice(0, 1), RELEASE, [held], [handed])
    assert settled(held) == [(10, 11, 2)]
    with pytest.raises(IllegalStateError, match="offset 10 is not held"):
        record_batches.settle(part(handed.batch), ACCEPT, [held], [handed])
    assert (held.open_count, settled(held)) == (1, [])


def test_whole_batch_of_which_records_were_sent_is_renewed() -> None:
    held = table()
    handed = take(inbox(parcel(held, batch(10, b"a", b"b"), (10, 12, 1))))
    record_batches.settle(handed.batch.slice(0, 1), ACCEPT, [held], [handed])
    assert settled(held) == [(10, 11, 1)]
    record_batches.settle(handed.batch, RENEW, [held], [handed])
    (renewal,) = held.take_renewals()
    assert renewal.runs == (AckRun(11, 12, RENEW),)


def test_whole_batch_that_was_delivered_again_is_reported_as_failed() -> None:
    held = table()
    first = take(inbox(parcel(held, batch(10, b"a", b"b"), (10, 12, 1))))
    second = take(inbox(parcel(held, batch(10, b"a"), (10, 11, 2))))
    record_batches.settle(first.batch, REJECT, [held], [first, second])
    good, stale = held.take()
    assert (good.runs, stale.runs) == ((AckRun(11, 12, 3),), (AckRun(10, 11, 3),))
    assert isinstance(stale.error, InvalidRecordState)
    record_batches.settle(second.batch, ACCEPT, [held], [first, second])
    assert settled(held) == [(10, 11, 1)]


def test_batch_may_be_settled_by_a_table_with_selected_columns() -> None:
    held = table()
    handed = take(inbox(parcel(held, batch(10, b"a", b"b"), (10, 12, 1))))
    chosen = pa.Table.from_batches([handed.batch]).select(["offset", "partition", "topic"])
    record_batches.settle(chosen, ACCEPT, [held], [handed])
    assert settled(held) == [(10, 12, 1)]
    with pytest.raises(ValueError, match="needs topic, partition and offset"):
        record_batches.settle(handed.batch.select(["offset"]), ACCEPT, [held], [])


def test_a_batch_with_a_record_that_is_not_held_settles_nothing() -> None:
    held = table()
    handed = take(inbox(parcel(held, batch(10, b"a", b"b"), (10, 12, 1))))
    strange = pa.table({"topic": ["t", "t"], "partition": [0, 0], "offset": [10, 12]})
    with pytest.raises(IllegalStateError, match="offset 12 is not held"):
        record_batches.settle(strange, ACCEPT, [held], [handed])
    assert settled(held) == []


def test_one_batch_holds_several_partitions() -> None:
    first, other = table(0), table(1)
    box = inbox(
        parcel(first, batch(10, b"a", b"b"), (10, 12, 1)), parcel(other, batch(5, b"c"), (5, 6, 1))
    )
    handed = take(box)
    assert handed.batch["partition"].to_pylist() == [0, 0, 1]
    record_batches.settle(handed.batch.slice(1, 2), ACCEPT, [first, other], [handed])
    assert (settled(first), settled(other)) == ([(11, 12, 1)], [(5, 6, 1)])


def test_batches_are_cut_to_the_requested_number_of_records() -> None:
    held = table()
    box = inbox(parcel(held, batch(10, b"a", b"b", b"c"), (10, 12, 1), (12, 13, 2)))
    assert take(box, 1).batch["offset"].to_pylist() == [10]
    assert (held.open_count, box.waiting) == (1, 2)
    rest = take(box, 5).batch
    assert rest["offset"].to_pylist() == [11, 12]
    assert rest["delivery_count"].to_pylist() == [1, 2]
    assert box.take_columns(5, now=0.0) == []
    assert box.waiting == 0


def test_gaps_are_acknowledged_and_a_truncated_batch_is_released() -> None:
    held = table()
    records = batch(12, b"a", b"b") + batch(16, b"c") + batch(17, b"d")[:-3]
    handed = take(inbox(parcel(held, records, (10, 18, 1))))
    assert handed.batch["offset"].to_pylist() == [12, 13, 16]
    assert settled(held) == [(10, 12, 0), (14, 16, 0), (17, 18, 2)]


def test_unreadable_batch_is_raised_between_the_readable_records() -> None:
    held = table()
    bad = bytearray(batch(11, b"b"))
    bad[-1] ^= 1
    box = inbox(parcel(held, batch(10, b"a") + bytes(bad) + batch(12, b"c"), (10, 13, 1)))
    assert take(box).batch["value"].to_pylist() == [b"a"]
    with pytest.raises(
        UnreadableBatch, match="offsets 11 to 11 cannot be read: batch at offset 11"
    ):
        take(box)
    assert take(box).batch["value"].to_pylist() == [b"c"]
    assert box.take_columns(5, now=0.0) == []
    assert settled(held) == []
    held.release_undecided()
    assert settled(held) == [(11, 12, 2)]


def test_records_and_columns_may_be_taken_alternately() -> None:
    held = table()
    box = inbox(parcel(held, batch(10, b"a", b"b", b"c", b"d"), (10, 14, 2)))
    (first,) = box.take(1, now=0.0)
    assert take(box, 1).batch.to_pylist()[0]["headers"] == [{"key": "a", "value": b"b"}]
    third, fourth = box.take(5, now=0.0)
    assert (first.offset, third.offset, fourth.offset) == (10, 12, 13)
    assert (third.key, third.value, third.headers) == (b"k", b"c", [("a", b"b")])
    assert (third.timestamp_ms, third.delivery_count) == (1_000, 2)
    assert held.open_count == 4


def test_columns_whose_lock_has_ended_are_not_handed_out() -> None:
    held = table()
    assert inbox(parcel(held, batch(10, b"a"), (10, 11, 1))).take_columns(5, now=100.0) == []


def test_open_columns_are_renewed_with_their_locks() -> None:
    held = table()
    box = inbox(parcel(held, batch(10, b"a", b"b", b"c", b"d"), (10, 14, 1)))
    handed = take(box, 3)
    record_batches.settle(handed.batch.slice(1, 1), ACCEPT, [held], [handed])
    record_batches.settle(handed.batch, RENEW, [held], [handed])
    (renewal,) = held.take_renewals()
    assert [tuple(run) for run in renewal.runs] == [(10, 11, 4), (12, 13, 4), (13, 14, 4)]
    assert held.open_count == 2


def test_redelivered_columns_are_settled_only_by_their_second_delivery() -> None:
    held = table()
    first = take(inbox(parcel(held, batch(10, b"a", b"b"), (10, 12, 1))))
    second = take(inbox(parcel(held, batch(10, b"a"), (10, 11, 2))))
    assert held.open_count == 3
    held.settle_columns(first.columns[0][1], REJECT, np.array([10, 11]))
    held.settle_columns(second.columns[0][1], ACCEPT)
    good, stale = held.take()
    assert sorted(good.runs) == [AckRun(10, 11, 1), AckRun(11, 12, 3)]
    assert stale.runs == (AckRun(10, 11, 3),)
    assert isinstance(stale.error, InvalidRecordState)


def test_a_lock_is_done_when_all_its_columns_are_settled() -> None:
    held = table()
    lock = AcquisitionLock(
        held, AcquiredRecords.of_range(0, 4, 1), acquired_at=0, deadline=9, record_bytes=1.0
    )
    columns = HeldColumns(np.arange(4), [(lock, 4)])
    columns.settle(np.array([0, 2]), ACCEPT)
    assert (lock.open, columns.open) == (4, 2)
    columns.settle_open(REJECT)
    assert (lock.open, columns.open) == (0, 0)
    assert columns.take() == [
        AckRun(0, 1, 1), AckRun(1, 2, 3), AckRun(2, 3, 1), AckRun(3, 4, 3)
    ]  # fmt: skip


def test_implicit_mode_accepts_open_columns_and_refuses_a_choice() -> None:
    held = HeldRecords(table().key, TopicPartition("t", 0), explicit=False)
    handed = take(inbox(parcel(held, batch(10, b"a", b"b"), (10, 12, 1))))
    with pytest.raises(IllegalStateError, match="share_acknowledgement_mode='explicit'"):
        record_batches.settle(handed.batch, ACCEPT, [held], [handed])
    held.accept_open()
    assert settled(held) == [(10, 12, 1)]
