"""Which broker assigned partitions are fetched from, and when metadata is asked again."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

from sharegroup.backoff import Backoff
from sharegroup.client.net.cluster import Topic
from sharegroup.client.share.member.assigned_partitions import (
    LEADER_CHECK_SECONDS,
    AssignedPartitions,
)
from sharegroup.client.share.member.membership import Membership
from sharegroup.errors import KafkaError, NetworkException
from sharegroup.ids import GroupId, MemberId, TopicId, TopicIdPartition, TopicName
from sharegroup.testing import virtual_time

TOPIC = TopicId(UUID(int=7))
FIRST, SECOND = TopicIdPartition(TOPIC, 0), TopicIdPartition(TOPIC, 1)


class Metadata:
    """A cluster with topic ``t`` of two partitions; the leaders are those of the last refresh."""

    def __init__(self, *leaders: int) -> None:
        self.leaders = self.told = leaders
        self.doubtful: set[int] = set()
        self.refreshed_at: list[float] = []
        self.problem: asyncio.Future[None] | KafkaError | None = None

    def name_of(self, topic_id: TopicId) -> TopicName:
        return TopicName("t")

    def known_topic(self, name: str) -> Topic:
        return Topic(TopicName(name), TOPIC, self.told)

    def is_doubtful(self, node_id: int) -> bool:
        return node_id in self.doubtful

    def backoff(self) -> Backoff:
        return Backoff(100, 1_000, chance=lambda: 0.5)

    async def refresh(self, names: Any) -> None:
        self.refreshed_at.append(asyncio.get_running_loop().time())
        if isinstance(self.problem, KafkaError):
            raise self.problem
        if self.problem is not None:
            await self.problem
        self.told = self.leaders


Look = Callable[[], dict[int, tuple[TopicIdPartition, ...]]]


def play(
    metadata: Metadata, scenario: Callable[[AssignedPartitions, Look], Coroutine[Any, Any, None]]
) -> None:
    async def run() -> None:
        membership = Membership(GroupId("g"), MemberId("m"), None)
        membership.subscribe(("t",))
        membership.assignment = frozenset((FIRST, SECOND))
        assigned = AssignedPartitions(metadata, membership)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as tasks:
            await scenario(assigned, lambda: dict(assigned.by_leader(tasks, lambda: None)))

    virtual_time.run(run())


def test_partition_without_a_leader_keeps_no_other_from_being_fetched() -> None:
    metadata = Metadata(1, -1)

    async def scenario(assigned: AssignedPartitions, look: Look) -> None:
        assert assigned.leaderless_count() == 1
        for _ in range(40):
            assert look() == {1: (FIRST,)}
            await asyncio.sleep(0.05)
        asked = len(metadata.refreshed_at)
        assert 3 <= asked <= 6  # In 2 s, with growing pauses.
        metadata.leaders = (1, 2)
        await asyncio.sleep(1)
        look()
        await asyncio.sleep(0)
        assert look() == {1: (FIRST,), 2: (SECOND,)}
        await asyncio.sleep(5)
        look()
        await asyncio.sleep(0)
        assert len(metadata.refreshed_at) == asked + 1

    play(metadata, scenario)


def test_metadata_is_refreshed_while_a_leader_is_in_doubt() -> None:
    """The broker may be dead, and its successor elected any moment."""
    metadata = Metadata(1, 2)
    metadata.doubtful = {2}

    async def scenario(assigned: AssignedPartitions, look: Look) -> None:
        assert look() == {1: (FIRST,), 2: (SECOND,)}  # The connection to it is tried on.
        metadata.leaders = (1, 3)
        await asyncio.sleep(0)
        assert look() == {1: (FIRST,), 3: (SECOND,)}

    play(metadata, scenario)


def test_leader_of_a_partition_without_records_is_looked_up_again() -> None:
    """A broker that the controllers do not reach still believes that it leads the partition."""
    metadata = Metadata(1, 2)

    async def scenario(assigned: AssignedPartitions, look: Look) -> None:
        assert look() == {1: (FIRST,), 2: (SECOND,)}
        metadata.leaders = (1, 3)
        assigned.heard([FIRST])
        await asyncio.sleep(LEADER_CHECK_SECONDS)
        look()
        await asyncio.sleep(0)
        assert look() == {1: (FIRST,), 3: (SECOND,)}

    play(metadata, scenario)
    assert metadata.refreshed_at == [LEADER_CHECK_SECONDS]


def test_leaders_are_not_looked_up_while_every_partition_returns_records() -> None:
    metadata = Metadata(1, 2)

    async def scenario(assigned: AssignedPartitions, look: Look) -> None:
        for _ in range(4):
            look()
            assigned.heard([FIRST, SECOND])
            await asyncio.sleep(LEADER_CHECK_SECONDS)
        look()
        await asyncio.sleep(0)

    play(metadata, scenario)
    assert not metadata.refreshed_at


def test_problem_of_metadata_is_the_last_error_or_a_missing_response() -> None:
    metadata = Metadata(-1, -1)

    async def scenario(assigned: AssignedPartitions, look: Look) -> None:
        async def problem_after(seconds: float) -> str | None:
            look()
            await asyncio.sleep(seconds)
            return assigned.metadata_problem(asyncio.get_running_loop().time())

        assert await problem_after(0) is None
        metadata.problem = NetworkException("no broker can be reached")
        await asyncio.sleep(1)
        assert await problem_after(0) == "NetworkException('no broker can be reached')"
        metadata.problem = answer = asyncio.get_running_loop().create_future()
        await asyncio.sleep(2)
        assert await problem_after(14) == "no response for 14 s"
        answer.set_result(None)
        assert await problem_after(0.1) is None

    play(metadata, scenario)
