"""What `KafkaTierLog` makes of aiokafka's callbacks, which come at any moment.

A consumer that does what the test says stands in for aiokafka's: the races are between its
callbacks and a read that is under way, and no broker makes them on request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition as KafkaPartition
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaConnectionError,
)

from sharegroup.client.admin.types import CommittedOffset
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import GroupAuthorizationFailed, KafkaError, NetworkException
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost, TierPartition
from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog

ONE, OTHER = KafkaPartition("g.retry.5s", 0), KafkaPartition("g.retry.5s", 1)
FIRST = TierPartition(*ONE)


def fetched(offset: int) -> Any:
    return SimpleNamespace(offset=offset, timestamp=7, key=b"k", value=b"v", headers=())


class Consumer:
    """Stands in for aiokafka's."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.answers: asyncio.Queue[Any] = asyncio.Queue()
        self.assigned: set[KafkaPartition] = set()
        self.commits: list[Any] = []
        self.refusal: Exception | None = None
        self.is_stopped = False
        fetching = asyncio.get_running_loop().create_future()
        self._fetcher = SimpleNamespace(error_future=fetching)
        self.listener: Any = None
        consumers.append(self)

    def subscribe(self, topics: Iterable[str], listener: Any) -> None:
        self.topics, self.listener = tuple(topics), listener

    async def start(self) -> None:
        if refusals:
            raise refusals.pop()

    async def stop(self) -> None:
        self.is_stopped = True

    async def getmany(self, timeout_ms: int) -> Mapping[KafkaPartition, Any]:
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def commit(self, offsets: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.commits.append(offsets)

    def assignment(self) -> set[KafkaPartition]:
        return self.assigned

    def assign(self, *partitions: KafkaPartition) -> None:
        self.assigned = set(partitions)
        self.listener.on_partitions_assigned(partitions)

    async def revoke(self) -> None:
        revoked, self.assigned = self.assigned, set()
        await self.listener.on_partitions_revoked(revoked)


consumers: list[Consumer] = []
refusals: list[Exception] = []


class Owner:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def assigned(self, partitions: Mapping[TierPartition, Committed]) -> None:
        self.told.append(dict(partitions))

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        self.told.append(("revoked", sorted(partitions)))


class Admin:
    """Says what was committed, when it is let."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.errors: list[KafkaError] = []

    async def list_consumer_group_offsets(self, groups: Mapping[str, Iterable[Any]]) -> Any:
        await self.may_answer.wait()
        if self.errors:
            return {group: self.errors.pop() for group in groups}
        return {
            group: {where: CommittedOffset(4, None, "done") for where in asked}
            for group, asked in groups.items()
        }


Scene = Callable[[KafkaTierLog, Consumer, Owner, Admin], Awaitable[None]]


@pytest.fixture
def play() -> Callable[[Scene], None]:
    """Run a scene with a tier log that has joined."""
    consumers.clear()
    refusals.clear()

    def run(scene: Scene) -> None:
        async def joined() -> None:
            owner, admin = Owner(), Admin()
            tier_log = KafkaTierLog(
                ClientConfig(),
                admin,  # type: ignore[arg-type]
                "g.scheduler",
                consumer_class=Consumer,
            )
            await tier_log.start(["g.retry.5s"], owner)
            async with asyncio.timeout(5):
                await scene(tier_log, consumers[-1], owner, admin)
            await tier_log.close()

        asyncio.run(joined())

    return run


Play = Callable[[Scene], None]


def test_assignment_is_announced_with_its_commits_before_its_records(play: Play) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, _: Admin) -> None:
        consumer.assign(ONE)
        consumer.answers.put_nowait({ONE: [fetched(4)]})
        found = await tier_log.read(1)
        assert owner.told == [{FIRST: Committed(4, "done")}]
        assert [record.offset for record in found[FIRST]] == [4]
        consumer.answers.put_nowait({})
        await tier_log.read(1)
        assert len(owner.told) == 1, "once is enough"

    play(scene)


def test_records_received_before_the_assignment_callback_are_kept(play: Play) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, _: Admin) -> None:
        consumer.answers.put_nowait({ONE: [fetched(4)]})
        reading = asyncio.ensure_future(tier_log.read(1))
        await asyncio.sleep(0.01)
        assert not reading.done()
        consumer.assign(ONE)
        assert list(await reading) == [FIRST]
        assert owner.told == [{FIRST: Committed(4, "done")}]

    play(scene)


def test_records_of_a_revoked_assignment_are_not_returned(play: Play) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, admin: Admin) -> None:
        consumer.assign(ONE)
        admin.may_answer.clear()
        consumer.answers.put_nowait({ONE: [fetched(4)]})
        reading = asyncio.ensure_future(tier_log.read(1))
        await asyncio.sleep(0.01)
        await consumer.revoke()
        consumer.assign(ONE, OTHER)
        admin.may_answer.set()
        assert await reading == {}
        assert owner.told == [("revoked", [FIRST])], "the first was never announced"
        consumer.answers.put_nowait({ONE: [fetched(4)]})
        assert list(await tier_log.read(1)) == [FIRST]
        assert sorted(owner.told[-1]) == [FIRST, TierPartition(*OTHER)]

    play(scene)


def test_records_are_kept_while_the_commits_are_unknown(play: Play) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, admin: Admin) -> None:
        consumer.assign(ONE)
        admin.errors.append(NetworkException("no coordinator"))
        consumer.answers.put_nowait({ONE: [fetched(4)]})
        with pytest.raises(NetworkException, match="no coordinator"):
            await tier_log.read(1)
        assert owner.told == []
        assert [record.offset for record in (await tier_log.read(1))[FIRST]] == [4]
        assert owner.told == [{FIRST: Committed(4, "done")}]

    play(scene)


def test_read_does_not_wait_for_an_unfinished_rebalance(play: Play) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, _: Admin) -> None:
        consumer.answers.put_nowait({})
        assert await tier_log.read(0.01) == {}
        consumer.answers.put_nowait(GroupAuthorizationFailedError("g.scheduler"))
        with pytest.raises(GroupAuthorizationFailed):
            await tier_log.read(0.01)

    play(scene)


@pytest.mark.parametrize("refusal", [CommitFailedError("rebalanced"), IllegalStateError("not")])
def test_commit_of_a_lost_partition_raises_ownership_lost(play: Play, refusal: Exception) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, _: Admin) -> None:
        consumer.refusal = refusal
        with pytest.raises(OwnershipLost):
            await tier_log.commit(FIRST, Committed(5, "done"))
        consumer.refusal = KafkaConnectionError("gone")
        with pytest.raises(NetworkException, match="KafkaConnectionError: gone"):
            await tier_log.commit(FIRST, Committed(5, "done"))
        consumer.refusal = None
        await tier_log.commit(FIRST, Committed(5, "done"))
        assert consumer.commits == [{ONE: (5, "done")}]

    play(scene)


def test_partition_that_is_not_owned_is_neither_paused_nor_measured(play: Play) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, _: Admin) -> None:
        tier_log.pause(FIRST)
        tier_log.resume(FIRST)
        assert tier_log.end_offset(FIRST) is None

    play(scene)


def test_consumer_that_can_not_start_is_stopped_and_the_next_one_is_new(play: Play) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, _: Admin) -> None:
        refusals.append(KafkaConnectionError("nobody there"))
        with pytest.raises(NetworkException, match="nobody there"):
            await tier_log.start(["g.retry.5s"], owner)
        assert [consumer.is_stopped for consumer in consumers] == [True, True]
        await tier_log.start(["g.retry.5s"], owner)
        assert [consumer.is_stopped for consumer in consumers] == [True, True, False]

    play(scene)


def test_nothing_is_committed_but_by_the_scheduler(play: Play) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner, _: Admin) -> None:
        assert consumer.options["enable_auto_commit"] is False
        assert consumer.options["auto_offset_reset"] == "earliest"
        assert consumer.options["group_id"] == "g.scheduler"

    play(scene)
