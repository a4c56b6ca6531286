"""What becomes of acknowledgements when a session goes well, and when it breaks.

A scripted broker stands in for the cluster: each test says what it answers, in order.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.share_acknowledge.v2 import response as acknowledge
from kio.schema.share_fetch.v2 import response as fetch

from sharegroup.client.backoff import Backoff
from sharegroup.client.consumer_config import ShareConsumerConfig
from sharegroup.client.records import AcknowledgeType, Record
from sharegroup.client.share_node import Outcome, ShareNode
from sharegroup.errors import (
    InvalidRecordState,
    KafkaError,
    NetworkException,
    ShareSessionNotFound,
)
from sharegroup.ids import TopicId, TopicName, TopicPartition
from sharegroup.wire.batches import stamp
from sharegroup.wire.records import encode_batch

TOPIC = TopicId(UUID(int=9))
KEY = TopicPartition(TOPIC, 0)
NOTHING = timedelta(0)

Answer = Any
"""A response, or an exception that the connection raises instead."""


class ScriptedConnection:
    def __init__(self, answers: list[Answer]) -> None:
        self.answers = answers
        self.requests: list[Any] = []
        self.is_open = True

    async def request(self, message: Any, *, timeout_ms: int) -> Any:
        self.requests.append(message)
        answer = self.answers.pop(0)
        if isinstance(answer, KafkaError):
            self.is_open = False
            raise answer
        return answer

    def fail(self, error: Exception) -> None:
        self.is_open = False


class ScriptedCluster:
    """One broker; every new connection goes on with the script."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.connections: list[ScriptedConnection] = []
        self.refuses = False

    async def connection(self, node_id: int, lane: object) -> ScriptedConnection:
        if self.refuses:
            raise NetworkException("connection refused")
        self.connections.append(ScriptedConnection(self.answers))
        return self.connections[-1]

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        return TopicName("t") if topic_id == TOPIC else None

    def backoff(self) -> Backoff:
        return Backoff(100, 1_000, chance=lambda: 0.5)

    @property
    def requests(self) -> list[Any]:
        return [request for connection in self.connections for request in connection.requests]


def fetched(
    *values: bytes, first: int = 0, error: int = 0, ack_error: int | None = None
) -> fetch.ShareFetchResponse:
    """An answer with these records, all acquired; an entry without records for an ack alone."""
    records, acquired = b"", ()
    if values:
        batch = encode_batch([(None, value, 0, ()) for value in values])
        stamp(batch, 0, base_offset=first, leader_epoch=0)
        records = bytes(batch)
        last = first + len(values) - 1
        acquired = (
            fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=1),  # type: ignore[arg-type]
        )
    part: dict[str, Any] = {
        "partition_index": 0,
        "error_code": error,
        "acknowledge_error_code": ack_error or 0,
        "current_leader": fetch.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),  # type: ignore[arg-type]
        "records": records,
        "acquired_records": acquired,
    }
    said = values or error or ack_error is not None
    topic = fetch.ShareFetchableTopicResponse(
        topic_id=TOPIC, partitions=(fetch.PartitionData(**part),)
    )
    whole: dict[str, Any] = {"responses": (topic,) if said else (), "error_code": 0}
    return fetch.ShareFetchResponse(
        **whole,
        throttle_time=NOTHING,  # type: ignore[arg-type]
        acquisition_lock_timeout=timedelta(seconds=30),  # type: ignore[arg-type]
        node_endpoints=(),
    )


def acknowledged(
    *, error: int = 0, top: int = 0, silent: bool = False
) -> acknowledge.ShareAcknowledgeResponse:
    part: dict[str, Any] = {
        "partition_index": 0,
        "error_code": error,
        "error_message": "says the broker",
        "current_leader": acknowledge.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),  # type: ignore[arg-type]
    }
    topic = acknowledge.ShareAcknowledgeTopicResponse(
        topic_id=TOPIC, partitions=(acknowledge.PartitionData(**part),)
    )
    whole: dict[str, Any] = {"error_code": top, "responses": () if top or silent else (topic,)}
    return acknowledge.ShareAcknowledgeResponse(
        **whole,
        throttle_time=NOTHING,  # type: ignore[arg-type]
        acquisition_lock_timeout=timedelta(seconds=30),  # type: ignore[arg-type]
        node_endpoints=(),
    )


Scenario = Callable[[ShareNode, ScriptedCluster], Coroutine[Any, Any, None]]


def play(scenario: Scenario, *answers: Answer) -> None:
    async def run() -> None:
        cluster = ScriptedCluster(*answers)
        config = ShareConsumerConfig(group_id="g", share_acknowledgement_mode="explicit")
        await scenario(ShareNode(1, cluster, config, "m"), cluster)  # type: ignore[arg-type]
        assert cluster.answers == [], "the script was not played to its end"

    asyncio.run(run())


async def fetch_records(node: ShareNode) -> list[Record]:
    """Fetch and hand out, as a poll does."""
    outcome = await node.fetch([KEY], max_records=500)
    records = [record for one in outcome.deliveries for record in one.records]
    for one in outcome.deliveries:
        one.held.hand_out([record.offset for record in one.records])
    return records


def results(outcome: Outcome) -> list[tuple[list[int], type | None]]:
    return [
        (list(one.offsets), None if one.error is None else type(one.error))
        for one in outcome.results
    ]


def ack_batches(request: Any) -> list[tuple[int, int, Sequence[int]]]:
    return [
        (batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
        for topic in request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
    ]


def test_acknowledgements_go_with_the_next_fetch() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        for record in await fetch_records(node):
            record.accept()
        outcome = await node.fetch([KEY], max_records=500)
        assert results(outcome) == [([0, 1], None)]
        opening, second = broker.requests
        assert (opening.share_session_epoch, second.share_session_epoch) == (0, 1)
        assert ack_batches(second) == [(0, 1, (1,))]

    play(scenario, fetched(b"a", b"b"), fetched(b"c", first=2, ack_error=0))


def test_only_settled_records_are_acknowledged() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        first, second, third = await fetch_records(node)
        first.release()
        third.reject()
        assert results(await node.acknowledge()) == [([0, 2], None)]
        second.accept()
        assert results(await node.acknowledge()) == [([1], None)]
        assert [ack_batches(request) for request in broker.requests[1:]] == [
            [(0, 0, (2,)), (2, 2, (3,))],
            [(1, 1, (1,))],
        ]
        assert [one.share_session_epoch for one in broker.requests] == [0, 1, 2]

    play(scenario, fetched(b"a", b"b", b"c"), acknowledged(), acknowledged())


def test_a_refused_partition_is_reported_and_the_session_goes_on() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        (record,) = await fetch_records(node)
        record.accept()
        assert results(await node.acknowledge()) == [([0], InvalidRecordState)]
        assert node.is_open

    play(scenario, fetched(b"a"), acknowledged(error=121))


def test_an_acknowledgement_refused_in_a_fetch_leaves_its_records_alone() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        (record,) = await fetch_records(node)
        record.accept()
        outcome = await node.fetch([KEY], max_records=500)
        assert results(outcome) == [([0], InvalidRecordState)]
        assert [record.offset for one in outcome.deliveries for record in one.records] == [1]

    play(scenario, fetched(b"a"), fetched(b"b", first=1, ack_error=121))


def test_an_answer_that_leaves_a_partition_out_is_no_success() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        (record,) = await fetch_records(node)
        record.accept()
        assert results(await node.fetch([KEY], max_records=500)) == [([0], InvalidRecordState)]

    play(scenario, fetched(b"a"), fetched())


def test_an_acknowledge_answer_that_leaves_a_partition_out_is_no_success() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        (record,) = await fetch_records(node)
        record.accept()
        assert results(await node.acknowledge()) == [([0], InvalidRecordState)]

    play(scenario, fetched(b"a"), acknowledged(silent=True))


def test_a_fetch_after_the_connection_ended_opens_a_new_session_and_reports() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        (record,) = await fetch_records(node)
        record.accept()
        broker.connections[0].is_open = False
        outcome = await node.fetch([KEY], max_records=500)
        assert results(outcome) == [([0], ShareSessionNotFound)]
        assert len(outcome.lost) == 1
        assert len(broker.connections) == 2
        assert broker.requests[-1].share_session_epoch == 0
        assert ack_batches(broker.requests[-1]) == []

    play(scenario, fetched(b"a"), fetched())


def test_a_lost_answer_leaves_acknowledgements_in_doubt() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        sent, late = await fetch_records(node)
        sent.accept()
        outcome = await node.acknowledge()
        assert results(outcome) == [([0], NetworkException)]
        assert len(outcome.lost) == 1
        late.accept()  # Its lock went with the connection: it can't be sent any more.
        assert results(await node.acknowledge()) == [([1], ShareSessionNotFound)]
        assert len(broker.requests) == 2
        assert not node.is_open

    play(scenario, fetched(b"a", b"b"), NetworkException("cut"))


def test_what_was_never_sent_is_not_in_doubt() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        (record,) = await fetch_records(node)
        record.accept()
        broker.connections[0].is_open = False  # The broker went away while nobody looked.
        assert results(await node.acknowledge()) == [([0], ShareSessionNotFound)]
        assert len(broker.requests) == 1

    play(scenario, fetched(b"a"))


@pytest.mark.parametrize("code", [122, 123, 133])
def test_a_session_that_the_broker_lost_fails_what_was_sent_and_opens_again(code: int) -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        (record,) = await fetch_records(node)
        record.accept()
        outcome = await node.acknowledge()
        ((offsets, error),) = results(outcome)
        assert offsets == [0]
        assert error is not None
        assert error is not NetworkException
        assert not broker.connections[0].is_open, "closing makes the broker release the locks"
        await node.fetch([KEY], max_records=500)
        assert broker.requests[-1].share_session_epoch == 0
        assert ack_batches(broker.requests[-1]) == []

    play(scenario, fetched(b"a"), acknowledged(top=code), fetched())


def test_closing_sends_what_is_settled_with_the_last_epoch() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        first, _ = await fetch_records(node)
        first.accept()
        assert results(await node.acknowledge(close=True)) == [([0], None)]
        assert broker.requests[-1].share_session_epoch == -1
        assert ack_batches(broker.requests[-1]) == [(0, 0, (1,))]
        assert not node.is_open

    play(scenario, fetched(b"a", b"b"), acknowledged())


def test_without_a_session_there_is_nothing_to_close() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        assert results(await node.acknowledge(close=True)) == []
        assert broker.requests == []

    play(scenario)


def test_a_partition_that_moved_is_named() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        outcome = await node.fetch([KEY], max_records=500)
        assert outcome.outdated == {("t", 0)}
        assert [error.code for error in outcome.failures] == [6]
        assert node.is_open

    play(scenario, fetched(error=6))


def test_partitions_of_a_broker_that_cant_be_reached_are_looked_for_elsewhere() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        broker.refuses = True
        outcome = await node.fetch([KEY], max_records=500)
        assert outcome.outdated == {("t", 0)}
        assert [type(error) for error in outcome.failures] == [NetworkException]

    play(scenario)


def test_a_changed_mind_counts_until_it_is_sent() -> None:
    async def scenario(node: ShareNode, broker: ScriptedCluster) -> None:
        (record,) = await fetch_records(node)
        record.accept()
        record.settle(AcknowledgeType.RELEASE)
        await node.acknowledge()
        assert ack_batches(broker.requests[-1]) == [(0, 0, (2,))]

    play(scenario, fetched(b"a"), acknowledged())
