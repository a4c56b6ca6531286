"""Offsets are looked up at the leader, with its epoch, and until a deadline."""

from __future__ import annotations

import pytest

from sharegroup.client.fetch.offsets import (
    ListedOffset,
    OffsetSpec,
    list_offsets,
    offset_of,
    offsets_of,
)
from sharegroup.client.records import TopicPartition
from sharegroup.errors import (
    FencedLeaderEpoch,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NetworkException,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from tests.unit.client.plain_brokers import Brokers, play

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def filled() -> Brokers:
    """Partition 0 has offsets 2 to 4, led by broker 1; partition 1 has 0 to 1, led by broker 2."""
    brokers = Brokers(partitions=2)
    brokers.logs[0].add(2, b"a", b"b", b"c")
    brokers.logs[0].start = 2
    brokers.logs[1].add(0, b"d", b"e")
    brokers.logs[1].leader = 2
    return brokers


def test_each_leader_gets_one_request_with_the_epochs_of_its_partitions() -> None:
    brokers = filled()
    brokers.logs[1].epoch = 9
    listed = play(brokers, lambda cluster: list_offsets(cluster, {FIRST: -2, SECOND: -1}))
    assert listed == {FIRST: ListedOffset(2, -1, 4), SECOND: ListedOffset(2, -1, 9)}
    asked = {
        node: [
            (partition.partition_index, partition.current_leader_epoch, partition.timestamp)
            for topic in request.topics
            for partition in topic.partitions
        ]
        for node, request in brokers.asked("ListOffsets")
    }
    assert asked == {1: [(0, 4, -2)], 2: [(1, 9, -1)]}


def test_offset_for_a_timestamp_without_records_is_minus_one() -> None:
    found = play(filled(), lambda cluster: offsets_of(cluster, [FIRST], 1_700_000_000_000))
    assert found == {FIRST: -1}


RETRIABLE: list[KafkaError | type[KafkaError]] = [
    NotLeaderOrFollower,
    FencedLeaderEpoch,
    UnknownLeaderEpoch,
    OffsetNotAvailable,
    KafkaStorageError,
    NetworkException("broker broker1:9091: the connection broke"),
]


@pytest.mark.parametrize("refusal", RETRIABLE, ids=repr)
def test_retriable_error_is_retried_with_new_metadata(refusal: KafkaError) -> None:
    brokers = filled()
    brokers.refuse("ListOffsets", refusal)
    wanted = {FIRST: int(OffsetSpec.LATEST)}
    assert play(brokers, lambda cluster: list_offsets(cluster, wanted)) == {
        FIRST: ListedOffset(5, -1, 4)
    }
    assert [name for _, name, _ in brokers.requests] == ["Metadata", "ListOffsets"] * 2
    brokers.refuse("ListOffsets", refusal)
    assert play(brokers, lambda cluster: offsets_of(cluster, [FIRST], -1)) == {FIRST: 5}


def test_offset_of_raises_the_error_of_the_leader_without_a_retry() -> None:
    brokers = filled()
    brokers.refuse("ListOffsets", OffsetNotAvailable)
    with pytest.raises(OffsetNotAvailable, match="topic 'orders' partition 0"):
        play(brokers, lambda cluster: offset_of(cluster, FIRST, -1))
    assert play(brokers, lambda cluster: offset_of(cluster, FIRST, -1)) == 5


def test_partition_without_a_leader_is_a_result_and_is_waited_for_on_request() -> None:
    brokers = filled()
    brokers.logs[1].leader = -1
    listed = play(brokers, lambda cluster: list_offsets(cluster, {FIRST: -1, SECOND: -1}))
    assert listed[FIRST] == ListedOffset(5, -1, 4)
    assert repr(listed[SECOND]) == repr(
        LeaderNotAvailable("topic 'orders' partition 1 has no leader")
    )
    with pytest.raises(RequestTimedOut, match=r"orders'.* gave up after 100 ms; .* has no leader"):
        play(brokers, lambda cluster: offsets_of(cluster, [FIRST, SECOND], -1, timeout_ms=100))


def test_error_that_lasts_until_the_deadline_hides_no_other_partition() -> None:
    brokers = filled()
    brokers.logs[1].leader = 7  # A node that does not exist.
    listed = play(
        brokers,
        lambda cluster: list_offsets(cluster, {FIRST: -1, SECOND: -1}),
        default_api_timeout_ms=50,
    )
    assert listed[FIRST] == ListedOffset(5, -1, 4)
    assert isinstance(listed[SECOND], RequestTimedOut)
    assert "node 7 is not among the brokers" in str(listed[SECOND])


def test_permanent_error_is_reported_without_a_retry() -> None:
    brokers = filled()
    brokers.refuse("ListOffsets", TopicAuthorizationFailed, TopicAuthorizationFailed)
    listed = play(brokers, lambda cluster: list_offsets(cluster, {FIRST: -1}))
    assert "(User:ann needs DESCRIBE on topic 'orders')" in str(listed[FIRST])
    with pytest.raises(TopicAuthorizationFailed):
        play(brokers, lambda cluster: offsets_of(cluster, [FIRST], -1))
    beyond, other = TopicPartition("orders", 2), TopicPartition("none", 0)
    listed = play(brokers, lambda cluster: list_offsets(cluster, {beyond: -1, other: -1}))
    assert {where: type(error) for where, error in listed.items()} == {
        beyond: UnknownTopicOrPartition,
        other: UnknownTopicOrPartition,
    }
    assert "topic 'orders' has partitions 0 to 1; asked for 2" in str(listed[beyond])
