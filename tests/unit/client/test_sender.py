"""What a producer does about each answer: written once, in order, or reported.

A scripted broker stands in for the cluster.
"""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.schema.produce.v13.response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

from sharegroup.backoff import Backoff
from sharegroup.client.metrics.metric_types import Metrics
from sharegroup.client.net.cluster import Topic
from sharegroup.client.produce.producer import Producer
from sharegroup.client.records import IllegalStateError, TopicPartition
from sharegroup.errors import (
    KafkaError,
    MessageTooLarge,
    NetworkException,
    NoAnswer,
    RequestTimedOut,
    TopicAuthorizationFailed,
)
from sharegroup.ids import TopicId, TopicName
from sharegroup.wire.batches.batches import BatchHeader, parse_header
from sharegroup.wire.batches.records import decode_records
from tests.support.limits import HANGING_SECONDS

TOPIC_ID = TopicId(UUID(int=5))

Answer = int | KafkaError
"""An error code for the batch that is answered, or an exception instead of an answer."""


class ScriptedBroker:
    """Stands for cluster and connection: answers one batch after the other by the script."""

    def __init__(self, *answers: Answer, identity_error: int = 0, first_epoch: int = 0) -> None:
        self.answers = list(answers)
        self.identity_error = identity_error
        self.first_epoch = first_epoch
        self.seen: list[BatchHeader] = []
        self.identities = 0
        self.offset = 0
        self.metrics = Metrics("test")
        self.leaders: tuple[int, ...] = (1,)
        self.elected_after = 0
        """How often metadata has to be asked until all partitions have leaders."""
        self.metadata_asked = 0
        self.outdated: list[tuple[int, int]] = []
        self.doubted: list[int] = []
        self.asked_in_turn: list[str | None] = []
        """The questions that any broker can answer; the brokers are asked in turn."""
        self.silent: frozenset[int] = frozenset()
        """Brokers in doubt."""

    # The cluster.

    principal = None

    async def any_connection(self, *, in_turn: str | None = None) -> "ScriptedBroker":
        self.asked_in_turn.append(in_turn)
        return self

    async def connection(self, node_id: int, purpose: object) -> "ScriptedBroker":
        return self

    def last_known_topic(self, name: str) -> Topic:
        return Topic(TopicName(name), TOPIC_ID, self.leaders)

    known_topic = last_known_topic

    def outdate_leader(self, where: TopicPartition, node_id: int) -> None:
        self.outdated.append((where.partition, node_id))

    def doubt(self, node_id: int) -> None:
        self.doubted.append(node_id)

    def is_doubtful(self, node_id: int) -> bool:
        return node_id in self.silent

    def answering_leaders(self, topic: Topic) -> tuple[int, ...]:
        return tuple(-1 if leader in self.silent else leader for leader in topic.leaders)

    def to_ask_again(self) -> set[str]:
        return {"t"} if -1 in self.leaders else set()

    async def refresh(self, names: set[str]) -> None:
        self.metadata_asked += 1
        if self.metadata_asked == self.elected_after:
            self.leaders = (1,) * len(self.leaders)

    def close(self) -> None:
        pass

    def backoff(self) -> Backoff:
        return Backoff(10, 20, chance=lambda: 0.5)

    async def retrying(self, attempt: Any, *, subject: str, timeout_ms: int) -> Any:
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
            "error_code": self.identity_error,
            "producer_id": 40 + self.identities,
            "producer_epoch": self.first_epoch,
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
            "index": part.index,
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
        return [
            (batch.producer_id, batch.producer_epoch, batch.base_sequence) for batch in self.seen
        ]


def play(
    scenario: Callable[[Producer], Coroutine[Any, Any, None]],
    *answers: Answer,
    broker: ScriptedBroker | None = None,
    **options: Any,
) -> ScriptedBroker:
    broker = broker or ScriptedBroker(*answers)

    async def run() -> None:
        async with Producer(cluster=broker, **{"linger_ms": 0, **options}) as made:  # type: ignore[arg-type]
            await scenario(made)

    asyncio.run(run())
    return broker


async def one_by_one(producer: Producer, count: int) -> list[int]:
    return [(await producer.send_and_wait("t", b"v")).offset for _ in range(count)]


def test_sequence_numbers_continue_from_batch_to_batch() -> None:
    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 3) == [0, 1, 2]

    assert play(scenario).numbers == [(41, 0, 0), (41, 0, 1), (41, 0, 2)]


def test_a_lost_answer_is_sent_again_with_its_number() -> None:
    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 2) == [0, 1]

    broker = play(scenario, NetworkException("cut"), 6)
    assert broker.numbers == [(41, 0, 0), (41, 0, 0), (41, 0, 0), (41, 0, 1)]


def test_a_batch_that_the_broker_has_already_is_written() -> None:
    async def scenario(producer: Producer) -> None:
        # Written, though the broker no longer says where.
        assert await one_by_one(producer, 1) == [-1]

    assert play(scenario, NetworkException("cut"), 46).numbers == [(41, 0, 0)] * 2


@pytest.mark.parametrize("code", [19, 20], ids=["before the append", "after the append"])
def test_batch_with_too_few_in_sync_replicas_is_sent_again_with_its_number(
    code: int,
) -> None:
    """After the append the leader has it, so only the same number keeps it from being doubled."""

    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 2) == [0, 1]

    broker = play(scenario, code, code, code)
    assert broker.numbers == [(41, 0, 0)] * 4 + [(41, 0, 1)]
    assert broker.outdated == []  # Only the leader answers so.


def test_leader_that_refuses_or_does_not_answer_is_looked_up_again() -> None:
    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 1) == [0]

    broker = play(scenario, 6, NetworkException("cut"), NoAnswer("silent"))
    assert broker.outdated == [(0, 1)] * 3
    assert broker.doubted == [1]


def test_partition_without_a_leader_stops_no_other_and_waits_for_one() -> None:
    broker = ScriptedBroker()
    broker.leaders = (-1, 1, 1)

    async def scenario(producer: Producer) -> None:
        waiting = await producer.send("t", b"v", partition=0)
        for partition in (1, 2):
            await producer.send_and_wait("t", b"v", partition=partition)
        for _ in range(20):  # Without a key: to those that have leaders.
            assert (await producer.send_and_wait("t", b"v")).partition != 0
        assert not waiting.done()
        broker.elected_after = broker.metadata_asked + 2
        assert (await waiting).partition == 0

    play(scenario, broker=broker)


def test_producer_id_is_requested_from_another_broker_after_no_answer() -> None:
    """A broker without producer ids in stock waits for a controller that may not answer."""

    class WithoutIds(ScriptedBroker):
        async def request(self, message: Any) -> Any:
            if len(self.asked_in_turn) < 3:
                raise NoAnswer("no answer to InitProducerId")
            return await super().request(message)

        async def retrying(self, attempt: Any, *, subject: str, timeout_ms: int) -> Any:
            while True:
                with contextlib.suppress(NoAnswer):
                    return await attempt()

    async def scenario(producer: Producer) -> None:
        await producer.send_and_wait("t", b"v")

    broker = WithoutIds()
    play(scenario, broker=broker)
    assert broker.asked_in_turn == ["InitProducerId"] * 3


def test_records_without_a_key_avoid_a_doubtful_leader() -> None:
    """The cluster names a dead broker as the leader until it notices the failure."""
    broker = ScriptedBroker()
    broker.leaders = (7, 8)

    async def scenario(producer: Producer) -> None:
        first = (await producer.send_and_wait("t", b"v")).partition
        broker.silent = frozenset({broker.leaders[first]})
        other = 1 - first
        assert {(await producer.send_and_wait("t", b"v")).partition for _ in range(9)} == {other}
        broker.silent = frozenset({7, 8})  # If all leaders are doubtful, none is preferred.
        assert (await producer.send_and_wait("t", b"v")).partition == other

    play(scenario, broker=broker)


def test_new_leader_is_found_without_waiting_records() -> None:
    broker = ScriptedBroker()
    broker.leaders, broker.elected_after = (-1, 1), 1

    async def scenario(producer: Producer) -> None:
        for _ in range(2):
            await producer.send_and_wait("t", b"v")
        assert broker.leaders == (1, 1)

    play(scenario, broker=broker)


def test_record_for_a_partition_that_gets_no_leader_fails_in_time() -> None:
    broker = ScriptedBroker()
    broker.leaders = (-1, 1)

    async def scenario(producer: Producer) -> None:
        with pytest.raises(RequestTimedOut, match="partition 0: 1 records not delivered in 60 ms"):
            await producer.send_and_wait("t", b"v", partition=0)

    assert play(scenario, broker=broker, delivery_timeout_ms=60).seen == []


def test_error_after_the_caller_gave_up_is_not_logged_and_one_without_a_caller_is() -> None:
    broker = ScriptedBroker()
    broker.leaders = (-1, 1)

    async def scenario(producer: Producer) -> None:
        logged: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: logged.append(context["message"]))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await producer.send_and_wait("t", b"v", partition=0)
        await producer.flush()
        gc.collect()
        assert logged == []
        await producer.send("t", b"v", partition=0)
        await producer.flush()
        gc.collect()
        assert logged == ["Future exception was never retrieved"]

    play(scenario, broker=broker, delivery_timeout_ms=60)


def test_batch_without_enough_in_sync_replicas_fails_at_the_delivery_timeout() -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(RequestTimedOut, match="it may have been written; last error: NotEnou"):
            await one_by_one(producer, 1)

    play(scenario, *[20] * 50, delivery_timeout_ms=60)


@pytest.mark.parametrize("code", [45, 59, 47], ids=["out of order", "unknown id", "old epoch"])
def test_sequence_error_of_the_broker_restarts_numbers_in_a_new_epoch(
    code: int,
) -> None:
    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 3) == [0, 1, 2]

    broker = play(scenario, 0, code)
    assert broker.numbers == [(41, 0, 0), (41, 0, 1), (41, 1, 0), (41, 1, 1)]


def test_a_refused_batch_fails_alone() -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(
            TopicAuthorizationFailed, match=r"partition 0: .* needs WRITE on topic 't'"
        ):
            await one_by_one(producer, 1)
        assert await one_by_one(producer, 1) == [0]

    # Its number is used up here and not there: the next batch begins a new epoch.
    assert play(scenario, 29).numbers == [(41, 0, 0), (41, 1, 0)]


def test_refused_producer_id_is_reported_as_a_missing_right_to_write() -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(TopicAuthorizationFailed, match="needs WRITE on topic 't'"):
            await one_by_one(producer, 1)

    assert play(scenario, broker=ScriptedBroker(identity_error=31)).numbers == []


def test_batch_that_times_out_is_reported_as_possibly_written() -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(RequestTimedOut, match="it may have been written; last error: Network"):
            await one_by_one(producer, 1)

    play(scenario, *[NetworkException("cut") for _ in range(50)], delivery_timeout_ms=60)


def test_records_that_wait_together_leave_together() -> None:
    async def scenario(producer: Producer) -> None:
        futures = [await producer.send("t", b"v", timestamp_ms=7) for _ in range(10)]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(10))
        assert {future.result().timestamp_ms for future in futures} == {7}

    broker = play(scenario)
    assert [header.record_count for header in broker.seen] == [10]


def test_outcome_can_be_read_without_raising_its_error() -> None:
    async def scenario(producer: Producer) -> None:
        refused = await producer.send("t", b"v")
        with pytest.raises(asyncio.InvalidStateError):
            refused.exception()
        await producer.flush()
        written = await producer.send("t", b"v")
        await producer.flush()
        assert isinstance(refused.exception(), TopicAuthorizationFailed)
        assert written.exception() is None

    play(scenario, 29)


def slow_clock() -> Callable[[], float]:
    """A clock that goes on by 2 ms with each look at it, as on a machine with much to do."""
    milliseconds = count(2, 2)
    return lambda: next(milliseconds) / 1000


def test_batch_is_sent_if_its_linger_ends_during_a_check_of_the_sender() -> None:
    async def scenario(producer: Producer) -> None:
        for lingering_ms in range(1, 12):
            # For each creation time, the end of the linger is between two checks.
            producer._sender._config = replace(producer._config, linger_ms=lingering_ms)
            async with asyncio.timeout(HANGING_SECONDS):
                await producer.send_and_wait("t", b"v")

    assert play(scenario, monotonic=slow_clock()).offset == 11


def test_a_record_larger_than_a_request_is_refused_at_once() -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(MessageTooLarge, match="request_bytes_max is 1000"):
            await producer.send("t", b"v" * 1000)

    assert play(scenario, request_bytes_max=1000).seen == []


def test_only_bytes_are_sent() -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(TypeError, match="value: expected bytes or None, got str"):
            await producer.send("t", "text")  # type: ignore[arg-type]

    play(scenario)


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
        ({"timestamp_ms": 2**63}, ValueError, r"expected -\(2\*\*63\) to"),
        ({"timestamp_ms": -(2**63) - 1}, ValueError, r"expected -\(2\*\*63\) to"),
        ({"timestamp_ms": 1.5}, TypeError, "timestamp_ms: expected int, got float"),
        ({"partition": "0"}, TypeError, "partition: expected int, got str"),
    ],
)
def test_record_that_cannot_be_encoded_is_refused_and_later_ones_are_sent(
    options: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    async def scenario(producer: Producer) -> None:
        with pytest.raises(error, match=message):
            await producer.send("t", b"v", **options)
        assert await one_by_one(producer, 1) == [0]

    play(scenario)


class ReadingBroker(ScriptedBroker):
    """Keeps the headers of the records that arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.headers: list[list[tuple[str, bytes | None]]] = []

    async def request_as_is(self, message: Any) -> Any:
        for topic in message.topic_data:
            for part in topic.partition_data:
                self.headers += (record.headers for record in decode_records(part.records))
        return await super().request_as_is(message)


def test_headers_that_change_after_send_are_sent_as_they_were() -> None:
    async def scenario(producer: Producer) -> None:
        headers: list[Any] = [("attempt", b"1")]
        first = await producer.send("t", b"v", headers=headers)
        headers[0] = ("attempt", b"2")
        second = await producer.send("t", b"v", headers=headers)
        # It is not checked any more, and could not be encoded.
        headers.append(("attempt", "text"))
        once: Any = (header for header in [("attempt", b"3")])
        third = await producer.send("t", b"v", headers=once)
        for future in (first, second, third):
            await future

    broker = ReadingBroker()
    play(scenario, broker=broker, linger_ms=20)
    assert broker.headers == [[("attempt", b"1")], [("attempt", b"2")], [("attempt", b"3")]]


def test_a_full_buffer_makes_send_wait_and_then_fail() -> None:
    async def scenario(producer: Producer) -> None:
        first = await producer.send("t", b"v" * 60)
        with pytest.raises(RequestTimedOut, match="81 of buffer_bytes=100 are in use"):
            await producer.send("t", b"v" * 60)
        with pytest.raises(RequestTimedOut):
            await first

    play(
        scenario,
        *[NetworkException("cut") for _ in range(50)],
        buffer_bytes=100,
        request_bytes_max=100,
        max_block_ms=20,
        delivery_timeout_ms=80,
    )


def test_a_send_that_waits_for_room_ends_when_the_producer_is_closed() -> None:
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
        scenario,
        *[NetworkException("cut") for _ in range(50)],
        buffer_bytes=100,
        request_bytes_max=100,
    )


def test_partitions_share_the_producers_id() -> None:
    """An id for each partition would fill a broker's memory, and cost a round trip each."""

    async def scenario(producer: Producer) -> None:
        for topic in ("a", "b", "c", "a"):
            await producer.send_and_wait(topic, b"v")

    broker = play(scenario)
    assert broker.identities == 1
    assert broker.numbers == [(41, 0, 0), (41, 0, 0), (41, 0, 0), (41, 0, 1)]


def test_partition_without_an_epoch_left_gets_the_next_id() -> None:
    async def scenario(producer: Producer) -> None:
        for topic in ("a", "b", "a", "b", "b"):
            await producer.send_and_wait(topic, b"v")

    # The third and fourth batches are refused: both partitions count anew under one new id.
    last = 32_767
    broker = play(scenario, broker=ScriptedBroker(0, 0, 45, 0, 45, first_epoch=last))
    assert broker.numbers == [
        (41, last, 0), (41, last, 0), (41, last, 1), (42, last, 0), (41, last, 1),
        (42, last, 0), (42, last, 1),
    ]  # fmt: skip
    assert broker.identities == 2


def test_background_exception_is_raised_unchanged() -> None:
    async def scenario(producer: Producer) -> None:
        future = await producer.send("t", b"v")
        with pytest.raises(NetworkException, match=r"the producer failed: ZeroDivisionError\(\)"):
            await future
        with pytest.raises(ZeroDivisionError):
            await producer.send("t", b"v")
        with pytest.raises(ZeroDivisionError):
            await producer.close()

    play(scenario, ZeroDivisionError())  # type: ignore[arg-type]


def test_producer_counts_what_it_sends() -> None:
    values: dict[str, float] = {}

    async def scenario(producer: Producer) -> None:
        await one_by_one(producer, 2)
        with pytest.raises(TopicAuthorizationFailed):
            await one_by_one(producer, 1)
        values.update(producer.metrics()["producer-metrics"])

    play(scenario, NetworkException("cut"), 0, 0, 29)
    names = ("record-send-total", "record-retry-total", "record-error-total")
    assert [values[name] for name in names] == [2, 1, 1]
    assert values["buffer-available-bytes"] == values["buffer-total-bytes"] == 32 * 1024 * 1024


def test_append_time_of_the_broker_is_returned() -> None:
    from sharegroup.client.produce.produce_requests import answers

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


@pytest.mark.parametrize(
    ("options", "creates"), [({}, True), ({"allow_auto_create_topics": False}, False)]
)
def test_broker_is_asked_to_create_a_topic_only_if_that_is_allowed(
    options: dict[str, Any], creates: bool
) -> None:
    asked: list[bool] = []

    class WithoutMetadata(ScriptedBroker):
        def last_known_topic(self, name: str) -> Any:
            return super().last_known_topic(name) if asked else None

        async def topic(self, name: str, *, create: bool, timeout_ms: int) -> Any:
            asked.append(create)

    async def scenario(producer: Producer) -> None:
        assert await one_by_one(producer, 1) == [0]

    play(scenario, broker=WithoutMetadata(), **options)
    assert asked == [creates]
