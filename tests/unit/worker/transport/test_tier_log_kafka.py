"""What `KafkaTierLog` makes of a plain consumer: changes of the assignment come inside its polls.

A consumer that does what the test says stands in for the real one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest

from sharegroup.client import (
    CommitFailedError,
    ConsumerRecord,
    IllegalStateError,
    OffsetAndMetadata,
    TopicPartition,
)
from sharegroup.client.consume.consumer_record import BatchOrigin
from sharegroup.client.records import ConsumerGroupMetadata
from sharegroup.client.settings.client_config import ClientConfig
from sharegroup.errors import (
    GroupAuthorizationFailed,
    InvalidSessionTimeout,
    NetworkException,
    RequestTimedOut,
    UnreadableBatch,
)
from sharegroup.worker.retrying.tier_log import Committed, OwnershipLost, TierPartition, TierRecord
from sharegroup.worker.transport import assigned_offsets, tier_log_kafka
from sharegroup.worker.transport.tier_log_kafka import KafkaTierLog
from tests.support.limits import HANGING_SECONDS

ONE, OTHER = TopicPartition("g.retry.5s", 0), TopicPartition("g.retry.5s", 1)
FIRST = TierPartition(*ONE)


def fetched(offset: int) -> ConsumerRecord:
    return ConsumerRecord(BatchOrigin(ONE, 0, True), offset, 7, b"k", b"v", ())


class Consumer:
    """Stands in for the plain consumer; an answer may be an error or a step of the group."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.answers: list[Any] = []
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.coordinator_error: Exception | None = None
        self.commits: list[Any] = []
        self.paused: list[TopicPartition] = []
        self.refusal: Exception | None = None
        self.is_closed = False
        self.generation = 7
        self.committed_errors: list[tuple[int, Exception]] = []
        """Of the next questions for committed offsets, each with the generation since then."""
        self.listener: Any = None
        self.stored: dict[TopicPartition, OffsetAndMetadata | None] = {
            ONE: OffsetAndMetadata(4, "done")
        }
        consumers.append(self)

    def subscribe(self, topics: Sequence[str], listener: Any) -> None:
        self.topics, self.listener = tuple(topics), listener

    async def start(self) -> None:
        pass

    def group_metadata(self) -> ConsumerGroupMetadata:
        if self.generation < 0:
            raise CommitFailedError("this consumer is not a member")
        return ConsumerGroupMetadata("g.scheduler", self.generation, "m")

    async def close(self, timeout: float) -> None:
        self.is_closed = True
        if self.assignment:
            await self.listener.on_partitions_revoked(self.assignment)

    async def poll(self, timeout: float) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        while self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, list):
                found = answer
                break
            await answer()
        return found

    async def committed(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self.committed_errors:
            self.generation, error = self.committed_errors.pop(0)
            raise error
        return {where: self.stored.get(where) for where in partitions}

    async def commit(self, offsets: Any) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.commits.append(offsets)

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused += partitions

    def assigned(self, *partitions: TopicPartition) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            self.assignment |= set(partitions)
            await self.listener.on_partitions_assigned(frozenset(partitions))

        return step

    def taken(self, how: str, *partitions: TopicPartition) -> Callable[[], Awaitable[None]]:
        async def step() -> None:
            await getattr(self.listener, f"on_partitions_{how}")(frozenset(partitions))
            self.assignment -= set(partitions)

        return step


consumers: list[Consumer] = []


class Owner:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    async def assigned(self, partitions: Mapping[TierPartition, Committed]) -> None:
        self.told.append(dict(partitions))

    async def revoked(self, partitions: Iterable[TierPartition]) -> None:
        self.told.append(("revoked", sorted(partitions)))


Scene = Callable[[KafkaTierLog, Consumer, Owner], Awaitable[None]]


def play(scene: Scene) -> None:
    """Run a scene with a tier log that has joined."""
    consumers.clear()

    async def joined() -> None:
        owner = Owner()
        tier_log = KafkaTierLog(
            ClientConfig(),
            "g.scheduler",
            open_consumer=Consumer,  # type: ignore[arg-type]  # It stands in for the real one.
        )
        await tier_log.start(["g.retry.5s"], owner)
        async with asyncio.timeout(HANGING_SECONDS):
            await scene(tier_log, consumers[-1], owner)
        await tier_log.close()

    asyncio.run(joined())


def test_assignment_is_announced_with_its_commits_before_its_records() -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.answers += [consumer.assigned(ONE, OTHER), [fetched(4)]]
        found = await tier_log.read(1)
        assert owner.told == [{FIRST: Committed(4, "done"), TierPartition(*OTHER): Committed(0)}]
        assert found == {FIRST: [TierRecord(4, 7, b"k", b"v", ())]}

    play(scene)


@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_owner_is_told_before_the_partitions_are_gone(how: str) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.answers += [consumer.assigned(ONE), consumer.taken(how, ONE)]
        assert await tier_log.read(1) == {}
        assert owner.told[1:] == [("revoked", [FIRST])]
        with pytest.raises(OwnershipLost, match="not assigned"):
            await tier_log.commit(FIRST, Committed(5, "done"))

    play(scene)


def test_session_is_as_short_as_the_broker_allows(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        for expected in (2_000, 6_000):
            assert consumers[-1].options["session_timeout_ms"] == expected
            consumers[-1].answers.append(InvalidSessionTimeout("shorter than allowed"))
            assert await tier_log.read(1) == {}
        assert consumers[0].is_closed
        last = consumers[-1]
        assert last.options["session_timeout_ms"] == 10_000
        last.answers += [last.assigned(ONE), [fetched(4)]]
        assert await tier_log.read(1) == {FIRST: [TierRecord(4, 7, b"k", b"v", ())]}
        last.answers.append(InvalidSessionTimeout("shorter than allowed"))
        with pytest.raises(InvalidSessionTimeout):
            await tier_log.read(1)

    with caplog.at_level(logging.INFO):
        play(scene)
    assert "session_ms=6000 before=2000 reason='shorter than allowed'" in caplog.text


def test_process_that_was_taken_for_dead_asks_for_a_longer_session() -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.answers += [consumer.assigned(ONE), consumer.taken("lost", ONE)]
        assert await tier_log.read(1) == {}
        again = consumers[-1]
        assert again is not consumer
        assert again.options["session_timeout_ms"] == 10_000
        again.answers += [again.assigned(ONE), again.taken("lost", ONE)]
        assert await tier_log.read(1) == {}
        assert consumers[-1] is again, "nothing longer helps"
        assert owner.told[1:] == [("revoked", [FIRST]), owner.told[0], ("revoked", [FIRST])]

    play(scene)


def test_owner_of_a_partition_is_the_member_of_its_assignment() -> None:
    """An offset of a later generation, or of none, would not be refused."""

    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.answers.append(consumer.assigned(ONE))
        await tier_log.read(1)
        for generation in (8, -1):
            consumer.generation = generation
            assert tier_log.member_of(FIRST).generation_id == 7
        consumer.answers.append(consumer.taken("lost", ONE))
        await tier_log.read(1)
        with pytest.raises(OwnershipLost, match="not assigned"):
            tier_log.member_of(FIRST)

    play(scene)


def test_member_that_was_lost_before_it_heard_of_its_assignment_owns_nothing() -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.generation = -1
        consumer.answers.append(consumer.assigned(ONE))
        await tier_log.read(1)
        with pytest.raises(OwnershipLost, match="not assigned"):
            tier_log.member_of(FIRST)

    play(scene)


@pytest.mark.parametrize(("generation", "owned"), [(7, [FIRST]), (-1, [])])
def test_assignment_waits_for_its_offsets_or_for_the_end_of_the_membership(
    generation: int, owned: list[TierPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that raises would end the membership, and rebalance the whole group."""
    monkeypatch.setattr(assigned_offsets, "PAUSE_SECONDS", 0.001)
    silent = RequestTimedOut("silent")

    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.committed_errors = [(7, silent), (generation, silent)]
        consumer.answers.append(consumer.assigned(ONE))
        assert await tier_log.read(1) == {}
        assert [list(partitions) for partitions in owner.told] == ([owned] if owned else [])

    play(scene)


@pytest.mark.parametrize("refusal", [CommitFailedError("rebalanced"), IllegalStateError("closed")])
def test_commit_of_a_lost_partition_raises_ownership_lost(refusal: Exception) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.answers.append(consumer.assigned(ONE))
        await tier_log.read(1)
        consumer.refusal = refusal
        with pytest.raises(OwnershipLost, match=str(refusal)):
            await tier_log.commit(FIRST, Committed(5, "done"))
        consumer.refusal = NetworkException("gone")
        with pytest.raises(NetworkException, match="gone"):
            await tier_log.commit(FIRST, Committed(5, "done"))
        consumer.refusal = None
        await tier_log.commit(FIRST, Committed(5, "done"))
        assert consumer.commits == [{ONE: OffsetAndMetadata(5, "done")}]

    play(scene)


def test_errors_of_the_consumer_are_raised() -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.answers.append(GroupAuthorizationFailed("group 'g.scheduler'"))
        with pytest.raises(GroupAuthorizationFailed):
            await tier_log.read(1)
        consumer.answers.append(IllegalStateError("closed"))
        with pytest.raises(NetworkException, match="was closed"):
            await tier_log.read(1)

    play(scene)


def test_partition_with_an_unreadable_batch_waits_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.answers.append(consumer.assigned(ONE, OTHER))
        consumer.answers.append(
            UnreadableBatch(
                "bad checksum", topic=OTHER.topic, partition=1, first=5, end=9, action="seek to 9"
            )
        )
        consumer.answers.append([fetched(4)])
        assert await tier_log.read(1) == {}
        assert consumer.paused == [OTHER]
        assert list(await tier_log.read(1)) == [FIRST]
        assert consumer.commits == []

    play(scene)
    (line,) = [text for text in caplog.messages if "event=tier_unreadable" in text]
    assert "topic=g.retry.5s partition=1 first=5 end=9" in line
    assert "commit offset 9 for this group" in line


def test_silent_coordinator_is_an_error_after_a_while() -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        consumer.coordinator_error = NetworkException("nobody there")
        assert await tier_log.read(1) == {}
        tier_log._silent_at = -tier_log_kafka.SILENCE_SECONDS
        with pytest.raises(NetworkException, match="nobody there"):
            await tier_log.read(1)
        consumer.coordinator_error = None
        assert await tier_log.read(1) == {}
        assert tier_log._silent_at is None

    play(scene)


def test_partition_that_is_not_owned_is_neither_paused_nor_measured() -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        tier_log.pause(FIRST)
        tier_log.resume(FIRST)
        assert tier_log.end_offset(FIRST) is None

    play(scene)


def test_another_start_closes_the_consumer_before() -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        await tier_log.start(["g.retry.5s"], owner)
        assert [consumer.is_closed for consumer in consumers] == [True, False]
        await tier_log.close()
        assert [consumer.is_closed for consumer in consumers] == [True, True]
        with pytest.raises(NetworkException, match="was closed"):
            await tier_log.read(1)

    play(scene)


def test_nothing_is_committed_but_by_the_scheduler() -> None:
    async def scene(tier_log: KafkaTierLog, consumer: Consumer, owner: Owner) -> None:
        assert consumer.options["enable_auto_commit"] is False
        assert consumer.options["auto_offset_reset"] == "earliest"
        assert consumer.options["group_id"] == "g.scheduler"

    play(scene)
