"""confluent-kafka's ShareConsumer, unmodified: what a share group promises, seen from a client.

Every test commits synchronously before it looks for the effect of an acknowledgement, so that
nothing here waits for time to pass except the two tests that are about time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence

from confluent_kafka import AcknowledgeType, Message, ShareConsumer, TopicPartition

from tests.support.confluent_calls import (
    WAIT_SECONDS_MAX,
    admin,
    create_topic,
    produce,
    set_group,
    share_consumer,
    take_shared,
)

TEN = [b"record %d" % number for number in range(10)]


def test_implicit_mode_accepts_polled_records(bootstrap: str, topic: str, group: str) -> None:
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic) as first:
        assert values(take_shared(first, 10)) == TEN
        assert committed(first) == {(topic, 0): None}
    produce(bootstrap, topic, [b"eleventh"])
    with share_consumer(bootstrap, group, topic) as second:
        assert values(take_shared(second, 1)) == [b"eleventh"]


def test_accepted_records_are_not_redelivered(bootstrap: str, topic: str, group: str) -> None:
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic, explicit=True) as consumer:
        acknowledge(consumer, take_shared(consumer, 10), AcknowledgeType.ACCEPT)
        assert committed(consumer) == {(topic, 0): None}
        produce(bootstrap, topic, [b"eleventh"])
        (message,) = take_shared(consumer, 1)
        assert (message.offset(), message.delivery_count()) == (10, 1)


def test_released_records_are_redelivered_with_a_higher_count(
    bootstrap: str, topic: str, group: str
) -> None:
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic, explicit=True) as consumer:
        first = take_shared(consumer, 10)
        acknowledge(consumer, first[3:6], AcknowledgeType.RELEASE)
        acknowledge(consumer, [*first[:3], *first[6:]], AcknowledgeType.ACCEPT)
        committed(consumer)
        again = take_shared(consumer, 3)
        assert [(message.offset(), message.delivery_count()) for message in again] == [
            *((3, 2), (4, 2), (5, 2))
        ]
        assert values(again) == TEN[3:6]


def test_rejected_records_are_not_redelivered(bootstrap: str, topic: str, group: str) -> None:
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic, explicit=True) as consumer:
        acknowledge(consumer, take_shared(consumer, 10), AcknowledgeType.REJECT)
        committed(consumer)
        produce(bootstrap, topic, [b"eleventh"])
        assert values(take_shared(consumer, 1)) == [b"eleventh"]


def test_delivery_count_grows_to_the_limit_then_the_record_is_archived(
    bootstrap: str, topic: str, group: str
) -> None:
    ready(bootstrap, topic, group, [b"poison"])
    set_group(bootstrap, group, delivery_count_limit="3")
    counts = []
    with share_consumer(bootstrap, group, topic, explicit=True) as consumer:
        for _ in range(3):
            (message,) = take_shared(consumer, 1)
            counts.append(message.delivery_count())
            consumer.acknowledge(message, AcknowledgeType.RELEASE)
            committed(consumer)
        produce(bootstrap, topic, [b"next"])
        (message,) = take_shared(consumer, 1)
    assert counts == [1, 2, 3]
    assert (message.value(), message.delivery_count()) == (b"next", 1)


def test_records_are_acknowledged_by_offset(bootstrap: str, topic: str, group: str) -> None:
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic, explicit=True) as consumer:
        for message in take_shared(consumer, 10):
            even = message.offset() % 2 == 0
            kind = AcknowledgeType.ACCEPT if even else AcknowledgeType.RELEASE
            consumer.acknowledge_offset(topic, 0, message.offset(), kind)
        committed(consumer)
        assert [message.offset() for message in take_shared(consumer, 5)] == [1, 3, 5, 7, 9]


def test_two_consumers_share_one_partition(bootstrap: str, topic: str, group: str) -> None:
    """200 batches of one record, two consumers: each gets some, and no record arrives twice."""
    ready(bootstrap, topic, group, [])
    with (
        share_consumer(bootstrap, group, topic, max_poll_records=5) as first,
        share_consumer(bootstrap, group, topic, max_poll_records=5) as second,
    ):
        first.poll(0.1), second.poll(0.1)
        produce(bootstrap, topic, [b"%d" % n for n in range(200)], batch_num_messages=1)
        offsets: dict[ShareConsumer, list[int]] = {first: [], second: []}
        limit = time.monotonic() + WAIT_SECONDS_MAX
        while sum(map(len, offsets.values())) < 200:
            assert time.monotonic() < limit, offsets
            for consumer, seen in offsets.items():
                seen.extend(message.offset() for message in consumer.poll(0.05))
    assert sorted(offsets[first] + offsets[second]) == list(range(200))
    assert offsets[first], "the second took everything"
    assert offsets[second], "the first took everything"


def test_closing_a_consumer_releases_its_records(bootstrap: str, topic: str, group: str) -> None:
    ready(bootstrap, topic, group)
    with share_consumer(bootstrap, group, topic, explicit=True) as first:
        acknowledge(first, take_shared(first, 10)[:4], AcknowledgeType.ACCEPT)
        committed(first)
    with share_consumer(bootstrap, group, topic, explicit=True) as second:
        again = take_shared(second, 6)
        acknowledge(second, again, AcknowledgeType.ACCEPT)
    assert [message.offset() for message in again] == [4, 5, 6, 7, 8, 9]


def test_killing_a_consumer_releases_its_records(bootstrap: str, topic: str, group: str) -> None:
    """Locks last 30 s here; redelivery is immediate because the connection broke."""
    ready(bootstrap, topic, group)
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.interop.holding_consumer", bootstrap, group, topic],
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        held = [int(offset) for offset in holder.stdout.readline().split()]
        holder.kill()
    assert held == list(range(10))
    with share_consumer(bootstrap, group, topic) as second:
        again = take_shared(second, 10)
    assert [message.offset() for message in again] == held
    assert {message.delivery_count() for message in again} == {2}


def test_record_of_an_expired_lock_is_redelivered_to_another_consumer(
    bootstrap: str, topic: str, group: str
) -> None:
    ready(bootstrap, topic, group, [b"slow"])
    set_group(bootstrap, group, record_lock_duration_ms="1000")
    with (
        share_consumer(bootstrap, group, topic, explicit=True) as slow,
        share_consumer(bootstrap, group, topic, explicit=True) as quick,
    ):
        (message,) = take_shared(slow, 1)
        taken = time.monotonic()
        (again,) = take_shared(quick, 1)
        assert time.monotonic() - taken > 0.7, "the lock did not hold"
        assert (again.offset(), again.delivery_count()) == (0, 2)
        slow.acknowledge(message, AcknowledgeType.ACCEPT)
        assert "INVALID_RECORD_STATE" in str(committed(slow)[topic, 0])
        quick.acknowledge(again, AcknowledgeType.ACCEPT)
        assert committed(quick) == {(topic, 0): None}


def test_a_group_starts_at_the_latest_record_by_default(
    bootstrap: str, topic: str, group: str
) -> None:
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"old"] * 10)
    with share_consumer(bootstrap, group, topic) as consumer:
        limit = time.monotonic() + WAIT_SECONDS_MAX
        got: list[Message] = []
        while not got and time.monotonic() < limit:
            produce(bootstrap, topic, [b"new"])
            got.extend(consumer.poll(0.3))
    assert set(values(got)) == {b"new"}


def test_a_group_starts_at_an_age(bootstrap: str, topic: str, group: str) -> None:
    create_topic(bootstrap, topic)
    now_ms = int(time.time() * 1000)
    produce(bootstrap, topic, [b"old"] * 5, timestamp_ms=now_ms - 7_200_000)
    produce(bootstrap, topic, [b"young"] * 3, timestamp_ms=now_ms - 1_800_000)
    set_group(bootstrap, group, auto_offset_reset="by_duration:PT1H")
    with share_consumer(bootstrap, group, topic) as consumer:
        got = take_shared(consumer, 3)
    assert [message.offset() for message in got] == [5, 6, 7]


def test_all_partitions_of_several_topics_are_delivered(
    bootstrap: str, topic: str, group: str
) -> None:
    other = f"{topic}.other"
    create_topic(bootstrap, topic, partitions=3)
    create_topic(bootstrap, other, partitions=2)
    set_group(bootstrap, group, auto_offset_reset="earliest")
    expected = {(topic, 0), (topic, 1), (topic, 2), (other, 0), (other, 1)}
    for name, partition in expected:
        produce(bootstrap, name, [b"x", b"y"], partition=partition)
    with share_consumer(bootstrap, group, topic) as consumer:
        consumer.subscribe([topic, other])
        got = take_shared(consumer, 10)
    places = [(message.topic(), message.partition()) for message in got]
    assert {place: places.count(place) for place in places} == dict.fromkeys(expected, 2)


def test_compressed_batches_are_delivered(bootstrap: str, topic: str, group: str) -> None:
    create_topic(bootstrap, topic)
    set_group(bootstrap, group, auto_offset_reset="earliest")
    expected = []
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        chunk = [b"%s %d" % (codec.encode(), number) for number in range(20)]
        produce(bootstrap, topic, chunk, compression_type=codec, linger_ms=50)
        expected.extend(chunk)
    with share_consumer(bootstrap, group, topic) as consumer:
        assert values(take_shared(consumer, 80)) == expected


def test_records_below_a_moved_log_start_are_skipped(
    bootstrap: str, topic: str, group: str
) -> None:
    ready(bootstrap, topic, group)
    where = TopicPartition(topic, 0, 7)
    admin(bootstrap).delete_records([where])[where].result(WAIT_SECONDS_MAX)
    with share_consumer(bootstrap, group, topic) as consumer:
        assert [message.offset() for message in take_shared(consumer, 3)] == [7, 8, 9]


def test_lock_limit_bounds_the_records_in_flight(bootstrap: str, topic: str, group: str) -> None:
    """150 records in batches of one, 100 locks: the last 50 follow when the first are settled."""
    numbers = [b"%d" % number for number in range(150)]
    ready(bootstrap, topic, group, numbers, batch_num_messages=1)
    set_group(bootstrap, group, partition_max_record_locks="100")
    with share_consumer(bootstrap, group, topic, explicit=True) as consumer:
        held = take_shared(consumer, 1)
        assert [message.offset() for message in held] == list(range(100))
        acknowledge(consumer, held, AcknowledgeType.ACCEPT)
        committed(consumer)
        rest = take_shared(consumer, 1)
        acknowledge(consumer, rest, AcknowledgeType.ACCEPT)
        assert [message.offset() for message in rest] == list(range(100, 150))


def ready(
    bootstrap: str,
    topic: str,
    group: str,
    records: Sequence[bytes] = TEN,
    **config: object,
) -> None:
    """A topic of one partition with records in it, and a group that starts at the first."""
    create_topic(bootstrap, topic)
    set_group(bootstrap, group, auto_offset_reset="earliest")
    produce(bootstrap, topic, records, linger_ms=50, **config)


def values(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value() for message in messages]


def acknowledge(
    consumer: ShareConsumer, messages: Sequence[Message], kind: AcknowledgeType
) -> None:
    for message in messages:
        consumer.acknowledge(message, kind)


def committed(consumer: ShareConsumer) -> dict[tuple[str, int], Exception | None]:
    """Commit and wait for the broker's answer per partition; None where it said yes."""
    answers = consumer.commit_sync(WAIT_SECONDS_MAX)
    return {(where.topic, where.partition): error for where, error in answers.items()}
