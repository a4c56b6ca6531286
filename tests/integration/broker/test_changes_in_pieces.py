"""Requests that are written in pieces, some of which the disk refuses."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from kio.schema.consumer_group_heartbeat.v1 import request as heartbeat
from kio.schema.errors import ErrorCode
from kio.schema.join_group.v3 import request as join_group
from kio.schema.leave_group.v4 import request as leave_group
from kio.schema.offset_delete.v0 import request as offset_delete
from kio.schema.sync_group.v2 import request as sync_group

from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS
from sharegroup.ids import GroupId
from tests.faults.bad_folders import INTERNAL, BadFolders, commit_all, fail_syncs_of, fill_up
from tests.faults.in_process import Broker
from tests.integration.broker.consumer_group_requests import SUBSCRIPTION
from tests.support.limits import HANGING_SECONDS

NONE, REFUSED = ErrorCode.none, ErrorCode.not_coordinator
MEMBERS = 130
"""Members of a group that leave in pieces of 64, 64 and 2."""

PARTITIONS = 300
"""Offsets that are deleted in pieces of 128, 128 and 44."""


def run(scenario: Callable[[Broker, BadFolders], Awaitable[None]], **settings: str) -> None:
    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, **INTERNAL, **settings)
        await broker.create_topic("orders", PARTITIONS)
        await scenario(broker, disk)
        await broker.stop()

    asyncio.run(main())


async def modern_members(broker: Broker) -> list[str]:
    """Let members join a group of KIP-848; return their ids."""
    members = [f"member-{number:03}" for number in range(MEMBERS)]
    for member in members:
        request = heartbeat.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member,
            member_epoch=0,
            rebalance_timeout=dt.timedelta(seconds=60),
            subscribed_topic_names=("no-such-topic",),
            subscribed_topic_regex=None,
            topic_partitions=(),
        )
        assert (await broker.ask(request)).error_code == NONE
    return members


async def classic_members(broker: Broker) -> list[str]:
    """Let members join a classic group in one rebalance; return their ids."""
    protocol = join_group.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)
    request = join_group.JoinGroupRequest(
        group_id="g",
        session_timeout=dt.timedelta(seconds=10),
        rebalance_timeout=dt.timedelta(seconds=60),
        member_id="",
        protocol_type="consumer",
        protocols=(protocol,),
    )
    joining = [
        asyncio.ensure_future(broker.ask(request, connection_id))
        for connection_id in range(1, MEMBERS + 1)
    ]
    while not joining[0].done():
        await asyncio.sleep(0)
        broker.clock.advance(1)
    answers = await asyncio.gather(*joining)
    # The group is written with the assignments of its leader.
    sync = sync_group.SyncGroupRequest(
        group_id="g",
        generation_id=answers[0].generation_id,
        member_id=answers[0].leader,
        assignments=(),
    )
    assert (await broker.ask(sync)).error_code == NONE
    return [answer.member_id for answer in answers]


async def leave(broker: Broker, members: list[str]) -> Any:
    identities = tuple(leave_group.MemberIdentity(member_id=member) for member in members)
    request = leave_group.LeaveGroupRequest(group_id="g", members=identities)
    return await broker.ask(request)


async def all_leave(broker: Broker, members: list[str]) -> None:
    """Repeat a request until the disk is probed, which is done in another thread."""
    async with asyncio.timeout(HANGING_SECONDS):
        while (answer := await leave(broker, members)).error_code == REFUSED:
            await asyncio.sleep(0)
    assert codes(answer) == [NONE] * len(members)


def codes(answer: Any) -> list[ErrorCode]:
    assert answer.error_code == NONE
    return [member.error_code for member in answer.members]


def test_members_that_left_before_a_refused_piece_have_no_error() -> None:
    async def scenario(broker: Broker, disk: BadFolders) -> None:
        members = await modern_members(broker)
        fill_up(broker, disk, CONSUMER_OFFSETS, writes_left=1)
        assert codes(await leave(broker, members)) == [NONE] * 64 + [REFUSED] * 66
        disk.full = None
        await all_leave(broker, members[64:])

    run(scenario)


def test_departure_is_refused_as_a_whole_if_no_member_has_left() -> None:
    async def scenario(broker: Broker, disk: BadFolders) -> None:
        members = await modern_members(broker)
        fail_syncs_of(broker, disk, CONSUMER_OFFSETS)
        answer = await leave(broker, members)
        assert (answer.error_code, answer.members) == (REFUSED, ())
        disk.failing = None
        await all_leave(broker, members)

    run(scenario)


def test_member_of_a_classic_group_has_not_left_if_the_departure_was_undone() -> None:
    """The first departures are only in memory when the write for the last ones fails."""

    async def scenario(broker: Broker, disk: BadFolders) -> None:
        members = await classic_members(broker)
        fill_up(broker, disk, CONSUMER_OFFSETS)
        answer = await leave(broker, members)
        assert (answer.error_code, answer.members) == (REFUSED, ())
        disk.full = None
        await all_leave(broker, members)

    run(scenario, group_initial_rebalance_delay_ms="1000")


def test_offsets_that_were_deleted_before_a_refused_piece_have_no_error() -> None:
    async def scenario(broker: Broker, disk: BadFolders) -> None:
        await commit_all(broker, "g", "orders", PARTITIONS)
        fill_up(broker, disk, CONSUMER_OFFSETS, writes_left=1)
        partitions = tuple(
            offset_delete.OffsetDeleteRequestPartition(partition_index=index)
            for index in range(PARTITIONS)
        )
        topic = offset_delete.OffsetDeleteRequestTopic(name="orders", partitions=partitions)
        answer = await broker.ask(offset_delete.OffsetDeleteRequest(group_id="g", topics=(topic,)))
        assert answer.error_code == NONE
        outcomes = Counter(partition.error_code for partition in answer.topics[0].partitions)
        assert outcomes == {NONE: 128, REFUSED: PARTITIONS - 128}
        coordinator = broker.running.parts.classic_group_coordinator
        assert sorted(coordinator.offsets(GroupId("g"))["orders"]) == list(range(128, PARTITIONS))

    run(scenario)
