"""What an administrator sees of transactions and producers, and how a stuck one is ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sharegroup.client import (
    AdminClient,
    NewTopic,
    OpenTransaction,
    Producer,
    ProducerIdentity,
    TopicPartition,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from sharegroup.errors import (
    InvalidRequest,
    ProducerFenced,
    TransactionalIdNotFound,
    UnknownTopicOrPartition,
)
from tests.support.chosen_broker import KAFKA, chosen
from tests.support.limits import HANGING_SECONDS

Scenario = Callable[[AdminClient, Producer], Coroutine[Any, Any, None]]


def play(bootstrap: str, topic: str, scenario: Scenario) -> None:
    """Run the scenario with a topic of two partitions and an open transaction in the first."""

    async def run() -> None:
        async with (
            AdminClient(bootstrap_servers=bootstrap) as admin,
            Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer,
            asyncio.timeout(HANGING_SECONDS),
        ):
            await admin.create_topics([NewTopic(topic, num_partitions=2)])
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"v", partition=0)
            await scenario(admin, producer)

    asyncio.run(run())


async def described(admin: AdminClient, transactional_id: str) -> TransactionDescription:
    found = (await admin.describe_transactions([transactional_id]))[transactional_id]
    assert isinstance(found, TransactionDescription)
    return found


def test_an_open_transaction_is_listed_and_described(bootstrap: str, topic: str) -> None:
    async def scenario(admin: AdminClient, producer: Producer) -> None:
        transaction = await described(admin, topic)
        assert transaction.state is TransactionState.ONGOING
        assert transaction.timeout_ms == 60_000
        assert transaction.started_at_ms is not None
        assert abs(transaction.started_at_ms / 1000 - time.time()) < HANGING_SECONDS
        assert transaction.partitions == (TopicPartition(topic, 0),)
        listing = TransactionListing(topic, transaction.producer_id, TransactionState.ONGOING)
        assert listing in await admin.list_transactions(states_filter=["Ongoing"])
        assert listing in await admin.list_transactions(producer_ids_filter=[listing.producer_id])
        assert listing not in await admin.list_transactions(duration_min_ms=1_000_000)
        assert listing not in await admin.list_transactions(states_filter=["Empty"])
        await producer.commit_transaction()
        while (await described(admin, topic)).state is not TransactionState.COMPLETE_COMMIT:
            await asyncio.sleep(0.05)
        ended = await described(admin, topic)
        assert (ended.partitions, ended.started_at_ms) == ((), transaction.started_at_ms)

    play(bootstrap, topic, scenario)


@pytest.mark.skipif(chosen() != KAFKA, reason="our broker refuses patterns of transactional ids")
def test_transactions_are_listed_by_a_pattern(bootstrap: str, topic: str) -> None:
    async def scenario(admin: AdminClient, producer: Producer) -> None:
        pattern = f"{topic[:-3]}.*{topic[-1]}"
        listed = await admin.list_transactions(transactional_id_pattern=pattern)
        assert [listing.transactional_id for listing in listed] == [topic]

    play(bootstrap, topic, scenario)


def test_unknown_states_and_ids_are_errors(bootstrap: str, topic: str) -> None:
    async def scenario(admin: AdminClient, producer: Producer) -> None:
        with pytest.raises(InvalidRequest, match="no such transaction states: Nope; expected some"):
            await admin.list_transactions(states_filter=["Nope"])
        unknown = (await admin.describe_transactions(["nobody"]))["nobody"]
        assert isinstance(unknown, TransactionalIdNotFound)
        assert "transactional_id 'nobody'" in str(unknown)

    play(bootstrap, topic, scenario)


def test_producers_of_a_partition_and_the_start_of_their_transaction(
    bootstrap: str, topic: str
) -> None:
    first, second, missing = (
        TopicPartition(topic, 0), TopicPartition(topic, 1), TopicPartition("nowhere", 0),
    )  # fmt: skip

    async def scenario(admin: AdminClient, producer: Producer) -> None:
        found = await admin.describe_producers([first, second, missing])
        assert found[second] == ()
        assert isinstance(found[missing], UnknownTopicOrPartition)
        (state,) = found[first]  # type: ignore[misc]
        assert (state.last_sequence, state.transaction_start_offset) == (0, 0)
        assert state.producer_id == (await described(admin, topic)).producer_id
        await producer.commit_transaction()
        while (await admin.describe_producers([first]))[first][0].transaction_start_offset == 0:  # type: ignore[index]
            await asyncio.sleep(0.05)

    play(bootstrap, topic, scenario)


def test_fencing_ends_the_transaction_of_a_producer(bootstrap: str, topic: str) -> None:
    async def scenario(admin: AdminClient, producer: Producer) -> None:
        before = await described(admin, topic)
        fence = (await admin.fence_producers([topic]))[topic]
        assert isinstance(fence, ProducerIdentity)
        assert fence.epoch > before.producer_epoch
        with pytest.raises(ProducerFenced):
            await producer.commit_transaction()
        assert (await described(admin, topic)).state in (
            TransactionState.COMPLETE_ABORT, TransactionState.EMPTY,
        )  # fmt: skip

    play(bootstrap, topic, scenario)


def test_an_abort_marker_of_an_administrator_ends_the_transaction_of_a_partition(
    bootstrap: str, topic: str
) -> None:
    where = TopicPartition(topic, 0)

    async def scenario(admin: AdminClient, producer: Producer) -> None:
        (state,) = (await admin.describe_producers([where]))[where]  # type: ignore[misc]
        await admin.abort_transaction(
            OpenTransaction(where, state.producer_id, state.producer_epoch)
        )
        (state,) = (await admin.describe_producers([where]))[where]  # type: ignore[misc]
        assert state.transaction_start_offset is None

    play(bootstrap, topic, scenario)
