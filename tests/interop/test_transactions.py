"""Our transactional producer on a broker, read by another client: all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from sharegroup.client import (
    AdminClient,
    CommittedOffset,
    ConsumerGroupMetadata,
    FeatureUpdate,
    IllegalStateError,
    NewTopic,
    Producer,
    TopicPartition,
    UpgradeType,
    sync,
)
from sharegroup.errors import (
    IllegalGeneration,
    ProducerFenced,
    UnknownMemberId,
)
from tests.support.chosen_broker import RunningBroker, chosen, running

SECONDS_MAX = 60
QUIET_MS = 1_000
"""When a reader gets nothing for so long, it has read all that is committed."""

Scenario = Callable[[AdminClient], Coroutine[Any, Any, None]]


def play(bootstrap: str, topic: str, scenario: Scenario) -> None:
    async def run() -> None:
        async with (
            AdminClient(bootstrap_servers=bootstrap) as admin,
            asyncio.timeout(SECONDS_MAX),
        ):
            await admin.create_topics([NewTopic(topic, num_partitions=2)])
            await scenario(admin)

    asyncio.run(run())


async def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """Return the values that a reader of committed records gets, sorted."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )
    await consumer.start()
    try:
        values: list[bytes] = []
        while batches := await consumer.getmany(timeout_ms=QUIET_MS):
            values += [record.value for records in batches.values() for record in records]
        return sorted(values)
    finally:
        await consumer.stop()


@pytest.fixture(params=[2, 1, 0])
def version(request: pytest.FixtureRequest, bootstrap: str) -> Any:
    """The transaction version that the cluster uses during the test."""

    async def use(level: int) -> None:
        async with AdminClient(bootstrap_servers=bootstrap) as admin:
            now = (await admin.describe_features()).finalized.get("transaction.version", 0)
            kind = UpgradeType.UPGRADE if level > now else UpgradeType.SAFE_DOWNGRADE
            if level != now:
                update = {"transaction.version": FeatureUpdate(level, kind)}
                assert await admin.update_features(update) == {"transaction.version": None}

    asyncio.run(use(request.param))
    yield request.param
    asyncio.run(use(2))


def test_committed_records_and_offsets_become_visible_together(
    bootstrap: str, topic: str, group: str, version: int
) -> None:
    where = TopicPartition(topic, 0)

    async def scenario(admin: AdminClient) -> None:
        async with Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-1") as producer:
            for number in range(3):
                async with producer.transaction() as transaction:
                    for index in range(4):
                        await producer.send(topic, b"%d-%d" % (number, index), partition=index % 2)
                    await transaction.send_offsets(
                        {where: number + 1}, ConsumerGroupMetadata(group)
                    )
            with pytest.raises(LookupError):  # noqa: PT012  The block is what is tested.
                async with producer.transaction() as transaction:
                    await producer.send_and_wait(topic, b"aborted")
                    await transaction.send_offsets({where: 99}, ConsumerGroupMetadata(group))
                    raise LookupError
            async with producer.transaction():
                await producer.send(topic, b"last")
        assert await committed_values(bootstrap, topic) == sorted(
            [b"last", *(b"%d-%d" % (number, index) for number in range(3) for index in range(4))]
        )
        offsets = await admin.list_consumer_group_offsets({group: None})
        assert offsets == {group: {where: CommittedOffset(3, None, "")}}

    play(bootstrap, topic, scenario)


def test_a_zombie_is_fenced_and_its_open_transaction_aborted(
    bootstrap: str, topic: str, version: int
) -> None:
    async def scenario(admin: AdminClient) -> None:
        options: Any = {"bootstrap_servers": bootstrap, "transactional_id": f"{topic}-1"}
        async with Producer(**options) as zombie, Producer(**options) as successor:
            await zombie.begin_transaction()
            await zombie.send_and_wait(topic, b"zombie 1")
            async with successor.transaction():
                await successor.send(topic, b"successor")
            with pytest.raises(ProducerFenced):
                await zombie.commit_transaction()
            with pytest.raises(ProducerFenced):
                await zombie.begin_transaction()
            async with successor.transaction():
                await successor.send(topic, b"successor goes on")
        assert await committed_values(bootstrap, topic) == [b"successor", b"successor goes on"]

    play(bootstrap, topic, scenario)


def test_a_send_outside_of_a_transaction_is_refused(bootstrap: str, topic: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        async with Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-1") as producer:
            with pytest.raises(IllegalStateError, match="no transaction is open"):
                await producer.send(topic, b"v")
            async with producer.transaction():
                await producer.send(topic, b"v")
            with pytest.raises(IllegalStateError, match="no transaction is open"):
                await producer.send(topic, b"w")
        assert await committed_values(bootstrap, topic) == [b"v"]

    play(bootstrap, topic, scenario)


def test_offsets_of_a_member_that_the_group_does_not_have_are_refused(
    bootstrap: str, topic: str, group: str
) -> None:
    async def scenario(admin: AdminClient) -> None:
        member = ConsumerGroupMetadata(group, 7, "gone")
        async with Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-1") as producer:
            with pytest.raises((UnknownMemberId, IllegalGeneration)):
                async with producer.transaction() as transaction:
                    await transaction.send_offsets({TopicPartition(topic, 0): 1}, member)
            async with producer.transaction():
                await producer.send(topic, b"next")
        assert await committed_values(bootstrap, topic) == [b"next"]

    play(bootstrap, topic, scenario)


def test_a_transaction_that_outlives_its_timeout_is_aborted(bootstrap: str, topic: str) -> None:
    async def scenario(admin: AdminClient) -> None:
        async with Producer(
            bootstrap_servers=bootstrap,
            transactional_id=f"{topic}-1",
            transaction_timeout_ms=1_000,
        ) as producer:
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"late")
            # A broker looks for expired transactions every ten seconds.
            while not await is_refused(producer, topic):
                await asyncio.sleep(0.2)
            # The coordinator takes this for the abort that it has done already (KIP-890).
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"in time")
        assert await committed_values(bootstrap, topic) == [b"in time"]

    play(bootstrap, topic, scenario)


async def is_refused(producer: Producer, topic: str) -> bool:
    """Whether the transaction of this producer has been ended by the coordinator."""
    try:
        await producer.send_and_wait(topic, b"later")
    except Exception:  # noqa: BLE001  The kind of error is the broker's.
        return True
    return False


def test_blocking_transactions(bootstrap: str, topic: str, group: str) -> None:
    where = TopicPartition(topic, 0)
    with sync.AdminClient(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, num_partitions=2)])
        with sync.Producer(bootstrap_servers=bootstrap, transactional_id=f"{topic}-1") as producer:
            with producer.transaction() as transaction:
                producer.send(topic, b"v")
                transaction.send_offsets({where: 1}, ConsumerGroupMetadata(group))
            with pytest.raises(LookupError), producer.transaction():  # noqa: PT012  Tested as a whole.
                producer.send(topic, b"aborted")
                raise LookupError
            assert not producer.is_in_transaction()
        offsets = admin.list_consumer_group_offsets({group: None})
    assert offsets == {group: {where: CommittedOffset(1, None, "")}}
    assert asyncio.run(committed_values(bootstrap, topic)) == [b"v"]


@pytest.fixture
def own_broker(tmp_path: Path) -> Any:
    """A broker that the test may kill."""
    with running(chosen(), tmp_path) as broker:
        yield broker


def test_transactions_survive_kills_of_the_coordinator(own_broker: RunningBroker) -> None:
    """Kills the broker between and within transactions: each one's records are there once."""
    bootstrap, topic = own_broker.bootstrap_servers, "killed"
    written: list[bytes] = []

    async def scenario(admin: AdminClient) -> None:
        async with Producer(bootstrap_servers=bootstrap, transactional_id="survivor") as producer:
            for number in range(9):
                if number % 3 == 0:
                    # The first request of this transaction, its records and its end meet the kill.
                    restart = asyncio.create_task(asyncio.to_thread(restarted, own_broker))
                async with producer.transaction():
                    for index in range(50):
                        await producer.send(topic, b"%d-%02d" % (number, index))
                    if number % 3 == 1:
                        await producer.flush()
                written.extend(b"%d-%02d" % (number, index) for index in range(50))
                if number % 3 == 2:
                    await restart
        assert await committed_values(bootstrap, topic) == sorted(written)

    play(bootstrap, topic, scenario)


def restarted(broker: RunningBroker) -> None:
    broker.kill()
    broker.start()
