"""Faults that a test injects, as clients see them: confluent-kafka, and our own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient as ConfluentAdmin

from sharegroup.client import (
    AdminClient,
    Producer as OurProducer,
    ShareConsumer,
)
from sharegroup.client.sync import AdminClient as BlockingAdmin
from sharegroup.errors import RequestTimedOut
from sharegroup.testing import ManualClock, PowerLossDisk, TestBroker, run_broker
from tests.support.limits import HANGING_SECONDS


@pytest.fixture(scope="module")
def shared() -> Iterator[TestBroker]:
    with run_broker() as running:
        yield running


@pytest.fixture
def b(shared: TestBroker) -> Iterator[TestBroker]:
    yield shared
    shared.clear_faults()


def produce(b: TestBroker, topic: str, value: bytes, **options: object) -> list[str]:
    """Produce one record with librdkafka, and return the name of its error, if any."""
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": b.bootstrap_servers,
            "linger.ms": 0,
            "retry.backoff.ms": 10,
            **options,
        }
    )
    producer.produce(topic, value, on_delivery=lambda e, _: e and errors.append(e.name()))
    assert producer.flush(HANGING_SECONDS) == 0
    return errors


def values(b: TestBroker, topic: str) -> list[bytes | None]:
    return [record.value for record in b.records(topic)]


# Errors


def test_producer_retries_a_failed_request_and_the_record_is_there_once(b: TestBroker) -> None:
    b.create_topic("retried")
    fault = b.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=2)
    assert produce(b, "retried", b"one") == []
    assert fault.count == 2
    assert values(b, "retried") == [b"one"]


def test_error_that_is_not_retriable_reaches_the_application(b: TestBroker) -> None:
    b.create_topic("refused")
    with b.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED", times=None) as fault:
        assert produce(b, "refused", b"one") == ["TOPIC_AUTHORIZATION_FAILED"]
        assert fault.count == 1
    assert produce(b, "refused", b"two") == []
    assert values(b, "refused") == [b"two"]


def test_fault_of_a_partition_leaves_other_partitions_alone(b: TestBroker) -> None:
    b.create_topic("two", 2)
    b.create_topic("other")
    b.fail("Produce", error="INVALID_REQUIRED_ACKS", topic="elsewhere", times=None)
    with b.fail(
        "Produce", error="TOPIC_AUTHORIZATION_FAILED", topic="two", partition=1, times=None
    ) as fault:

        async def send() -> list[BaseException | None]:
            async with OurProducer(bootstrap_servers=b.bootstrap_servers, linger_ms=50) as producer:
                futures = [
                    await producer.send("two", b"0", partition=0),
                    await producer.send("two", b"1", partition=1),
                    await producer.send("other", b"0"),
                ]
                outcomes = await asyncio.gather(*futures, return_exceptions=True)
                return [o if isinstance(o, BaseException) else None for o in outcomes]

        first, second, third = asyncio.run(send())
        assert (first, third) == (None, None)
        assert type(second).__name__ == "TopicAuthorizationFailed"
        assert fault.count == 1
    assert values(b, "two") == [b"0"]


def test_fault_of_one_topic_does_not_hide_a_later_fault_of_another(b: TestBroker) -> None:
    b.create_topic("first")
    b.create_topic("second")
    failing = b.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED", topic="first", times=None)
    other = b.fail("Produce", error="INVALID_TOPIC_EXCEPTION", topic="second", times=None)
    dropping = b.drop("Produce", topic="third")
    assert produce(b, "second", b"one") == ["TOPIC_EXCEPTION"]
    assert produce(b, "first", b"one") == ["TOPIC_AUTHORIZATION_FAILED"]
    assert produce(b, "third", b"one") == []
    assert (failing.count, other.count, dropping.count) == (1, 1, 1)


def test_fault_of_a_client_id_leaves_other_clients_alone(b: TestBroker) -> None:
    b.create_topic("by-client")
    b.fail("Produce", error="TOPIC_AUTHORIZATION_FAILED", client_id="orders", times=None)
    failed = produce(b, "by-client", b"one", **{"client.id": "orders"})
    assert failed == ["TOPIC_AUTHORIZATION_FAILED"]
    assert produce(b, "by-client", b"two", **{"client.id": "billing"}) == []


def test_topic_that_a_request_names_anywhere_is_recognized(b: TestBroker) -> None:
    admin = ConfluentAdmin({"bootstrap.servers": b.bootstrap_servers})
    b.create_topic("grown")
    with BlockingAdmin(bootstrap_servers=b.bootstrap_servers) as ours:
        b.fail("CreatePartitions", error="INVALID_PARTITIONS", topic="grown")
        error = ours.create_partitions({"grown": 2})["grown"]
        assert type(error).__name__ == "InvalidPartitions"
        assert ours.create_partitions({"grown": 2})["grown"] is None
        b.fail("DeleteTopics", error="TOPIC_DELETION_DISABLED", topic="grown")
        assert type(ours.delete_topics(["grown"])["grown"]).__name__ == "TopicDeletionDisabled"
    assert "grown" in admin.list_topics(timeout=HANGING_SECONDS).topics


def test_fetch_of_a_consumer_fails_and_is_retried(b: TestBroker) -> None:
    b.create_topic("fetched")
    b.produce("fetched", "one", "two")
    fault = b.fail("Fetch", error="NOT_LEADER_OR_FOLLOWER", topic="fetched", times=3)
    consumer = Consumer(
        {
            "bootstrap.servers": b.bootstrap_servers,
            "group.id": "g",
            "topic.metadata.refresh.fast.interval.ms": 10,
            "retry.backoff.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition("fetched", 0, 0)])
        got = consumer.consume(2, timeout=HANGING_SECONDS)
        assert [message.value() for message in got] == [b"one", b"two"]
    finally:
        consumer.close()
    assert fault.count == 3


def from_earliest(b: TestBroker, group: str) -> None:
    b.configure_group(group, {"share.auto.offset.reset": "earliest"})


def test_share_fetch_fails_and_locks_nothing(b: TestBroker) -> None:
    """The records come with delivery count 1 although two fetches failed before."""
    b.create_topic("shared")
    b.produce("shared", "one")
    from_earliest(b, "sg")
    fault = b.fail("ShareFetch", error="NOT_LEADER_OR_FOLLOWER", topic="shared", times=2)

    async def run() -> int:
        async with ShareConsumer(
            "shared", bootstrap_servers=b.bootstrap_servers, group_id="sg"
        ) as consumer:
            async with asyncio.timeout(HANGING_SECONDS):
                while not (records := await consumer.poll(timeout=1)):
                    pass
            return records[0].delivery_count

    assert asyncio.run(run()) == 1
    assert fault.count == 2


def test_acknowledgement_fails_and_the_record_is_delivered_again(b: TestBroker) -> None:
    b.create_topic("acked")
    b.produce("acked", "one")
    from_earliest(b, "ag")

    async def run() -> list[int]:
        async with ShareConsumer(
            "acked",
            bootstrap_servers=b.bootstrap_servers,
            group_id="ag",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            [record] = await consumer.poll(timeout=HANGING_SECONDS)
            counts = [record.delivery_count]
            with b.fail("ShareAcknowledge", error="INVALID_RECORD_STATE", times=None):
                record.accept()
                (error,) = (await consumer.commit()).values()
                assert error is not None
            await b.asynchronous.advance(31)
            [record] = await consumer.poll(timeout=HANGING_SECONDS)
            counts.append(record.delivery_count)
            record.accept()
            assert list((await consumer.commit()).values()) == [None]
            return counts

    assert asyncio.run(run()) == [1, 2]
    b.wait_until(lag=0, group="ag")


# Lost connections


@pytest.mark.parametrize(("applied", "stored"), [(False, 0), (True, 1)])
def test_connection_drops_before_or_after_the_request_is_applied(
    b: TestBroker, applied: bool, stored: int
) -> None:
    topic = f"dropped-{applied}"
    b.create_topic(topic)
    b.drop("Produce", applied=applied, times=None)
    options = {"message.timeout.ms": 1_000, "enable.idempotence": False, "retries": 0}
    assert produce(b, topic, b"one", **options) in (["_TRANSPORT"], ["_MSG_TIMED_OUT"])
    b.clear_faults()
    assert len(values(b, topic)) == stored


def test_idempotent_producer_writes_once_although_the_answer_was_lost(b: TestBroker) -> None:
    b.create_topic("once")
    fault = b.drop("Produce", applied=True, times=2)
    assert produce(b, "once", b"one", **{"enable.idempotence": True}) == []
    assert fault.count == 2
    assert values(b, "once") == [b"one"]


# Delays and freezing


def test_delayed_answer_is_applied_at_once_and_a_delayed_request_is_not() -> None:
    """On a clock that stands still, so that nothing happens by itself."""
    clock = ManualClock()
    with run_broker(clock=clock) as b, ThreadPoolExecutor() as threads:
        b.create_topic("orders")
        for applied in (True, False):
            before = len(b.records("orders"))
            fault = b.delay("Produce", 60, applied=applied)
            sending = threads.submit(produce, b, "orders", b"one")
            wait_for(lambda fault=fault: fault.count == 1)
            if applied:
                b.wait_until(records=before + 1, topic="orders")
            else:
                assert len(b.records("orders")) == before
            assert not sending.done()
            b.advance(59.9)
            assert not sending.done()
            b.advance(0.2)
            assert sending.result(HANGING_SECONDS) == []
            b.wait_until(records=before + 1, topic="orders")


def test_requests_behind_a_delayed_one_keep_their_order() -> None:
    """Five requests of one connection are on their way; only the second is delayed."""
    clock = ManualClock()
    with run_broker(clock=clock) as b:
        b.create_topic("orders")
        producer = Producer(
            {
                "bootstrap.servers": b.bootstrap_servers,
                "linger.ms": 0,
                "batch.num.messages": 1,
                "enable.idempotence": False,
                "max.in.flight": 5,
            }
        )
        producer.produce("orders", b"0")
        assert producer.flush(HANGING_SECONDS) == 0
        with b.delay("Produce", 5) as fault:
            for number in range(1, 5):
                producer.produce("orders", b"%d" % number)
            wait_for(lambda: fault.count == 1)
            producer.flush(0.2)
            assert values(b, "orders") == [b"0"]
            b.advance(5)
            assert producer.flush(HANGING_SECONDS) == 0
        assert values(b, "orders") == [b"0", b"1", b"2", b"3", b"4"]


def test_frozen_broker_answers_when_it_is_thawed(b: TestBroker) -> None:
    b.create_topic("frozen")
    with ThreadPoolExecutor() as threads:
        with b.frozen():
            assert "frozen" in repr(b)
            sending = threads.submit(produce, b, "frozen", b"one")
            with pytest.raises(KafkaException):
                ConfluentAdmin({"bootstrap.servers": b.bootstrap_servers}).list_topics(timeout=0.5)
            assert not sending.done()
            assert values(b, "frozen") == []
        assert sending.result(HANGING_SECONDS) == []
    assert values(b, "frozen") == [b"one"]


def test_frozen_broker_can_be_stopped() -> None:
    with run_broker() as b:
        b.freeze()
        with ThreadPoolExecutor() as threads:
            options = {"message.timeout.ms": 2_000}
            sending = threads.submit(produce, b, "orders", b"one", **options)
            began = time.monotonic()
            b.stop()
            assert time.monotonic() - began < 5
            assert sending.result(HANGING_SECONDS) == ["_MSG_TIMED_OUT"]


# Time


def test_lock_expires_when_the_clock_is_advanced(b: TestBroker) -> None:
    b.create_topic("locked")
    b.produce("locked", "one")
    from_earliest(b, "lg")

    async def run() -> int:
        options = {
            "bootstrap_servers": b.bootstrap_servers,
            "group_id": "lg",
            "share_acknowledgement_mode": "explicit",
        }
        async with (
            ShareConsumer("locked", **options) as silent,
            ShareConsumer("locked", **options) as other,
        ):
            [held] = await silent.poll(timeout=HANGING_SECONDS)
            assert await other.poll(timeout=0.2) == []
            await b.asynchronous.advance(30)
            [again] = await other.poll(timeout=HANGING_SECONDS)
            again.accept()
            del held
            await other.commit()
            return again.delivery_count

    assert asyncio.run(run()) == 2


def test_silent_member_leaves_its_group_when_the_clock_is_advanced(b: TestBroker) -> None:
    b.create_topic("left")

    async def run() -> tuple[int, int]:
        async with (
            AdminClient(bootstrap_servers=b.bootstrap_servers) as admin,
            ShareConsumer(
                "left", bootstrap_servers=b.bootstrap_servers, group_id="left"
            ) as consumer,
        ):
            await consumer.poll(timeout=0.2)
            joined = await member_count(admin)
            with b.fail("ShareGroupHeartbeat", error="COORDINATOR_NOT_AVAILABLE", times=None):
                await b.asynchronous.advance(60)
                return joined, await member_count(admin)

    assert asyncio.run(run()) == (1, 0)


async def member_count(admin: AdminClient) -> int:
    described = (await admin.describe_share_groups(["left"]))["left"]
    assert not isinstance(described, Exception)
    return len(described.members)


def test_old_records_are_deleted_when_the_clock_is_advanced() -> None:
    with run_broker({"log.retention.check.interval.ms": "1000"}) as b:
        b.create_topic("kept", settings={"retention.ms": "3600000", "segment.ms": "600000"})
        b.produce("kept", "old")
        b.advance(7_200)
        b.produce("kept", "new")
        b.advance(2)
        wait_for(lambda: values(b, "kept") == [b"new"])


# Disks and leaders


def test_full_disk_refuses_records_until_it_has_room() -> None:
    with run_broker() as b:
        b.create_topic("orders")
        b.disk.fill_up()
        assert produce(b, "orders", b"one", **{"message.timeout.ms": 1_000}) == ["_MSG_TIMED_OUT"]
        b.disk.make_room()
        assert produce(b, "orders", b"two") == []
        assert values(b, "orders")[-1] == b"two"


def test_slow_disk_delays_what_must_be_durable() -> None:
    with run_broker() as b:
        b.create_topic("orders")
        b.disk.slow_down(0.2)
        began = time.monotonic()
        assert produce(b, "orders", b"one") == []
        assert time.monotonic() - began >= 0.2
        b.disk.slow_down(0)


def test_power_loss_loses_nothing_that_was_confirmed() -> None:
    with run_broker(files=PowerLossDisk(seed=3)) as b:
        b.create_topic("orders")
        assert produce(b, "orders", b"one") == []
        b.cut_power()
        assert "stopped" in repr(b)
        b.start()
        assert values(b, "orders") == [b"one"]


def test_only_a_power_loss_disk_can_lose_power(b: TestBroker) -> None:
    with pytest.raises(TypeError, match=r"files=PowerLossDisk\(seed=1\)"):
        b.cut_power()
    assert produce(b, "still-there", b"one") == []


def test_consumer_goes_on_after_a_change_of_the_leader_epoch(b: TestBroker) -> None:
    b.create_topic("led")
    b.produce("led", "one")
    consumer = Consumer(
        {
            "bootstrap.servers": b.bootstrap_servers,
            "group.id": "led",
            "topic.metadata.refresh.fast.interval.ms": 10,
            "retry.backoff.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition("led", 0, 0)])
        assert [m.value() for m in consumer.consume(1, timeout=HANGING_SECONDS)] == [b"one"]
        validation = b.delay("OffsetForLeaderEpoch", 0, topic="led", times=None)
        assert b.bump_leader_epoch("led") == 1
        b.produce("led", "two")
        assert [m.value() for m in consumer.consume(1, timeout=HANGING_SECONDS)] == [b"two"]
        assert validation.count >= 1, "librdkafka asks whether its position is still valid"
    finally:
        consumer.close()


def test_locks_end_when_the_leader_epoch_changes(b: TestBroker) -> None:
    b.create_topic("moved")
    b.produce("moved", "one")
    from_earliest(b, "mg")

    async def run() -> list[int]:
        async with ShareConsumer(
            "moved",
            bootstrap_servers=b.bootstrap_servers,
            group_id="mg",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            [record] = await consumer.poll(timeout=HANGING_SECONDS)
            await b.asynchronous.bump_leader_epoch("moved")
            record.accept()
            (error,) = (await consumer.commit()).values()
            assert error is not None
            [again] = await consumer.poll(timeout=HANGING_SECONDS)
            again.accept()
            assert list((await consumer.commit()).values()) == [None]
            return [record.delivery_count, again.delivery_count]

    first, second = asyncio.run(run())
    assert first == 1
    assert second in (1, 2)


# Scripts


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda b: b.fail("Produse", error="UNKNOWN_SERVER_ERROR"), "no API 'Produse'"),
        (lambda b: b.fail("Produce", error="NO_SUCH_ERROR"), "no error 'NO_SUCH_ERROR'"),
        (lambda b: b.fail("Produce", error="UNKNOWN_SERVER_ERROR", times=0), "at least 1"),
        (lambda b: b.drop("Produce", partition=3), "partition=3 needs a topic"),
        (lambda b: b.delay("Produce", -1), "a delay must be 0 to"),
        (lambda b: b.bump_leader_epoch("nowhere"), "nowhere"),
    ],
)
def test_impossible_faults_are_refused(b: TestBroker, add: object, message: str) -> None:
    with pytest.raises(Exception, match=message):
        add(b)  # type: ignore[operator]
    assert b.faults == []


def test_faults_can_be_added_while_other_threads_send(b: TestBroker) -> None:
    b.create_topic("busy")
    stop = threading.Event()

    def toggle() -> None:
        while not stop.is_set():
            with b.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1):
                pass

    with ThreadPoolExecutor() as threads:
        toggling = threads.submit(toggle)
        try:
            for number in range(20):
                assert produce(b, "busy", b"%d" % number) == []
        finally:
            stop.set()
        toggling.result(HANGING_SECONDS)
    assert len(values(b, "busy")) == 20


def test_requests_of_the_test_itself_are_not_affected(b: TestBroker) -> None:
    with b.fail("*", error="UNKNOWN_SERVER_ERROR", times=None), b.frozen():
        b.create_topic("exempt")
        b.produce("exempt", "one")
        assert values(b, "exempt") == [b"one"]


def test_error_of_the_client_names_the_fault(b: TestBroker) -> None:
    b.create_topic("coordinated")

    async def run() -> None:
        async with OurProducer(
            bootstrap_servers=b.bootstrap_servers, delivery_timeout_ms=1_000, retry_backoff_ms=10
        ) as producer:
            with (
                b.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=None),
                pytest.raises(RequestTimedOut, match="Fault Produce: fail with NOT_LEADER"),
            ):
                await (await producer.send("coordinated", b"one"))

    asyncio.run(run())


def wait_for(condition: object, seconds: float = 10) -> None:
    """Wait until the condition is true, for so many seconds at most."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(0.01)
