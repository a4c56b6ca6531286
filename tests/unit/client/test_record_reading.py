"""Records of a range are decoded batch by batch, from whatever the log has become since."""

from __future__ import annotations

import pytest

from sharegroup.client.fetch.record_reading import (
    PartitionRange,
    TopicMadeAgain,
    partition_ranges,
    read_records,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import CorruptMessage, KafkaError, RequestTimedOut
from sharegroup.ids import TopicId
from tests.unit.client.plain_brokers import ID, Brokers, play

FIRST = TopicPartition("orders", 0)


def filled() -> Brokers:
    """Offsets 0 to 2, a control batch at 3, a gap, and 10 to 11."""
    brokers = Brokers()
    log = brokers.logs[0]
    log.add(0, b"0", b"1", b"2")
    log.add(3, b"marker", control=True)
    log.add(10, b"10", b"11")
    return brokers


def damaged(brokers: Brokers, index: int) -> None:
    batch = bytearray(brokers.logs[0].batches[index])
    batch[-1] ^= 1
    brokers.logs[0].batches[index] = bytes(batch)


async def values(cluster: Cluster, wanted: PartitionRange, **options: object) -> list[int]:
    found = []
    async for records in read_records(cluster, wanted, **options):  # type: ignore[arg-type]
        found += [int(record.value or b"") for record in records]
    return found


def test_records_within_the_range_are_read_over_gaps_and_control_batches() -> None:
    wanted = PartitionRange(FIRST, 1, 11, ID)
    assert play(filled(), lambda cluster: values(cluster, wanted)) == [1, 2, 10]


def test_ranges_of_a_topic_extend_from_log_start_to_high_watermark() -> None:
    brokers = filled()
    brokers.logs[0].start = 1
    assert play(brokers, lambda cluster: partition_ranges(cluster, "orders")) == [
        PartitionRange(FIRST, 1, 12, ID)
    ]
    brokers.is_there = False
    with pytest.raises(RequestTimedOut, match="topic 'orders' does not exist"):
        play(brokers, lambda cluster: partition_ranges(cluster, "orders", timeout_ms=30))


def test_deleted_records_are_left_out_and_a_shorter_log_ends_the_reading() -> None:
    brokers = filled()
    brokers.logs[0].start = 2
    wanted = PartitionRange(FIRST, 0, 40, ID)
    assert play(brokers, lambda cluster: values(cluster, wanted)) == [2, 10, 11]


def test_batch_that_cannot_be_decoded_is_an_error_or_reported() -> None:
    brokers = filled()
    damaged(brokers, 0)
    wanted = PartitionRange(FIRST, 1, 12, ID)
    with pytest.raises(
        CorruptMessage,
        match=r"topic 'orders' partition 0 offsets 1 to 2 cannot be read: batch at offset 0: the "
        r"checksum does not match.*; read from offset 3 to go on behind them",
    ):
        play(brokers, lambda cluster: values(cluster, wanted))
    reported: list[tuple[PartitionRange, KafkaError]] = []

    def unreadable(batch: PartitionRange, error: KafkaError) -> None:
        reported.append((batch, error))

    found = play(brokers, lambda cluster: values(cluster, wanted, unreadable=unreadable))
    assert found == [10, 11]
    ((batch, error),) = reported
    assert batch == PartitionRange(FIRST, 1, 3, ID)
    assert isinstance(error, CorruptMessage)


def test_recreated_topic_is_an_error() -> None:
    wanted = PartitionRange(FIRST, 0, 12, TopicId(ID.__class__(int=8)))
    with pytest.raises(TopicMadeAgain, match=r"deleted and created again.* Start again"):
        play(filled(), lambda cluster: values(cluster, wanted))


def test_missing_topic_is_an_error_at_the_deadline() -> None:
    brokers = filled()
    brokers.is_there = False
    wanted = PartitionRange(FIRST, 0, 12, ID)
    with pytest.raises(
        RequestTimedOut, match="gave up after 30 ms; last error: topic 'orders' does not"
    ):
        play(brokers, lambda cluster: values(cluster, wanted, timeout_ms=30))
