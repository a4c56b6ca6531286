"""Our client on both brokers in every run of the suite: that it speaks Kafka's protocol, not ours.

This is the smoke of ``make interop-kafka``, which plays all of the client's tests on Kafka.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import pytest

from sharegroup.client import (
    AcknowledgementResult,
    AcknowledgeType,
    AdminClient,
    AlterConfig,
    ConfigResource,
    ListedOffset,
    NewTopic,
    OffsetSpec,
    Producer,
    Record,
    ResourceType,
    ShareConsumer,
    ShareGroupDescription,
    SharePartitionOffset,
    TopicPartition,
    sync,
)
from sharegroup.errors import (
    GroupIdNotFound,
    NonEmptyGroup,
    TopicAlreadyExists,
)
from tests.support.chosen_broker import BOTH, SHORT_TIMES, RunningBroker, running
from tests.support.limits import HANGING_SECONDS


@pytest.fixture(scope="module", params=BOTH)
def there(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningBroker]:
    settings = {**SHORT_TIMES, "group.share.record.lock.duration.ms": "10000"}
    with running(request.param, tmp_path_factory.mktemp("client"), settings) as broker:
        yield broker


async def prepare(there: RunningBroker, topic: str, group: str, *, partitions: int = 1) -> None:
    """A topic, and a group that reads it from the beginning."""
    async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
        assert await admin.create_topics([NewTopic(topic, partitions)]) == {topic: None}
        resource = ConfigResource(ResourceType.GROUP, group)
        change = AlterConfig("share.auto.offset.reset", "earliest")
        assert await admin.incremental_alter_configs({resource: [change]}) == {resource: None}


async def produce(there: RunningBroker, topic: str, *values: bytes) -> None:
    async with Producer(bootstrap_servers=there.bootstrap_servers) as producer:
        for value in values:
            await producer.send(topic, value)


def consumer(there: RunningBroker, topic: str, group: str) -> ShareConsumer:
    return ShareConsumer(
        topic,
        bootstrap_servers=there.bootstrap_servers,
        group_id=group,
        share_acknowledgement_mode="explicit",
    )


async def first(
    count: int, member: ShareConsumer, settle: Callable[[Record], None]
) -> list[Record]:
    """The first ``count`` records, each settled; fails when they do not come."""
    limit = time.monotonic() + HANGING_SECONDS
    records: list[Record] = []
    while len(records) < count:
        assert time.monotonic() < limit, f"{len(records)} of {count} records came"
        for record in await member.poll(1.0):
            settle(record)
            records.append(record)
    return records


async def until(reached: Callable[[], Awaitable[bool]], what: str) -> None:
    limit = time.monotonic() + HANGING_SECONDS
    while not await reached():
        assert time.monotonic() < limit, what
        await asyncio.sleep(0.05)


async def lag(admin: AdminClient, group: str, where: TopicPartition) -> int | None:
    offsets = (await admin.list_share_group_offsets({group: None}))[group]
    assert isinstance(offsets, dict)
    found = offsets.get(where)
    return found.lag if isinstance(found, SharePartitionOffset) else None


def test_records_are_accepted_and_the_group_is_described(there: RunningBroker) -> None:
    async def scenario() -> None:
        where = TopicPartition("accepted", 0)
        await prepare(there, "accepted", "g-accepted")
        await produce(there, "accepted", *(b"%d" % number for number in range(100)))
        async with (
            AdminClient(bootstrap_servers=there.bootstrap_servers) as admin,
            consumer(there, "accepted", "g-accepted") as member,
        ):
            records = await first(100, member, Record.accept)
            assert await member.commit() == {where: None}
            assert [record.value for record in records] == [b"%d" % n for n in range(100)]
            assert {record.delivery_count for record in records} == {1}
            assert member.acquisition_lock_timeout_ms == 10_000
            assert member.assignment == {where}
            group = (await admin.describe_share_groups(["g-accepted"]))["g-accepted"]
            assert isinstance(group, ShareGroupDescription)
            assert (group.state, len(group.members)) == ("Stable", 1)
            assert group.members[0].member_id == member.member_id
            assert group.members[0].assignment == (where,)
            listed = await admin.list_share_groups(states_filter=["Stable"])
            assert "g-accepted" in [group.group_id for group in listed]
            await until(lambda: is_zero(admin, "g-accepted", where), "the lag stays above 0")
            refused = await admin.delete_share_groups(["g-accepted", "g-unknown"])
            assert isinstance(refused["g-accepted"], NonEmptyGroup)
            assert isinstance(refused["g-unknown"], GroupIdNotFound)

    asyncio.run(scenario())


async def is_zero(admin: AdminClient, group: str, where: TopicPartition) -> bool:
    return await lag(admin, group, where) == 0


def test_released_records_are_redelivered_and_rejected_ones_are_not(there: RunningBroker) -> None:
    async def scenario() -> None:
        await prepare(there, "settled", "g-settled")
        await produce(there, "settled", b"accept", b"release", b"reject")
        choices = {
            b"accept": AcknowledgeType.ACCEPT,
            b"release": AcknowledgeType.RELEASE,
            b"reject": AcknowledgeType.REJECT,
        }
        outcomes: list[AcknowledgementResult] = []
        async with consumer(there, "settled", "g-settled") as member:
            member.set_acknowledgement_commit_callback(outcomes.append)
            await first(3, member, lambda record: record.settle(choices[record.value]))
            again = await first(1, member, Record.accept)
            assert [(record.value, record.delivery_count) for record in again] == [(b"release", 2)]
            await member.commit()
            assert [(list(outcome.offsets), outcome.error) for outcome in outcomes] == [
                ([0, 1, 2], None),  # It went with the fetch that brought the record back.
                ([1], None),
            ]
            assert await member.poll(0.7) == []

    asyncio.run(scenario())


def test_close_releases_held_records(there: RunningBroker) -> None:
    async def scenario() -> None:
        await prepare(there, "returned", "g-returned")
        await produce(there, "returned", b"one")
        async with consumer(there, "returned", "g-returned") as member:
            await first(1, member, lambda record: None)
        async with consumer(there, "returned", "g-returned") as member:
            (record,) = await first(1, member, Record.accept)
            assert record.delivery_count == 2

    asyncio.run(scenario())


def test_iteration_in_implicit_mode_accepts_the_previous_records(there: RunningBroker) -> None:
    async def scenario() -> None:
        where = TopicPartition("implicit", 0)
        await prepare(there, "implicit", "g-implicit")
        await produce(there, "implicit", b"a", b"b", b"c")
        async with ShareConsumer(
            "implicit", bootstrap_servers=there.bootstrap_servers, group_id="g-implicit"
        ) as member:
            seen = []
            async for record in member:
                seen.append(record.value)
                if len(seen) == 2:
                    break
        assert seen == [b"a", b"b"]
        async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
            # Nothing accepted the second, and the third was fetched and never handed out.
            assert await lag(admin, "g-implicit", where) == 2

    asyncio.run(scenario())


@pytest.mark.slow
@pytest.mark.parametrize("blocking", [False, True], ids=["asyncio", "sync"])
@pytest.mark.parametrize("end", ["close", "unsubscribe", "commit"])
def test_the_end_of_implicit_mode_is_that_of_the_java_client(
    there: RunningBroker, end: str, blocking: bool
) -> None:
    topic = f"implicit-{end}-{blocking}"

    async def scenario() -> None:
        await prepare(there, topic, topic)
        await produce(there, topic, b"v0", b"v1", b"v2")
        options = {"bootstrap_servers": there.bootstrap_servers, "group_id": topic}
        if blocking:
            with sync.ShareConsumer(topic, **options) as member:
                while not member.poll(1.0):
                    pass
                if end != "close":
                    getattr(member, end)()
        else:
            async with ShareConsumer(topic, **options) as member:
                await first(3, member, lambda record: None)
                if end != "close":
                    await getattr(member, end)()
        async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
            remaining = await lag(admin, topic, TopicPartition(topic, 0))
        # As the Java client in the scene "implicit-end" of test_java_client.py.
        assert remaining == (0 if end == "commit" else 3)

    asyncio.run(scenario())


def test_producer_writes_with_every_codec_and_returns_positions(there: RunningBroker) -> None:
    async def scenario() -> None:
        await prepare(there, "codecs", "g-codecs", partitions=3)
        for offset, codec in enumerate((None, "gzip", "snappy", "lz4", "zstd")):
            async with Producer(
                bootstrap_servers=there.bootstrap_servers, compression=codec
            ) as producer:
                written = await producer.send_and_wait(
                    "codecs", b"v" * 1000, partition=2, headers=[("codec", b"x"), ("none", None)]
                )
                assert (written.partition, written.offset) == (2, offset)
        async with consumer(there, "codecs", "g-codecs") as member:
            records = await first(5, member, Record.accept)
            assert {record.value for record in records} == {b"v" * 1000}
            assert list(records[0].headers) == [("codec", b"x"), ("none", None)]

    asyncio.run(scenario())


@pytest.mark.slow
def test_closed_producer_has_sent_what_nobody_confirms(there: RunningBroker) -> None:
    async def run() -> None:
        await prepare(there, "unconfirmed", "nobody")
        options = {"bootstrap_servers": there.bootstrap_servers}
        async with Producer(**options, acks=0, idempotent=False) as producer:
            for _ in range(30):
                await producer.send("unconfirmed", bytes(900_000))
        where = TopicPartition("unconfirmed", 0)
        async with AdminClient(**options) as admin, asyncio.timeout(HANGING_SECONDS):
            end = 0
            while end < 30:  # What it has received, Kafka's broker may still be writing.
                listed = (await admin.list_offsets({where: OffsetSpec.LATEST}))[where]
                assert isinstance(listed, ListedOffset), listed
                end = listed.offset

    asyncio.run(run())


def test_offsets_of_a_group_are_moved_and_forgotten(there: RunningBroker) -> None:
    async def scenario() -> None:
        where = TopicPartition("moved", 0)
        await prepare(there, "moved", "g-moved")
        await produce(there, "moved", b"0", b"1", b"2")
        async with AdminClient(bootstrap_servers=there.bootstrap_servers) as admin:
            again = await admin.create_topics([NewTopic("moved")])
            assert isinstance(again["moved"], TopicAlreadyExists)
            assert await admin.alter_share_group_offsets("g-moved", {where: 2}) == {where: None}
            assert await lag(admin, "g-moved", where) == 1
            latest = (await admin.list_offsets({where: OffsetSpec.LATEST}))[where]
            assert getattr(latest, "offset", latest) == 3
            assert await admin.delete_share_group_offsets("g-moved", ["moved"]) == {"moved": None}
            assert await admin.delete_share_groups(["g-moved"]) == {"g-moved": None}
            assert await admin.delete_records({where: 2}) == {where: 2}

    asyncio.run(scenario())


def test_killed_broker_loses_no_record_of_producer_or_consumer(there: RunningBroker) -> None:
    """The broker is killed between two halves; records confirmed before are not redelivered."""

    async def scenario() -> None:
        await prepare(there, "killed", "g-killed")
        async with (
            Producer(bootstrap_servers=there.bootstrap_servers) as producer,
            consumer(there, "killed", "g-killed") as member,
        ):
            for number in range(50):
                await producer.send("killed", b"%d" % number)
            await producer.flush()
            before = await first(50, member, Record.accept)
            assert set((await member.commit()).values()) == {None}
            await asyncio.to_thread(there.kill)
            later = [await producer.send("killed", b"%d" % number) for number in range(50, 100)]
            await asyncio.to_thread(there.start)
            assert [(await sending).offset for sending in later] == list(range(50, 100))
            after = await first(50, member, Record.accept)
            assert [int(record.value) for record in (*before, *after)] == list(range(100))

    asyncio.run(scenario())
