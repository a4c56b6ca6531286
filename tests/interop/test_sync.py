"""The blocking clients, from several threads, on our broker and on Apache Kafka."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
from sharegroup.client.sync import AdminClient, Producer, SendFuture, ShareConsumer
from sharegroup.errors import NetworkException, ShareSessionNotFound, TopicAlreadyExists
from tests.support.chosen_broker import RunningBroker, chosen, running
from tests.support.limits import HANGING_SECONDS

LOST = (NetworkException, ShareSessionNotFound)
"""What becomes of a lock whose connection broke."""


def prepare(bootstrap: str, topic: str, group: str, *, partitions: int = 1) -> None:
    """A topic, and a group that reads it from the beginning."""
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        assert admin.create_topics([NewTopic(topic, partitions)]) == {topic: None}
        resource = ConfigResource(ResourceType.GROUP, group)
        change = AlterConfig("share.auto.offset.reset", "earliest")
        assert admin.incremental_alter_configs({resource: [change]}) == {resource: None}


def fill(bootstrap: str, topic: str, count: int) -> None:
    """So many records, with their offsets as values."""
    with Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def taken(consumer: ShareConsumer, count: int) -> list[Record]:
    """The next records, at least ``count``; implicit mode or a window."""
    records: list[Record] = []
    limit = time.monotonic() + HANGING_SECONDS
    while len(records) < count:
        assert time.monotonic() < limit, f"{len(records)} of {count} records came"
        records += consumer.poll(timeout=1)
    return records


def test_results_are_returned_per_item_as_with_asyncio(bootstrap: str, topic: str) -> None:
    with AdminClient(bootstrap_servers=bootstrap, client_id="auditor") as admin:
        assert admin.create_topics([NewTopic(topic, 2)]) == {topic: None}
        again = admin.create_topics([NewTopic(topic, 2)])
        assert isinstance(again[topic], TopicAlreadyExists)
        assert topic in admin.list_topics()
        assert admin.client_id == "auditor"
        assert admin.metrics()["admin-client-metrics"]["connection-count"] >= 1
    admin.close()  # A second call has no effect.
    with pytest.raises(IllegalStateError):
        admin.list_topics()


def test_records_of_many_threads_arrive_in_each_threads_order(
    bootstrap: str, topic: str, group: str
) -> None:
    prepare(bootstrap, topic, group)

    def send(producer: Producer, name: int) -> list[SendFuture]:
        return [producer.send(topic, b"%d %d" % (name, number)) for number in range(500)]

    with Producer(bootstrap_servers=bootstrap) as producer, ThreadPoolExecutor(4) as threads:
        sent = list(threads.map(lambda name: send(producer, name), range(4)))
        producer.flush()
        assert all(future.done() for futures in sent for future in futures)
        offsets = [[future.result().offset for future in futures] for futures in sent]
    assert all(offset == sorted(offset) for offset in offsets)
    assert sorted(offset for batch in offsets for offset in batch) == list(range(2_000))


def test_records_may_be_settled_in_another_thread_than_polled(
    bootstrap: str, topic: str, group: str
) -> None:
    """A pool handles the records of one polling thread: all are accepted, none is redelivered."""
    prepare(bootstrap, topic, group)
    fill(bootstrap, topic, 2_000)
    options = {"bootstrap_servers": bootstrap, "group_id": group}
    with (
        ShareConsumer(
            topic, **options, share_acknowledgement_mode="explicit", in_flight_max=500
        ) as consumer,
        ThreadPoolExecutor(4) as threads,
    ):
        seen = set()
        limit = time.monotonic() + HANGING_SECONDS
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
        assert [lag_.lag for lag_ in lag.values()] == [0]  # type: ignore[union-attr]


@pytest.mark.parametrize("topics", [(), ([],)], ids=["no topics", "an empty list"])
def test_subscribing_to_no_topics_leaves_the_group_and_releases_records(
    bootstrap: str, topic: str, group: str, topics: tuple[list[str], ...]
) -> None:
    prepare(bootstrap, topic, group)
    fill(bootstrap, topic, 2)
    with ShareConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        share_acknowledgement_mode="explicit",
    ) as consumer:
        taken(consumer, 2)
        consumer.subscribe(*topics)
        assert consumer.subscription == frozenset()
        with pytest.raises(IllegalStateError, match="is not subscribed to any topics"):
            consumer.poll()
        consumer.subscribe([topic])
        assert [record.delivery_count for record in taken(consumer, 2)] == [2, 2]


def test_callback_runs_in_the_thread_that_commits(bootstrap: str, topic: str, group: str) -> None:
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


def test_iteration_accepts_a_record_when_the_next_one_is_requested(
    bootstrap: str, topic: str, group: str
) -> None:
    prepare(bootstrap, topic, group)
    fill(bootstrap, topic, 3)
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


def test_two_members_share_one_partition(bootstrap: str, topic: str, group: str) -> None:
    """The first is strict: it takes no more than it asked for, and the rest is there for others."""
    prepare(bootstrap, topic, group)
    fill(bootstrap, topic, 5)
    options = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "share_acknowledgement_mode": "explicit",
        "share_acquire_mode": "record_limit",
    }
    with (
        ShareConsumer(topic, **options, max_poll_records=2) as consumer,
        ShareConsumer(topic, **options, max_poll_records=3) as other,
    ):
        mine = consumer.poll(HANGING_SECONDS)
        theirs = other.poll(HANGING_SECONDS)
        assert [record.offset for record in mine] == [0, 1]
        assert [record.offset for record in theirs] == [2, 3, 4]
        consumer.accept(mine)
        other.accept(theirs)
        for member in (consumer, other):
            assert member.commit() == {TopicPartition(topic, 0): None}


@pytest.mark.slow
def test_locks_are_renewed_without_polls(bootstrap: str, topic: str, group: str) -> None:
    """A handler takes twice as long as its lock, and without renewal loses the record."""
    prepare(bootstrap, topic, group)
    with AdminClient(bootstrap_servers=bootstrap) as admin:
        resource = ConfigResource(ResourceType.GROUP, group)
        lock = AlterConfig("share.record.lock.duration.ms", "1000")
        assert admin.incremental_alter_configs({resource: [lock]}) == {resource: None}
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"v")
    options = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "share_acknowledgement_mode": "explicit",
    }
    with (
        ShareConsumer(topic, **options, auto_renew=True) as slow,
        ShareConsumer(topic, **options) as other,
    ):
        (record,) = slow.poll(HANGING_SECONDS)
        end = record.deadline + 1.0
        while time.monotonic() < end:
            assert other.poll(timeout=0.2) == []
        record.release()
        assert slow.commit() == {TopicPartition(topic, 0): None}
        (forgotten,) = other.poll(HANGING_SECONDS)
        (again,) = slow.poll(HANGING_SECONDS)
        assert (forgotten.delivery_count, again.delivery_count) == (2, 3)
        again.accept()
        other.release([forgotten])


def test_close_reports_acknowledged_and_released_records(
    bootstrap: str, topic: str, group: str
) -> None:
    prepare(bootstrap, topic, group)
    fill(bootstrap, topic, 3)
    consumer = ShareConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        share_acknowledgement_mode="explicit",
        in_flight_max=3,
    )
    first, second, _ = taken(consumer, 3)
    first.accept()
    second.reject()
    report = consumer.close()
    assert [(list(result.offsets), result.error) for result in report.acknowledged] == [
        ([0, 1], None)
    ]
    assert (report.released, report.error) == ({TopicPartition(topic, 0): 1}, None)
    with pytest.raises(IllegalStateError, match="closed"):
        consumer.poll()


def test_another_thread_can_end_a_poll(bootstrap: str, topic: str, group: str) -> None:
    prepare(bootstrap, topic, group)
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        timer = threading.Timer(0.2, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(timeout=HANGING_SECONDS)
        timer.join()


def test_no_thread_is_left_when_all_clients_are_closed(bootstrap: str, topic: str) -> None:
    first = AdminClient(bootstrap_servers=bootstrap)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_and_wait(topic, b"v")
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("sharegroup") == 1
    first.close()
    assert "sharegroup" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.slow
def test_clients_continue_after_a_killed_broker(tmp_path: Path) -> None:
    """Records accepted before stay accepted; records held at the kill are redelivered."""
    with running(chosen(), tmp_path) as broker:
        prepare(broker.bootstrap_servers, "t", "g")
        outlive(broker)


def outlive(broker: RunningBroker) -> None:
    with (
        Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
        ShareConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            share_acknowledgement_mode="explicit",
        ) as consumer,
    ):
        producer.send_and_wait("t", b"before")
        (before,) = consumer.poll(HANGING_SECONDS)
        before.accept()
        assert set(consumer.commit().values()) == {None}
        producer.send_and_wait("t", b"held")
        (held,) = consumer.poll(HANGING_SECONDS)
        broker.kill()
        later = producer.send("t", b"later")
        broker.start()
        assert later.result(HANGING_SECONDS).offset == 2
        held.accept()
        (outcome,) = consumer.commit(HANGING_SECONDS).values()
        assert isinstance(outcome, LOST), outcome
        again: list[Record] = []
        while len(again) < 2:
            again += (polled := consumer.poll(HANGING_SECONDS))
            assert polled, f"{len(again)} of 2 records came"
            consumer.accept(polled)
        assert [record.value for record in again] == [b"held", b"later"]
        assert set(consumer.commit().values()) == {None}
