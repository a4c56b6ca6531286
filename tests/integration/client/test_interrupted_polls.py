"""A blocking poll that is interrupted when it has its records already: none is lost.

An interrupt is an exception of a signal handler, which comes at any moment.  So these tests run
what the loop's thread does in a poll, and leave out that the result is returned.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sharegroup.client import OffsetAndMetadata
from sharegroup.client.loop_thread import LOOP_THREAD
from sharegroup.client.sync import Consumer, ShareConsumer
from tests.integration.client.test_consumer import SETTINGS, Stage
from tests.support.chosen_broker import RunningBroker, chosen, running
from tests.support.limits import HANGING_SECONDS


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running(chosen(), tmp_path_factory.mktemp("interrupted"), SETTINGS) as there:
        yield there


VALUES = [b"0", b"1", b"2", b"3"]


def filled(broker: RunningBroker) -> Stage:
    stage = Stage(broker.bootstrap_servers)

    async def fill() -> None:
        await stage.create(1)
        await stage.fill(*VALUES)

    asyncio.run(fill())
    return stage


@contextmanager
def plain_consumer(stage: Stage) -> Iterator[Consumer]:
    with Consumer(
        stage.topic,
        bootstrap_servers=stage.bootstrap_servers,
        group_id=stage.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=2,
    ) as consumer:
        yield consumer


@contextmanager
def share_consumer(stage: Stage) -> Iterator[ShareConsumer]:
    with ShareConsumer(
        stage.topic,
        bootstrap_servers=stage.bootstrap_servers,
        group_id=stage.group,
        start_from="earliest",
        max_poll_records=2,
        share_acquire_mode="record_limit",
    ) as consumer:
        yield consumer


def interrupted_poll(consumer: Consumer | ShareConsumer) -> None:
    until = time.monotonic() + HANGING_SECONDS
    while not LOOP_THREAD.run(consumer._poll(1, None)):
        assert time.monotonic() < until, "no records came"


def interrupted_poll_arrow(consumer: Consumer | ShareConsumer) -> None:
    until = time.monotonic() + HANGING_SECONDS
    while LOOP_THREAD.run(consumer._poll_arrow(1, 2)) is None:
        assert time.monotonic() < until, "no records came"
    if isinstance(consumer, Consumer):
        LOOP_THREAD.run(consumer._give_back())


@pytest.mark.parametrize("interrupt", [interrupted_poll, interrupted_poll_arrow])
def test_commit_after_an_interrupted_poll_leaves_its_records_out(
    broker: RunningBroker, interrupt: object
) -> None:
    assert callable(interrupt)
    stage = filled(broker)
    with plain_consumer(stage) as consumer:
        interrupt(consumer)
        assert [position.offset for position in consumer.positions().values()] == [0]
        consumer.commit()
        assert [record.value for record in consumer.poll(5)] == VALUES[:2]
        consumer.commit()
        (position,) = consumer.committed().values()
        assert isinstance(position, OffsetAndMetadata)
        assert position.offset == 2
        assert [record.value for record in consumer.poll(5)] == VALUES[2:]


def test_seek_after_an_interrupted_poll_drops_its_records(broker: RunningBroker) -> None:
    stage = filled(broker)
    with plain_consumer(stage) as consumer:
        interrupted_poll(consumer)
        consumer.seek(stage.at(0), 3)
        assert [record.value for record in consumer.poll(5)] == VALUES[3:]


def test_implicit_commit_after_an_interrupted_poll_does_not_accept_its_records(
    broker: RunningBroker,
) -> None:
    stage = filled(broker)
    with share_consumer(stage) as consumer:
        interrupted_poll(consumer)
        assert consumer.commit() == {}
        assert [record.value for record in consumer.poll(5)] == VALUES[:2]
        assert consumer.commit() == {stage.at(0): None}


def test_implicit_commit_after_an_interrupted_poll_of_columns_does_not_accept_its_records(
    broker: RunningBroker,
) -> None:
    stage = filled(broker)
    with share_consumer(stage) as consumer:
        interrupted_poll_arrow(consumer)
        assert consumer.commit() == {}
        batch = consumer.poll_arrow(5, 2)
        assert batch is not None
        assert batch.column("value").to_pylist() == VALUES[:2]
        assert consumer.commit() == {stage.at(0): None}
