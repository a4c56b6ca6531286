"""Share groups that join topics of thousands of partitions: in slices, and all or nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from kio.schema.alter_share_group_offsets.v0 import request as alter_offsets
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.errors import ErrorCode

from sharegroup.broker.groups.state_preparations import AT_ONCE, PIECE
from sharegroup.ids import GroupId, TopicName
from tests.faults.in_process import SECOND, Broker, ShareMember
from tests.integration.broker.test_long_requests import HurryingClock
from tests.support.limits import HANGING_SECONDS

PARTITIONS = 2_000


def run(scenario: Callable[[Broker], Awaitable[None]], path: Path) -> None:
    async def main() -> None:
        broker = await Broker.start(None, str(path), clock=HurryingClock())
        try:
            assert await broker.create_topic("wide", PARTITIONS) == 0
            async with asyncio.timeout(HANGING_SECONDS):
                await scenario(broker)
        finally:
            await broker.stop()

    asyncio.run(main())


def member(name: str) -> ShareMember:
    return ShareMember("g", name, "wide", PARTITIONS, connection_id=1)


def initialized(broker: Broker) -> int:
    coordinator = broker.running.parts.share_group_coordinator
    return len(coordinator.initialized(GroupId("g")).get(TopicName("wide"), ()))


async def some_are_prepared(broker: Broker) -> None:
    """Return in the middle of a preparation."""
    while len(broker.running.parts.share_coordinator.known()) < 2 * PIECE:
        await asyncio.sleep(0)


def test_many_share_partitions_are_initialized_in_slices(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        parts = broker.running.parts
        before, writes = parts.slices.slice_count, parts.share_coordinator.write_count
        assert await member("first").heartbeat(broker) == 0
        assert initialized(broker) == PARTITIONS
        assert parts.slices.slice_count - before > PARTITIONS // PIECE // 5
        assert parts.share_coordinator.write_count - writes < PARTITIONS // 4

    run(scenario, tmp_path)


def test_join_is_visible_only_as_a_whole(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        join = asyncio.ensure_future(member("first").heartbeat(broker))
        await some_are_prepared(broker)
        assert not join.done()
        assert initialized(broker) == 0
        assert await join == 0
        assert initialized(broker) == PARTITIONS

    run(scenario, tmp_path)


def test_members_that_join_together_share_the_preparation(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        members = [member(f"member-{number}") for number in range(5)]
        errors = await asyncio.gather(*(joined.heartbeat(broker) for joined in members))
        assert errors == [0] * 5
        assert initialized(broker) == PARTITIONS
        # Each state was written once: nobody's acknowledgements can be undone by another's join.
        coordinator = broker.running.parts.share_coordinator
        assert len(coordinator.known()) == PARTITIONS
        assert all(coordinator.summary(key).state_epoch == 2 for key in coordinator.known())

    run(scenario, tmp_path)


def test_topic_that_is_deleted_during_a_join_leaves_nothing(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        join = asyncio.ensure_future(member("first").heartbeat(broker))
        await some_are_prepared(broker)
        wanted = DeleteTopicState(name="wide", topic_id=None)
        await broker.ask(DeleteTopicsRequest(topics=(wanted,), timeout=SECOND))
        assert await join == 0
        assert initialized(broker) == 0
        assert broker.running.parts.share_coordinator.known() == ()

    run(scenario, tmp_path)


def test_offsets_are_not_altered_during_a_join(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        join = asyncio.ensure_future(member("first").heartbeat(broker))
        await some_are_prepared(broker)
        answer: Any = await broker.ask(
            alter_offsets.AlterShareGroupOffsetsRequest(
                group_id="g",
                topics=(
                    alter_offsets.AlterShareGroupOffsetsRequestTopic(
                        topic_name="wide",
                        partitions=(
                            alter_offsets.AlterShareGroupOffsetsRequestPartition(
                                partition_index=0, start_offset=0
                            ),
                        ),
                    ),
                ),
            )
        )
        codes = {answer.error_code} | {
            partition.error_code for topic in answer.responses for partition in topic.partitions
        }
        assert ErrorCode.non_empty_group in codes
        assert await join == 0

    run(scenario, tmp_path)


def test_few_share_partitions_are_initialized_at_once(tmp_path: Path) -> None:
    async def scenario(broker: Broker) -> None:
        assert await broker.create_topic("narrow", AT_ONCE) == 0
        before = broker.running.parts.slices.slice_count
        narrow = ShareMember("other", "member-1", "narrow", AT_ONCE, connection_id=1)
        assert await narrow.heartbeat(broker) == 0
        assert broker.running.parts.slices.slice_count == before

    run(scenario, tmp_path)
