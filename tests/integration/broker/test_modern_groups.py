"""Consumer groups of KIP-848 in the broker: what is durable, what time does, and what is refused.

`docs/spec.md`, «modern», has what a client sees of a broker that runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.consumer_group_heartbeat.v0 import request as heartbeat_v0
from kio.schema.consumer_group_heartbeat.v1 import request as heartbeat
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.offset_commit.v9 import request as offset_commit
from kio.schema.update_features.v1 import request as update_features

from sharegroup.broker.access.checks import DESCRIBE_TOPICS
from sharegroup.broker.access.permission import Permission
from sharegroup.broker.access.rights import UNLIMITED
from sharegroup.broker.metrics.families import (
    GROUPS,
    MODERN_GROUP_BYTES,
    MODERN_GROUP_STATES,
    MODERN_REBALANCES,
)
from sharegroup.core.groups.modern.heartbeat import ModernHeartbeat
from sharegroup.ids import GroupId, MemberId
from sharegroup.steps import Steps, run_to_end
from sharegroup.testing.power_loss import PowerLossDisk
from tests.faults.in_process import Broker
from tests.integration.broker.consumer_group_requests import REBALANCE, RawMember
from tests.integration.broker.test_consumer_group_requests import after_power_loss, started
from tests.integration.broker.test_metrics import scrape

NONE, NOT_COORDINATOR, UNKNOWN_MEMBER, UNSUPPORTED_VERSION = 0, 16, 25, 35
NO_GROUP, WRONG_PROTOCOL, INVALID_PATTERN = 69, 23, 128
STREAMS_HEARTBEAT = 88
SAFE_DOWNGRADE, UPGRADE = 2, 1

Scenario = Callable[[PowerLossDisk, Broker], Awaitable[None]]


def run(scenario: Scenario, seed: int = 1, **settings: str) -> None:
    async def main() -> None:
        disk = PowerLossDisk(seed)
        broker = await started(disk, **settings)
        await scenario(disk, broker)

    asyncio.run(main())


class Member:
    """A member of the group g, by hand."""

    def __init__(self, broker: Broker, name: str = "m") -> None:
        self.broker = broker
        self.name = name
        self.epoch = 0
        self.numbers: list[int] = []

    async def heartbeat(
        self, *names: str, pattern: str | None = None, owned: tuple[int, ...] | None = None
    ) -> Any:
        joins = self.epoch == 0
        topic_id = await self.broker.topic_id("orders")
        part = heartbeat.TopicPartitions(topic_id=topic_id, partitions=owned or ())
        parts = () if joins else None if owned is None else (part,)
        fields = {"rebalance_timeout": REBALANCE} if joins else {}
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.name,
            member_epoch=self.epoch,
            subscribed_topic_names=names or None,
            subscribed_topic_regex=pattern,
            topic_partitions=parts,
            **fields,
        )
        answer = await self.broker.ask(request)
        if answer.error_code == NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.numbers = sorted(
                    number
                    for topic in answer.assignment.topic_partitions
                    for number in topic.partitions
                )
        return answer

    async def join(self, *names: str, pattern: str | None = None) -> Member:
        answer = await self.heartbeat(*names, pattern=pattern)
        assert answer.error_code == NONE, answer
        return self

    async def commit(self, offset: int) -> int:
        partition = offset_commit.OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=""
        )
        topic = offset_commit.OffsetCommitRequestTopic(name="orders", partitions=(partition,))
        request = offset_commit.OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=self.epoch,
            member_id=self.name,
            topics=(topic,),
        )
        return int((await self.broker.ask(request)).topics[0].partitions[0].error_code)


async def level_of(broker: Broker, level: int, upgrade_type: int) -> None:
    key = update_features.FeatureUpdateKey(
        feature="group.version", max_version_level=level, upgrade_type=upgrade_type
    )
    request = update_features.UpdateFeaturesRequest(feature_updates=(key,), validate_only=False)
    assert int((await broker.ask(request)).error_code) == NONE


def group_of(broker: Broker) -> Any:
    return broker.running.parts.modern_groups.find(GroupId("g"))


def test_feature_switches_the_protocol_off_and_on() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        member = await Member(broker).join("orders")
        await level_of(broker, 0, SAFE_DOWNGRADE)
        assert (await member.heartbeat()).error_code == UNSUPPORTED_VERSION
        await level_of(broker, 1, UPGRADE)
        assert (await member.heartbeat()).error_code == NONE
        await broker.stop()

    run(scenario)


def test_setting_switches_the_protocol_off() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        answer = await Member(broker).heartbeat("orders")
        assert answer.error_code == UNSUPPORTED_VERSION
        assert "group.coordinator.rebalance.protocols=classic" in answer.error_message
        await broker.stop()

    run(scenario, group_coordinator_rebalance_protocols="classic")


def test_streams_protocol_is_not_advertised() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        keys = {api.api_key for api in (await broker.ask(request)).api_keys}
        assert STREAMS_HEARTBEAT not in keys
        assert {68, 69} <= keys
        await broker.stop()

    run(scenario)


def test_broker_chooses_the_member_id_in_version_0() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        request = heartbeat_v0.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="",
            member_epoch=0,
            rebalance_timeout=REBALANCE,
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )
        answer = await broker.ask(request)
        assert (answer.error_code, answer.member_epoch) == (NONE, 2)
        assert list(group_of(broker).members) == [answer.member_id]
        await broker.stop()

    run(scenario)


def test_join_that_was_lost_is_not_known() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        kept = await Member(broker, "kept").join("orders")
        disk.fail_next_sync(20)
        lost = Member(broker, "lost")
        assert (await lost.heartbeat("orders")).error_code == NOT_COORDINATOR
        disk.fail_next_sync(0)
        assert (await kept.heartbeat()).error_code == NONE, "it writes nothing"
        assert list(group_of(broker).members) == ["kept"]
        await broker.stop()

    run(scenario)


@pytest.mark.parametrize("seed", range(10))
def test_confirmed_epochs_survive_the_loss_of_power(seed: int) -> None:
    """A member that was told an epoch and partitions is known with both, or with later ones."""

    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        members = [Member(broker, f"m{number}") for number in range(4)]
        disk.cut_power_after(2 + seed * 2)
        told: dict[str, int] = {}
        for member in members * 4:
            joins = member.epoch == 0
            answer = await member.heartbeat(
                *(("orders",) if joins else ()), owned=tuple(member.numbers)
            )
            if answer.error_code != NONE:
                break
            told[member.name] = member.epoch
        broker = await after_power_loss(disk, broker)
        group = group_of(broker)
        known = {} if group is None else group.members
        for name, epoch in told.items():
            assert known[name].member_epoch >= epoch
        held = [partition for member in known.values() for partition in member.assigned]
        assert len(held) == len(set(held))
        await broker.stop()

    run(scenario, seed)


def test_silent_member_is_removed_and_a_restart_gives_it_all_its_time() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        await Member(broker).join("orders")
        broker.clock.advance(44)
        broker = await after_power_loss(disk, broker)
        broker.clock.advance(44)
        assert list(group_of(broker).members) == ["m"]
        broker.clock.advance(1)
        assert not group_of(broker).members
        await broker.stop()

    run(scenario)


def test_heartbeats_that_change_nothing_write_nothing() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        member = await Member(broker).join("orders")
        before = broker.running.directory.sync_rounds
        for _ in range(20):
            await member.heartbeat()
        assert broker.running.directory.sync_rounds == before
        await broker.stop()

    run(scenario)


@pytest.mark.slow
def test_pattern_over_many_topics_is_matched_between_other_requests() -> None:
    """2,000 topics take several slices; topics that are created meanwhile are not missed."""

    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        for number in range(2_000):
            await broker.create_topic(f"many-{number}", 1)
        member = Member(broker)
        joining = asyncio.ensure_future(member.heartbeat(pattern="(many|more)-.*[05]"))
        await asyncio.sleep(0)
        await broker.create_topic("more-0", 1)
        await joining
        if len(member.numbers) == 400:
            await member.heartbeat()
        assert len(member.numbers) == 401
        await broker.stop()

    run(scenario)


class SlicesAmidChanges:
    """Runs work to its end when it is awaited, and creates a topic after it."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.begun = self.awaited = 0

    def later(self, make: Callable[[], Steps[None]], _owner: int) -> Awaitable[None]:
        self.begun += 1
        return self._end(make)

    run = later

    async def _end(self, make: Callable[[], Steps[None]]) -> None:
        self.awaited += 1
        run_to_end(make())
        await self.broker.create_topic(f"new-{self.awaited}", 1)


def test_heartbeat_awaits_each_match_that_it_begins_while_topics_keep_changing() -> None:
    """It is decided after three matches, without the pattern, which the next one matches again."""

    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        slices: Any = SlicesAmidChanges(broker)
        request = ModernHeartbeat(
            GroupId("g"),
            MemberId("m"),
            0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex="new-.*",
            owned=frozenset(),
        )
        describe = Permission(UNLIMITED, DESCRIBE_TOPICS)
        coordinator = broker.running.parts.modern_group_coordinator
        reply = await coordinator.heartbeat(request, slices, 1, describe=describe)
        assert reply.member_epoch == 2
        assert (slices.begun, slices.awaited) == (3, 3)
        await broker.stop()

    run(scenario)


def test_pattern_that_takes_too_long_is_refused() -> None:
    choices = Random(848).choices

    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        for number in range(100):
            text = "".join(choices("abcdefghijklmnopqrstuvwxyz0123456789", k=249))
            assert await broker.create_topic(f"{number}{text}"[:249], 1) == NONE
        answer = await Member(broker).heartbeat(pattern="(.?){80}")
        assert answer.error_code == INVALID_PATTERN
        assert "takes too long" in answer.error_message
        await broker.stop()

    run(scenario)


def test_upgrade_answers_the_requests_that_wait_for_the_classic_group() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        old = RawMember(broker, "g")
        await old.joined()
        late = RawMember(broker, "g", connection_id=2)
        late.member_id = (await late.join()).member_id
        joining = late.join()
        await asyncio.sleep(0)
        await Member(broker).join("orders")
        assert int((await joining).error_code) == 27
        await broker.stop()

    run(scenario)


def test_policy_forbids_migration() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        old = RawMember(broker, "g")
        await old.joined()
        answer = await Member(broker).heartbeat("orders")
        assert answer.error_code == NO_GROUP
        assert "group.consumer.migration.policy" in answer.error_message
        assert await old.heartbeat() == NONE
        broker.clock.advance(10)  # The classic member is removed, so the group is empty.
        member = await Member(broker).join("orders")
        late = RawMember(broker, "g")
        assert int((await late.join()).error_code) == WRONG_PROTOCOL
        assert (await member.heartbeat()).error_code == NONE
        await broker.stop()

    run(scenario, group_consumer_migration_policy="disabled")


@pytest.mark.parametrize("seed", range(6))
def test_group_is_never_of_two_types_after_the_loss_of_power(seed: int) -> None:
    """An upgrade is one batch: afterwards the group is a classic one or the new one, whole."""

    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        old = RawMember(broker, "g")
        await old.joined()
        assert int((await old.sync(me=b"\0\0\0\0\0\0\xff\xff\xff\xff")).error_code) == NONE
        disk.cut_power_after(seed)
        answer = await Member(broker, "new").heartbeat("orders")
        broker = await after_power_loss(disk, broker)
        listed = (await broker.ask(ListGroupsRequest(states_filter=(), types_filter=()))).groups
        [kind] = [group.group_type for group in listed if group.group_id == "g"]
        if answer.error_code == NONE:
            assert kind == "consumer"
        if kind == "consumer":
            assert sorted(group_of(broker).members) == sorted([old.member_id, "new"])
        else:
            old.broker = broker
            assert await old.heartbeat() == NONE
        await broker.stop()

    run(scenario, seed)


def test_deleted_group_leaves_nothing_for_the_next_start() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:

        member = await Member(broker).join("orders")
        assert await member.commit(0) == NONE
        broker.clock.advance(45)
        answer = await broker.ask(DeleteGroupsRequest(groups_names=("g",)))
        assert answer.results[0].error_code == NONE
        broker = await after_power_loss(disk, broker)
        listed = await broker.ask(ListGroupsRequest(states_filter=(), types_filter=()))
        assert listed.groups == ()
        await broker.stop()

    run(scenario)


def test_metrics_of_groups() -> None:
    async def scenario(disk: PowerLossDisk, broker: Broker) -> None:
        await Member(broker).join("orders")
        await Member(broker, "n").join("orders")
        found = await scrape(broker)
        assert found(GROUPS.name, protocol="consumer") == 1
        assert found(GROUPS.name, protocol="classic") == 0
        assert found(MODERN_GROUP_STATES.name, state="Reconciling") == 1
        assert found(MODERN_REBALANCES.name) == 2
        assert found(MODERN_GROUP_BYTES.name) >= 8_192
        await broker.stop()

    run(scenario)
