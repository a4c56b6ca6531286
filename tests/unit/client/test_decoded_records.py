"""What of an answer is handed out, what is settled at once, and what is given back."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast
from uuid import UUID

import pytest

from sharegroup.client import AcknowledgeType, ShareConsumer
from sharegroup.client.records import TopicPartition, records_by_partition
from sharegroup.client.settings.consumer_config import ShareConsumerConfig
from sharegroup.client.share.consumer.decoded_records import DecodedRecords, decode_records
from sharegroup.client.share.consumer.flow_control import FlowControl
from sharegroup.client.share.consumer.held_records import HeldRecords
from sharegroup.client.share.consumer.inbox import Inbox, Parcel
from sharegroup.client.share.consumer.locks import AcquisitionLock
from sharegroup.client.share.consumer.record import (
    DeserializationError,
    UnreadableDelivery,
    UnreadableRecord,
)
from sharegroup.client.share.session.acknowledgements import AckRun
from sharegroup.client.share.session.acquired_records import AcquiredRecords
from sharegroup.errors import CorruptMessage, UnreadableBatch
from sharegroup.ids import TopicId, TopicIdPartition
from sharegroup.wire.batches.batches import stamp, stamp_append_time
from sharegroup.wire.batches.records import encode_batch
from tests.attacks.batches import batch_of_offsets, misread_batch

LOCK_DEADLINE = 100.0


def table(*, explicit: bool = True) -> HeldRecords:
    key = TopicIdPartition(TopicId(UUID(int=1)), 0)
    return HeldRecords(key, TopicPartition("t", 0), explicit=explicit)


def batch(first: int, *values: bytes) -> bytes:
    """A log batch with one record for each value, from offset ``first`` on."""
    made = encode_batch([(None, value, 1_000, ()) for value in values])
    stamp(made, 0, base_offset=first, leader_epoch=0)
    return bytes(made)


def locks(held: HeldRecords, *acquired: tuple[int, int]) -> list[AcquisitionLock]:
    made = [
        AcquisitionLock(
            held,
            AcquiredRecords.of_range(first, end, 1),
            acquired_at=70.0,
            deadline=LOCK_DEADLINE,
            record_bytes=10.0,
        )
        for first, end in acquired
    ]
    for lock in made:
        held.acquired(lock)
    return made


def read(
    held: HeldRecords,
    records: bytes,
    *acquired: tuple[int, int],
    config: ShareConsumerConfig | None = None,
) -> list[DecodedRecords]:
    settings = config or ShareConsumerConfig(group_id="g")
    return list(decode_records(held, records, locks(held, *acquired), settings))


def filled(
    held: HeldRecords,
    records: bytes,
    *acquired: tuple[int, int],
    config: ShareConsumerConfig | None = None,
) -> Inbox:
    inbox = Inbox(config or ShareConsumerConfig(group_id="g"))
    inbox.add([Parcel(held, records, locks(held, *acquired))])
    return inbox


def offsets(decoded: Sequence[DecodedRecords]) -> list[int]:
    return [record.offset for decoded_ in decoded for record in decoded_.records]


def settled(held: HeldRecords) -> tuple[AckRun, ...]:
    return tuple(sorted(run for taken in held.take() for run in taken.runs))


def test_only_acquired_records_are_delivered() -> None:
    held = table()
    decoded = read(held, batch(10, b"a", b"b", b"c", b"d", b"e"), (11, 13), (14, 15))
    assert offsets(decoded) == [11, 12, 14]
    assert settled(held) == ()


@pytest.mark.parametrize("claimed", [5, 50, 5_000, 900_000])
@pytest.mark.parametrize("attributes", [0x80, 0xFF])
def test_record_that_the_codec_misreads_hides_no_record_of_other_batches(
    claimed: int, attributes: int
) -> None:
    """Its key looks like another offset, so the records behind it would be taken for gaps."""
    odd = bytearray(misread_batch(claimed, attributes=attributes))
    stamp(odd, 0, base_offset=12, leader_epoch=0)
    held = table()
    decoded = read(held, batch(10, b"a", b"b") + bytes(odd) + batch(13, b"c", b"d"), (10, 15))
    assert offsets(decoded) == [10, 11, 12, 13, 14]
    values = [record.value for some in decoded for record in some.records]
    assert values == [b"a", b"b", b"honest", b"c", b"d"]
    assert settled(held) == ()


@pytest.mark.parametrize(
    "deltas", [(0, 5_000, 2), (0, -5_000, 2), (1, 0, 2), (0, 0, 1), (0, 1, 3), (2**31 - 1, 1, 2)]
)
def test_batch_whose_offsets_lie_is_a_range_and_costs_no_other_batch(
    deltas: tuple[int, int, int],
) -> None:
    lying = bytearray(batch_of_offsets(*deltas))
    stamp(lying, 0, base_offset=12, leader_epoch=0)
    held = table()
    decoded = read(held, batch(10, b"a", b"b") + bytes(lying) + batch(15, b"c"), (10, 16))
    assert offsets(decoded) == [10, 11, 15]
    (failure,) = [some.failure for some in decoded if some.failure is not None]
    assert isinstance(failure, UnreadableDelivery)
    assert (failure.first, failure.end) == (12, 15)
    assert "their offsets do not ascend" in str(failure)
    assert settled(held) == ()


def test_acquired_records_may_span_batches() -> None:
    records = batch(10, b"a", b"b") + batch(12, b"c", b"d")
    assert offsets(read(table(), records, (11, 14))) == [11, 12, 13]


def test_each_record_refers_to_the_lock_that_covers_its_offset() -> None:
    held = table()
    batches = batch(10, b"a", b"b", b"c", b"d") + batch(14, b"e")
    under = locks(held, (10, 11), (11, 13), (13, 15))
    settings = ShareConsumerConfig(group_id="g")
    found = list(decode_records(held, batches, under, settings))
    assert [decoded_.lock for decoded_ in found] == under
    covers = [
        [(record.offset, under.index(record._shared)) for record in some.records] for some in found
    ]
    assert covers == [[(10, 0)], [(11, 1), (12, 1)], [(13, 2), (14, 2)]]


def test_record_has_its_delivery_count_and_lock_deadline() -> None:
    (delivery,) = read(table(), batch(10, b"a"), (10, 11))
    (record,) = delivery.records
    assert (record.topic, record.partition, record.offset) == ("t", 0, 10)
    assert (record.value, record.key, record.timestamp_ms) == (b"a", None, 1_000)
    assert (record.delivery_count, record.deadline) == (1, 100.0)


def test_record_has_the_leader_epoch_and_the_kind_of_timestamp_of_its_batch() -> None:
    first, second = bytearray(batch(10, b"a", b"b")), bytearray(batch(12, b"c"))
    stamp(first, base_offset=10, leader_epoch=4)
    stamp(second, base_offset=12, leader_epoch=5)
    stamp_append_time(second, 7_000)
    (delivery,) = read(table(), bytes(first + second), (10, 13))
    assert [
        (record.leader_epoch, record.has_append_time, record.timestamp_ms)
        for record in delivery.records
    ] == [(4, False, 1_000), (4, False, 1_000), (5, True, 7_000)]


def test_record_has_the_sizes_of_its_bytes_also_when_it_is_deserialized() -> None:
    numbers = ShareConsumerConfig(group_id="g", value_deserializer=int)
    for config in (None, numbers):
        (delivery,) = read(table(), batch(10, b"1234"), (10, 11), config=config)
        (record,) = delivery.records
        assert (record.serialized_key_size, record.serialized_value_size) == (None, 4)


def test_records_of_a_poll_by_partition() -> None:
    (delivery,) = read(table(), batch(10, b"a", b"b"), (10, 12))
    assert records_by_partition(delivery.records) == {TopicPartition("t", 0): [*delivery.records]}


def test_offsets_without_a_record_are_gaps() -> None:
    # Compaction took 12 to 14: they lie below the end of the last batch, so nobody has them.
    held = table()
    records = batch(10, b"a", b"b") + batch(15, b"c")
    assert offsets(read(held, records, (10, 16))) == [10, 11, 15]
    assert settled(held) == (AckRun(12, 15, 0),)


def test_a_gap_may_begin_and_end_an_acquired_range() -> None:
    held = table()
    records = batch(12, b"a") + batch(20, b"z")
    assert offsets(read(held, records, (10, 15))) == [12]
    assert settled(held) == (AckRun(10, 12, 0), AckRun(13, 15, 0))


def test_offsets_of_a_truncated_batch_are_released() -> None:
    # Acknowledging a gap here would archive records that were never delivered.
    held = table()
    records = batch(10, b"a", b"b") + batch(12, b"c", b"d")[:-5]
    assert offsets(read(held, records, (10, 14))) == [10, 11]
    assert settled(held) == (AckRun(12, 14, 2),)


def test_acquired_range_without_records_is_released() -> None:
    held = table()
    assert read(held, b"", (10, 14)) == []
    assert settled(held) == (AckRun(10, 14, 2),)


def damaged(first: int, *values: bytes) -> bytes:
    bad = bytearray(batch(first, *values))
    bad[-1] ^= 1
    return bytes(bad)


def failures(decoded: Sequence[DecodedRecords]) -> list[UnreadableDelivery]:
    found = [part.failure for part in decoded if part.failure is not None]
    assert all(isinstance(failure, UnreadableDelivery) for failure in found), found
    return found  # type: ignore[return-value]


def test_an_unreadable_batch_is_a_range_between_its_neighbours_and_settled_by_nobody() -> None:
    held = table()
    bad = damaged(11, b"b", b"c")
    decoded = read(held, batch(10, b"a") + bad + batch(13, b"d"), (10, 14))
    assert [len(part.records) for part in decoded] == [1, 0, 1]
    assert offsets(decoded) == [10, 13]
    (failure,) = failures(decoded)
    assert (failure.topic, failure.partition, failure.first, failure.end) == ("t", 0, 11, 13)
    assert failure.batch == bad
    assert "topic 't' partition 0 offsets 11 to 12 cannot be read: batch at offset 11" in str(
        failure
    )
    assert "accept, release or reject" in str(failure)
    assert settled(held) == ()


def test_each_acquired_part_of_an_unreadable_batch_is_a_range() -> None:
    decoded = read(table(), damaged(11, b"b", b"c", b"d"), (11, 12), (12, 13))
    assert [(error.first, error.end) for error in failures(decoded)] == [(11, 12), (12, 13)]


def test_a_batch_of_a_broker_that_covers_other_batches_hides_no_record() -> None:
    records = damaged(10, b"a", b"b", b"c", b"d") + batch(12, b"e") + damaged(12, b"f")
    decoded = read(table(), records, (10, 14))
    assert offsets(decoded) == [12]
    assert [(error.first, error.end) for error in failures(decoded)] == [(10, 12)]


def test_a_range_under_an_ended_lock_is_not_reported() -> None:
    box = filled(table(), damaged(10, b"a"), (10, 11))
    assert box.take(5, now=LOCK_DEADLINE) == []
    assert box.unreadable_count == 0


def test_only_a_range_that_was_raised_waits_for_a_decision() -> None:
    held = table()
    box = filled(held, batch(10, b"a") + damaged(11, b"b", b"c"), (10, 13))
    assert [record.offset for record in box.take(5, now=0.0)] == [10]
    assert (held.unsettled_count, box.waiting) == (1, 2)
    with pytest.raises(UnreadableBatch, match="offsets 11 to 12"):
        box.take(5, now=0.0)
    assert (held.unsettled_count, box.waiting, box.unreadable_count) == (3, 0, 1)
    assert box.take(5, now=0.0) == []


def test_bytes_that_are_no_batch_are_reported_and_the_rest_is_released() -> None:
    held = table()
    decoded = read(held, batch(10, b"a") + b"\xff" * 100, (10, 13))
    assert offsets(decoded) == [10]
    assert [type(decoded_.failure) for decoded_ in decoded] == [type(None), CorruptMessage]
    assert settled(held) == (AckRun(11, 13, 2),)


def test_a_huge_acquired_range_costs_no_memory() -> None:
    held = table()
    records = batch(10, b"a") + batch(2**40, b"z")
    assert offsets(read(held, records, (10, 2**40 + 1))) == [10, 2**40]
    assert settled(held) == (AckRun(11, 2**40, 0),)


def decimal_values(**options: str) -> ShareConsumerConfig:
    return ShareConsumerConfig(group_id="g", value_deserializer=int, **options)  # type: ignore[arg-type]


def test_values_are_deserialized() -> None:
    decoded = read(table(), batch(10, b"1", b"2"), (10, 12), config=decimal_values())
    assert [record.value for decoded_ in decoded for record in decoded_.records] == [1, 2]


def test_value_that_fails_to_deserialize_is_released_and_raised() -> None:
    held = table(explicit=False)
    inbox = filled(held, batch(10, b"1", b"x", b"3"), (10, 13), config=decimal_values())
    assert [record.value for record in inbox.take(500, now=0.0)] == [1]
    with pytest.raises(DeserializationError, match="offset 11: the value can't") as caught:
        inbox.take(500, now=0.0)
    assert (caught.value.record.value, caught.value.field) == (b"x", "value")
    assert [record.value for record in inbox.take(500, now=0.0)] == [3]
    held.accept_open()
    assert settled(held) == (AckRun(10, 11, 1), AckRun(11, 12, 2), AckRun(12, 13, 1))


def test_explicit_mode_may_reject_a_record_that_fails_to_deserialize() -> None:
    held = table()
    inbox = filled(held, batch(10, b"x"), (10, 11), config=decimal_values())
    with pytest.raises(DeserializationError) as caught:
        inbox.take(500, now=0.0)
    caught.value.record.reject()
    assert settled(held) == (AckRun(10, 11, 3),)


def test_on_deserialization_error_reject_rejects_and_logs_the_record(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = table(explicit=False)
    config = decimal_values(on_deserialization_error="reject")
    inbox = filled(held, batch(10, b"1", b"x", b"3"), (10, 13), config=config)
    assert [record.value for record in inbox.take(500, now=0.0)] == [1, 3]
    held.accept_open()
    assert settled(held) == (AckRun(10, 11, 1), AckRun(11, 12, 3), AckRun(12, 13, 1))
    assert "topic 't' partition 0 offset 11: the value can't be deserialized" in caplog.text


def test_on_deserialization_error_raw_delivers_the_bytes() -> None:
    held = table()
    config = ShareConsumerConfig(
        group_id="g",
        share_acknowledgement_mode="explicit",
        value_deserializer=int,
        on_deserialization_error="raw",
    )
    good, bad = filled(held, batch(10, b"1", b"x"), (10, 12), config=config).take(5, now=0.0)
    assert (good.value, bad.value) == (1, b"x")
    assert isinstance(bad, UnreadableRecord)
    assert "offset 11: the value can't be deserialized" in str(bad.error)
    bad.reject()
    assert settled(held) == (AckRun(11, 12, 3),)


def test_inbox_returns_the_requested_number_of_records_in_order() -> None:
    held = table()
    inbox = filled(held, batch(10, b"a", b"b", b"c"), (10, 12), (12, 13))
    assert inbox.waiting == 3
    assert [record.offset for record in inbox.take(1, now=0.0)] == [10]
    assert (held.open_count, inbox.waiting) == (1, 2)
    assert [record.offset for record in inbox.take(5, now=0.0)] == [11, 12]
    assert inbox.take(5, now=0.0) == []
    assert (held.open_count, inbox.waiting) == (3, 0)


def test_inbox_drops_records_whose_lock_has_ended() -> None:
    held = table()
    inbox = filled(held, batch(10, b"a"), (10, 11))
    assert inbox.take(5, now=LOCK_DEADLINE) == []
    assert (held.open_count, inbox.waiting) == (0, 0)


def test_inbox_returns_only_the_records_of_the_valid_lock() -> None:
    held = table()
    first, second = locks(held, (10, 11), (11, 12))
    second.renewed(None, LOCK_DEADLINE + 1)
    inbox = Inbox(ShareConsumerConfig(group_id="g"))
    inbox.add([Parcel(held, batch(10, b"a", b"b"), [first, second])])
    assert [record.offset for record in inbox.take(5, now=LOCK_DEADLINE)] == [11]
    assert inbox.waiting == 0


def test_a_failure_waits_until_the_records_before_it_are_handed_out() -> None:
    held = table()
    bad = bytearray(batch(11, b"b"))
    bad[-1] ^= 1
    inbox = filled(held, batch(10, b"a") + bytes(bad), (10, 12))
    assert [record.offset for record in inbox.take(5, now=0.0)] == [10]
    with pytest.raises(CorruptMessage, match="batch at offset 11"):
        inbox.take(5, now=0.0)
    assert inbox.take(5, now=0.0) == []


@pytest.mark.parametrize(
    ("parcels", "behind"),
    [
        pytest.param([(damaged(10, b"x") + batch(11, b"a"), (10, 12))], [11], id="behind a range"),
        pytest.param(
            [(batch(10, b"a") + damaged(11, b"x") + damaged(12, b"x") + batch(13, b"b"), (10, 14))],
            [10, 13],
            id="around two ranges",
        ),
        pytest.param(
            [(damaged(10, b"x"), (10, 11)), (b"", (11, 20)), (batch(20, b"a"), (20, 21))],
            [20],
            id="behind a parcel of a range and one of gaps",
        ),
        pytest.param(
            [(batch(10, b"a"), (10, 11)), (damaged(11, b"x"), (11, 12))], [10], id="before one"
        ),
        pytest.param([(b"", (10, 20))] * 2, [], id="gaps alone"),
        pytest.param([(damaged(10, b"x"), (10, 11))] * 3, [], id="ranges alone"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_stop_hands_out_each_record_fetched_ahead_whatever_is_around_it(
    parcels: list[tuple[bytes, tuple[int, int]]], behind: list[int]
) -> None:
    """A range neither hides the records behind it, nor holds up the stop; nor the next one."""
    inbox, tables = Inbox(ShareConsumerConfig(group_id="g")), []
    for records, acquired in parcels:
        tables.append(table())
        made = locks(tables[-1], acquired)
        for lock in made:
            lock.deadline = math.inf
        inbox.add([Parcel(tables[-1], records, made)])
    member = SimpleNamespace(inbox=inbox)
    control = FlowControl(cast("ShareConsumer", SimpleNamespace(_member=member)))
    for stop in range(2):
        taken = control.take_waiting()
        assert [record.offset for record in taken] == ([] if stop else behind)
        assert (len(inbox), inbox.waiting) == (0, 0)
        for record in taken:
            record.accept()
    acked = [run.ack_type for held in tables for run in settled(held)]
    assert acked.count(AcknowledgeType.ACCEPT) == len(behind)


@pytest.mark.parametrize(
    ("records", "kept"),
    [
        (batch(10, b"1", b"x", b"3"), [1, 3]),
        (batch(10, b"x", b"y", b"3"), [3]),
        (batch(10, b"1", b"2") + b"\xaa" * 100, [1, 2]),
        (batch(10, b"x") + b"\xaa" * 100, []),
    ],
    ids=["a value", "two values", "a header", "a value and a header"],
)
def test_stop_loses_no_record_to_others_that_cannot_be_read(
    records: bytes, kept: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """The records taken before the error are held; only the caller can settle them."""
    held, behind = table(), table()
    inbox = Inbox(decimal_values())
    for held_by, parcel, acquired in (
        (held, records, (10, 13)),
        (behind, batch(20, b"20"), (20, 21)),
    ):
        made = locks(held_by, acquired)
        for lock in made:
            lock.deadline = math.inf
        inbox.add([Parcel(held_by, parcel, made)])
    member = SimpleNamespace(inbox=inbox)
    control = FlowControl(cast("ShareConsumer", SimpleNamespace(_member=member)))
    with caplog.at_level("INFO", logger="sharegroup.client"):
        taken = control.take_waiting()
    assert [record.value for record in taken] == [*kept, 20]
    assert len(inbox) == 0
    assert caplog.messages
    assert all(text.startswith("event=take.unreadable error=") for text in caplog.messages)
    for record in taken:
        record.accept()
    acked = [run.ack_type for run in (*settled(held), *settled(behind)) for _ in range(*run[:2])]
    assert acked.count(AcknowledgeType.ACCEPT) == len(kept) + 1
    assert acked.count(AcknowledgeType.RELEASE) == 3 - len(kept)


def test_inbox_drops_the_records_of_a_lost_session() -> None:
    kept, lost = table(), table()
    inbox = filled(kept, batch(10, b"a"), (10, 11))
    inbox.add([Parcel(lost, batch(20, b"b", b"c"), locks(lost, (20, 22)))])
    assert inbox.drop([lost]) == 2
    assert [record.offset for record in inbox.take(5, now=0.0)] == [10]


def large(*sizes: int) -> bytes:
    """A batch of records of these sizes, in far fewer bytes."""
    return bytes(encode_batch([(None, bytes(size), 1_000, ()) for size in sizes], codec=4))


SMALL = ShareConsumerConfig(group_id="g", decompressed_bytes_max=1 << 20)


def test_large_batch_is_handed_out_in_pieces_and_has_no_gaps() -> None:
    held = table()
    parts = read(held, large(*[600_000] * 12) + batch(12, b"x"), (0, 5), (7, 14), config=SMALL)
    offsets = [record.offset for part in parts for record in part.records]
    assert offsets == [0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 12]
    assert len(parts) > 5
    assert all(part.failure is None for part in parts)
    assert [record._shared is part.lock for part in parts for record in part.records] == [True] * 11
    assert settled(held) == (AckRun(13, 14, 2),)


def test_pieces_without_a_record_of_this_member_are_passed_over() -> None:
    held = table()
    parts = read(held, large(*[600_000] * 12), (0, 1), (9, 10), config=SMALL)
    assert [(r.offset, r._shared is part.lock) for part in parts for r in part.records] == [
        (0, True),
        (9, True),
    ]
    assert settled(held) == ()


def test_record_that_is_too_large_is_reported_alone() -> None:
    held = table()
    parts = read(held, large(5, 3 << 20, 6), (0, 3), config=SMALL)
    assert [record.offset for part in parts for record in part.records] == [0, 2]
    (failure,) = [part.failure for part in parts if part.failure is not None]
    assert isinstance(failure, UnreadableBatch)
    text = str(failure)
    assert text.startswith("topic 't' partition 0 offsets 1 to 1 cannot be read: the record at ")
    assert "offset 1 has 3145737 bytes" in text


def test_pieces_are_decoded_when_they_are_taken() -> None:
    held = table()
    acquired = locks(held, (0, 12))
    parcel = Parcel(held, large(*[600_000] * 12), acquired)
    decoded = parcel.as_records(SMALL)
    assert decoded
    assert len(decoded) == 1
    assert len(decoded[0].records) < 4
    assert sum(len(part.records) for part in decoded.drain()) == 12
