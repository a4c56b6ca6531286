"""The setting ``sharegroup.assignment`` of a group, changed while it has members; and who is tried
when records arrive for members that share a partition.
"""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from kio.schema.incremental_alter_configs.v1 import request as alter_configs
from kio.static.primitive import i8

from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS
from sharegroup.broker.load.slices import Slices
from sharegroup.core.groups.share import heartbeat
from sharegroup.core.groups.share.share_group import DescribedShareGroup
from sharegroup.ids import GroupId
from sharegroup.protocol_enums import ResourceType
from sharegroup.steps import Steps
from tests.faults.in_process import Broker, ShareMember
from tests.integration.broker.test_share_fetch import alter, alter_group, produce, request

ASSIGNMENT = "sharegroup.assignment"
INVALID_CONFIG = 40
JOIN_BYTES_MAX = 2_000
"""To `__consumer_offsets`; if each of 30 members were written, it would be 10,000 and more."""


def of_three_members(partitions: int) -> list[ShareMember]:
    return [
        ShareMember("g", f"m{number}", "orders", partitions, connection_id=number)
        for number in range(1, 4)
    ]


async def told(broker: Broker, members: list[ShareMember]) -> DescribedShareGroup:
    """Return the group after the assignment interval and two heartbeats of each member."""
    broker.clock.advance(1.0)
    for _ in range(2):
        for member in members:
            assert await member.heartbeat(broker) == 0
    return broker.running.parts.share_group_coordinator.describe(GroupId("g"))


def sizes(group: DescribedShareGroup) -> list[int]:
    return [len(member.assignment) for member in group.members]


@pytest.mark.parametrize("moves_at_once", [heartbeat.MOVES_AT_ONCE, -1])
def test_assignment_changes_with_the_settings_and_survives_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves_at_once: int
) -> None:
    """With -1 each wide assignment, and each that takes partitions, is made in slices."""
    monkeypatch.setattr(heartbeat, "MOVES_AT_ONCE", moves_at_once)

    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 4)
        members = of_three_members(4)
        simple = await told(broker, members)
        assert (simple.assignor_name, sizes(simple)) == ("simple", [2, 1, 1])

        await alter_group(broker, ASSIGNMENT, "wide")
        for member in members:
            assert await member.heartbeat(broker) == 0
        early = broker.running.parts.share_group_coordinator.describe(GroupId("g"))
        assert sizes(early) == [2, 1, 1], "the assignment interval has not passed"
        wide = await told(broker, members)
        assert (wide.assignor_name, sizes(wide)) == ("wide", [4, 4, 4])
        await broker.stop()

        broker = await Broker.start(None, str(tmp_path), clock=broker.clock)
        assert await told(broker, members) == wide
        key = "sharegroup.assignment.partition.members.max"
        await alter(broker, ResourceType.BROKER, "", key, "1")
        assert sorted(sizes(await told(broker, members))) == [1, 1, 2]
        await alter(broker, ResourceType.BROKER, "", key, "2")
        assert sorted(sizes(await told(broker, members))) == [2, 3, 3]
        await alter_group(broker, ASSIGNMENT, "simple")
        again = await told(broker, members)
        assert (again.assignor_name, sorted(sizes(again))) == ("simple", [1, 1, 2])
        await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize("event", ["nothing", "leaves", "is cancelled", "joins"])
def test_members_wait_for_the_assignment_that_is_being_made_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """Meanwhile a member leaves or joins, or the heartbeat that makes it is cancelled."""

    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 4)
        members = of_three_members(4)
        await told(broker, members)
        await alter_group(broker, ASSIGNMENT, "wide")
        broker.clock.advance(1.0)
        gate = asyncio.Event()
        slices, finish = broker.running.parts.slices, Slices.finish
        made: list[object] = []

        async def finish_later(self: Slices, steps: Steps[object]) -> object:
            made.append(steps)
            await gate.wait()
            return await finish(self, steps)

        monkeypatch.setattr(heartbeat, "MOVES_AT_ONCE", 1)
        monkeypatch.setattr(Slices, "finish", finish_later)
        beats = [asyncio.create_task(member.heartbeat(broker)) for member in members[:2]]
        await turns(5)
        assert (len(made), [beat.done() for beat in beats]) == (1, [False, False])
        if event == "leaves":
            members[2].member_epoch = -1
            assert await members[2].heartbeat(broker) == 0
        elif event == "is cancelled":
            beats[0].cancel()
            await turns(5)
            assert len(made) == 2, "the other one makes it"
        elif event == "joins":
            members.append(ShareMember("g", "m4", "orders", 4, connection_id=4))
            beats.append(asyncio.create_task(members[3].heartbeat(broker)))
            await turns(5)
            assert (len(made), beats[2].done()) == (1, False)
        gate.set()
        results = await asyncio.gather(*beats, return_exceptions=True)
        assert results[1:] == [0] * (len(beats) - 1)
        assert len(made) == 1 + (event == "is cancelled")
        assert not broker.running.parts.share_group_coordinator._assigning
        monkeypatch.setattr(Slices, "finish", finish)
        left = [member for member in members if event != "leaves" or member is not members[2]]
        assert sizes(await told(broker, left)) == [4] * len(left)
        assert len(slices) == 0
        await broker.stop()

    asyncio.run(scenario())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_unknown_assignment_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        change = alter_configs.AlterableConfig(name=ASSIGNMENT, config_operation=i8(0), value="lag")
        resource = alter_configs.AlterConfigsResource(
            resource_type=i8(ResourceType.GROUP), resource_name="g", configs=(change,)
        )
        [answer] = (
            await broker.ask(
                alter_configs.IncrementalAlterConfigsRequest(
                    resources=(resource,), validate_only=False
                )
            )
        ).responses
        assert int(answer.error_code) == INVALID_CONFIG
        assert "simple, wide" in (answer.error_message or "")
        await broker.stop()

    asyncio.run(scenario())


def test_only_as_many_waiting_members_look_as_there_are_records_for(tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path))
        await broker.create_topic("orders", 1)
        members = of_three_members(1)
        await told(broker, members)
        tasks = []
        for member in members:
            await member.fetch(broker, records_max=10)
            fetch = request(member, max_records=1, batch_size=1)
            tasks.append(asyncio.create_task(broker.ask(fetch, member.connection_id)))
            await asyncio.sleep(0)
        [live] = broker.running.parts.share_partitions
        before = live.look_count
        await produce(broker)
        await tasks[0]
        assert [task.done() for task in tasks] == [True, False, False]
        assert live.look_count == before + 1
        await produce(broker)
        await produce(broker)
        await asyncio.gather(*tasks)
        assert live.look_count == before + 3
        await broker.stop()

    asyncio.run(scenario())


@pytest.mark.parametrize(("partitions", "each"), [(8, 4), (100, 32)])
def test_members_that_join_write_a_bounded_number_of_bytes(
    partitions: int, each: int, tmp_path: Path
) -> None:
    """A member that joins is written itself, with those whose partitions it takes.

    The group has 30 members, which have ``each`` of the partitions at least.  A join writes to
    ``__consumer_offsets`` what docs/beyond-kip-932.md says, not every member.
    """

    async def scenario() -> None:
        broker = await Broker.start(None, str(tmp_path), group_share_assignment_interval_ms="0")
        await broker.create_topic("orders", partitions)
        await alter_group(broker, ASSIGNMENT, "wide")
        written = [offsets_bytes(broker)]
        members = [
            ShareMember("g", f"member-{number}", "orders", partitions, connection_id=number)
            for number in range(1, 31)
        ]
        for member in members:
            for _ in range(2):
                assert await member.heartbeat(broker) == 0
            written.append(offsets_bytes(broker))
        described = broker.running.parts.share_group_coordinator.describe(GroupId("g"))
        assert min(sizes(described)) >= each
        joins = [after - before for before, after in pairwise(written)]
        assert max(joins) < JOIN_BYTES_MAX
        await broker.stop()

    asyncio.run(scenario())


def offsets_bytes(broker: Broker) -> int:
    """The size of ``__consumer_offsets``."""
    topics = broker.running.parts.topics
    topic = topics.catalog.find(CONSUMER_OFFSETS)
    if topic is None:
        return 0
    logs = [topics.opened_log(topic, number) for number in range(topic.partition_count)]
    return sum(log.size for log in logs if log)
