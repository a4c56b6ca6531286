"""Order and numbers of a producer's batches, whatever fails in between."""

import asyncio
from collections.abc import Iterator

import pytest

from sharegroup.client.produce.partition_queue import (
    EPOCH_MAX,
    SEQUENCE_MAX,
    Batch,
    Identity,
    PartitionQueue,
)
from sharegroup.client.records import TopicPartition


@pytest.fixture(autouse=True)
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def queue(*, idempotent: bool = True, under_way_max: int = 5) -> PartitionQueue:
    made = PartitionQueue(
        TopicPartition("t", 0),
        batch_bytes=100,
        under_way_max=under_way_max,
        idempotent=idempotent,
    )
    made.identify(Identity(77, 0))
    return made


def known_queue(loop: asyncio.AbstractEventLoop, *, under_way_max: int = 5) -> PartitionQueue:
    """One whose producer the broker knows: a record was acknowledged."""
    made = queue(under_way_max=under_way_max)
    add(made, loop, 1)
    made.acknowledge(made.take())
    return made


def add(
    target: PartitionQueue, loop: asyncio.AbstractEventLoop, *counts: int, now: float = 0.0
) -> list[Batch]:
    """One full batch for each count of records."""
    batches = []
    for count in counts:
        batch = Batch(target, loop.create_future(), now)
        batch.records = [(None, b"v", 0, ())] * count
        batch.bytes = 100
        target.waiting.append(batch)
        batches.append(batch)
    return batches


def numbers(*batches: Batch) -> list[tuple[int, int, int]]:
    return [(*batch.identity, batch.sequence) for batch in batches]


def test_sequence_numbers_count_records(loop: asyncio.AbstractEventLoop) -> None:
    target = queue()
    add(target, loop, 3, 2, 1)
    taken = [target.take() for _ in range(3)]
    assert numbers(*taken) == [(77, 0, 0), (77, 0, 3), (77, 0, 5)]


def test_sequence_numbers_wrap_around(loop: asyncio.AbstractEventLoop) -> None:
    target = queue()
    target._next = SEQUENCE_MAX - 1
    add(target, loop, 3, 1)
    assert [target.take().sequence, target.take().sequence] == [SEQUENCE_MAX - 1, 1]


def test_without_idempotence_batches_have_no_sequence_numbers(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = queue(idempotent=False)
    add(target, loop, 3)
    assert numbers(target.take()) == [(-1, -1, -1)]


def test_number_of_batches_in_flight_is_limited(loop: asyncio.AbstractEventLoop) -> None:
    target = known_queue(loop, under_way_max=2)
    add(target, loop, 1, 1, 1)
    target.take()
    first = target.under_way[0]
    target.take()
    assert not target.is_ready(now=9.0, linger_seconds=0)
    target.finish(first)
    assert target.is_ready(now=9.0, linger_seconds=0)


def test_failed_batch_keeps_its_sequence_and_is_sent_before_later_batches(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = queue()
    first, second, third = add(target, loop, 1, 1, 1)
    target.take()
    target.take()
    target.retry(second)
    assert not target.is_ready(now=9.0, linger_seconds=0), "the first is still under way"
    target.retry(first)
    assert list(target.waiting) == [first, second, third]
    assert [target.take() for _ in range(3)] == [first, second, third]
    assert numbers(first, second, third) == [(77, 0, 0), (77, 0, 1), (77, 0, 2)]


def test_no_new_batch_is_sent_before_the_outcome_of_batches_behind_a_retry(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = queue()
    first, second, _ = add(target, loop, 1, 1, 1)
    target.take()
    target.take()
    target.retry(first)
    assert not target.is_ready(now=9.0, linger_seconds=0)
    target.finish(second)
    assert target.is_ready(now=9.0, linger_seconds=0)
    assert target.take() is first


def test_is_oldest_names_the_first_outstanding_batch(loop: asyncio.AbstractEventLoop) -> None:
    target = queue()
    first, second = add(target, loop, 1, 1)
    target.take()
    target.take()
    assert target.is_oldest(first)
    assert not target.is_oldest(second)
    target.retry(first)
    assert not target.is_oldest(second), "a batch that waits for its retry is still outstanding"
    target.retry(second)
    target.take()
    target.finish(first)
    assert target.is_oldest(second)


def test_numbers_start_again_in_a_new_epoch_when_nothing_is_under_way(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = queue()
    first, second = add(target, loop, 4, 2)
    target.take()
    target.take()
    target.restart_numbers()
    target.retry(first)
    assert numbers(first) == [(77, 0, 0)], "the second may still be answered"
    target.retry(second)
    assert [target.take(), target.take()] == [first, second]
    assert numbers(first, second) == [(77, 1, 0), (77, 1, 4)]


def test_a_batch_in_doubt_keeps_its_number_when_a_later_one_is_refused(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """The first may be written: under another number it would be written again."""
    target = known_queue(loop)
    first, second, third, fourth = add(target, loop, 1, 1, 1, 1)
    for _ in range(3):
        target.take()
    target.restart_numbers(second)
    target.finish(second)
    target.retry(third)
    target.retry(first)
    assert target.is_ready(now=9.0, linger_seconds=0)
    assert target.take() is first
    assert numbers(first) == [(77, 0, 1)]
    assert not target.is_ready(now=9.0, linger_seconds=0), "the others need new numbers"
    target.retry(first)
    assert target.take() is first
    target.acknowledge(first)
    assert target.take() is third
    target.acknowledge(third)
    assert target.take() is fourth
    assert numbers(third, fourth) == [(77, 1, 0), (77, 1, 1)]


def test_numbers_restart_when_the_batch_in_doubt_is_given_up(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = known_queue(loop)
    first, second = add(target, loop, 1, 1, now=1.0)
    (third,) = add(target, loop, 1, now=5.0)
    target.take()
    target.take()
    target.restart_numbers(second)
    target.finish(second)
    target.retry(first)
    assert target.expire(before=2.0) == [first]
    assert target.is_ready(now=9.0, linger_seconds=0)
    target.take()
    assert numbers(third) == [(77, 1, 0)]


def test_after_the_last_epoch_a_new_producer_id_is_needed(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = queue()
    target.identify(Identity(77, EPOCH_MAX))
    (batch,) = add(target, loop, 1)
    target.take()
    target.restart_numbers()
    target.retry(batch)
    assert target.identity is None
    target.identify(Identity(78, 0))
    target.take()
    assert numbers(batch) == [(78, 0, 0)]


def test_an_acknowledgement_holds_for_lower_numbers(loop: asyncio.AbstractEventLoop) -> None:
    target = known_queue(loop)
    first, second, third = add(target, loop, 2, 1, 1)
    for _ in range(3):
        target.take()
    target.acknowledge(second)
    target.retry(first)
    assert target.is_written(first)
    assert not target.is_written(third)
    target.retry(third)
    target.take()
    target.acknowledge(first)
    assert not target.is_written(third), "the highest number counts, whatever came last"


def test_acknowledgement_of_an_earlier_epoch_does_not_count(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = known_queue(loop)
    first, second = add(target, loop, 1, 1)
    target.take()
    target.acknowledge(first)
    target.restart_numbers()
    target.take()
    assert numbers(second) == [(77, 1, 0)]
    assert not target.is_written(second)
    target.retry(second)
    assert not target.is_written(first)


def test_acknowledgement_covers_lower_numbers_across_a_wrap_around(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = known_queue(loop)
    target._next = SEQUENCE_MAX
    first, second = add(target, loop, 1, 1)
    target._acknowledged = SEQUENCE_MAX - 1
    target.take()
    target.take()
    assert (first.sequence, second.sequence) == (SEQUENCE_MAX, 0)
    target.acknowledge(second)
    assert target.is_written(first)


def test_first_batch_of_a_producer_identity_is_sent_alone_until_acknowledged(
    loop: asyncio.AbstractEventLoop,
) -> None:
    """A broker that does not know the producer accepts any number as the first one."""
    target = queue()
    first, second = add(target, loop, 1, 1)
    assert target.is_ready(now=9.0, linger_seconds=0)
    target.take()
    assert not target.is_ready(now=9.0, linger_seconds=0)
    target.retry(first)
    assert target.is_ready(now=9.0, linger_seconds=0)
    target.take()
    target.acknowledge(first)
    assert target.is_ready(now=9.0, linger_seconds=0)
    target.take()
    add(target, loop, 1)
    assert target.is_ready(now=9.0, linger_seconds=0)
    target.finish(second)


def test_a_batch_lingers_until_it_is_full_or_another_waits_behind_it(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = queue()
    (batch,) = add(target, loop, 1)
    batch.bytes = 10
    assert not target.is_ready(now=0.004, linger_seconds=0.005)
    assert target.is_ready(now=0.005, linger_seconds=0.005)
    batch.bytes = 100
    assert target.is_ready(now=0.0, linger_seconds=0.005)
    batch.bytes = 10
    add(target, loop, 1)
    assert target.is_ready(now=0.0, linger_seconds=0.005)


def test_a_record_joins_the_last_batch_while_it_fits_and_has_not_left(
    loop: asyncio.AbstractEventLoop,
) -> None:
    target = queue()
    assert target.open_batch(10) is None
    (batch,) = add(target, loop, 1)
    batch.bytes = 90
    assert target.open_batch(10) is batch
    assert target.open_batch(11) is None
    target.take()
    target.retry(batch)
    assert target.open_batch(10) is None, "its number counts the records it had"


def test_old_batches_are_given_up_in_order(loop: asyncio.AbstractEventLoop) -> None:
    target = queue()
    (old,) = add(target, loop, 1, now=1.0)
    (young,) = add(target, loop, 1, now=5.0)
    assert target.expire(before=5.0) == [old]
    assert list(target.waiting) == [young]


def test_no_batch_is_ready_before_the_end_of_a_pause(loop: asyncio.AbstractEventLoop) -> None:
    target = queue()
    add(target, loop, 1)
    target.not_before = 3.0
    assert not target.is_ready(now=2.9, linger_seconds=0)
    assert target.is_ready(now=3.0, linger_seconds=0)
