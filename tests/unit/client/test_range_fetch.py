"""Ranges are fetched to their end through errors of the cluster, gaps and deleted records."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from sharegroup.client.fetch.range_fetch import (
    RESPONSE_BYTES_MAX,
    MissingOffsets,
    RangeFetch,
    WantedRanges,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    FencedLeaderEpoch,
    KafkaStorageError,
    LeaderNotAvailable,
    NetworkException,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    OffsetOutOfRange,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from sharegroup.ids import TopicId
from sharegroup.wire.batches.records import decode_records
from tests.unit.client.plain_brokers import ID, Brokers, Refusal, play

FIRST = TopicPartition("orders", 0)


def wanted(*ranges: tuple[int, int], partition: int = 0, topic_id: TopicId = ID) -> WantedRanges:
    where = TopicPartition("orders", partition)
    return WantedRanges(where, topic_id, ranges)


class Reading(NamedTuple):
    """What a reading got."""

    offsets: list[tuple[int, int]]
    """Partition and offset of each record at or behind the requested offset."""
    missing: list[MissingOffsets]


async def read(
    cluster: Cluster,
    *partitions: WantedRanges,
    response_bytes_max: int = RESPONSE_BYTES_MAX,
    **options: object,
) -> Reading:
    reading = Reading([], [])
    fetch = RangeFetch(cluster, partitions, missing=reading.missing.append, **options)  # type: ignore[arg-type]
    fetch.response_bytes_max = response_bytes_max
    while fetched := await fetch.next_round():
        for batches in fetched:
            reading.offsets.extend(
                (batches.wanted.where.partition, record.offset)
                for record in decode_records(batches.records)
                if record.offset >= batches.first
            )
    return reading


def filled(*firsts: int, partitions: int = 1) -> Brokers:
    """Each partition has batches of two records at these offsets."""
    brokers = Brokers(partitions=partitions)
    for log in brokers.logs:
        for first in firsts:
            log.add(first, b"a", b"b")
    return brokers


def test_ranges_are_fetched_together_unless_far_apart() -> None:
    brokers = filled(0, 2, 1_500, 3_000)
    reading = play(brokers, lambda cluster: read(cluster, wanted((0, 1), (3, 4), (3_000, 3_002))))
    assert (0, 0) in reading.offsets
    assert (0, 3) in reading.offsets
    assert reading.offsets[-2:] == [(0, 3_000), (0, 3_001)]
    assert reading.missing == []


def test_empty_ranges_send_no_request() -> None:
    brokers = filled(0)
    assert play(brokers, lambda cluster: read(cluster, wanted((2, 2)), wanted())).offsets == []
    assert brokers.requests == []


def test_gaps_and_control_batches_are_passed_over() -> None:
    brokers = filled(0, 10)
    brokers.logs[0].add(20, b"marker", control=True)
    reading = play(brokers, lambda cluster: read(cluster, wanted((0, 21))))
    assert [offset for _, offset in reading.offsets] == [0, 1, 10, 11]
    assert reading.missing == []


def test_partitions_take_turns_when_a_response_is_full() -> None:
    brokers = filled(0, 2, 4, partitions=3)
    size = len(brokers.logs[0].batches[0])
    parts = [wanted((0, 6), partition=number) for number in range(3)]
    reading = play(brokers, lambda cluster: read(cluster, *parts, response_bytes_max=size))
    assert sorted(reading.offsets) == [(part, offset) for part in range(3) for offset in range(6)]


RETRIABLE: list[Refusal] = [
    NotLeaderOrFollower,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    OffsetNotAvailable,
    KafkaStorageError,
    LeaderNotAvailable,
    UnknownTopicId,
    NetworkException("broker broker1:9091: the connection broke"),
]


@pytest.mark.parametrize("refusal", RETRIABLE, ids=repr)
def test_retriable_error_is_retried_with_new_metadata(refusal: Refusal) -> None:
    brokers = filled(0, 2)
    brokers.refuse("Fetch", refusal)
    reading = play(brokers, lambda cluster: read(cluster, wanted((0, 4))))
    assert reading == Reading([(0, offset) for offset in range(4)], [])
    assert [name for _, name, _ in brokers.requests] == ["Metadata", "Fetch"] * 2


def test_new_leader_is_found() -> None:
    brokers = filled(0)

    async def scene(cluster: Cluster) -> list[int]:
        await cluster.topic("orders")
        brokers.logs[0].leader, brokers.logs[0].epoch = 2, 5
        await read(cluster, wanted((0, 2)))
        return [node for node, _ in brokers.asked("Fetch")]

    assert play(brokers, scene) == [1, 2]


@pytest.mark.parametrize("refusal", [*RETRIABLE, OffsetOutOfRange], ids=repr)
def test_deadline_ends_the_retries_with_the_last_error(refusal: Refusal) -> None:
    brokers = filled(0, 2)
    brokers.refused_for_ever["Fetch"] = refusal
    with pytest.raises(
        RequestTimedOut,
        match=r"^fetch of topic 'orders' partition 0 offset 1: gave up after 40 ms; last error: .+",
    ):
        play(brokers, lambda cluster: read(cluster, wanted((1, 4)), timeout_ms=40))


def test_partition_without_a_leader_waits_for_one_until_the_deadline() -> None:
    brokers = filled(0)
    brokers.logs[0].leader = -1
    with pytest.raises(RequestTimedOut, match=r"gave up after 40 ms; last error: .* has no leader"):
        play(brokers, lambda cluster: read(cluster, wanted((0, 2)), timeout_ms=40))


def test_error_that_no_retry_changes_is_raised_at_once() -> None:
    brokers = filled(0)
    brokers.refuse("Fetch", TopicAuthorizationFailed)
    with pytest.raises(TopicAuthorizationFailed, match="partition 0 offset 0: broker broker1:9091"):
        play(brokers, lambda cluster: read(cluster, wanted((0, 2))))


def test_deleted_records_are_reported_and_the_rest_is_read() -> None:
    brokers = filled(0, 2, 4)
    brokers.logs[0].start = 3
    reading = play(brokers, lambda cluster: read(cluster, wanted((1, 2), (2, 6))))
    assert [offset for _, offset in reading.offsets] == [3, 4, 5]
    (missing,) = reading.missing
    assert missing[:3] == (FIRST, 1, 3)
    assert repr(missing.error) == repr(OffsetOutOfRange("the log begins at 3"))


@pytest.mark.parametrize("first", [4, 9], ids=["at the end", "behind the end"])
def test_log_that_ends_before_the_range_is_reported(first: int) -> None:
    brokers = filled(0, 2)
    reading = play(brokers, lambda cluster: read(cluster, wanted((first, 20))))
    assert reading.offsets == []
    (missing,) = reading.missing
    assert missing[:3] == (FIRST, first, 20)
    assert repr(missing.error) == repr(OffsetOutOfRange("the log ends at 4"))


def test_new_leader_without_a_high_watermark_is_retried() -> None:
    """The new leader returns neither records nor an end offset until it knows both (KIP-207)."""
    brokers = filled(0, 2)
    log = brokers.logs[0]
    batches, log.batches, log.high_watermark = log.batches, log.batches[:1], 2

    def learn() -> None:
        log.batches, log.high_watermark = batches, 4

    brokers.refuse("ListOffsets", OffsetNotAvailable, OffsetNotAvailable, learn)
    reading = play(brokers, lambda cluster: read(cluster, wanted((2, 4))))
    assert reading == Reading([(0, 2), (0, 3)], [])


def test_leader_that_returns_no_records_below_its_high_watermark_is_retried() -> None:
    brokers = filled(0, 2)
    log = brokers.logs[0]
    batches, log.batches = log.batches, []
    with pytest.raises(RequestTimedOut, match="returned no records below its high watermark 4"):
        play(brokers, lambda cluster: read(cluster, wanted((0, 4)), timeout_ms=40))
    log.batches = batches
    assert len(play(brokers, lambda cluster: read(cluster, wanted((0, 4)))).offsets) == 4


def test_unknown_topic_is_retried_unless_it_counts_as_missing() -> None:
    brokers = filled(0)
    brokers.is_there = False
    with pytest.raises(RequestTimedOut, match="last error: topic 'orders' does not exist"):
        play(brokers, lambda cluster: read(cluster, wanted((0, 2)), timeout_ms=40))
    reading = play(
        brokers, lambda cluster: read(cluster, wanted((0, 2)), deleted_topics_are_missing=True)
    )
    (missing,) = reading.missing
    assert missing[:3] == (FIRST, 0, 2)
    assert isinstance(missing.error, UnknownTopicOrPartition)


def test_recreated_topic_is_missing_after_three_metadata_responses() -> None:
    brokers = filled(0)
    other = TopicId(ID.__class__(int=8))
    reading = play(brokers, lambda cluster: read(cluster, wanted((0, 2), topic_id=other)))
    (missing,) = reading.missing
    assert "deleted and created again" in str(missing.error)
    assert [name for _, name, _ in brokers.requests] == ["Metadata"] * 3


def test_old_and_new_topic_of_one_name_are_not_confused() -> None:
    brokers = filled(0)
    old = TopicId(ID.__class__(int=8))
    parts = wanted((0, 2), topic_id=old), wanted((0, 2))
    reading = play(brokers, lambda cluster: read(cluster, *parts))
    assert reading.offsets == [(0, 0), (0, 1)]
    assert [missing[:3] for missing in reading.missing] == [(FIRST, 0, 2)]


def test_records_received_before_an_error_are_fetched_again() -> None:
    brokers = filled(0, partitions=2)
    parts = [wanted((0, 2), partition=number) for number in range(2)]

    async def scene(cluster: Cluster) -> list[int]:
        fetch = RangeFetch(cluster, parts, missing=raise_missing)
        brokers.logs[1].start = 1
        with pytest.raises(OffsetOutOfRange):
            await fetch.next_round()
        brokers.logs[1].start = 0
        return [batches.wanted.where.partition for batches in await fetch.next_round()]

    def raise_missing(missing: MissingOffsets) -> None:
        raise missing.error

    assert play(brokers, scene) == [0, 1]


def test_error_of_the_caller_about_missing_records_ends_the_fetch() -> None:
    brokers = filled(0, 2)
    brokers.logs[0].start = 2

    def refuse(missing: MissingOffsets) -> None:
        raise ValueError(missing.end)

    async def scene(cluster: Cluster) -> None:
        await RangeFetch(cluster, [wanted((0, 4))], missing=refuse).next_round()

    with pytest.raises(ValueError, match="2"):
        play(brokers, scene)


def test_bytes_to_request_follow_the_size_of_the_records_received() -> None:
    brokers = Brokers()
    for first in range(0, 600, 2):
        brokers.logs[0].add(first, b"x" * 5_000, b"x" * 5_000)
    sizes: dict[object, float] = {}
    play(brokers, lambda cluster: read(cluster, wanted((0, 600)), record_sizes=sizes))
    asked = [
        partition.partition_max_bytes
        for _, request in brokers.asked("Fetch")
        for topic in request.topics
        for partition in topic.partitions
    ]
    assert asked[0] == 600 * 256 + 64 * 1024
    assert 2_000_000 < asked[1] <= 4 * 1024 * 1024
    assert 5_000 < sizes[ID, FIRST] < 5_100
