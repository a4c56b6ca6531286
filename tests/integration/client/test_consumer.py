"""The plain consumer on a broker: ours, or with ``SHAREGROUP_INTEROP=kafka`` Apache Kafka."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, nullcontext
from itertools import count
from typing import Any

import pytest

from sharegroup.client import (
    AdminClient,
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    IllegalStateError,
    NewTopic,
    NoOffsetForPartition,
    OffsetAndMetadata,
    Producer,
    RebalanceListener,
    TopicPartition,
    WakeupError,
    sync,
)
from sharegroup.errors import InvalidRegularExpression, KafkaError, OffsetOutOfRange
from tests.support.chosen_broker import RunningBroker, chosen, running
from tests.support.limits import HANGING_SECONDS

SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.min.session.timeout.ms": "1000",
}
PROTOCOLS = ["classic", "consumer"]
SESSION_SECONDS = 45.0
"""The session timeout of both protocols by default."""
names = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running(chosen(), tmp_path_factory.mktemp("consumer"), SETTINGS) as there:
        yield there


class Stage:
    """A topic and a group of their own, on the broker of this run."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.topic = f"orders-{next(names)}"
        self.group = f"billing-{self.topic}"

    async def create(self, partitions: int, topic: str | None = None) -> None:
        async with AdminClient(bootstrap_servers=self.bootstrap_servers) as admin:
            name = topic or self.topic
            results = await admin.create_topics([NewTopic(name, num_partitions=partitions)])
            assert results == {name: None}

    async def fill(self, *values: bytes, partition: int = 0, topic: str | None = None) -> None:
        async with Producer(bootstrap_servers=self.bootstrap_servers) as producer:
            for value in values:
                await producer.send(topic or self.topic, value, partition=partition)
            await producer.flush()

    @asynccontextmanager
    async def member(self, *topics: str, **options: Any) -> AsyncIterator[Consumer]:
        options = {"group_id": self.group, "auto_offset_reset": "earliest"} | options
        if options.get("group_protocol", "classic") == "classic" and options["group_id"]:
            options.setdefault("heartbeat_interval_ms", 100)
        consumer = Consumer(
            *topics, bootstrap_servers=self.bootstrap_servers, fetch_max_wait_ms=50, **options
        )
        async with consumer:
            yield consumer

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)


def play(
    broker: RunningBroker, scenario: Callable[[Stage], Coroutine[Any, Any, None]], partitions: int
) -> None:
    async def run() -> None:
        async with asyncio.timeout(HANGING_SECONDS):
            stage = Stage(broker.bootstrap_servers)
            await stage.create(partitions)
            await scenario(stage)

    asyncio.run(run())


async def read(consumer: Consumer, wanted: int) -> list[ConsumerRecord]:
    """Poll until there are so many records."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + HANGING_SECONDS
    while len(records) < wanted:
        assert time.monotonic() < deadline, f"{len(records)} of {wanted} records"
        records += await consumer.poll(1)
    return records


async def poll_until(holds: Callable[[], bool], *consumers: Consumer) -> list[ConsumerRecord]:
    """Poll all consumers until a condition holds."""
    records: list[ConsumerRecord] = []
    deadline = time.monotonic() + HANGING_SECONDS
    while not holds():
        assert time.monotonic() < deadline, [consumer.assignment for consumer in consumers]
        for polled in await asyncio.gather(*(consumer.poll(0.1) for consumer in consumers)):
            records += polled
    return records


async def until(holds: Callable[[], bool]) -> None:
    """Wait for a condition without polling a consumer."""
    async with asyncio.timeout(HANGING_SECONDS):
        while not holds():
            await asyncio.sleep(0.01)


def values(records: list[ConsumerRecord]) -> list[bytes]:
    return [record.value for record in records]


class Noted(RebalanceListener):
    """Notes the changes of an assignment."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, list[int]]] = []

    def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.changes.append(("assigned", sorted(number for _, number in partitions)))

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.changes.append(("revoked", sorted(number for _, number in partitions)))

    def on_partitions_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self.changes.append(("lost", sorted(number for _, number in partitions)))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_share_the_partitions_and_read_every_record_once(
    broker: RunningBroker, protocol: str
) -> None:
    """A second member joins and the first one leaves; automatic commits carry the positions."""

    async def scenario(stage: Stage) -> None:
        for partition in range(4):
            await stage.fill(*(b"%d-%d" % (partition, n) for n in range(5)), partition=partition)
        async with stage.member(stage.topic, group_protocol=protocol) as first:
            found = await poll_until(lambda: len(first.assignment) == 4, first)
            async with stage.member(stage.topic, group_protocol=protocol) as second:
                found += await poll_until(
                    lambda: len(first.assignment) == len(second.assignment) == 2, first, second
                )
                assert not first.assignment & second.assignment
                found += await first.poll(0.2)
                await first.close()
                found += await poll_until(lambda: len(second.assignment) == 4, second)
                await stage.fill(b"last", partition=3)
                while b"last" not in values(found):
                    found += await second.poll(1)
        wanted = [b"%d-%d" % (partition, n) for partition in range(4) for n in range(5)]
        assert sorted(values(found)) == sorted([*wanted, b"last"])

    play(broker, scenario, partitions=4)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_next_member_continues_from_the_committed_offsets(
    broker: RunningBroker, protocol: str
) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(b"a", b"b", b"c")
        options = {"group_protocol": protocol, "enable_auto_commit": False}
        async with stage.member(stage.topic, **options) as member:
            assert values(await read(member, 3)) == [b"a", b"b", b"c"]
            assert member.group_metadata().member_id != ""
            await member.commit({stage.at(0): OffsetAndMetadata(2, "two done")})
            assert await member.committed() == {stage.at(0): OffsetAndMetadata(2, "two done", None)}
        async with stage.member(stage.topic, **options) as member:
            assert values(await member.poll(10)) == [b"c"]
            await member.commit()
            committed = (await member.committed([stage.at(0)]))[stage.at(0)]
            assert committed is not None
            assert (committed.offset, committed.leader_epoch) == (3, 0)

    play(broker, scenario, partitions=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_automatic_commit_leaves_out_records_after_an_exception(
    broker: RunningBroker, protocol: str
) -> None:
    """The records of the last poll are read again, because they were not processed."""

    async def scenario(stage: Stage) -> None:
        await stage.fill(b"a", b"b")

        async def fail() -> None:
            async with stage.member(stage.topic, group_protocol=protocol) as member:
                assert await read(member, 2)
                raise ValueError("of the application")

        with pytest.raises(ValueError, match="of the application"):
            await fail()
        async with stage.member(stage.topic, group_protocol=protocol) as member:
            assert values(await read(member, 2)) == [b"a", b"b"]
        async with stage.member(stage.topic, group_protocol=protocol) as member:
            await poll_until(lambda: bool(member.assignment), member)
            assert await member.position(stage.at(0)) == 2

    play(broker, scenario, partitions=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_iteration_commits_what_was_yielded(broker: RunningBroker, protocol: str) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(*(b"%d" % n for n in range(10)))
        async with stage.member(stage.topic, group_protocol=protocol) as member:
            async for record in member:
                if record.value == b"3":
                    await member.commit()
                    break
            committed = (await member.committed())[stage.at(0)]
            assert committed is not None
            assert committed.offset == 4
            assert await member.poll(0.1, max_records=0) == []
            assert values(await member.poll(1, max_records=2)) == [b"4", b"5"]
            assert values(await member.poll(1)) == [b"6", b"7", b"8", b"9"]

    play(broker, scenario, partitions=1)


def test_commit_without_waiting_needs_no_poll(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        offsets = {stage.at(0): OffsetAndMetadata(5)}
        options: dict[str, Any] = {
            "bootstrap_servers": stage.bootstrap_servers, "group_id": stage.group,
        }  # fmt: skip
        consumer = Consumer(**options)
        await consumer.commit(offsets, wait=False)
        await consumer.close()
        assert await committed(stage) == offsets

    play(broker, scenario, partitions=1)


def test_blocking_commit_without_waiting_needs_no_poll(broker: RunningBroker) -> None:
    stage = Stage(broker.bootstrap_servers)
    asyncio.run(stage.create(1))
    offsets = {stage.at(0): OffsetAndMetadata(6)}
    with sync.Consumer(bootstrap_servers=stage.bootstrap_servers, group_id=stage.group) as consumer:
        consumer.commit(offsets, wait=False)
    assert asyncio.run(committed(stage)) == offsets


async def committed(stage: Stage) -> dict[TopicPartition, OffsetAndMetadata | None]:
    reader = Consumer(bootstrap_servers=stage.bootstrap_servers, group_id=stage.group)
    try:
        found = await reader.committed([stage.at(0)])
    finally:
        await reader.close()
    # The coordinator adds the leader epoch, or does not.
    return {
        where: None if offset is None else OffsetAndMetadata(offset.offset)
        for where, offset in found.items()
    }


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commit_that_the_listener_does_not_wait_for_is_made_before_the_member_leaves(
    broker: RunningBroker, protocol: str, ends: str
) -> None:
    async def scenario(stage: Stage) -> None:
        class Committing(RebalanceListener):
            async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
                # Each waits for the one before, so only the first is sent at once.
                for offset in (3, 4, 5):
                    await member.commit({stage.at(0): OffsetAndMetadata(offset)}, wait=False)

        async with stage.member(group_protocol=protocol, enable_auto_commit=False) as member:
            member.subscribe(stage.topic, listener=Committing())
            await poll_until(lambda: bool(member.assignment), member)
            await (member.close() if ends == "close" else member.unsubscribe())
        assert await committed(stage) == {stage.at(0): OffsetAndMetadata(5)}

    play(broker, scenario, partitions=1)


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_member_leaves_although_its_listener_fails(
    broker: RunningBroker, protocol: str, ends: str
) -> None:
    async def scenario(stage: Stage) -> None:
        class Failing(RebalanceListener):
            def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
                raise LookupError("the application's")

        async with stage.member(group_protocol=protocol) as member:
            member.subscribe(stage.topic, listener=Failing())
            await poll_until(lambda: len(member.assignment) == 2, member)
            with pytest.raises(LookupError, match="the application's"):
                await (member.close() if ends == "close" else member.unsubscribe())
            started_at = time.monotonic()
            async with stage.member(stage.topic, group_protocol=protocol) as other:
                await poll_until(lambda: len(other.assignment) == 2, other)
            # Not the session timeout, after which it would get the partitions anyway.
            assert time.monotonic() - started_at < SESSION_SECONDS

    play(broker, scenario, partitions=2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_listener_is_called_within_polls(broker: RunningBroker, protocol: str) -> None:
    async def scenario(stage: Stage) -> None:
        noted = Noted()
        async with stage.member(group_protocol=protocol) as member:
            member.subscribe(stage.topic, listener=noted)
            await poll_until(lambda: len(member.assignment) == 2, member)
            assert noted.changes == [("assigned", [0, 1])]
            async with stage.member(stage.topic, group_protocol=protocol) as other:
                await poll_until(
                    lambda: len(member.assignment) == len(other.assignment) == 1, member, other
                )
            revoked = [numbers for kind, numbers in noted.changes if kind == "revoked"]
            assert revoked
            await poll_until(lambda: len(member.assignment) == 2, member)
        assert noted.changes[-1] == ("revoked", [0, 1])

    play(broker, scenario, partitions=2)


def test_cooperative_member_keeps_the_partitions_that_stay(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        noted = Noted()
        options = {"partition_assignment_strategy": "cooperative-sticky"}
        async with stage.member(**options) as member:
            member.subscribe(stage.topic, listener=noted)
            await poll_until(lambda: len(member.assignment) == 4, member)
            async with stage.member(stage.topic, **options) as other:
                await poll_until(
                    lambda: len(member.assignment) == len(other.assignment) == 2, member, other
                )
                kept = sorted(number for _, number in member.assignment)
            assert [kind for kind, _ in noted.changes] == ["assigned", "revoked"]
            assert sorted(noted.changes[1][1] + kept) == [0, 1, 2, 3]

    play(broker, scenario, partitions=4)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_static_member_gets_its_partitions_back(broker: RunningBroker, protocol: str) -> None:
    async def scenario(stage: Stage) -> None:
        static = {"group_protocol": protocol, "group_instance_id": "left"}
        async with stage.member(stage.topic, group_protocol=protocol) as other:
            async with stage.member(stage.topic, **static) as member:
                await poll_until(
                    lambda: len(member.assignment) == len(other.assignment) == 1, member, other
                )
                before = member.assignment
            async with stage.member(stage.topic, **static) as member:
                await poll_until(lambda: bool(member.assignment), member, other)
                assert member.assignment == before
                assert len(other.assignment) == 1

    play(broker, scenario, partitions=2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_subscribed_topic_that_does_not_exist_is_created(
    broker: RunningBroker, protocol: str
) -> None:
    """Both brokers have ``auto.create.topics.enable`` by default."""

    async def scenario(stage: Stage) -> None:
        async with stage.member(f"{stage.topic}-new", group_protocol=protocol) as member:
            await poll_until(lambda: len(member.assignment) == 1, member)

    play(broker, scenario, partitions=1)


def test_assigned_topic_that_does_not_exist_is_created(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        new = TopicPartition(f"{stage.topic}-new", 0)
        async with stage.member(group_id=None) as member:
            member.assign([new])
            await poll_until(lambda: new in member.positions(), member)

    play(broker, scenario, partitions=1)


def test_partition_is_fetched_whose_metadata_were_asked_for_before_the_start(
    broker: RunningBroker,
) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(b"0")
        member = Consumer(bootstrap_servers=stage.bootstrap_servers)
        try:
            ends = await member.end_offsets([stage.at(0)])
            member.assign(ends)
            member.seek(stage.at(0), ends[stage.at(0)])
            await stage.fill(b"1")
            assert values(await read(member, 1)) == [b"1"]
        finally:
            await member.close()

    play(broker, scenario, partitions=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_pattern_of_the_client_finds_topics_that_are_made_later(
    broker: RunningBroker, protocol: str
) -> None:
    async def scenario(stage: Stage) -> None:
        pattern = re.compile(re.escape(stage.topic) + "(-new)?")
        options = {"group_protocol": protocol, "metadata_max_age_ms": 200}
        async with stage.member(**options) as member:
            member.subscribe(pattern=pattern)
            await poll_until(lambda: len(member.assignment) == 1, member)
            await stage.create(2, f"{stage.topic}-new")
            await stage.create(1, f"{stage.topic}-other")
            await poll_until(lambda: len(member.assignment) == 3, member)
            assert member.subscription == {stage.topic, f"{stage.topic}-new"}

    play(broker, scenario, partitions=1)


def test_pattern_of_the_broker_needs_no_names_here(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(b"a")
        async with stage.member(group_protocol="consumer") as member:
            member.subscribe(pattern=f"{stage.topic}.*")
            assert values(await read(member, 1)) == [b"a"]
        async with stage.member(group_protocol="consumer") as member:
            member.subscribe(pattern="(")
            with pytest.raises(InvalidRegularExpression):
                await poll_until(lambda: False, member)

    play(broker, scenario, partitions=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_member_that_does_not_poll_leaves_and_comes_back(
    broker: RunningBroker, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage) -> None:
        noted = Noted()
        await stage.fill(b"a")
        options: dict[str, Any] = {"group_protocol": protocol, "max_poll_interval_ms": 500}
        async with stage.member(**options, enable_auto_commit=False) as member:
            member.subscribe(stage.topic, listener=noted)
            assert values(await read(member, 1)) == [b"a"]
            await until(lambda: any("event=consumer.left" in text for text in caplog.messages))
            with pytest.raises(CommitFailedError, match="not a member"):
                member.group_metadata()
            with pytest.raises(CommitFailedError, match="not a member"):
                await member.commit()
            options["max_poll_interval_ms"] = 300_000
            async with stage.member(stage.topic, **options, enable_auto_commit=False) as other:
                assert values(await read(other, 1)) == [b"a"]
            assert values(await read(member, 1)) == [b"a"]
            assert noted.changes[:2] == [("assigned", [0]), ("lost", [0])]

    play(broker, scenario, partitions=1)


def test_assigned_by_hand_without_a_group(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(*(b"%d" % n for n in range(5)))
        at = stage.at(0)
        async with stage.member(group_id=None) as member:
            member.assign([at])
            assert values(await read(member, 5)) == [b"0", b"1", b"2", b"3", b"4"]
            assert (member.lag(at), member.end_offset(at)) == (0, 5)
            member.seek(at, 3)
            assert values(await member.poll(5)) == [b"3", b"4"]
            member.seek_to_beginning()
            assert values(await member.poll(5, max_records=1)) == [b"0"]
            assert await member.position(at) == 1
            member.seek_to_end(at)
            assert await member.position(at) == 5
            assert await member.poll(0.1) == []
            member.pause(at)
            member.seek(at, 4)
            assert await member.poll(0.1) == []
            assert member.paused == {at}
            member.resume()
            assert values(await member.poll(5)) == [b"4"]
            with pytest.raises(IllegalStateError, match="group_id is not set"):
                await member.commit()
            with pytest.raises(IllegalStateError, match="not assigned"):
                member.seek(stage.at(1), 0)
            assert await member.beginning_offsets([at]) == {at: 0}
            assert await member.end_offsets([at]) == {at: 5}
            first = (await member.offsets_for_times({at: 0}))[at]
            assert first is not None
            assert first.offset == 0
            assert await member.offsets_for_times({at: 4_000_000_000_000}) == {at: None}
            for time_ms in (-1, -2, -3, -4, -(2**63), 2**63):  # Named offsets in the protocol.
                with pytest.raises(ValueError, match=f"since 1970, found {time_ms}; beginning_"):
                    await member.offsets_for_times({at: time_ms})
                with pytest.raises(ValueError, match=f"since 1970, found {time_ms}; beginning_"):
                    member.seek_to_time(time_ms)
            member.seek_to_time(4_000_000_000_000)
            assert await member.position(at) == 5

    play(broker, scenario, partitions=2)


def test_position_after_records_were_deleted(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(*(b"%d" % n for n in range(5)))
        at = stage.at(0)
        async with AdminClient(bootstrap_servers=stage.bootstrap_servers) as admin:
            await admin.delete_records({at: 3})
        async with stage.member(group_id=None) as member:
            member.assign([at])
            member.seek(at, 1)
            assert values(await member.poll(10)) == [b"3", b"4"]
        async with stage.member(group_id=None, auto_offset_reset="none") as member:
            member.assign([at])
            member.seek(at, 1)
            with pytest.raises(OffsetOutOfRange, match=f"topic '{stage.topic}' partition 0"):
                await member.poll(10)
            member.seek(at, 4)
            assert values(await member.poll(10)) == [b"4"]

    play(broker, scenario, partitions=1)


async def make_again(stage: Stage, count: int) -> None:
    """Delete the topic, and create another one of its name with more records."""
    async with AdminClient(bootstrap_servers=stage.bootstrap_servers) as admin:

        async def topic_id() -> object:
            found = (await admin.describe_topics([stage.topic]))[stage.topic]
            return None if isinstance(found, KafkaError) else found.topic_id

        before = await topic_id()
        assert await admin.delete_topics([stage.topic]) == {stage.topic: None}
        async with asyncio.timeout(HANGING_SECONDS):
            # Apache Kafka deletes it a moment after the answer, and may create it by itself.
            while await topic_id() in (None, before):
                await admin.create_topics([NewTopic(stage.topic, num_partitions=1)])
    await stage.fill(*(b"new-%d" % n for n in range(count)))


@pytest.mark.parametrize("protocol", [None, *PROTOCOLS])
def test_topic_that_was_made_again_is_read_from_its_start(
    broker: RunningBroker, caplog: pytest.LogCaptureFixture, protocol: str | None
) -> None:
    """Its new log is longer than the old one, so the old position is an offset in it."""

    async def scenario(stage: Stage) -> None:
        await stage.fill(b"0", b"1", b"2")
        own = {"group_id": None} if protocol is None else {"group_protocol": protocol}
        async with stage.member(**own, metadata_max_age_ms=200) as member:
            if protocol is None:
                member.assign([stage.at(0)])
            else:
                member.subscribe(stage.topic)
            assert values(await read(member, 3)) == [b"0", b"1", b"2"]
            await make_again(stage, 5)
            assert values(await read(member, 5)) == [b"new-%d" % n for n in range(5)]
        reasons = [record.getMessage() for record in caplog.records]
        if protocol is None:  # A group may take the partition away first, and assign the new one.
            [line] = [text for text in reasons if text.startswith("event=position.reset")]
            assert "is of a topic that was deleted" in line

    play(broker, scenario, partitions=1)


def test_topic_that_was_made_again_is_an_error_without_a_reset_policy(
    broker: RunningBroker,
) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(b"0", b"1", b"2")
        options = {"group_id": None, "auto_offset_reset": "none", "metadata_max_age_ms": 200}
        async with stage.member(**options) as member:
            member.assign([stage.at(0)])
            member.seek(stage.at(0), 0)
            assert len(await read(member, 3)) == 3
            await make_again(stage, 5)
            with pytest.raises(OffsetOutOfRange, match="offset 3 is of a topic that was deleted"):
                await read(member, 1)
            member.seek(stage.at(0), 4)
            assert values(await read(member, 1)) == [b"new-4"]

    play(broker, scenario, partitions=1)


def test_start_without_a_committed_offset(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(b"a")
        at = stage.at(0)
        for reset, position in (("earliest", 0), ("latest", 1), ("by_duration:PT1H", 0)):
            options = {"auto_offset_reset": reset, "enable_auto_commit": False}
            async with stage.member(**options) as member:
                member.assign([at])
                assert await member.position(at) == position, reset
        async with stage.member(auto_offset_reset="none", enable_auto_commit=False) as member:
            member.assign([at])
            with pytest.raises(NoOffsetForPartition, match="seek to an offset"):
                await member.poll(10)
            await member.commit({at: 1})
        async with stage.member(auto_offset_reset="none", enable_auto_commit=False) as member:
            member.assign([at])
            assert await member.position(at) == 1

    play(broker, scenario, partitions=1)


def test_columns_have_the_records_of_all_partitions(broker: RunningBroker) -> None:
    pytest.importorskip("pyarrow")

    async def scenario(stage: Stage) -> None:
        await stage.fill(*(b"%d" % n for n in range(300)))
        await stage.fill(b"x", partition=1)
        async with stage.member(stage.topic) as member:
            found: list[bytes] = []
            while len(found) < 301:
                batch = await member.poll_arrow(10, max_records=100)
                assert batch is not None
                assert batch.num_rows <= 100
                found += batch.column("value").to_pylist()
            assert sorted(found) == sorted([b"x", *(b"%d" % n for n in range(300))])
            assert {where: at.offset for where, at in member.positions().items()} == {
                stage.at(0): 300, stage.at(1): 1
            }  # fmt: skip
            assert await member.poll_arrow(0.1) is None

    play(broker, scenario, partitions=2)


def test_committed_records_alone(broker: RunningBroker) -> None:
    """Two transactions, one of them aborted, and an open one, by another library's producer."""
    confluent = pytest.importorskip("confluent_kafka")

    def transactional(name: str) -> Any:
        producer = confluent.Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": name}
        )
        producer.init_transactions(HANGING_SECONDS)
        return producer

    def write(topic: str) -> Any:
        first = transactional(f"{topic}-first")
        for value, outcome in (("a", "abort"), ("b", "commit"), ("c", "abort"), ("d", "commit")):
            first.begin_transaction()
            first.produce(topic, value * 2)
            first.flush(HANGING_SECONDS)
            getattr(first, f"{outcome}_transaction")(HANGING_SECONDS)
        still_open = transactional(f"{topic}-open")
        still_open.begin_transaction()
        still_open.produce(topic, "open")
        still_open.flush(HANGING_SECONDS)
        return still_open

    async def scenario(stage: Stage) -> None:
        still_open = await asyncio.to_thread(write, stage.topic)
        await stage.fill(b"behind")
        at = stage.at(0)
        async with stage.member(stage.topic, isolation_level="read_committed") as member:
            assert values(await read(member, 2)) == [b"bb", b"dd"]
            assert await member.poll(0.3) == []
            assert member.lag(at) == 0
            assert await member.end_offsets([at]) == {at: 8}
            await asyncio.to_thread(still_open.abort_transaction, HANGING_SECONDS)
            assert values(await read(member, 1)) == [b"behind"]
        async with stage.member(group_id=None) as member:
            member.assign([at])
            assert len(await read(member, 6)) == 6
            assert await member.end_offsets([at]) == {at: 11}
        if pytest.importorskip("pyarrow"):
            async with stage.member(group_id=None, isolation_level="read_committed") as member:
                member.assign([at])
                found: list[bytes] = []
                while len(found) < 3:
                    batch = await member.poll_arrow(5)
                    assert batch is not None
                    found += batch.column("value").to_pylist()
                assert found == [b"bb", b"dd", b"behind"]

    play(broker, scenario, partitions=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_are_committed_in_the_transaction_of_a_producer(
    broker: RunningBroker, protocol: str
) -> None:
    """Read, process, write; an aborted transaction leaves the offsets, too."""

    async def scenario(stage: Stage) -> None:
        await stage.fill(b"a", b"b")
        output = f"{stage.topic}-out"
        await stage.create(1, output)
        options = {"group_protocol": protocol, "enable_auto_commit": False}
        async with (
            Producer(
                bootstrap_servers=stage.bootstrap_servers, transactional_id=stage.group
            ) as producer,
            stage.member(stage.topic, **options) as member,
        ):
            assert values(await read(member, 2)) == [b"a", b"b"]
            for value, fails in ((b"lost", True), (b"kept", False)):
                with pytest.raises(ValueError, match="broken") if fails else nullcontext():
                    await process(producer, member, output, value, fails=fails)
            committed = (await member.committed())[stage.at(0)]
            assert committed is not None
            assert committed.offset == 2
        async with stage.member(group_id=None, isolation_level="read_committed") as reader:
            reader.assign([TopicPartition(output, 0)])
            assert values(await read(reader, 1)) == [b"kept"]

    async def process(
        producer: Producer, member: Consumer, output: str, value: bytes, *, fails: bool
    ) -> None:
        async with producer.transaction() as transaction:
            await producer.send(output, value)
            await transaction.send_offsets(member.positions(), member.group_metadata())
            if fails:
                raise ValueError("broken")

    play(broker, scenario, partitions=1)


def test_wakeup_ends_a_waiting_poll(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.member(stage.topic) as member:
            polling = asyncio.create_task(member.poll(HANGING_SECONDS))
            await asyncio.sleep(0)
            member.wakeup()
            with pytest.raises(WakeupError):
                await polling

    play(broker, scenario, partitions=1)


def test_subscription_and_assignment_exclude_each_other(broker: RunningBroker) -> None:
    async def scenario(stage: Stage) -> None:
        async with stage.member(stage.topic) as member:
            with pytest.raises(IllegalStateError, match="call unsubscribe first"):
                member.assign([stage.at(0)])
            await poll_until(lambda: bool(member.assignment), member)
            await member.unsubscribe()
            assert (member.assignment, member.subscription) == (frozenset(), frozenset())
            with pytest.raises(IllegalStateError, match="subscribe or assign"):
                await member.poll(0.1)
            member.assign([stage.at(0)])
            with pytest.raises(IllegalStateError, match="call unsubscribe first"):
                member.subscribe(stage.topic)
            await stage.fill(b"a")
            assert values(await read(member, 1)) == [b"a"]

    play(broker, scenario, partitions=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_survives_the_restart_of_the_broker(broker: RunningBroker, protocol: str) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.fill(b"before")
        async with stage.member(stage.topic, group_protocol=protocol) as member:
            assert values(await read(member, 1)) == [b"before"]
            await member.commit()
            await asyncio.to_thread(broker.kill)
            await asyncio.to_thread(broker.start)
            await stage.fill(b"after")
            found = await read(member, 1)
            assert set(values(found)) <= {b"before", b"after"}
            while b"after" not in values(found):
                found += await member.poll(1)
            await poll_until(lambda: bool(member.assignment), member)
            await member.commit()

    play(broker, scenario, partitions=1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_blocking_consumer_calls_the_listener_in_its_own_thread(
    broker: RunningBroker, protocol: str
) -> None:
    stage = Stage(broker.bootstrap_servers)
    asyncio.run(stage.create(2))
    asyncio.run(stage.fill(b"a", b"b"))
    committed: list[object] = []

    class Committing(RebalanceListener):
        def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
            consumer.commit()
            committed.append(consumer.committed(partitions)[stage.at(0)])

    with sync.Consumer(
        bootstrap_servers=stage.bootstrap_servers,
        group_id=stage.group,
        group_protocol=protocol,  # type: ignore[arg-type]  # The test's parameter is a str.
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        consumer.subscribe(stage.topic, listener=Committing())
        found = [record.value for _, record in zip(range(2), consumer, strict=False)]
        assert found == [b"a", b"b"]
        assert consumer.assignment == {stage.at(0), stage.at(1)}
    assert committed == [OffsetAndMetadata(2, "", 0)]
