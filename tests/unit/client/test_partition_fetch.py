"""One round of plain fetches: one request to each leader, and an outcome for each position."""

from __future__ import annotations

import pytest

from sharegroup.client.fetch.partition_fetch import (
    FetchOutcome,
    FetchPosition,
    NoRecords,
    OtherTopicId,
    RecordBatches,
    fetch_positions,
)
from sharegroup.client.net.cluster import Cluster
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    CorruptMessage,
    KafkaError,
    LeaderNotAvailable,
    NetworkException,
    NoAnswer,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from sharegroup.ids import TopicId
from tests.unit.client.plain_brokers import ID, Brokers, Refusal, play

BYTES_MAX = 1_000_000


def position(partition: int = 0, offset: int = 0, **more: object) -> FetchPosition:
    values = {"where": TopicPartition("orders", partition), "topic_id": ID, "offset": offset,
              "bytes_max": BYTES_MAX, **more}  # fmt: skip
    return FetchPosition(**values)  # type: ignore[arg-type]


def fetch(
    brokers: Brokers, *positions: FetchPosition, bytes_max: int = BYTES_MAX
) -> list[FetchOutcome]:
    return play(brokers, lambda cluster: fetch_positions(cluster, positions, bytes_max=bytes_max))


def filled(partitions: int = 1) -> Brokers:
    brokers = Brokers(partitions=partitions)
    for log in brokers.logs:
        log.add(0, b"a", b"b")
        log.add(2, b"c")
    return brokers


def test_leaders_get_one_request_each_with_the_epochs_of_their_partitions() -> None:
    brokers = filled(partitions=3)
    brokers.logs[1].leader, brokers.logs[1].epoch = 2, 9
    outcomes = fetch(brokers, position(0), position(1, 2), position(2, 1))
    found = [
        (outcome.span, outcome.end_offset, outcome.high_watermark)
        for outcome in outcomes
        if isinstance(outcome, RecordBatches)
    ]
    assert found == [(3, 3, 3), (1, 3, 3), (3, 3, 3)]
    asked = {
        node: [
            (
                topic.topic_id,
                partition.partition,
                partition.current_leader_epoch,
                partition.fetch_offset,
            )
            for topic in request.topics
            for partition in topic.partitions
        ]
        for node, request in brokers.asked("Fetch")
    }
    assert asked == {1: [(ID, 0, 4, 0), (ID, 2, 4, 1)], 2: [(ID, 1, 9, 2)]}


def test_request_has_the_limits_and_a_partition_that_does_not_fit_is_no_error() -> None:
    brokers = filled(partitions=2)
    size = len(brokers.logs[0].batches[0])
    outcomes = fetch(brokers, position(0, bytes_max=size), position(1), bytes_max=size)
    assert [type(outcome) for outcome in outcomes] == [RecordBatches, NoRecords]
    ((_, request),) = brokers.asked("Fetch")
    assert (request.max_bytes, request.isolation_level, int(request.session_epoch)) == (size, 0, -1)
    assert request.topics[0].partitions[0].partition_max_bytes == size


def test_end_of_the_log_has_no_records() -> None:
    assert fetch(filled(), position(offset=3)) == [NoRecords(3)]


def test_topic_can_be_fetched_without_an_expected_id() -> None:
    (outcome,) = fetch(filled(), position(topic_id=None))
    assert isinstance(outcome, RecordBatches)


def test_batch_that_is_cut_off_is_not_counted() -> None:
    brokers = filled()
    log = brokers.logs[0]
    log.batches[1] = log.batches[1][:-1]
    log.high_watermark = 3
    (outcome,) = fetch(brokers, position())
    assert isinstance(outcome, RecordBatches)
    assert (outcome.end_offset, outcome.high_watermark) == (2, 3)


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (
            TopicAuthorizationFailed,
            (
                "topic 'orders' partition 0 offset 1: broker broker1:9091: the user is not "
                "authorized to access the topic (User:ann needs READ on topic 'orders')"
            ),
        ),
        (
            UnknownServerError,
            (
                "topic 'orders' partition 0 offset 1: broker broker1:9091: the server failed "
                "unexpectedly; see the log of the broker"
            ),
        ),
        (NetworkException("broker broker1:9091: gone"), "broker broker1:9091: gone"),
    ],
)
def test_error_names_partition_offset_and_broker(refusal: Refusal, text: str) -> None:
    brokers = filled()
    brokers.refuse("Fetch", refusal)
    (outcome,) = fetch(brokers, position(offset=1))
    assert str(outcome) == text


def test_error_of_one_partition_is_no_error_of_another() -> None:
    brokers = filled(partitions=2)
    brokers.logs[0].leader = -1
    outcomes = fetch(brokers, position(0), position(1))
    assert isinstance(outcomes[1], RecordBatches)
    assert repr(outcomes[0]) == repr(
        LeaderNotAvailable("topic 'orders' partition 0 offset 0: the partition has no leader")
    )


def test_metadata_is_requested_once_and_again_after_an_error() -> None:
    brokers = filled(partitions=2)

    async def rounds(cluster: Cluster) -> None:
        for _ in range(3):
            await fetch_positions(cluster, [position(0), position(1)], bytes_max=BYTES_MAX)
        assert len(brokers.asked("Metadata")) == 1
        brokers.logs[0].leader, brokers.logs[0].epoch = 2, 5
        outcomes = await fetch_positions(cluster, [position(0)], bytes_max=BYTES_MAX)
        assert isinstance(outcomes[0], KafkaError)
        assert len(brokers.asked("Metadata")) == 1
        outcomes = await fetch_positions(cluster, [position(0)], bytes_max=BYTES_MAX)
        assert isinstance(outcomes[0], RecordBatches)
        assert len(brokers.asked("Metadata")) == 2

    play(brokers, rounds)


def test_broker_that_does_not_answer_is_doubted() -> None:
    brokers = filled()
    brokers.refuse("Fetch", NoAnswer("broker broker1:9091: no response to Fetch within 1 ms"))

    async def scene(cluster: Cluster) -> bool:
        await fetch_positions(cluster, [position()], bytes_max=BYTES_MAX)
        return cluster.is_doubtful(1)

    assert play(brokers, scene)


def test_missing_or_recreated_topic_is_named_in_the_error() -> None:
    brokers = filled()
    other = TopicId(ID.__class__(int=8))
    (outcome,) = fetch(brokers, position(topic_id=other))
    assert isinstance(outcome, OtherTopicId)
    assert f"expected topic id {other}, found {ID}" in str(outcome)
    brokers.topic_id = None
    (outcome,) = fetch(brokers, position())
    assert isinstance(outcome, UnsupportedVersion)
    brokers.is_there = False
    (outcome,) = fetch(brokers, position())
    assert repr(outcome) == repr(UnknownTopicOrPartition("topic 'orders' does not exist"))
    (outcome,) = fetch(filled(), position(1))
    assert "the topic has partitions 0 to 0" in str(outcome)


def test_response_that_is_no_batch_or_ends_before_the_offset_is_corrupt() -> None:
    brokers = filled()
    log = brokers.logs[0]
    log.lie = b"\0" * 100
    (outcome,) = fetch(brokers, position())
    assert isinstance(outcome, CorruptMessage)
    assert "offset 0: broker broker1:9091: batch at byte 0: expected magic 2" in str(outcome)
    log.lie = log.batches[0]
    (outcome,) = fetch(brokers, position(offset=2))
    assert isinstance(outcome, CorruptMessage)
    assert "offset 2: broker broker1:9091: the response ends before this offset" in str(outcome)
