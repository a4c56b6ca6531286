"""Requests of consumer groups as raw frames: every version, every conflict, disks that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest

from sharegroup.storage.disk.files import Files
from sharegroup.testing.power_loss import PowerLossDisk
from sharegroup.wire.batches.records import SimpleRecord, encode_batch
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.consumer_group_requests import SESSION, RawMember, message, soon

NONE, UNKNOWN_TOPIC, NOTE_TOO_LARGE, NOT_COORDINATOR = 0, 3, 12, 16
OFFSETS_TOO_LARGE = 28
ILLEGAL_GENERATION, INCONSISTENT_PROTOCOL, UNKNOWN_MEMBER, REBALANCE = 22, 23, 25, 27
NON_EMPTY, GROUP_NOT_FOUND, SUBSCRIBED, UNKNOWN_TOPIC_ID = 68, 69, 86, 100


def with_broker(scenario: Callable[[Broker], Awaitable[None]], **settings: str) -> None:
    """Run a scenario on a broker with a topic ``orders`` of three partitions."""

    async def run() -> None:
        broker = await Broker.start(PowerLossDisk(1), **settings)
        await broker.create_topic("orders", 3)
        await scenario(broker)
        await broker.stop()

    asyncio.run(run())


async def assigned(broker: Broker, group: str) -> RawMember:
    """A group with one member that has everything."""
    member = RawMember(broker, group)
    await member.joined()
    assert (await soon(member.sync(me=b"all"))).assignment == b"all"
    return member


@pytest.mark.parametrize("version", range(10))
def test_whole_life_of_a_member_in_every_version(version: int) -> None:
    async def scenario(broker: Broker) -> None:
        member = RawMember(broker, "g", "instance" if version >= 5 else None)
        answer = await member.joined(version)
        assert (answer.leader, answer.generation_id) == (member.member_id, 1)
        assert answer.protocol_name == "range"
        (described,) = answer.members
        assert described.member_id == member.member_id
        answer = await soon(member.sync(min(version, 5), me=b"all"))
        assert (int(answer.error_code), answer.assignment) == (NONE, b"all")
        assert await member.heartbeat(min(version, 4)) == NONE
        described = await member.describe(min(version, 6))
        assert (described.group_state, described.protocol_data) == ("Stable", "range")
        assert described.members[0].member_assignment == b"all"
        answer = await member.leave(min(version, 5))
        assert int(answer.error_code) == NONE
        assert (await member.describe()).group_state == "Empty"
        answer = await member.leave(min(version, 5))
        left = getattr(answer, "members", ())
        assert UNKNOWN_MEMBER in {int(part.error_code) for part in (answer, *left)}

    with_broker(scenario)


def test_refused_group_deletion_is_logged_only_for_existing_groups(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise one request of 200 KB writes 29,000 log lines."""
    caplog.set_level("INFO")

    async def scenario(broker: Broker) -> None:
        member = await assigned(broker, "g")
        request = message("delete_groups", 2).DeleteGroupsRequest(groups_names=("g", "h", "i"))
        answer = await member.send(request)
        codes = [int(result.error_code) for result in answer.results]
        assert codes == [NON_EMPTY, GROUP_NOT_FOUND, GROUP_NOT_FOUND]

    with_broker(scenario)
    said = [record.getMessage() for record in caplog.records if "group_not_deleted" in record.msg]
    assert [line.split(" reason=")[0] for line in said] == ["event=group_not_deleted group='g'"]


def test_group_named_repeatedly_in_a_request_is_answered_once() -> None:
    """A request of 40 KB named a group of 10,000 offsets 2,000 times, which took minutes."""

    async def scenario(broker: Broker) -> None:
        member = await assigned(broker, "g")
        assert await member.commit(7) == NONE
        module = message("offset_fetch", 9)
        groups = tuple(
            module.OffsetFetchRequestGroup(group_id="g", topics=None, member_id=str(number))
            for number in range(100)
        )
        answer = await member.send(module.OffsetFetchRequest(groups=groups))
        (group,) = answer.groups
        assert [partition.committed_offset for partition in group.topics[0].partitions] == [7]

    with_broker(scenario)


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_in_every_version(version: int) -> None:
    async def scenario(broker: Broker) -> None:
        member = await assigned(broker, "g")
        topic: Any = await broker.topic_id("orders") if version >= 10 else "orders"
        assert await member.commit(7, version=version, topic=topic, note="n") == NONE
        assert await member.fetch() == (NONE, 7, "n")
        unknown: Any = uuid4() if version >= 10 else "gone"
        wanted = UNKNOWN_TOPIC_ID if version >= 10 else UNKNOWN_TOPIC
        assert await member.commit(7, version=version, topic=unknown) == wanted
        assert await member.commit(7, version=version, topic=topic, partition=3) == UNKNOWN_TOPIC
        member.generation = 0
        assert await member.commit(7, version=version, topic=topic) == ILLEGAL_GENERATION
        stranger = RawMember(broker, "never")
        stranger.generation = 1
        wanted = GROUP_NOT_FOUND if version >= 9 else ILLEGAL_GENERATION
        assert await stranger.commit(7, version=version, topic=topic) == wanted

    with_broker(scenario)


@pytest.mark.parametrize("version", range(1, 11))
def test_offsets_are_returned_in_every_version(version: int) -> None:
    async def scenario(broker: Broker) -> None:
        group = RawMember(broker, "g")
        topic: Any = await broker.topic_id("orders") if version >= 10 else "orders"
        assert await group.fetch(version=version, topic=topic) == (NONE, -1, "")
        assert await group.commit(7, partition=1, note="n") == NONE
        assert await group.fetch(version=version, topic=topic, partition=1) == (NONE, 7, "n")
        assert await group.fetch(version=version, topic=topic, partition=0) == (NONE, -1, "")
        if version >= 2:
            assert await group.every_offset(version) == [(topic, 1, 7)]
        if version >= 10:
            unknown = await group.fetch(version=version, topic=uuid4())
            assert unknown == (UNKNOWN_TOPIC_ID, -1, "")

    with_broker(scenario)


def test_note_that_is_too_long_is_refused() -> None:
    async def scenario(broker: Broker) -> None:
        group = RawMember(broker, "g")
        assert await group.commit(7, note="x" * 11) == NOTE_TOO_LARGE
        assert await group.commit(7, note="x" * 10) == NONE

    with_broker(scenario, offset_metadata_max_bytes="10")


def test_id_of_a_member_has_only_the_beginning_of_a_long_client_id() -> None:
    async def scenario(broker: Broker) -> None:
        module = message("join_group", 9)
        request = module.JoinGroupRequest(
            group_id="g",
            session_timeout=SESSION,
            rebalance_timeout=SESSION,
            member_id="",
            protocol_type="consumer",
            protocols=(module.JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        answer = await broker.ask(request, client_id="c" * 30_000)
        client_id, dash, unique = answer.member_id.partition("-")
        assert (client_id, dash, len(unique)) == ("c" * 249, "-", 36)

    with_broker(scenario)


def test_offsets_that_take_more_memory_than_is_allowed_are_refused() -> None:
    async def scenario(broker: Broker) -> None:
        group = RawMember(broker, "g")
        assert await group.commit(7) == NONE
        assert await group.commit(7, partition=1, note="x" * 200) == OFFSETS_TOO_LARGE
        assert await group.commit(8) == NONE
        assert broker.running.parts.classic_group_coordinator.offsets_bytes < 2_000

    with_broker(scenario, sharegroup_committed_offsets_bytes_max="4400")


def test_second_member_waits_until_the_first_joins_again() -> None:
    async def scenario(broker: Broker) -> None:
        first = await assigned(broker, "g")
        second = RawMember(broker, "g")
        second.member_id = (await soon(second.join())).member_id
        waiting = second.join()
        await asyncio.sleep(0)
        assert await first.heartbeat() == REBALANCE
        assert not waiting.done()
        again = await first.joined()
        second.generation = (await soon(waiting)).generation_id
        assert again.generation_id == second.generation == 2
        part = second.sync()
        await soon(first.sync(**{"me": b"A", second.member_id: b"B"}))
        assert (await soon(part)).assignment == b"B"

    with_broker(scenario)


def test_silent_member_is_removed_at_its_session_timeout() -> None:
    async def scenario(broker: Broker) -> None:
        first = await assigned(broker, "g")
        second = RawMember(broker, "g")
        second.member_id = (await soon(second.join())).member_id
        waiting = second.join()
        await asyncio.sleep(0)
        broker.clock.advance(9.9)
        assert not waiting.done()
        broker.clock.advance(0.2)
        assert (await soon(waiting)).leader == second.member_id
        assert await first.heartbeat() == UNKNOWN_MEMBER

    with_broker(scenario)


class TestConnections:
    def test_group_does_not_wait_for_a_new_member_whose_connection_ends(self) -> None:
        async def scenario(broker: Broker) -> None:
            first = await assigned(broker, "g")
            second = RawMember(broker, "g", connection_id=2)
            second.member_id = (await soon(second.join())).member_id
            waiting = second.join()
            await asyncio.sleep(0)
            again = first.join()
            coordinator = broker.running.parts.classic_group_coordinator
            coordinator.connection_closed(2)
            answer = await soon(again)
            assert [member.member_id for member in answer.members] == [first.member_id]
            with pytest.raises(asyncio.CancelledError):
                await waiting
            coordinator.connection_closed(2)

        with_broker(scenario)

    def test_member_may_join_again_over_another_connection(self) -> None:
        async def scenario(broker: Broker) -> None:
            first = await assigned(broker, "g")
            second = RawMember(broker, "g", connection_id=2)
            second.member_id = (await soon(second.join())).member_id
            lost, joining = first.join(), second.join()
            await asyncio.sleep(0)
            broker.running.parts.classic_group_coordinator.connection_closed(1)
            first.connection_id = 3
            answer = await soon(first.join())
            assert (answer.leader, answer.generation_id) == (first.member_id, 2)
            assert (await soon(joining)).generation_id == 2
            assert lost.cancelled() or lost.done()

        with_broker(scenario)

    def test_group_of_one_new_member_that_hangs_up_is_forgotten(self) -> None:
        async def scenario(broker: Broker) -> None:
            member = RawMember(broker, "g")
            waiting = member.join(3)
            await asyncio.sleep(0)
            broker.running.parts.classic_group_coordinator.connection_closed(1)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert int((await member.describe()).error_code) == GROUP_NOT_FOUND
            broker.clock.advance(10)
            assert await RawMember(broker, "g").commit(7) == NONE

        with_broker(scenario, group_initial_rebalance_delay_ms="3000")

    def test_stopping_broker_cancels_waiting_joins(self) -> None:
        async def run() -> None:
            broker = await started(PowerLossDisk(1))
            await assigned(broker, "g")
            second = RawMember(broker, "g")
            second.member_id = (await soon(second.join())).member_id
            waiting = second.join()
            await asyncio.sleep(0)
            await broker.stop()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            broker.clock.advance(100_000)

        asyncio.run(run())


class TestGroupTypes:
    """An id belongs to one kind of group; the answers are those of Apache Kafka 4.4."""

    def test_share_group_is_no_consumer_group(self) -> None:
        async def scenario(broker: Broker) -> None:
            share = ShareMember("g", "member", "orders", 3, connection_id=1)
            assert await share.heartbeat(broker) == NONE
            member = RawMember(broker, "g")
            assert int((await soon(member.join())).error_code) == INCONSISTENT_PROTOCOL
            assert await member.commit(7) == GROUP_NOT_FOUND
            assert await member.fetch() == (NONE, -1, "")
            assert await member.every_offset() == []
            assert await member.delete_offset("orders") == GROUP_NOT_FOUND
            member.member_id, member.generation = "m", 1
            assert await member.heartbeat() == UNKNOWN_MEMBER
            assert int((await soon(member.sync())).error_code) == UNKNOWN_MEMBER
            assert int((await member.leave()).members[0].error_code) == UNKNOWN_MEMBER
            for version, code in ((5, NONE), (6, GROUP_NOT_FOUND)):
                described = await member.describe(version)
                assert (described.group_state, int(described.error_code)) == ("Dead", code)

        with_broker(scenario)

    def test_consumer_group_is_no_share_group_not_even_empty(self) -> None:
        async def scenario(broker: Broker) -> None:
            assert await RawMember(broker, "g").commit(7) == NONE
            share = ShareMember("g", "member", "orders", 3, connection_id=1)
            assert await share.heartbeat(broker) == GROUP_NOT_FOUND
            request = ShareGroupDescribeRequest(
                group_ids=("g",), include_authorized_operations=False
            )
            assert int((await broker.ask(request)).groups[0].error_code) == GROUP_NOT_FOUND
            partition = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)
            topic = AlterShareGroupOffsetsRequestTopic(topic_name="orders", partitions=(partition,))
            alter = AlterShareGroupOffsetsRequest(group_id="g", topics=(topic,))
            assert int((await broker.ask(alter)).error_code) == GROUP_NOT_FOUND

        with_broker(scenario)

    def test_id_is_free_again_when_its_group_is_deleted(self) -> None:
        async def scenario(broker: Broker) -> None:
            member = RawMember(broker, "g")
            assert await member.commit(7) == NONE
            assert await member.delete_group() == NONE
            share = ShareMember("g", "member", "orders", 3, connection_id=1)
            assert await share.heartbeat(broker) == NONE
            assert await member.delete_group() == NON_EMPTY

        with_broker(scenario)

    def test_groups_of_both_kinds_are_listed_and_filtered(self) -> None:
        async def scenario(broker: Broker) -> None:
            await ShareMember("s", "member", "orders", 3, connection_id=1).heartbeat(broker)
            await assigned(broker, "c")
            await RawMember(broker, "by-hand").commit(7)

            async def listed(*, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
                request = ListGroupsRequest(states_filter=states, types_filter=types)
                return [
                    (group.group_id, group.protocol_type, group.group_state, group.group_type)
                    for group in (await broker.ask(request)).groups
                ]

            share = ("s", "share", "Stable", "share")
            by_hand = ("by-hand", "", "Empty", "classic")
            consumer = ("c", "consumer", "Stable", "classic")
            assert await listed() == [share, by_hand, consumer]
            assert await listed(types=("Classic",)) == [by_hand, consumer]
            assert await listed(types=("SHARE",)) == [share]
            assert await listed(states=("stable",)) == [share, consumer]
            assert await listed(states=("Empty",), types=("consumer",)) == []

        with_broker(scenario)


def test_topic_takes_its_offsets_along() -> None:
    async def scenario(broker: Broker) -> None:
        group = RawMember(broker, "g")
        await group.commit(7)
        await delete_topic(broker, "orders")
        await broker.create_topic("orders", 3)
        assert await group.fetch() == (NONE, -1, "")

    with_broker(scenario)


def test_offsets_are_deleted_except_of_subscribed_topics() -> None:
    async def scenario(broker: Broker) -> None:
        await broker.create_topic("other", 1)
        member = await assigned(broker, "g")
        assert await member.commit(7) == await member.commit(8, topic="other") == NONE
        assert await member.delete_offset("orders") == SUBSCRIBED
        assert await member.delete_offset("other") == NONE
        assert await member.delete_offset("gone") == UNKNOWN_TOPIC
        assert await member.every_offset() == [("orders", 0, 7)]
        assert await member.delete_group() == NON_EMPTY

    with_broker(scenario)


def test_offsets_of_an_unused_group_expire() -> None:
    async def scenario(broker: Broker) -> None:
        group = RawMember(broker, "g")
        await group.commit(7)
        broker.clock.advance(59)
        assert await group.fetch() == (NONE, 7, "")
        broker.clock.advance(2)
        assert await group.fetch() == (NONE, -1, "")
        assert int((await group.describe()).error_code) == GROUP_NOT_FOUND

    with_broker(scenario, offsets_retention_minutes="1", offsets_retention_check_interval_ms="1000")


def test_expired_offsets_are_removed_from_every_group() -> None:
    """There are more groups than one pass examines at a time."""

    async def scenario(broker: Broker) -> None:
        for number in range(250):
            await RawMember(broker, f"g{number}").commit(7)
        broker.clock.advance(61)
        assert broker.running.parts.classic_group_coordinator.list_groups() == ()

    with_broker(
        scenario, offsets_retention_minutes="1", offsets_retention_check_interval_ms="60500"
    )


def test_old_client_may_set_the_retention_of_its_offset() -> None:
    async def scenario(broker: Broker) -> None:
        group = RawMember(broker, "g")
        kept = timedelta(seconds=5)
        assert await group.commit(7, version=4, retention_time=kept) == NONE
        broker.clock.advance(4)
        assert await group.fetch() == (NONE, 7, "")
        broker.clock.advance(2)
        assert await group.fetch() == (NONE, -1, "")

    with_broker(scenario, offsets_retention_check_interval_ms="1000")


class TestDurability:
    def test_groups_and_offsets_survive_a_crash(self) -> None:
        async def run() -> None:
            disk = PowerLossDisk(1)
            broker = await started(disk)
            member = await assigned(broker, "g")
            await broker.produce("orders", 0, encode_batch([SimpleRecord(None, b"v", 1)] * 9))
            assert await member.commit(7) == NONE
            broker = await after_power_loss(disk, broker)
            member.broker = broker
            assert await member.heartbeat() == NONE
            assert (await soon(member.sync())).assignment == b"all"
            assert await member.fetch() == (NONE, 7, "")
            await broker.stop()

        asyncio.run(run())

    def test_assignment_that_could_not_be_written_never_happened(self) -> None:
        async def run() -> None:
            disk = PowerLossDisk(1)
            broker = await started(disk)
            first = await assigned(broker, "g")
            second = RawMember(broker, "g")
            second.member_id = (await soon(second.join())).member_id
            waiting = second.join()
            await first.joined()
            second.generation = (await soon(waiting)).generation_id
            part = second.sync()
            disk.fail_next_sync(20)
            answer = await soon(first.sync(**{"me": b"A", second.member_id: b"B"}))
            assert int(answer.error_code) == NOT_COORDINATOR
            assert int((await soon(part)).error_code) == NOT_COORDINATOR
            disk.fail_next_sync(0)
            assert await second.heartbeat() in (NOT_COORDINATOR, UNKNOWN_MEMBER)
            first.generation = 1
            assert await first.heartbeat() == NONE, "the last agreement that was written holds"
            await broker.stop()

        asyncio.run(run())

    def test_waiting_join_is_answered_when_a_write_was_lost(self) -> None:
        async def run() -> None:
            disk = PowerLossDisk(1)
            broker = await started(disk, offsets_topic_num_partitions="1")
            await assigned(broker, "g")
            second = RawMember(broker, "g")
            second.member_id = (await soon(second.join())).member_id
            waiting = second.join()
            await asyncio.sleep(0)
            disk.fail_next_sync(20)
            other = RawMember(broker, "other")
            assert await other.commit(7) == NOT_COORDINATOR
            disk.fail_next_sync(0)
            assert await other.fetch() == (NONE, -1, "")
            assert int((await soon(waiting)).error_code) == NOT_COORDINATOR
            await broker.stop()

        asyncio.run(run())

    def test_lost_commit_is_not_returned(self) -> None:
        async def run() -> None:
            disk = PowerLossDisk(1)
            broker = await started(disk)
            group = RawMember(broker, "g")
            assert await group.commit(5) == NONE
            disk.fail_next_sync(20)
            assert await group.commit(7) == NOT_COORDINATOR
            disk.fail_next_sync(0)
            assert await group.fetch() == (NONE, 5, "")
            await broker.stop()

        asyncio.run(run())

    @pytest.mark.parametrize("seed", range(12))
    def test_confirmed_commit_survives_the_loss_of_power(self, seed: int) -> None:
        """After a power cut the last confirmed commit is kept, or the one after it."""

        async def run() -> None:
            disk = PowerLossDisk(seed)
            broker = await started(disk)
            member = await assigned(broker, "g")
            await broker.produce("orders", 0, encode_batch([SimpleRecord(None, b"v", 1)] * 100))
            disk.cut_power_after(seed * 3)
            confirmed = -1
            for offset in range(100):
                if await member.commit(offset) != NONE:
                    break
                confirmed = offset
            member.broker = broker = await after_power_loss(disk, broker)
            _, kept, _ = await member.fetch()
            assert confirmed <= kept <= confirmed + 1
            assert await member.heartbeat() == NONE
            await broker.stop()

        asyncio.run(run())

    def test_offset_beyond_the_end_of_a_log_is_cut_at_the_next_start(self) -> None:
        """The log lost records with the power; those written there later must not count as read."""

        async def run() -> None:
            disk = PowerLossDisk(1)
            broker = await started(disk)
            group = RawMember(broker, "g")
            await broker.produce("orders", 0, encode_batch([SimpleRecord(None, b"v", 1)] * 3))
            assert await group.commit(9) == await group.commit(2, partition=1) == NONE
            await broker.stop()
            group.broker = broker = await Broker.start(disk)
            assert await group.every_offset() == [("orders", 0, 3), ("orders", 1, 0)]
            await broker.stop()

        asyncio.run(run())

    def test_offset_of_a_deleted_topic_is_removed_at_the_next_start(self) -> None:
        """The topic is deleted while the log of the group accepts no writes."""

        async def run() -> None:
            disk = PowerLossDisk(1)
            broker = await started(disk, probe_seconds=3_600.0)
            group = RawMember(broker, "g")
            assert await group.commit(0) == NONE
            disk.fail_next_sync()
            assert await group.commit(0) == NOT_COORDINATOR
            await delete_topic(broker, "orders")
            assert await group.every_offset() == [("orders", 0, 0)]
            await broker.stop()
            group.broker = broker = await Broker.start(disk)
            assert await group.every_offset() == []
            await broker.stop()

        asyncio.run(run())


async def started(disk: Files, *, probe_seconds: float = 0.0, **settings: str) -> Broker:
    broker = await Broker.start(disk, probe_seconds=probe_seconds, **settings)
    await broker.create_topic("orders", 3)
    return broker


async def after_power_loss(disk: PowerLossDisk, broker: Broker) -> Broker:
    disk.cut_power()
    await broker.crash()
    return await Broker.start(disk)


async def delete_topic(broker: Broker, name: str) -> None:
    wanted = DeleteTopicState(name=name, topic_id=None)
    request = DeleteTopicsRequest(topics=(wanted,), timeout=timedelta(seconds=1))
    assert int((await broker.ask(request)).responses[0].error_code) == NONE


def test_operations_on_a_group_are_included_on_request() -> None:
    async def scenario(broker: Broker) -> None:
        group = RawMember(broker, "g")
        await group.commit(7)
        read, delete, describe, describe_configs, alter_configs = 3, 6, 8, 10, 11
        told = (await group.describe(operations=True)).authorized_operations
        assert told == sum(
            1 << operation
            for operation in (read, delete, describe, describe_configs, alter_configs)
        )
        assert (await group.describe()).authorized_operations == -(2**31)

    with_broker(scenario)


def test_topic_ids_are_returned_in_versions_that_use_them() -> None:
    async def scenario(broker: Broker) -> None:
        group = RawMember(broker, "g")
        await group.commit(7)
        ((topic_id, partition, offset),) = await group.every_offset(10)
        assert isinstance(topic_id, UUID)
        assert (topic_id, partition, offset) == (await broker.topic_id("orders"), 0, 7)

    with_broker(scenario)
