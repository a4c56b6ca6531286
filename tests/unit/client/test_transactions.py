"""A transactional producer beside a scripted coordinator: the requests it sends, in which order.

The script gives the error code of each request by its name; without one a request succeeds.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from sharegroup.client.net.cluster import CoordinatorType
from sharegroup.client.produce.producer import Producer
from sharegroup.client.records import ConsumerGroupMetadata, IllegalStateError, TopicPartition
from sharegroup.errors import (
    GroupAuthorizationFailed,
    IllegalGeneration,
    KafkaError,
    MessageTooLarge,
    NetworkException,
    NotEnoughReplicas,
    ProducerFenced,
    RequestTimedOut,
    TopicAuthorizationFailed,
    TransactionAbortable,
    TransactionAborted,
    TransactionalIdAuthorizationFailed,
)
from sharegroup.wire.batches.batches import parse_header
from sharegroup.wire.codec.apis import api_of
from tests.support.limits import HANGING_SECONDS
from tests.unit.client.test_sender import ScriptedBroker

T0 = TopicPartition("t", 0)
SHOP = ConsumerGroupMetadata("shop", 3, "member-1")

Script = int | KafkaError | asyncio.Event
"""An error code; an error in place of an answer; an event that the answer waits for."""


class Coordinator(ScriptedBroker):
    """A broker and coordinator of both kinds; ``sent`` has the requests in a short form."""

    def __init__(self, *, version: int = 2, **script: list[Script]) -> None:
        super().__init__()
        self.script: dict[str, list[Script]] = defaultdict(list, script)
        self.finalized_features = {"transaction.version": version}
        self.version = version
        self.epoch = -1
        self.sent: list[str] = []
        self.forgotten: list[tuple[CoordinatorType, str]] = []
        self.versions_max: list[tuple[str, int | None]] = []

    async def connection(self, node_id: int, purpose: object = None) -> Any:
        return self

    async def coordinator(self, key: str, *, kind: CoordinatorType, operation: str) -> int:
        return 1

    def forget_coordinator(self, key: str, *, kind: CoordinatorType) -> None:
        self.forgotten.append((kind, key))

    async def request(self, message: Any, *, version_max: int | None = None) -> Any:
        name = api_of(message.__api_key__).name
        code = await self._next(name)
        self.versions_max.append((name, version_max))
        answer: dict[str, Any] = {"error_code": code, "throttle_time": timedelta(0)}
        match name:
            case "InitProducerId":
                self.sent.append(f"init {message.producer_epoch}")
                self.epoch += not code
                answer |= {"producer_id": 7, "producer_epoch": self.epoch}
            case "EndTxn":
                self.sent.append(
                    f"{'commit' if message.committed else 'abort'} {message.producer_epoch}"
                )
                self.epoch += self.version == 2 and not code
                is_new = self.version == 2
                answer |= {
                    "producer_id": 7 if is_new else -1,
                    "producer_epoch": self.epoch if is_new else -1,
                }
            case "AddOffsetsToTxn":
                self.sent.append(f"add group {message.group_id}")
            case "AddPartitionsToTxn":
                answer["results_by_topic_v3_and_below"] = self._added(message, code)
            case "TxnOffsetCommit":
                answer["topics"] = self._offsets(message, code)
        return SimpleNamespace(**answer)

    async def _next(self, name: str) -> int:
        step = self.script[name].pop(0) if self.script[name] else 0
        if isinstance(step, KafkaError):
            raise step
        if isinstance(step, asyncio.Event):
            await step.wait()
            return 0
        return step

    def _added(self, message: Any, code: int) -> list[Any]:
        (topic,) = message.v3_and_below_topics
        self.sent.append(f"add {topic.name} {[*topic.partitions]}")
        results = [
            SimpleNamespace(partition_index=index, partition_error_code=code)
            for index in topic.partitions
        ]
        return [SimpleNamespace(name=topic.name, results_by_partition=results)]

    def _offsets(self, message: Any, code: int) -> list[Any]:
        (topic,) = message.topics
        (partition,) = topic.partitions
        self.sent.append(
            f"offset {message.group_id} {message.generation_id} {partition.committed_offset}"
        )
        result = SimpleNamespace(partition_index=partition.partition_index, error_code=code)
        return [SimpleNamespace(name=topic.name, partitions=[result])]

    async def request_as_is(self, message: Any) -> Any:
        ((part,),) = (topic.partition_data for topic in message.topic_data)
        header = parse_header(part.records)
        assert (message.transactional_id, header.is_transactional) == ("shop-1", True)
        self.sent.append(f"produce {header.producer_epoch}:{header.base_sequence}")
        answer = await super().request_as_is(message)
        if message.__version__ >= 13:
            return answer
        assert message.__version__ == 11, "version 12 would mean transaction version 2"
        (topic,) = answer.responses
        parts = SimpleNamespace(name="t", partition_responses=topic.partition_responses)
        return SimpleNamespace(responses=[parts], throttle_time=timedelta(0))


def play(
    scenario: Callable[[Producer, Coordinator], Coroutine[Any, Any, None]],
    coordinator: Coordinator,
    **options: Any,
) -> list[str]:
    async def run() -> None:
        options_ = {"linger_ms": 0, "transactional_id": "shop-1", **options}
        async with Producer(cluster=coordinator, **options_) as producer:  # type: ignore[arg-type]
            async with asyncio.timeout(HANGING_SECONDS):
                await scenario(producer, coordinator)

    asyncio.run(run())
    return coordinator.sent


async def committed(producer: Producer, coordinator: Coordinator) -> None:
    for _ in range(2):
        async with producer.transaction() as transaction:
            await producer.send("t", b"v")
            await transaction.send_offsets({T0: 5}, SHOP)


def test_requests_of_version_2() -> None:
    coordinator = Coordinator()
    sent = play(committed, coordinator)
    assert sent[0] == "init -1"
    assert sorted(sent[1:3]) == ["offset shop 3 5", "produce 0:0"]
    assert sent[3] == "commit 0"
    assert sorted(sent[4:6]) == ["offset shop 3 5", "produce 1:0"]
    assert sent[6:] == ["commit 1"]
    assert {limit for _, limit in coordinator.versions_max} == {None}


@pytest.mark.parametrize("version", [0, 1])
def test_requests_before_version_2(version: int) -> None:
    coordinator = Coordinator(version=version)

    async def scenario(producer: Producer, _: Coordinator) -> None:
        for _ in range(2):
            async with producer.transaction() as transaction:
                await producer.send_and_wait("t", b"v")
                await transaction.send_offsets({T0: 5}, SHOP)

    assert play(scenario, coordinator) == [
        "init -1",
        "add t [0]", "produce 0:0", "add group shop", "offset shop 3 5", "commit 0",
        "add t [0]", "produce 0:1", "add group shop", "offset shop 3 5", "commit 0",
    ]  # fmt: skip
    limits = dict(coordinator.versions_max)
    assert (limits["EndTxn"], limits["TxnOffsetCommit"]) == (4, 4)


def test_an_exception_aborts_and_is_raised() -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(LookupError):  # noqa: PT012  The block is what is tested.
            async with producer.transaction():
                await producer.send_and_wait("t", b"v")
                raise LookupError
        async with producer.transaction():
            await producer.send("t", b"v")

    assert play(scenario, Coordinator()) == [
        "init -1", "produce 0:0", "abort 0", "produce 1:0", "commit 1",
    ]  # fmt: skip


def test_records_that_were_not_sent_fail_with_the_abort() -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        async with producer.transaction() as transaction:
            future = await producer.send("t", b"v")
            await transaction.abort()
        with pytest.raises(TransactionAborted, match="topic 't' partition 0: the transaction was"):
            await future

    # A long linger, so nothing is sent before the abort.
    assert play(scenario, Coordinator(), linger_ms=60_000) == ["init -1", "abort 0"]


def test_a_failed_record_fails_the_commit_and_the_next_transaction_works() -> None:
    coordinator = Coordinator()
    coordinator.answers = [10]

    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(TransactionAbortable, match="MessageTooLarge") as caught:
            async with producer.transaction():
                await producer.send("t", b"v")
        assert isinstance(caught.value.__cause__, MessageTooLarge)
        async with producer.transaction():
            await producer.send("t", b"v")

    assert play(scenario, coordinator) == [
        "init -1", "produce 0:0", "abort 0", "produce 1:0", "commit 1",
    ]  # fmt: skip


@pytest.mark.parametrize("code", [45, 47, 59])
def test_sequences_are_not_restarted_within_a_transaction(code: int) -> None:
    coordinator = Coordinator()
    coordinator.answers = [0, code]

    async def scenario(producer: Producer, _: Coordinator) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"1")
        with pytest.raises(KafkaError):
            await producer.send_and_wait("t", b"2")
        with pytest.raises(TransactionAbortable):
            await producer.send("t", b"3")
        await producer.abort_transaction()

    assert play(scenario, coordinator) == ["init -1", "produce 0:0", "produce 0:1", "abort 0"]


def test_before_version_2_an_error_is_followed_by_a_new_epoch() -> None:
    coordinator = Coordinator(version=1)
    coordinator.answers = [10]

    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(TransactionAbortable):
            async with producer.transaction():
                await producer.send("t", b"v")
        async with producer.transaction():
            await producer.send("t", b"v")

    assert play(scenario, coordinator) == [
        "init -1", "add t [0]", "produce 0:0", "abort 0", "init 0",
        "add t [0]", "produce 1:0", "commit 1",
    ]  # fmt: skip


def test_a_batch_is_sent_again_while_the_last_transaction_is_completed() -> None:
    coordinator = Coordinator()
    coordinator.answers = [51, 51]

    async def scenario(producer: Producer, _: Coordinator) -> None:
        async with producer.transaction():
            await producer.send("t", b"v")

    assert play(scenario, coordinator) == ["init -1", *["produce 0:0"] * 3, "commit 0"]
    assert coordinator.outdated == [], "the leader has not moved"


def test_the_coordinator_is_looked_up_again_and_asked_again() -> None:
    coordinator = Coordinator(
        InitProducerId=[15], EndTxn=[NetworkException("cut"), 16, 51], TxnOffsetCommit=[14]
    )

    async def scenario(producer: Producer, _: Coordinator) -> None:
        async with producer.transaction() as transaction:
            await transaction.send_offsets({T0: 5}, SHOP)

    assert play(scenario, coordinator) == [
        "init -1", "init -1", "offset shop 3 5", "offset shop 3 5", "commit 0", "commit 0",
        "commit 0",
    ]  # fmt: skip
    assert coordinator.forgotten == [(CoordinatorType.TRANSACTION, "shop-1")] * 3


@pytest.mark.parametrize(
    ("code", "error"), [(22, IllegalGeneration), (30, GroupAuthorizationFailed)]
)
def test_refused_offsets_abort_the_transaction(code: int, error: type[KafkaError]) -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(error):
            async with producer.transaction() as transaction:
                await transaction.send_offsets({T0: 5}, SHOP)
        async with producer.transaction():
            pass

    assert play(scenario, Coordinator(TxnOffsetCommit=[code])) == [
        "init -1", "offset shop 3 5", "abort 0",
    ]  # fmt: skip


def test_partitions_that_may_not_be_written_fail_the_transaction() -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(TransactionAbortable) as caught:
            async with producer.transaction():
                await producer.send("t", b"v")
        assert isinstance(caught.value.__cause__, TopicAuthorizationFailed)

    # The coordinator added nothing, so there is nothing to abort; the epoch is renewed anyway.
    assert play(scenario, Coordinator(version=1, AddPartitionsToTxn=[29])) == [
        "init -1", "add t [0]", "init 0",
    ]  # fmt: skip


class HangingLeader(Coordinator):
    """Cuts the request for partition 1 when ``dies`` is set, and never writes to partition 0."""

    def __init__(self) -> None:
        super().__init__()
        self.leaders = (1, 2)
        self.dies = asyncio.Event()

    async def request_as_is(self, message: Any) -> Any:
        ((part,),) = (topic.partition_data for topic in message.topic_data)
        if part.index == 1:
            await self.dies.wait()
            raise NetworkException("cut")
        self.answers = [NotEnoughReplicas.code]
        return await super().request_as_is(message)


def test_batch_that_expires_fails_the_transaction_and_not_the_producer() -> None:
    """A batch of another partition is ready at the same moment, and is given up with it.

    The batch that expires must be looked at after the other one: its partition becomes active
    again later, when its request fails.
    """
    now = 0.0

    async def scenario(producer: Producer, coordinator: Coordinator) -> None:
        nonlocal now
        assert isinstance(coordinator, HangingLeader)
        await producer.begin_transaction()
        expiring = await producer.send("t", b"v", partition=1)
        await until(lambda: producer.metrics()["producer-metrics"]["requests-in-flight"] == 1)
        now = 0.1
        younger = await producer.send("t", b"v", partition=0)
        await until(lambda: len(coordinator.seen) == 1)
        coordinator.dies.set()
        await until(lambda: (1, 2) in coordinator.outdated)
        now = 0.25
        youngest = await producer.send("t", b"v", partition=0)
        with pytest.raises(RequestTimedOut, match="partition 1: 1 records not delivered in 200 ms"):
            await expiring
        for future in (younger, youngest):
            with pytest.raises(TransactionAborted):
                await future
        await producer.abort_transaction()

    play(scenario, HangingLeader(), delivery_timeout_ms=200, monotonic=lambda: now)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGING_SECONDS):
        while not is_so():
            await asyncio.sleep(0)


class UnknownTopic(Coordinator):
    """Knows no topic until ``described`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.described = asyncio.Event()

    def last_known_topic(self, name: str) -> Any:
        return super().last_known_topic(name) if self.described.is_set() else None

    known_topic = last_known_topic

    async def topic(self, name: str, *, create: bool, timeout_ms: int) -> None:
        await self.described.wait()


def test_record_that_waited_while_its_transaction_ended_is_not_part_of_the_next() -> None:
    async def scenario(producer: Producer, coordinator: Coordinator) -> None:
        assert isinstance(coordinator, UnknownTopic)
        await producer.begin_transaction()
        late = asyncio.create_task(producer.send("t", b"of the first"))
        await asyncio.sleep(0)
        await producer.abort_transaction()
        async with producer.transaction():
            coordinator.described.set()
            with pytest.raises(IllegalStateError, match="its transaction has ended"):
                await late
            await producer.send("t", b"of the second")
        assert [header.record_count for header in coordinator.seen] == [1]

    play(scenario, UnknownTopic())


def test_a_fenced_producer_raises_producer_fenced_from_then_on() -> None:
    coordinator = Coordinator(EndTxn=[90])

    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send("t", b"v")
        with pytest.raises(ProducerFenced):
            await producer.send("t", b"v")
        with pytest.raises(ProducerFenced):
            await producer.begin_transaction()

    assert play(scenario, coordinator) == ["init -1", "produce 0:0", "commit 0"]


def test_a_zombie_learns_from_its_record_that_it_is_fenced() -> None:
    coordinator = Coordinator(EndTxn=[90])
    coordinator.answers = [47]

    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(ProducerFenced):
            async with producer.transaction():
                await producer.send_and_wait("t", b"v")

    play(scenario, coordinator)


def test_a_refused_initialization_is_raised_and_can_be_repeated() -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(TransactionalIdAuthorizationFailed, match="needs WRITE on transactiona"):
            await producer.begin_transaction()
        async with producer.transaction():
            pass

    assert play(scenario, Coordinator(InitProducerId=[53])) == ["init -1", "init -1"]


def test_a_commit_that_takes_too_long_goes_on_and_its_outcome_is_learnt_later() -> None:
    answered = asyncio.Event()

    async def scenario(producer: Producer, _: Coordinator) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        with pytest.raises(RequestTimedOut, match="commit_transaction has no outcome after max_bl"):
            await producer.commit_transaction()
        with pytest.raises(IllegalStateError, match=r"call commit_transaction\(\) again"):
            await producer.begin_transaction()
        answered.set()
        await producer.commit_transaction()
        await producer.begin_transaction()

    sent = play(scenario, Coordinator(EndTxn=[answered]), max_block_ms=50)
    assert sent == ["init -1", "produce 0:0", "commit 0"]


@pytest.mark.parametrize("turns", range(12))
def test_a_commit_that_is_cancelled_at_any_moment_has_its_outcome_for_the_next_call(
    turns: int,
) -> None:
    """Also at the moment of the answer, which a caller whose time is over does not get either."""
    answered = asyncio.Event()

    async def scenario(producer: Producer, _: Coordinator) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        committing = asyncio.create_task(producer.commit_transaction())
        await asyncio.sleep(0.01)
        answered.set()
        for _turn in range(turns):
            await asyncio.sleep(0)
        committing.cancel()
        await asyncio.wait((committing,))
        if committing.cancelled():
            await producer.commit_transaction()
        await producer.begin_transaction()

    play(scenario, Coordinator(EndTxn=[answered]))


def test_a_cancelled_abort_ends_before_the_next_transaction() -> None:
    answered = asyncio.Event()

    async def scenario(producer: Producer, _: Coordinator) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await producer.abort_transaction()
        answered.set()
        async with producer.transaction():
            await producer.send("t", b"v")

    assert play(scenario, Coordinator(EndTxn=[answered])) == [
        "init -1", "produce 0:0", "abort 0", "produce 1:0", "commit 1",
    ]  # fmt: skip


def test_closing_aborts_the_open_transaction() -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        await producer.begin_transaction()
        await producer.send_and_wait("t", b"v")

    assert play(scenario, Coordinator()) == ["init -1", "produce 0:0", "abort 0"]


def test_an_abort_does_not_wait_for_offsets_that_are_retried() -> None:
    coordinator = Coordinator(TxnOffsetCommit=[15] * 1_000)

    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(TimeoutError):
            async with producer.transaction() as transaction, asyncio.timeout(0.05):
                await transaction.send_offsets({T0: 5}, SHOP)

    assert play(scenario, coordinator)[-1] == "abort 0"


def test_calls_without_a_transactional_id_say_what_is_missing() -> None:
    async def run() -> None:
        async with Producer() as producer:
            with pytest.raises(IllegalStateError, match="give it a transactional_id"):
                producer.transaction()

    asyncio.run(run())


def test_a_transaction_block_cannot_be_used_twice() -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        transaction = producer.transaction()
        async with transaction:
            pass
        with pytest.raises(IllegalStateError, match="this transaction has ended"):
            await transaction.__aenter__()

    play(scenario, Coordinator())


@pytest.mark.parametrize("offset", ["5", -1, 2**63])
def test_impossible_offsets_are_refused_before_they_are_sent(offset: Any) -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        with pytest.raises((TypeError, ValueError), match="topic='t'"):
            async with producer.transaction() as transaction:
                await transaction.send_offsets({T0: offset}, SHOP)

    assert play(scenario, Coordinator()) == ["init -1"]


def test_the_time_of_each_kind_of_call_is_measured() -> None:
    async def scenario(producer: Producer, _: Coordinator) -> None:
        await committed(producer, _)
        times = producer.metrics()["producer-metrics"]
        for call in ("init", "commit", "send-offsets"):
            assert times[f"txn-{call}-time-ns-total"] > 0
        assert times["txn-abort-time-ns-total"] == 0

    play(scenario, Coordinator())
