"""Answers that refuse or leave out a part: that part is neither done nor absent.

And what the clients are after a request to leave their group has failed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from sharegroup.client import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclResourceType,
    AdminClient,
    Consumer,
    IllegalStateError,
    OffsetSpec,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from sharegroup.client.admin.offset_resets import (
    OffsetChange,
    Scenario,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToLatest,
)
from sharegroup.client.fetch.offsets import ListedOffset
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.client.share.ranges.share_ranges import ShareRanges
from sharegroup.errors import (
    CoordinatorNotAvailable,
    KafkaError,
    KafkaStorageError,
    NetworkException,
    RequestTimedOut,
    TopicAuthorizationFailed,
    UnknownServerError,
    UnknownTopicOrPartition,
    error_for,
)
from tests.faults.lying_broker import (
    HEARTBEAT,
    LIST_OFFSETS,
    METADATA,
    TOPIC_ID,
    Lie,
    LyingBroker,
    Request,
    answer,
    frame,
    honest_but,
    made,
)
from tests.faults.test_lying_broker import LIMITS, SECONDS_MAX, WHERE, topic_error

CREATE_ACLS, DELETE_ACLS, DESCRIBE_GROUP, DESCRIBE_OFFSETS, ALTER_OFFSETS = 30, 31, 77, 90, 91
GROUP_HEARTBEAT = 68
OTHER = TopicPartition("t", 1)


def nobody(_: Request, __: Any) -> Any:
    """A share group without members."""
    group = made(
        DESCRIBE_GROUP,
        "DescribedGroup",
        error_code=0,
        group_id="g",
        group_state="Empty",
        group_epoch=1,
        assignment_epoch=1,
        assignor_name="simple",
        members=(),
    )
    return answer(DESCRIBE_GROUP, groups=(group,))


def offsets(code: int = 0, start: int = 5) -> Lie:
    """The start offset of partition 0, or its error."""
    partition = made(
        DESCRIBE_OFFSETS,
        "DescribeShareGroupOffsetsResponsePartition",
        partition_index=0,
        start_offset=start,
        leader_epoch=0,
        error_code=code,
    )
    topic = made(
        DESCRIBE_OFFSETS,
        "DescribeShareGroupOffsetsResponseTopic",
        topic_name="t",
        topic_id=TOPIC_ID,
        partitions=(partition,),
    )
    group = made(
        DESCRIBE_OFFSETS,
        "DescribeShareGroupOffsetsResponseGroup",
        group_id="g",
        topics=(topic,),
        error_code=0,
    )
    return lambda _, __: answer(DESCRIBE_OFFSETS, groups=(group,))


def listed_with(**values: Any) -> Lie:
    """The answer to ListOffsets about the one partition, with other values."""

    def lie(_: Request, honest: Any) -> Any:
        (topic,) = honest.topics
        partitions = tuple(honest_but(partition, **values) for partition in topic.partitions)
        return honest_but(honest, topics=(honest_but(topic, partitions=partitions),))

    return lie


@asynccontextmanager
async def admin_and_broker() -> AsyncIterator[tuple[AdminClient, LyingBroker]]:
    async with (
        LyingBroker() as broker,
        AdminClient(bootstrap_servers=broker.bootstrap_servers, **LIMITS) as admin,
        asyncio.timeout(SECONDS_MAX),
    ):
        broker.lies |= {DESCRIBE_GROUP: nobody, DESCRIBE_OFFSETS: offsets()}
        yield admin, broker


SCENARIOS: list[Scenario] = [ToCurrent(), ToEarliest(), ShiftBy(-2)]
ERRORS = [CoordinatorNotAvailable, KafkaStorageError, TopicAuthorizationFailed, UnknownServerError]


@pytest.mark.parametrize("to", SCENARIOS, ids=repr)
@pytest.mark.parametrize("error", ERRORS)
def test_a_start_offset_that_is_not_known_is_not_moved(
    error: type[KafkaError], to: Scenario
) -> None:
    """`ToCurrent` would move the partition to the end, as if the group had not started."""

    async def run() -> None:
        async with admin_and_broker() as (admin, broker):
            broker.lies[DESCRIBE_OFFSETS] = offsets(error.code, start=-1)
            plan = await admin.reset_group_offsets("g", to)
            assert [type(change) for change in plan.values()] == [error]
            assert broker.seen[ALTER_OFFSETS] == 0
            # By name, too, although the offsets of a named partition need not exist.
            plan = await admin.reset_group_offsets("g", to, partitions=[WHERE])
            assert [type(change) for change in plan.values()] == [error]
            assert broker.seen[ALTER_OFFSETS] == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("start", "change"), [(5, OffsetChange(5, 12)), (-1, OffsetChange(None, 12))]
)
def test_a_start_offset_that_is_known_or_not_there_is_planned(
    start: int, change: OffsetChange
) -> None:
    async def run() -> None:
        async with admin_and_broker() as (admin, broker):
            broker.lies[DESCRIBE_OFFSETS] = offsets(start=start)
            plan = await admin.reset_group_offsets("g", ToCurrent(), dry_run=True)
            assert plan == {WHERE: change}

    asyncio.run(run())


@pytest.mark.parametrize("to", [ToLatest(), ToEarliest(), ToCurrent()], ids=repr)
@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_log_without_an_end_is_an_error(offset: int, to: Scenario) -> None:
    async def run() -> None:
        async with admin_and_broker() as (admin, broker):
            broker.lies[LIST_OFFSETS] = listed_with(offset=offset)
            plan = await admin.reset_group_offsets("g", to)
            assert f"expected an offset of 0 or more for EARLIEST, found {offset}" in str(
                plan[WHERE]
            )
            assert broker.seen[ALTER_OFFSETS] == 0
            # There need not be a record that is as new as a time.
            listed = (await admin.list_offsets({WHERE: 1_000}))[WHERE]
            assert isinstance(listed, ListedOffset)
            for spec in (OffsetSpec.LATEST, OffsetSpec.EARLIEST):
                assert isinstance(
                    (await admin.list_offsets({WHERE: spec}))[WHERE], UnknownServerError
                )

    asyncio.run(run())


def test_a_partition_that_the_coordinator_leaves_out_has_an_error() -> None:
    async def run() -> None:
        async with admin_and_broker() as (admin, _):
            listed = (await admin.list_share_group_offsets({"g": [WHERE, OTHER]}))["g"]
            assert isinstance(listed, dict)
            assert isinstance(listed[OTHER], UnknownServerError)
            assert "partition TopicPartition(topic='t', partition=1)" in str(listed[OTHER])
            # Without names the coordinator decides which partitions the group has offsets for.
            listed = (await admin.list_share_group_offsets({"g": None}))["g"]
            assert isinstance(listed, dict)
            assert list(listed) == [WHERE]

    asyncio.run(run())


def test_results_of_acls_that_are_too_few_or_too_many_are_an_error() -> None:
    binding = AclBinding(AclResourceType.TOPIC, "t", "User:ann", AclOperation.READ)

    async def run() -> None:
        async with admin_and_broker() as (admin, broker):
            created = made(CREATE_ACLS, "AclCreationResult", error_code=0, error_message=None)
            for results in ((), (created, created)):
                broker.lies[CREATE_ACLS] = lambda _, __, made=results: answer(
                    CREATE_ACLS, results=made
                )
                with pytest.raises(UnknownServerError, match="expected 1 results of ACLs"):
                    await admin.create_acls([binding])
            broker.lies[DELETE_ACLS] = lambda _, __: answer(DELETE_ACLS, filter_results=())
            with pytest.raises(UnknownServerError, match="expected 1 results of ACLs"):
                await admin.delete_acls([AclBindingFilter()])

    asyncio.run(run())


# Metrics of the application.

SUBSCRIPTION, PUSH = 71, 72


@pytest.mark.parametrize("read", [lambda: 1 / 0, lambda: "many"], ids=["raises", "text"])
def test_producer_survives_a_metric_of_the_application_that_fails(read: Any) -> None:
    pushes: list[bool] = []

    def subscription(_: Request, __: Any) -> Any:
        return answer(
            SUBSCRIPTION,
            error_code=0,
            client_instance_id=UUID(int=9),
            subscription_id=5,
            accepted_compression_types=(0,),
            push_interval=timedelta(milliseconds=100),
            telemetry_max_bytes=1_000_000,
            delta_temporality=False,
            requested_metrics=("",),
        )

    def push(request: Request, _: Any) -> Any:
        pushes.append(request.message.terminating)
        return answer(PUSH, error_code=0)

    async def run() -> None:
        async with LyingBroker() as broker, asyncio.timeout(SECONDS_MAX):
            broker.lies |= {SUBSCRIPTION: subscription, PUSH: push}
            producer = Producer(bootstrap_servers=broker.bootstrap_servers, **LIMITS)
            producer.register_metric_for_subscription("shop", "carts", read)
            await producer.send_and_wait("t", b"v")
            await until(lambda: len(pushes) >= 2)
            assert "carts" not in producer.metrics()["shop"]
            await producer.send_and_wait("t", b"v")
            await producer.close()
            assert pushes[-1]

    asyncio.run(run())


# The driver of a Spark query: a topic or a partition without an answer is not deleted or empty.


@asynccontextmanager
async def ranges_and_broker() -> AsyncIterator[tuple[ShareRanges, LyingBroker]]:
    async with LyingBroker() as broker, asyncio.timeout(SECONDS_MAX):
        config = ClientConfig(bootstrap_servers=broker.bootstrap_servers, **LIMITS)
        ranges = ShareRanges(config, group_id="g", topics=["t"])
        try:
            yield ranges, broker
        finally:
            await ranges.close()


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        (topic_error(TopicAuthorizationFailed.code), TopicAuthorizationFailed),
        (topic_error(9_999), type(error_for(9_999, ""))),
        (lambda _, honest: honest_but(honest, topics=()), UnknownServerError),
    ],
    ids=["denied", "unknown error", "left out"],
)
def test_a_topic_without_an_answer_is_not_deleted(lie: Lie, error: type[KafkaError]) -> None:
    async def run() -> None:
        async with ranges_and_broker() as (ranges, broker):
            broker.lies[METADATA] = lie
            with pytest.raises(error):
                await ranges.topic_ids()
            broker.lies[METADATA] = topic_error(UnknownTopicOrPartition.code)
            assert await ranges.topic_ids() == {"t": None}
            broker.lies.clear()
            assert await ranges.topic_ids() == {"t": TOPIC_ID}

    asyncio.run(run())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lie", "error"),
    [
        (listed_with(error_code=TopicAuthorizationFailed.code), TopicAuthorizationFailed),
        (listed_with(error_code=KafkaStorageError.code), RequestTimedOut),  # It is retried.
        (lambda _, honest: honest_but(honest, topics=()), UnknownServerError),
    ],
    ids=["denied", "storage", "left out"],
)
def test_a_partition_without_an_end_is_not_empty(lie: Lie, error: type[KafkaError]) -> None:
    """A run of availableNow would end without its records."""

    async def run() -> None:
        async with ranges_and_broker() as (ranges, broker):
            broker.lies[LIST_OFFSETS] = lie
            with pytest.raises(error):
                await ranges.end_offsets()
            broker.lies.clear()
            ends = await ranges.end_offsets()
            assert [(key.topic_id, key.partition, end) for key, end in ends.items()] == [
                (UUID(int=7), 0, 12)
            ]

    asyncio.run(run())


def test_a_driver_that_is_refused_again_and_again_pauses() -> None:
    async def run() -> None:
        async with ranges_and_broker() as (ranges, broker):
            broker.lies[HEARTBEAT] = lambda _, honest: honest_but(
                honest, error_code=UnknownServerError.code, assignment=None
            )
            started_at = time.monotonic()
            await ranges.acquire(wait_ms=1_000)
            # One in each pause of 50 ms, which `LIMITS` has.
            pauses = (time.monotonic() - started_at) / 0.05
            assert 1 <= broker.seen[HEARTBEAT] <= pauses + 1
            broker.lies.clear()
            while not (await ranges.acquire(wait_ms=1_000)).ranges:
                pass

    asyncio.run(run())


# Leaving a group.


class Coordinator:
    """Notes the member epochs of heartbeats; with ``refuses`` nobody can leave."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.refuses = True

    def share(self, request: Request, honest: Any) -> Any:
        self.epochs.append(request.message.member_epoch)
        cuts = self.refuses and request.message.member_epoch < 0
        return frame(b"x") if cuts else honest  # No response is so short.

    def consumer(self, request: Request, _: Any) -> Any:
        epoch = request.message.member_epoch
        self.epochs.append(epoch)
        if self.refuses and epoch < 0:
            return frame(b"x")
        return answer(
            GROUP_HEARTBEAT,
            error_code=0,
            member_id=request.message.member_id,
            member_epoch=max(epoch, 1),
            heartbeat_interval=timedelta(milliseconds=50),
            assignment=None,
        )


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


@asynccontextmanager
async def share_consumer() -> AsyncIterator[tuple[ShareConsumer, Coordinator]]:
    """A consumer that holds records."""
    coordinator = Coordinator()
    async with LyingBroker() as broker, asyncio.timeout(SECONDS_MAX):
        broker.lies[HEARTBEAT] = coordinator.share
        consumer = ShareConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            share_acknowledgement_mode="explicit",
            **LIMITS,
        )
        try:
            await some_records(consumer)
            yield consumer, coordinator
        finally:
            await consumer.close()


async def some_records(consumer: ShareConsumer) -> None:
    while not await consumer.poll(1):
        pass


def test_unsubscribe_that_fails_has_ended_the_subscription_and_its_records() -> None:
    async def run() -> None:
        async with share_consumer() as (consumer, coordinator):
            with pytest.raises(NetworkException):
                await consumer.unsubscribe()
            assert consumer.in_flight == 0
            with pytest.raises(IllegalStateError, match="not subscribed to any topics"):
                await consumer.poll(0)
            coordinator.refuses = False
            consumer.subscribe("t")
            await some_records(consumer)  # The records of before count as released.

    asyncio.run(run())


def test_subscription_during_a_leave_that_fails_joins_again() -> None:
    async def run() -> None:
        async with share_consumer() as (consumer, coordinator):
            consumer.subscribe()
            consumer.subscribe("t")
            with pytest.raises(NetworkException):
                await consumer.poll(1)
            coordinator.refuses = False
            await some_records(consumer)

    asyncio.run(run())


def test_close_leaves_also_after_a_leave_that_failed() -> None:
    async def run() -> None:
        async with share_consumer() as (consumer, coordinator):
            consumer.subscribe()
            consumer.subscribe("t")
            await until(lambda: -1 in coordinator.epochs and coordinator.epochs[-1] >= 0)
            coordinator.refuses = False
            report = await consumer.close()
            assert isinstance(report.error, NetworkException)
            assert coordinator.epochs[-1] == -1
            assert coordinator.epochs.count(-1) == 2

    asyncio.run(run())


def test_unsubscribe_of_a_plain_consumer_that_fails_has_ended_the_subscription() -> None:
    async def run() -> None:
        coordinator = Coordinator()
        async with LyingBroker() as broker, asyncio.timeout(SECONDS_MAX):
            broker.lies[GROUP_HEARTBEAT] = coordinator.consumer
            consumer = Consumer(
                "t",
                bootstrap_servers=broker.bootstrap_servers,
                group_id="g",
                group_protocol="consumer",
                **LIMITS,
            )
            await consumer.start()
            await until(lambda: 1 in coordinator.epochs)
            with pytest.raises(NetworkException):
                await consumer.unsubscribe()
            assert consumer.subscription == frozenset()
            with pytest.raises(IllegalStateError, match="call subscribe or assign before poll"):
                await consumer.poll(0)
            assert coordinator.epochs[-1] == -1
            coordinator.refuses = False
            consumer.assign([WHERE])  # Neither is it subscribed any more.
            await consumer.unsubscribe()
            consumer.subscribe("t")
            await until(lambda: coordinator.epochs[-1] >= 0)
            await consumer.close()
            assert coordinator.epochs[-1] == -1

    asyncio.run(run())
