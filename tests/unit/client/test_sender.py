"""What a producer does about each answer: written once, in order, or reported.

A scripted broker stands in for the cluster.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.produce.v13.response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from sharegroup.client import partition_queue as partition_queue_module
from sharegroup.client import producer as producer_module
from sharegroup.client import sender as sender_module
from sharegroup.client.backoff import Backoff
from sharegroup.client.cluster import Topic
from sharegroup.client.metrics import Metrics
from sharegroup.client.producer import Producer
from sharegroup.client.records import IllegalStateError
from sharegroup.errors import (
    KafkaError,
    MessageTooLarge,
    NetworkException,
    RequestTimedOut,
    TopicAuthorizationFailed,
)
from sharegroup.ids import TopicId, TopicName
from sharegroup.wire.batches import BatchHeader, parse_header

TOPIC_ID = TopicId(UUID(int=5))

Answer = int | KafkaError
"""An error code for the batch that is answered, or an exception instead of an answer."""


class ScriptedBroker:
    """Stands for cluster and connection: answers one batch after the other by the script."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.seen: list[BatchHeader] = []
        self.identities = 0
        self.offset = 0
        self.metrics = Metrics("test")

    # The cluster.

    async def any_connection(self) -> "ScriptedBroker":
        return self

    async def connection(self, node_id: int, lane: object) -> "ScriptedBroker":
        return self

    def last_known_topic(self, name: str) -> Topic:
        return Topic(TopicName(name), TOPIC_ID, (1,))

    known_topic = last_known_topic

    def outdate(self, name: str) -> None:
        pass

    def close(self) -> None:
        pass

    def backoff(self) -> Backoff:
        return Backoff(10, 20, chance=lambda: 0.5)

    async def retrying(self, attempt: Any, *, what: str, timeout_ms: int) -> Any:
        return await attempt()

    # The connection.

    def version_of(self, key: int) -> int:
        return 13

    async def drained(self) -> None:
        pass

    async def request(self, message: Any) -> Any:
        self.identities += 1
        values: dict[str, Any] = {
            "throttle_time": timedelta(0),
            "error_code": 0,
            "producer_id": 40 + self.identities,
            "producer_epoch": 0,
        }
        return InitProducerIdResponse(**values)

    async def request_as_is(self, message: Any) -> Any:
        ((part,),) = (topic.partition_data for topic in message.topic_data)
        header = parse_header(part.records)
        self.seen.append(header)
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Exception):
            raise answer
        values: dict[str, Any] = {
            "index": 0,
            "error_code": answer,
            "base_offset": -1 if answer else self.offset,
            "record_errors": (),
        }
        if not answer:
            self.offset += header.record_count
        topic = TopicProduceResponse(
            topic_id=TOPIC_ID, partition_responses=(PartitionProduceResponse(**values),)
        )
        return ProduceResponse(responses=(topic,), throttle_time=timedelta(0))  # type: ignore[arg-type]

    @property
    def numbers(self) -> list[tuple[int, int, int]]:
        """Producer id, epoch and first number of every batch that arrived."""
        return [(one.producer_id, one.producer_epoch, one.base_sequence) for one in self.seen]


def play(
    monkeypatch: pytest.MonkeyPatch,
    scenario: Callable[[Producer], Coroutine[Any, Any, None]],
    *answers: Answer,
    **options: Any,
) -> ScriptedBroker:
    broker = ScriptedBroker(*answers)
    monkeypatch.setattr(producer_module, "Cluster", lambda config: broker)

    async def run() -> None:
        async with Producer(**{"linger_ms": 0, **options}) as made:
            await scenario(made)

    asyncio.run(run())
    return broker


async def one_by_one(producer: Producer, count: int) -> list[int]:
    return [(await producer.send_and_wait("t", b"v")).offset for _ in range(count)]


def test_numbers_go_on_from_batch_to_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 3) == [0, 1, 2]

    assert play(monkeypatch, scenario).numbers == [(41, 0, 0), (41, 0, 1), (41, 0, 2)]


def test_a_lost_answer_is_sent_again_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 2) == [0, 1]

    broker = play(monkeypatch, scenario, NetworkException("cut"), 6)
    assert broker.numbers == [(41, 0, 0), (41, 0, 0), (41, 0, 0), (41, 0, 1)]


def test_a_batch_that_the_broker_has_already_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: Producer) -> None:
        # Written, though the broker no longer says where.
        assert await one_by_one(producer, 1) == [-1]

    assert play(monkeypatch, scenario, NetworkException("cut"), 46).numbers == [(41, 0, 0)] * 2


@pytest.mark.parametrize("code", [45, 59, 47], ids=["out of order", "unknown id", "old epoch"])
def test_a_broker_that_counts_otherwise_gets_new_numbers_in_a_new_epoch(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 3) == [0, 1, 2]

    broker = play(monkeypatch, scenario, 0, code)
    assert broker.numbers == [(41, 0, 0), (41, 0, 1), (41, 1, 0), (41, 1, 1)]


def test_a_refused_batch_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(TopicAuthorizationFailed, match="topic 't' partition 0"):
            await one_by_one(producer, 1)
        assert await one_by_one(producer, 1) == [0]

    # Its number is used up here and not there: the next batch begins a new epoch.
    assert play(monkeypatch, scenario, 29).numbers == [(41, 0, 0), (41, 1, 0)]


def test_a_batch_is_given_up_in_time_and_says_that_it_is_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(RequestTimedOut, match="it may have been written; last error: Network"):
            await one_by_one(producer, 1)

    play(
        monkeypatch, scenario, *[NetworkException("cut") for _ in range(50)], delivery_timeout_ms=60
    )


def test_records_that_wait_together_leave_together(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: Producer) -> None:
        deliveries = [await producer.send("t", b"v", timestamp_ms=7) for _ in range(10)]
        await producer.flush()
        assert [one.result().offset for one in deliveries] == list(range(10))
        assert {one.result().timestamp_ms for one in deliveries} == {7}

    broker = play(monkeypatch, scenario)
    assert [header.record_count for header in broker.seen] == [10]


def test_an_outcome_can_be_looked_at_without_being_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(producer: Producer) -> None:
        refused = await producer.send("t", b"v")
        with pytest.raises(asyncio.InvalidStateError):
            refused.exception()
        await producer.flush()
        written = await producer.send("t", b"v")
        await producer.flush()
        assert isinstance(refused.exception(), TopicAuthorizationFailed)
        assert written.exception() is None

    play(monkeypatch, scenario, 29)


class SlowLooks:
    """A clock that goes on by 2 ms with each look at it, as on a machine with much to do."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.002
        return self.now


def test_a_batch_leaves_though_its_time_comes_while_the_sender_looks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(producer: Producer) -> None:
        for lingering_ms in range(1, 12):
            # Whenever the batch was made, between two looks lies the end of its lingering.
            producer._sender._config = replace(producer._config, linger_ms=lingering_ms)
            async with asyncio.timeout(5):
                await producer.send_and_wait("t", b"v")

    monkeypatch.setattr(sender_module, "time", SlowLooks())
    monkeypatch.setattr(producer_module, "time", sender_module.time)
    monkeypatch.setattr(sender_module.time, "time_ns", lambda: 0, raising=False)
    assert play(monkeypatch, scenario).offset == 11


def test_a_record_larger_than_a_request_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(MessageTooLarge, match="request_bytes_max is 1000"):
            await producer.send("t", b"v" * 1000)

    assert play(monkeypatch, scenario, request_bytes_max=1000).seen == []


def test_only_bytes_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(TypeError, match="value: expected bytes or None, got str"):
            await producer.send("t", "text")  # type: ignore[arg-type]

    play(monkeypatch, scenario)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"headers": [("h", "text")]}, TypeError, "header 'h': expected bytes or None, got str"),
        ({"headers": [(b"h", b"v")]}, TypeError, "a header's name: expected str, got bytes"),
        ({"headers": [("\ud800", b"v")]}, UnicodeEncodeError, "surrogates not allowed"),
        (
            {"headers": {"ab": b"v"}},
            TypeError,
            "headers: expected \\(name, value\\) pairs, got dict",
        ),
        ({"timestamp_ms": 2**63}, ValueError, "expected 0 to"),
        ({"timestamp_ms": -1}, ValueError, "expected 0 to"),
        ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms: expected int, got float"),
        ({"partition": "0"}, TypeError, "partition: expected int, got str"),
    ],
)
def test_what_cannot_be_encoded_is_refused_and_harms_no_other(
    options: dict[str, Any],
    error: type[Exception],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(error, match=message):
            await producer.send("t", b"v", **options)
        assert await one_by_one(producer, 1) == [0]

    play(monkeypatch, scenario)


def test_a_full_buffer_makes_send_wait_and_then_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: Producer) -> None:
        first = await producer.send("t", b"v" * 60)
        with pytest.raises(RequestTimedOut, match="81 of buffer_bytes=100 are in use"):
            await producer.send("t", b"v" * 60)
        with pytest.raises(RequestTimedOut):
            await first

    play(
        monkeypatch,
        scenario,
        *[NetworkException("cut") for _ in range(50)],
        buffer_bytes=100,
        request_bytes_max=100,
        max_block_ms=20,
        delivery_timeout_ms=80,
    )


def test_a_send_that_waits_for_room_ends_when_the_producer_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(producer: Producer) -> None:
        first = await producer.send("t", b"v" * 60)
        waiting = asyncio.create_task(producer.send("t", b"v" * 60))
        await asyncio.sleep(0)
        await producer.close(timeout=0.02)
        with pytest.raises(IllegalStateError, match="this producer is closed"):
            await waiting
        with pytest.raises(NetworkException, match="the producer was closed"):
            await first

    play(
        monkeypatch,
        scenario,
        *[NetworkException("cut") for _ in range(50)],
        buffer_bytes=100,
        request_bytes_max=100,
    )


def test_partitions_share_the_producers_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id for each partition would fill a broker's memory, and cost a round trip each."""

    async def scenario(producer: Producer) -> None:
        for topic in ("a", "b", "c", "a"):
            await producer.send_and_wait(topic, b"v")

    broker = play(monkeypatch, scenario)
    assert broker.identities == 1
    assert broker.numbers == [(41, 0, 0), (41, 0, 0), (41, 0, 0), (41, 0, 1)]


def test_partition_without_an_epoch_left_gets_the_next_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_queue_module, "EPOCH_MAX", 0)

    async def scenario(producer: Producer) -> None:
        for topic in ("a", "b", "a", "b", "b"):
            await producer.send_and_wait(topic, b"v")

    # The third and fourth batches are refused: both partitions count anew under one new id.
    broker = play(monkeypatch, scenario, 0, 0, 45, 0, 45)
    assert broker.numbers == [
        (41, 0, 0), (41, 0, 0), (41, 0, 1), (42, 0, 0), (41, 0, 1), (42, 0, 0), (42, 0, 1),
    ]  # fmt: skip
    assert broker.identities == 2


def test_fault_in_the_background_is_raised_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(producer: Producer) -> None:
        delivery = await producer.send("t", b"v")
        with pytest.raises(NetworkException, match=r"the producer failed: ZeroDivisionError\(\)"):
            await delivery
        with pytest.raises(ZeroDivisionError):
            await producer.send("t", b"v")
        with pytest.raises(ZeroDivisionError):
            await producer.close()

    play(monkeypatch, scenario, ZeroDivisionError())  # type: ignore[arg-type]


def test_producer_counts_what_it_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    values: dict[str, float] = {}

    async def scenario(producer: Producer) -> None:
        await one_by_one(producer, 2)
        with pytest.raises(TopicAuthorizationFailed):
            await one_by_one(producer, 1)
        values.update(producer.metrics()["producer-metrics"])

    play(monkeypatch, scenario, NetworkException("cut"), 0, 0, 29)
    names = ("record-send-total", "record-retry-total", "record-error-total")
    assert [values[name] for name in names] == [2, 1, 1]
    assert values["buffer-available-bytes"] == values["buffer-total-bytes"] == 32 * 1024 * 1024


def test_the_brokers_append_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from sharegroup.client.produce_requests import answers

    values: dict[str, Any] = {
        "index": 0,
        "error_code": 0,
        "base_offset": 9,
        "record_errors": (),
        "log_append_time": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
    }
    topic = TopicProduceResponse(
        topic_id=TOPIC_ID, partition_responses=(PartitionProduceResponse(**values),)
    )
    response = ProduceResponse(responses=(topic,), throttle_time=timedelta(0))  # type: ignore[arg-type]
    ((where, answered),) = answers(response, 13, {"t": TOPIC_ID})
    assert where == ("t", 0)
    assert (answered.written.base_offset, answered.written.log_append_ms) == (9, 1500)
