"""Work that is done in pieces, and whose earlier pieces are lost while others are served."""

from __future__ import annotations

import asyncio

import pytest

from sharegroup.broker.cluster.catalog import CONSUMER_OFFSETS, TRANSACTION_STATE, Topic
from sharegroup.broker.transactions.transaction_coordinator import EXPIRED_AT_ONCE
from sharegroup.ids import GroupId, TopicName
from sharegroup.steps import STEP_ELEMENTS, Steps
from tests.faults.bad_folders import INTERNAL, BadFolders, commit_all, fail_syncs_of
from tests.faults.in_process import Broker, ShareMember

TOPIC = "orders"


def test_transactional_ids_expire_although_a_piece_was_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, transactional_id_expiration_ms="1000", **INTERNAL)
        coordinator = broker.running.parts.transaction_coordinator
        for number in range(2 * EXPIRED_AT_ONCE + 1):
            await coordinator.init_producer(
                f"id-{number}", timeout_ms=1_000, expected=None, user=None
            )
        broker.clock.advance(2)
        fail_syncs_of(broker, disk, TRANSACTION_STATE)
        while "transactional_ids_not_expired" not in caplog.text:
            # The sync fails in another thread, at the earliest between two pieces.
            await coordinator.forget_expired()
            await asyncio.sleep(0)

        disk.failing = None
        while coordinator.transactions.find("id-0") is not None:
            await coordinator.forget_expired()
            await asyncio.sleep(0)  # The probe of the disk is in another thread.
        await broker.stop()

    asyncio.run(main())


def test_topic_is_deleted_although_tombstones_of_its_offsets_were_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, **INTERNAL)
        partitions = 3 * STEP_ELEMENTS
        await broker.create_topic(TOPIC, partitions)
        await commit_all(broker, "g", TOPIC, partitions)
        later = follow_deletions(broker)
        fail_syncs_of(broker, disk, CONSUMER_OFFSETS)
        topics = broker.running.parts.topics
        await topics.delete(topics.catalog.topic(TopicName(TOPIC)))
        assert later == [TOPIC]
        assert "offset_cleanup_failed" in caplog.text

        disk.failing = None
        await broker.stop()
        broker = await Broker.start(disk, clock=broker.clock, **INTERNAL)
        coordinator = broker.running.parts.classic_group_coordinator
        assert not coordinator.offsets(GroupId("g"))
        await broker.stop()

    asyncio.run(main())


def test_topic_is_deleted_although_a_share_group_is_lost_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The records of another share group are lost between two pieces of the deleted states."""

    async def main() -> None:
        disk = BadFolders()
        broker = await Broker.start(disk, **INTERNAL)
        partitions = 5 * STEP_ELEMENTS
        await broker.create_topic(TOPIC, partitions)
        await broker.create_topic("payments", 1)
        await ShareMember("g", "member-1", TOPIC, partitions, 1).heartbeat(broker)
        topics, other = broker.running.parts.topics, ShareMember("h", "member-2", "payments", 1, 2)
        tasks: list[asyncio.Task[int]] = []

        def join(_: Topic) -> Steps[None]:
            tasks.append(asyncio.create_task(other.heartbeat(broker)))
            yield

        # The callbacks run in their order; the coordinator's comes when the broker has one.
        topics._deleted.insert(0, join)
        later = follow_deletions(broker)
        fail_syncs_of(broker, disk, CONSUMER_OFFSETS)
        await topics.delete(topics.catalog.topic(TopicName(TOPIC)))
        assert later == [TOPIC]
        assert await tasks[0] != 0
        assert "group_cleanup_failed" in caplog.text

        disk.failing = None
        await broker.stop()
        broker = await Broker.start(disk, clock=broker.clock, **INTERNAL)
        groups = broker.running.parts.share_group_coordinator
        assert not groups.initialized(GroupId("g"))
        await broker.stop()

    asyncio.run(main())


def follow_deletions(broker: Broker) -> list[str]:
    """Return a list that gets the name of each deleted topic after the coordinators have it."""
    names: list[str] = []

    def note(topic: Topic) -> Steps[None]:
        names.append(topic.name)
        yield

    broker.running.parts.topics.on_deleted(note)
    return names
