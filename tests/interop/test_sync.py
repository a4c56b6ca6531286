"""The blocking clients, from several threads, on our broker and on Apache Kafka."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from sharegroup.client import (
    AcknowledgementResult,
    AlterConfig,
    ConfigResource,
    IllegalStateError,
    NewTopic,
    Record,
    ResourceType,
    TopicPartition,
    WakeupError,
)
from sharegroup.client.sync import AdminClient, Delivery, Producer, ShareConsumer
from sharegroup.errors import TopicAlreadyExists

WAIT_SECONDS = 30.0


def prepare(bootstrap: str, topic: str, group: str, *, partitions: int = 1) -> None:
    """A topic, and a group that reads it from the beginning."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic, partitions)]) == {topic: None}
        resource = ConfigResource(ResourceType.GROUP, group)
        change = AlterConfig("share.auto.offset.reset", "earliest")
        assert admin.incremental_alter_configs({resource: [change]}) == {resource: None}


def taken(consumer: ShareConsumer, count: int) -> list[Record]:
    """The next records, at least ``count``; implicit mode or a window."""
    records: list[Record] = []
    limit = time.monotonic() + WAIT_SECONDS
    while len(records) < count:
        assert time.monotonic() < limit, f"{len(records)} of {count} records came"
        records += consumer.poll(timeout=1)
    return records


def test_results_come_by_item_as_with_asyncio(bootstrap: str, topic: str) -> None:
    with AdminClient(bootstrap_servers=bootstrap, client_id="auditor") as admin:
        assert admin.create_topics([NewTopic(topic, 2)]) == {topic: None}
        again = admin.create_topics([NewTopic(topic, 2)])
        assert isinstance(again[topic], TopicAlreadyExists)
        assert topic in admin.list_topics()
        assert admin.client_id == "auditor"
        assert admin.metrics()["admin-client-metrics"]["connection-count"] >= 1
    admin.close()  # Once more does no harm.
    with pytest.raises(IllegalStateError):
        admin.list_topics()


def test_records_of_many_threads_arrive_in_each_threads_order(
    bootstrap: str, topic: str, group: str
) -> None:
    prepare(bootstrap, topic, group)

    def send(producer: Producer, name: int) -> list[Delivery]:
        return [producer.send(topic, b"%d %d" % (name, number)) for number in range(500)]

    with Producer(bootstrap_servers=bootstrap) as producer, ThreadPoolExecutor(4) as threads:
        sent = list(threads.map(lambda name: send(producer, name), range(4)))
        producer.flush()
        assert all(delivery.done() for deliveries in sent for delivery in deliveries)
        offsets = [[delivery.result().offset for delivery in one] for one in sent]
    assert all(one == sorted(one) for one in offsets)
    assert sorted(offset for one in offsets for offset in one) == list(range(2_000))


def test_records_are_settled_in_other_threads_than_they_are_polled_in(
    bootstrap: str, topic: str, group: str
) -> None:
    """A pool works on what one thread polls: every record is accepted, and none comes again."""
    prepare(bootstrap, topic, group)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(2_000):
            producer.send(topic, b"%d" % number)
    options = {"bootstrap_servers": bootstrap, "group_id": group}
    with (
        ShareConsumer(
            topic, **options, share_acknowledgement_mode="explicit", in_flight_max=500
        ) as consumer,
        ThreadPoolExecutor(4) as threads,
    ):
        seen = set()
        limit = time.monotonic() + WAIT_SECONDS
        while len(seen) < 2_000:
            assert time.monotonic() < limit, f"{len(seen)} of 2000 records came"
            for record in consumer.poll(timeout=1):
                assert record.delivery_count == 1
                seen.add(record.offset)
                threads.submit(record.accept)
        threads.shutdown()
        assert set(consumer.commit().values()) <= {None}
        assert consumer.in_flight == 0
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        lag = admin.list_share_group_offsets({group: None})[group]
        assert [one.lag for one in lag.values()] == [0]  # type: ignore[union-attr]


def test_outcomes_are_told_in_the_thread_that_commits(
    bootstrap: str, topic: str, group: str
) -> None:
    prepare(bootstrap, topic, group)
    told: list[tuple[str, AcknowledgementResult]] = []
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_and_wait(topic, b"v")
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        consumer.set_acknowledgement_commit_callback(
            lambda result: told.append((threading.current_thread().name, result))
        )
        taken(consumer, 1)
        assert consumer.commit() == {TopicPartition(topic, 0): None}
    ((name, result),) = told
    assert name == threading.current_thread().name
    assert list(result.offsets) == [0]
    assert result.error is None


def test_iteration_accepts_a_record_when_the_next_is_asked_for(
    bootstrap: str, topic: str, group: str
) -> None:
    prepare(bootstrap, topic, group)
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(3):
            producer.send(topic, b"%d" % number)
    values = []

    def fail_at_the_second() -> None:
        with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
            for record in consumer:
                values.append(record.value)
                if len(values) == 2:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at_the_second()
    assert values == [b"0", b"1"]
    # The second was in hand when it went wrong: it was given back, and comes again.
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        first, second = taken(consumer, 2)
        assert (first.value, first.delivery_count, second.value) == (b"1", 2, b"2")


def test_another_thread_can_end_a_poll(bootstrap: str, topic: str, group: str) -> None:
    prepare(bootstrap, topic, group)
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        timer = threading.Timer(0.2, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout=WAIT_SECONDS)
        timer.join()


def test_no_thread_is_left_when_all_clients_are_closed(bootstrap: str, topic: str) -> None:
    first = AdminClient(bootstrap_servers=bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_and_wait(topic, b"v")
    names = [one.name for one in threading.enumerate()]
    assert names.count("sharegroup") == 1
    first.close()
    assert "sharegroup" not in [one.name for one in threading.enumerate()]
